#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/wire/peer.h"
#include "agent/wire/tls.h"
#include "agent/wire/tls_library.h"

enum { HELLO = 1, ANSWER = 2, JOB = 4711 };

/* Both ends of the tests: a server that answers HELLO with ANSWER of the same bytes, and one client. */
static uv_loop_t loop;
static uv_timer_t deadline;
static struct peer_listener *listener;
static struct peer_config server, client;
static unsigned char scratch[PEER_SCRATCH_BYTES];
static struct tls_context *server_tls, *client_tls, *other_tls;
static unsigned char *payload;
static size_t payload_bytes;
static int n_answers, n_hellos, n_server_opened, n_server_sent, n_server_closed, n_client_closed;
static bool admit, timed_out;
static struct fsdp_err server_why, client_why;

static void stop(void)
{
    peer_listener_close(listener);
    listener = NULL;
    if (!uv_is_closing((uv_handle_t *)&deadline))
        uv_close((uv_handle_t *)&deadline, NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    timed_out = true;
    uv_stop(timer->loop);
}

static void server_opened(void *arg, struct peer *peer)
{
    n_server_opened++;
    if (admit)
        peer_admit(peer);
}

static void server_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    n_hellos++;
    cr_assert(eq(u16, frame->type, HELLO));
    cr_assert(eq(u32, frame->generation, 3));
    peer_send(peer,
              &(struct frame){ ANSWER, frame->generation, .payload = frame->payload, .size = frame->size });
}

static void server_sent(void *arg, struct peer *peer)
{
    n_server_sent++;
}

static void server_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    n_server_closed++;
    server_why = *why;
    stop();
}

static void client_opened(void *arg, struct peer *peer)
{
    peer_admit(peer);
    peer_send(peer, &(struct frame){ HELLO, 3, .payload = payload, .size = (uint32_t)payload_bytes });
}

static void client_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    n_answers++;
    cr_assert(eq(u16, frame->type, ANSWER));
    cr_assert(eq(sz, frame->size, payload_bytes));
    cr_assert(payload_bytes == 0 || memcmp(frame->payload, payload, frame->size) == 0);
    peer_close(peer, NULL);
}

static void client_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    n_client_closed++;
    client_why = *why;
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = { 0 };

    uv_ip4_addr("127.0.0.1", port, &address);
    return address;
}

static struct tls_context *make_context(bool is_server, const char *secret)
{
    unsigned char key[TLS_KEY_BYTES];
    struct tls_context *context;

    tls_derive_key(key, secret, strlen(secret), "job", NULL);
    cr_assert(eq(int, tls_context_create(&context, is_server, key, NULL), FSDP_OK));
    return context;
}

static void set_up(void)
{
    admit = true;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &deadline);
    uv_timer_start(&deadline, on_deadline, 200000, 0);
    if (server_tls == NULL) {
        server_tls = make_context(true, "a secret");
        client_tls = make_context(false, "a secret");
        other_tls = make_context(false, "another secret");
    }
    peer_config_init(&server);
    server.tls = server_tls;
    server.scratch = scratch;
    server.job = JOB;
    server.handlers = (struct peer_handlers){ NULL, server_opened, server_frame, server_sent, server_closed };
    client = server;
    client.tls = client_tls;
    client.handlers = (struct peer_handlers){ NULL, client_opened, client_frame, NULL, client_closed };
}

static void tear_down(void)
{
    tls_context_destroy(server_tls);
    tls_context_destroy(client_tls);
    tls_context_destroy(other_tls);
}

TestSuite(peer, .init = set_up, .fini = tear_down, .timeout = 600);

static int listen_here(void)
{
    struct sockaddr_in address = loopback(0);

    cr_assert(eq(int, peer_listen(&listener, &loop, (struct sockaddr *)&address, &server, NULL), FSDP_OK));
    return peer_listener_port(listener);
}

static void connect_to(int port)
{
    struct sockaddr_in address = loopback(port);
    struct peer *peer;

    cr_assert(eq(int, peer_connect(&peer, &loop, (struct sockaddr *)&address, &client, NULL), FSDP_OK));
}

static void run(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(not(timed_out), "nothing happened for 200 s");
    cr_assert(eq(int, uv_loop_close(&loop), 0));
    free(payload);
}

/* A client that says HELLO, until the server has closed. */
static void meet(size_t n)
{
    payload_bytes = n;
    payload = calloc(1, n + 1);
    for (size_t i = 0; i < n; i++)
        payload[i] = (unsigned char)(i * 7 + i / 4093);
    connect_to(listen_here());
    run();
}

static void exchange(size_t n)
{
    n_answers = n_client_closed = n_server_closed = 0;
    meet(n);
    cr_assert(n_answers == 1 && n_client_closed == 1 && n_server_closed == 1);
    cr_assert(eq(int, client_why.status, FSDP_OK));
}

Test(peer, frames_of_any_size_come_back_whole)
{
    const size_t sizes[] = { 0, 1, 65535, 65536, 1000000, FRAME_MAX_BYTES };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (i > 0)
            set_up();
        exchange(sizes[i]);
    }
}

Test(peer, clear_text_works_where_it_was_asked_for)
{
    const size_t sizes[] = { 1000, FRAME_MAX_BYTES };

    for (int i = 0; i < 2; i++) {
        if (i > 0)
            set_up();
        server.tls = client.tls = NULL;
        exchange(sizes[i]);
    }
}

/* Most frames are small, and the kernel has room for them: no further turn of the loop is spent on them. */
Test(peer, a_frame_that_the_kernel_takes_at_once_is_not_queued)
{
    exchange(100);

    cr_assert(eq(int, n_server_sent, 0));
}

Test(peer, a_wrong_secret_opens_nothing)
{
    client.tls = other_tls;
    meet(0);

    cr_assert(n_server_opened == 0 && n_hellos == 0);
    cr_assert(server_why.status == FSDP_ERR_MISMATCH && client_why.status == FSDP_ERR_MISMATCH);
}

Test(peer, another_jobs_frame_closes_the_connection)
{
    client.job = JOB + 1;
    meet(0);

    cr_assert(n_hellos == 0 && server_why.status == FSDP_ERR_MISMATCH);
}

Test(peer, large_frames_are_refused_before_admission)
{
    admit = false;
    meet(FRAME_FIRST_MAX_BYTES + 1);

    cr_assert(n_hellos == 0 && server_why.status == FSDP_ERR_FORMAT);
}

/* A client of plain sockets, which sends these bytes and reads nothing, until the server has closed. */
static void meet_plain(const char *bytes)
{
    struct sockaddr_in address = loopback(listen_here());
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert(eq(int, connect(fd, (struct sockaddr *)&address, sizeof address), 0));
    cr_assert(eq(long, write(fd, bytes, strlen(bytes)), (long)strlen(bytes)));
    run();
    close(fd);
}

Test(peer, a_connection_that_says_nothing_is_cut)
{
    server.handshake_ms = 200;
    meet_plain("");

    cr_assert(eq(int, n_server_opened, 0));
    cr_assert(eq(str, server_why.message, "no handshake in time"));
}

static void stand_still(void *arg, struct peer *peer)
{
    uv_sleep(600); /* the fault: this loop stands still for longer than both ends allow for a handshake */
}

Test(peer, a_loop_that_stood_still_blames_no_one)
{
    server.handshake_ms = client.handshake_ms = 300;
    server.handlers.accepted = stand_still;
    exchange(10);
}

Test(peer, garbage_is_cut_at_once)
{
    meet_plain("GET /metrics HTTP/1.1\r\n\r\n");

    cr_assert(eq(int, server_why.status, FSDP_ERR_MISMATCH));
}

static void server_floods(void *arg, struct peer *peer)
{
    static const unsigned char block[FRAME_MAX_BYTES];

    for (int i = 0; i < 20; i++) /* 64 MiB may wait, and the kernel takes a few */
        peer_send(peer, &(struct frame){ ANSWER, .payload = block, .size = sizeof block });
}

Test(peer, who_does_not_take_what_is_sent_is_dropped)
{
    server.tls = NULL; /* clear text: opened as soon as it is connected */
    server.handlers.opened = server_floods;
    meet_plain("");

    cr_assert(eq(str, server_why.message, "does not take what is sent to it"));
}

Test(peer, a_refused_connection_is_told_by_closed)
{
    const int port = listen_here();

    stop();
    uv_run(&loop, UV_RUN_DEFAULT);
    connect_to(port);
    run();

    cr_assert(n_client_closed == 1 && client_why.status == FSDP_ERR_NOT_FOUND);
}

/* Strangers */

enum { MOST = PEER_MAX_UNPROVEN, MOST_OF_SOURCE = PEER_MAX_UNPROVEN_OF_SOURCE };

/* Clients that never prove themselves, in the order in which they come, and those that were cut. */
enum { EXPECTED = 200, CROWD = 2 * MOST + EXPECTED };
static int fds[CROWD], n_came, n_cut, n_accepted;
static char names[CROWD][80], cut[CROWD][80];
static struct sockaddr_in crowded; /* the server */

static void crowd_accepted(void *arg, struct peer *peer)
{
    n_accepted++;
}

static void crowd_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    snprintf(cut[n_cut++], sizeof *cut, "%s", peer_name(peer));
}

static void open_crowd(void)
{
    set_up();
    server.handshake_ms = 600000;
    server.handlers = (struct peer_handlers){ crowd_accepted, NULL, NULL, NULL, crowd_closed };
    crowded = loopback(listen_here());
}

/* `n` more from 127.0.0.`source`. When it returns each has been taken, and what it said was read. */
static void come(int n, int source, bool say)
{
    struct sockaddr_in from = loopback(0);
    socklen_t length = sizeof from;
    char host[32];

    snprintf(host, sizeof host, "127.0.0.%d", source);
    for (int i = 0; i < n; i++) {
        const int me = n_came++, fd = fds[me] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        uv_ip4_addr(host, 0, &from);
        cr_assert(eq(int, bind(fd, (struct sockaddr *)&from, sizeof from), 0));
        cr_assert(eq(int, connect(fd, (struct sockaddr *)&crowded, sizeof crowded), 0));
        cr_assert(eq(int, getsockname(fd, (struct sockaddr *)&from, &length), 0));
        snprintf(names[me], sizeof *names, "%s:%d", host, ntohs(from.sin_port));
        if (say)
            cr_assert(eq(long, write(fd, "\x16", 1), 1)); /* as a handshake begins */
        while (n_accepted < n_came)
            uv_run(&loop, UV_RUN_ONCE);
        for (int turn = 0; turn < 3; turn++)
            uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void close_crowd(void)
{
    stop();
    for (int i = 0; i < n_came; i++) /* those that were admitted end with their other end */
        close(fds[i]);
    run();
}

TestSuite(peer_crowd, .init = open_crowd, .fini = close_crowd, .timeout = 600);

Test(peer_crowd, a_source_that_holds_all_it_may_loses_its_oldest_silent_one)
{
    come(1, 1, false);
    come(1, 2, true);
    come(MOST_OF_SOURCE - 1, 2, false);
    cr_assert(eq(int, n_cut, 0));
    come(2, 2, false);

    cr_assert(eq(int, n_cut, 2));
    cr_assert(eq(str, cut[0], names[2]), "neither the other source's nor the one that spoke");
    cr_assert(eq(str, cut[1], names[3]));
}

Test(peer_crowd, who_spoke_goes_when_all_of_its_source_did)
{
    come(MOST_OF_SOURCE + 1, 2, true);

    cr_assert(eq(int, n_cut, 1));
    cr_assert(eq(str, cut[0], names[0]));
}

Test(peer_crowd, many_sources_hold_no_more_than_there_is_room_for)
{
    for (int i = 0; i < MOST; i++)
        come(1, 2 + i, i == 0);
    cr_assert(eq(int, n_cut, 0));
    come(1, 1, false);

    cr_assert(eq(int, n_cut, 1));
    cr_assert(eq(str, cut[0], names[1]));
}

Test(peer_crowd, as_many_more_may_come_at_once_from_one_source_as_are_expected)
{
    peer_listener_close(listener);
    crowded = loopback(listen_here());
    peer_listener_expect(listener, EXPECTED);
    come(MOST_OF_SOURCE + EXPECTED, 2, false);
    cr_assert(eq(int, n_cut, 0));
    come(1, 2, false);
    cr_assert(eq(int, n_cut, 1), "strangers are still limited");
    come(MOST - MOST_OF_SOURCE, 3, false);
    cr_assert(eq(int, n_cut, 1));
    come(1, 4, false);
    cr_assert(eq(int, n_cut, 2), "from other sources too");
}

static int n_to_admit;

static void admit_first(void *arg, struct peer *peer)
{
    if (n_to_admit-- > 0)
        peer_admit(peer);
}

Test(peer_crowd, who_was_admitted_does_not_count_and_who_is_not_expected_any_more_has_no_room)
{
    peer_listener_close(listener);
    server.tls = NULL; /* clear text: opened as soon as it is connected */
    server.handlers.opened = admit_first;
    n_to_admit = 3;
    crowded = loopback(listen_here());
    peer_listener_expect(listener, 1);
    come(3 + MOST_OF_SOURCE, 2, false);
    cr_assert(eq(int, n_cut, 0), "the three do not count");
    come(1, 2, false);
    cr_assert(eq(int, n_cut, 0), "one is expected");
    peer_listener_expect(listener, 0);
    come(1, 2, false);
    cr_assert(eq(int, n_cut, 1));
}

/* A listener without memory */

static struct tls_library *openssl;
static __typeof__(&SSL_new) real_new;
static int n_refused;

static SSL *refuse_once(SSL_CTX *context)
{
    openssl->SSL_new = real_new;
    n_refused++;
    return NULL;
}

Test(peer_crowd, who_could_not_be_taken_is_taken_in_the_next_turn)
{
    const struct tls_library *library;

    cr_assert(eq(int, tls_library_open(&library, NULL), FSDP_OK));
    openssl = (struct tls_library *)(uintptr_t)library;
    real_new = openssl->SSL_new;
    for (int i = 1; i <= 3; i++) {
        openssl->SSL_new = refuse_once;
        come(1, 1, false); /* returns once it was accepted */
        cr_assert(eq(int, n_refused, i));
    }

    cr_assert(eq(int, n_accepted, 3));
    cr_assert(eq(int, n_cut, 0));
}
