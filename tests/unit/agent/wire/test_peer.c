#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/wire/peer.h"
#include "agent/wire/tls.h"

enum { HELLO = 1, ANSWER = 2, JOB = 4711 };

/* Both ends of the tests: a server that answers HELLO with ANSWER of the same bytes, and one client. */
struct fixture {
    uv_loop_t loop;
    uv_timer_t deadline;
    struct peer_listener *listener;
    struct peer_config server, client;
    unsigned char server_key[TLS_KEY_BYTES], client_key[TLS_KEY_BYTES];
    unsigned char *payload;
    size_t payload_bytes;
    int n_answers, n_hellos, n_server_opened, n_server_closed, n_client_closed;
    bool admit, timed_out;
    struct fsdp_err server_why, client_why;
};

static void stop(struct fixture *fixture)
{
    peer_listener_close(fixture->listener);
    fixture->listener = NULL;
    if (!uv_is_closing((uv_handle_t *)&fixture->deadline))
        uv_close((uv_handle_t *)&fixture->deadline, NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    struct fixture *fixture = timer->data;

    fixture->timed_out = true;
    uv_stop(timer->loop);
}

static void server_opened(void *arg, struct peer *peer)
{
    struct fixture *fixture = arg;

    fixture->n_server_opened++;
    if (fixture->admit)
        peer_admit(peer);
}

static void server_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    struct fixture *fixture = arg;

    fixture->n_hellos++;
    cr_assert(eq(u16, frame->type, HELLO));
    cr_assert(eq(u32, frame->generation, 3));
    peer_send(peer, ANSWER, frame->generation, frame->payload, frame->size);
}

static void server_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct fixture *fixture = arg;

    (void)peer;
    fixture->n_server_closed++;
    fixture->server_why = *why;
    stop(fixture);
}

static void client_opened(void *arg, struct peer *peer)
{
    struct fixture *fixture = arg;

    peer_admit(peer);
    peer_send(peer, HELLO, 3, fixture->payload, fixture->payload_bytes);
}

static void client_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    struct fixture *fixture = arg;

    fixture->n_answers++;
    cr_assert(eq(u16, frame->type, ANSWER));
    cr_assert(eq(sz, frame->size, fixture->payload_bytes));
    cr_assert(fixture->payload_bytes == 0 || memcmp(frame->payload, fixture->payload, frame->size) == 0);
    peer_close(peer, NULL);
}

static void client_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct fixture *fixture = arg;

    (void)peer;
    fixture->n_client_closed++;
    fixture->client_why = *why;
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = { 0 };

    uv_ip4_addr("127.0.0.1", port, &address);
    return address;
}

static void set_up(struct fixture *fixture, const char *client_secret)
{
    *fixture = (struct fixture){ .admit = true };
    uv_loop_init(&fixture->loop);
    uv_timer_init(&fixture->loop, &fixture->deadline);
    fixture->deadline.data = fixture;
    uv_timer_start(&fixture->deadline, on_deadline, 200000, 0);
    tls_derive_key(fixture->server_key, "server secret", 13, "job", NULL);
    tls_derive_key(fixture->client_key, client_secret, strlen(client_secret), "job", NULL);
    peer_config_init(&fixture->server);
    fixture->server.key = fixture->server_key;
    fixture->server.job = JOB;
    fixture->server.arg = fixture;
    fixture->server.handlers = (struct peer_handlers){ NULL, server_opened, server_frame, server_closed };
    fixture->client = fixture->server;
    fixture->client.key = fixture->client_key;
    fixture->client.handlers = (struct peer_handlers){ NULL, client_opened, client_frame, client_closed };
}

static int listen_here(struct fixture *fixture)
{
    struct sockaddr_in address = loopback(0);

    cr_assert(eq(
        int,
        peer_listen(&fixture->listener, &fixture->loop, (struct sockaddr *)&address, &fixture->server, NULL),
        FSDP_OK));
    return peer_listener_port(fixture->listener);
}

static void connect_to(struct fixture *fixture, int port)
{
    struct sockaddr_in address = loopback(port);
    struct peer *peer;

    cr_assert(eq(int,
                 peer_connect(&peer, &fixture->loop, (struct sockaddr *)&address, &fixture->client, NULL),
                 FSDP_OK));
}

static void run(struct fixture *fixture)
{
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    cr_assert(not(fixture->timed_out), "nothing happened for 20 s");
    cr_assert(eq(int, uv_loop_close(&fixture->loop), 0));
    free(fixture->payload);
}

static void exchange(size_t payload_bytes, bool insecure)
{
    struct fixture fixture;

    set_up(&fixture, "server secret");
    if (insecure)
        fixture.server.key = fixture.client.key = NULL;
    fixture.payload_bytes = payload_bytes;
    fixture.payload = calloc(1, payload_bytes + 1);
    for (size_t i = 0; i < payload_bytes; i++)
        fixture.payload[i] = (unsigned char)(i * 7);
    connect_to(&fixture, listen_here(&fixture));
    run(&fixture);
    cr_assert(eq(int, fixture.n_answers, 1));
    cr_assert(eq(int, fixture.n_client_closed, 1));
    cr_assert(eq(int, fixture.n_server_closed, 1));
    cr_assert(eq(int, fixture.client_why.status, FSDP_OK));
}

Test(peer, frames_of_any_size_come_back_whole, .timeout = 600)
{
    const size_t sizes[] = { 0, 1, 65535, 65536, 1000000, FRAME_MAX_BYTES };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        exchange(sizes[i], false);
}

Test(peer, clear_text_works_where_it_was_asked_for, .timeout = 600)
{
    exchange(1000, true);
}

Test(peer, a_wrong_secret_opens_nothing, .timeout = 600)
{
    struct fixture fixture;

    set_up(&fixture, "another secret");
    connect_to(&fixture, listen_here(&fixture));
    run(&fixture);

    cr_assert(eq(int, fixture.n_server_opened, 0));
    cr_assert(eq(int, fixture.n_hellos, 0));
    cr_assert(eq(int, fixture.server_why.status, FSDP_ERR_MISMATCH));
    cr_assert(eq(int, fixture.client_why.status, FSDP_ERR_MISMATCH));
}

Test(peer, another_jobs_frame_closes_the_connection, .timeout = 600)
{
    struct fixture fixture;

    set_up(&fixture, "server secret");
    fixture.client.job = JOB + 1;
    connect_to(&fixture, listen_here(&fixture));
    run(&fixture);

    cr_assert(eq(int, fixture.n_hellos, 0));
    cr_assert(eq(int, fixture.server_why.status, FSDP_ERR_MISMATCH));
}

Test(peer, large_frames_are_refused_before_admission, .timeout = 600)
{
    struct fixture fixture;

    set_up(&fixture, "server secret");
    fixture.admit = false;
    fixture.payload_bytes = FRAME_FIRST_MAX_BYTES + 1;
    fixture.payload = calloc(1, fixture.payload_bytes);
    connect_to(&fixture, listen_here(&fixture));
    run(&fixture);

    cr_assert(eq(int, fixture.n_hellos, 0));
    cr_assert(eq(int, fixture.server_why.status, FSDP_ERR_FORMAT));
}

Test(peer, a_connection_that_says_nothing_is_cut, .timeout = 600)
{
    struct fixture fixture;
    struct sockaddr_in address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    set_up(&fixture, "server secret");
    fixture.server.handshake_ms = 200;
    fixture.server.beat_ms = 50;
    address = loopback(listen_here(&fixture));
    cr_assert(eq(int, connect(fd, (struct sockaddr *)&address, sizeof address), 0));
    run(&fixture);

    cr_assert(eq(int, fixture.n_server_opened, 0));
    cr_assert(eq(str, fixture.server_why.message, "no handshake in time"));
    close(fd);
}

Test(peer, garbage_is_cut_at_once, .timeout = 600)
{
    struct fixture fixture;
    struct sockaddr_in address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    set_up(&fixture, "server secret");
    address = loopback(listen_here(&fixture));
    cr_assert(eq(int, connect(fd, (struct sockaddr *)&address, sizeof address), 0));
    cr_assert(eq(long, write(fd, "GET /metrics HTTP/1.1\r\n\r\n", 25), 25));
    run(&fixture);

    cr_assert(eq(int, fixture.server_why.status, FSDP_ERR_MISMATCH));
    close(fd);
}

/* A peer that stops reading and sending while the connection stands: only silence tells. */
Test(peer, silence_after_opening_loses_the_peer, .timeout = 600)
{
    struct fixture fixture;
    struct sockaddr_in address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    set_up(&fixture, "server secret");
    fixture.server.key = NULL; /* clear text: opened as soon as it is connected */
    fixture.server.beat_ms = 50;
    fixture.server.lost_ms = 300;
    address = loopback(listen_here(&fixture));
    cr_assert(eq(int, connect(fd, (struct sockaddr *)&address, sizeof address), 0));
    run(&fixture);

    cr_assert(eq(int, fixture.n_server_opened, 1));
    cr_assert(eq(int, fixture.server_why.status, FSDP_ERR_PEER));
    close(fd);
}

static void server_floods(void *arg, struct peer *peer)
{
    static const unsigned char block[FRAME_MAX_BYTES];

    (void)arg;
    for (int i = 0; i < 20; i++) /* 64 MiB may wait, and the kernel takes a few */
        peer_send(peer, ANSWER, 0, block, sizeof block);
}

Test(peer, who_does_not_take_what_is_sent_is_dropped, .timeout = 300)
{
    struct fixture fixture;
    struct sockaddr_in address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    set_up(&fixture, "server secret");
    fixture.server.key = NULL; /* clear text: opened as soon as it is connected */
    fixture.server.lost_ms = 60000;
    fixture.server.handlers.opened = server_floods;
    address = loopback(listen_here(&fixture));
    cr_assert(eq(int, connect(fd, (struct sockaddr *)&address, sizeof address), 0));
    run(&fixture);

    cr_assert(eq(str, fixture.server_why.message, "does not take what is sent to it"));
    close(fd);
}

Test(peer, a_refused_connection_is_told_by_closed, .timeout = 600)
{
    struct fixture fixture;
    int port;

    set_up(&fixture, "server secret");
    port = listen_here(&fixture);
    stop(&fixture);
    uv_run(&fixture.loop, UV_RUN_DEFAULT);
    connect_to(&fixture, port);
    run(&fixture);

    cr_assert(eq(int, fixture.n_client_closed, 1));
    cr_assert(eq(int, fixture.client_why.status, FSDP_ERR_PEER));
}

/* --- strangers */

enum { MOST = PEER_MAX_UNPROVEN, MOST_OF_SOURCE = PEER_MAX_UNPROVEN_OF_SOURCE };

/* Clients that never prove themselves, in the order in which they come, and those that were cut. */
struct crowd {
    struct fixture fixture;
    struct sockaddr_in server;
    int fds[2 * MOST], n;
    char names[2 * MOST][80];
    char cut[2 * MOST][80];
    int n_cut, n_accepted;
};

static void crowd_accepted(void *arg, struct peer *peer)
{
    struct crowd *crowd = arg;

    (void)peer;
    crowd->n_accepted++;
}

static void crowd_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct crowd *crowd = arg;

    (void)why;
    snprintf(crowd->cut[crowd->n_cut++], sizeof *crowd->cut, "%s", peer_name(peer));
}

static void open_crowd(struct crowd *crowd)
{
    *crowd = (struct crowd){ 0 };
    set_up(&crowd->fixture, "");
    crowd->fixture.server.handshake_ms = 600000;
    crowd->fixture.server.arg = crowd;
    crowd->fixture.server.handlers = (struct peer_handlers){ crowd_accepted, NULL, NULL, crowd_closed };
    crowd->server = loopback(listen_here(&crowd->fixture));
}

/* `n` more from 127.0.0.`source`. When it returns each has been taken, and what it said was read. */
static void come(struct crowd *crowd, int n, int source, bool say)
{
    struct sockaddr_in from = loopback(0);
    socklen_t length = sizeof from;
    char host[32];

    snprintf(host, sizeof host, "127.0.0.%d", source);
    for (int i = 0; i < n; i++) {
        const int me = crowd->n++, fd = crowd->fds[me] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        uv_ip4_addr(host, 0, &from);
        cr_assert(eq(int, bind(fd, (struct sockaddr *)&from, sizeof from), 0));
        cr_assert(eq(int, connect(fd, (struct sockaddr *)&crowd->server, sizeof crowd->server), 0));
        cr_assert(eq(int, getsockname(fd, (struct sockaddr *)&from, &length), 0));
        snprintf(crowd->names[me], sizeof *crowd->names, "%s:%d", host, ntohs(from.sin_port));
        if (say)
            cr_assert(eq(long, write(fd, "\x16", 1), 1)); /* as a handshake begins */
        while (crowd->n_accepted < crowd->n)
            uv_run(&crowd->fixture.loop, UV_RUN_ONCE);
        for (int turn = 0; turn < 3; turn++)
            uv_run(&crowd->fixture.loop, UV_RUN_NOWAIT);
    }
}

static void close_crowd(struct crowd *crowd)
{
    stop(&crowd->fixture);
    run(&crowd->fixture);
    for (int i = 0; i < crowd->n; i++)
        close(crowd->fds[i]);
}

Test(peer, a_source_that_holds_all_it_may_loses_its_oldest_silent_one, .timeout = 600)
{
    struct crowd crowd;

    open_crowd(&crowd);
    come(&crowd, 1, 1, false);
    come(&crowd, 1, 2, true);
    come(&crowd, MOST_OF_SOURCE - 1, 2, false);
    cr_assert(eq(int, crowd.n_cut, 0));
    come(&crowd, 2, 2, false);

    cr_assert(eq(int, crowd.n_cut, 2));
    cr_assert(eq(str, crowd.cut[0], crowd.names[2]), "neither the other source's nor the one that spoke");
    cr_assert(eq(str, crowd.cut[1], crowd.names[3]));
    close_crowd(&crowd);
}

Test(peer, who_spoke_goes_when_all_of_its_source_did, .timeout = 600)
{
    struct crowd crowd;

    open_crowd(&crowd);
    come(&crowd, MOST_OF_SOURCE + 1, 2, true);

    cr_assert(eq(int, crowd.n_cut, 1));
    cr_assert(eq(str, crowd.cut[0], crowd.names[0]));
    close_crowd(&crowd);
}

Test(peer, many_sources_hold_no_more_than_there_is_room_for, .timeout = 600)
{
    struct crowd crowd;

    open_crowd(&crowd);
    for (int i = 0; i < MOST; i++)
        come(&crowd, 1, 2 + i, i == 0);
    cr_assert(eq(int, crowd.n_cut, 0));
    come(&crowd, 1, 1, false);

    cr_assert(eq(int, crowd.n_cut, 1));
    cr_assert(eq(str, crowd.cut[0], crowd.names[1]));
    close_crowd(&crowd);
}
