#include "agent/tcpstore/tcpstore.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

enum { N_CLIENTS = 8, N_HELD = 256 };

static uv_loop_t loop;
static struct tcpstore *store;
static int n_came, n_said, clients[N_CLIENTS], held[N_HELD], n_held;
static char said[256];

static void on_said(void *arg, const char *words)
{
    n_said++;
    snprintf(said, sizeof said, "%s", words);
}

static void on_came(void *arg, const struct sockaddr_storage *from, unsigned long inode)
{
    n_came++;
}

static void open_store(void)
{
    struct sockaddr_in loopback = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct addrinfo at = { .ai_family = AF_INET,
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_addr = (struct sockaddr *)&loopback,
                                 .ai_addrlen = sizeof loopback };
    const struct tcpstore_config config = { .host = "localhost", .at = &at, .say = on_said, .came = on_came };
    struct fsdp_err err = { 0 };

    cr_assert_eq(tcpstore_open(&store, &loop, &config, &err), FSDP_OK, "%s", err.message);
}

/* The kernel finishes the handshake: they are connected before the store accepts them. */
static void connect_clients(void)
{
    const struct sockaddr_in at = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)tcpstore_port(store)),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    for (int i = 0; i < N_CLIENTS; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert(clients[i] >= 0 && connect(clients[i], (const struct sockaddr *)&at, sizeof at) == 0);
    }
}

/* Every descriptor that this process may have. */
static void hold_descriptors(void)
{
    const struct rlimit few = { .rlim_cur = N_HELD, .rlim_max = N_HELD };
    int fd;

    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        held[n_held++] = fd;
}

static void let_descriptors_go(void)
{
    while (n_held > 0)
        close(held[--n_held]);
}

static void on_tick(uv_timer_t *timer)
{
}

/* How often the loop wakes within so many milliseconds. */
static int count_turns(int ms)
{
    const int64_t until_ms = clock_now_ms() + ms;
    uv_timer_t tick; /* so that it wakes at all */
    int n = 0;

    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 50, 50);
    for (; clock_now_ms() < until_ms; n++)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return n;
}

static void run_until_all_came(void)
{
    const int64_t until_ms = clock_now_ms() + 300000;

    while (n_came < N_CLIENTS && clock_now_ms() < until_ms)
        uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(n_came, N_CLIENTS);
}

/* More clients than there are descriptors for have come. */
static void begin(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    open_store();
    connect_clients();
    hold_descriptors();
}

/* It may be closed while it waits for descriptors: nothing is left of the pause. */
static void end(void)
{
    tcpstore_close(store);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle was left open");
    let_descriptors_go();
    for (int i = 0; i < N_CLIENTS; i++)
        close(clients[i]);
}

TestSuite(tcpstore, .init = begin, .fini = end, .timeout = 600);

Test(tcpstore, a_storm_beyond_the_descriptors_waits_and_nothing_spins)
{
    /* The tick wakes the loop 20 times a second, the pause 10 times, and each try of an accept once more. */
    const int turns = count_turns(1000);

    cr_expect_leq(turns, 60, "%d turns of the loop in a second", turns);
    cr_expect_eq(n_came, 0);
    cr_expect_eq(n_said, 1, "said once, however often it is tried");
    cr_expect_not_null(strstr(said, "cannot take more connections"), "%s", said);

    let_descriptors_go();
    run_until_all_came();
    cr_expect_eq(n_said, 1, "%s", said);
}

Test(tcpstore, a_paused_listener_can_be_closed)
{
    count_turns(200);
    cr_expect_eq(n_said, 1);
}
