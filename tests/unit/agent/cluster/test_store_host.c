/* A node has the store of a generation: where it listens, and who comes to it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/cluster/store_host.h"

enum { N_WORKERS = 8 };

static pid_t workers[N_WORKERS];

/* A worker writes a byte once it is connected, and stays. */
static _Noreturn void connect_and_stay(int port, int ready)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 || write(ready, "x", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static void start_workers(int port)
{
    char bytes[N_WORKERS];
    int ready[2];
    size_t n = 0;

    cr_assert(eq(int, pipe(ready), 0));
    for (int i = 0; i < N_WORKERS; i++) {
        workers[i] = fork();
        cr_assert(ge(int, workers[i], 0));
        if (workers[i] == 0)
            connect_and_stay(port, ready[1]);
    }
    close(ready[1]);
    while (n < N_WORKERS) {
        const ssize_t more = read(ready[0], bytes + n, N_WORKERS - n);

        cr_assert(gt(int, (int)more, 0), "a worker cannot connect");
        n += (size_t)more;
    }
    close(ready[0]);
}

static uv_loop_t loop;
static struct store_host *host;
static struct proto_open order;
static char guests[256];
/* What it reported: the last answer to an order, the workers that came, and whether all of the node have. */
static struct reporter_store answer, changed;
static pid_t came[N_WORKERS];
static int n_came;
static bool all_came;

static void take(void *to, int generation, const struct reporter_store *report)
{
    cr_assert(to == &loop && generation == 7 && report->question == order.question);
    if (report->kind == REPORTER_STORE_CHANGED) {
        changed = *report;
    } else if (report->kind != REPORTER_STORE_CAME) {
        answer = *report;
    } else if (report->pid == 0) {
        all_came = true;
    } else {
        cr_assert(lt(int, n_came, N_WORKERS));
        came[n_came++] = report->pid;
    }
}

static void ignore(void *arg, const char *words)
{
}

static void add_guest(int node, int n_workers, const char *address)
{
    order.guests = guests;
    order.guests_bytes = proto_add_guest(guests, sizeof guests, order.guests_bytes,
                                         &(struct proto_guest){ node, n_workers, address, "" });
    cr_assert(gt(sz, order.guests_bytes, 0));
}

static void begin(void)
{
    static struct reporter reporter = { .to = &loop, .store = take };

    uv_loop_init(&loop);
    host = store_host_create(&loop, &reporter, ignore, NULL);
    cr_assert_not_null(host);
    order = (struct proto_open){ .question = 5, .address = "127.0.0.1", .alone = true };
}

/* Opens it, and waits for the answer. */
static void open_it(void)
{
    answer = (struct reporter_store){ 0 };
    store_host_open(host, 7, &order);
    while (answer.kind == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static void end(void)
{
    for (int i = 0; i < N_WORKERS; i++)
        if (workers[i] > 0) {
            kill(workers[i], SIGKILL);
            waitpid(workers[i], NULL, 0);
        }
    store_host_destroy(host);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(eq(int, uv_loop_close(&loop), 0));
}

TestSuite(store_host, .init = begin, .fini = end, .timeout = 300);

Test(store_host, workers_that_come_are_each_known)
{
    add_guest(0, N_WORKERS, "127.0.0.1");
    open_it();
    cr_assert(answer.kind == REPORTER_STORE_OPEN && strcmp(answer.words, "127.0.0.1") == 0, "%s",
              answer.words);
    cr_assert(eq(int, store_host_generation(host), 7));
    start_workers(answer.port);
    while (!all_came)
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(eq(int, n_came, N_WORKERS));
    for (int i = 0; i < N_WORKERS; i++) {
        bool known = false;

        for (int k = 0; k < n_came; k++)
            known = known || came[k] == workers[i];
        cr_assert(known, "worker %d", i);
    }
    store_host_look(host);
    cr_assert(changed.kind == REPORTER_STORE_CHANGED && changed.ago_ns >= 0);
}

/* Another agent of this host: its workers are told from those of this node by their address. */
Test(store_host, a_node_that_is_no_longer_alone_serves_the_others)
{
    order.alone = false;
    order.self = 3;
    add_guest(1, N_WORKERS, "127.0.0.1");
    add_guest(3, 1, "127.0.0.2");
    open_it();
    cr_assert(eq(int, (int)answer.kind, REPORTER_STORE_OPEN), "%s", answer.words);
    start_workers(answer.port);
    while (n_came + all_came < 1)
        uv_run(&loop, UV_RUN_ONCE);
}

/* The first host has gone, and the address that the user gave with it. */
Test(store_host, an_address_of_another_host_is_not_used_unless_it_must_be)
{
    order.alone = false;
    snprintf(order.named, sizeof order.named, "192.0.2.1");
    add_guest(0, 1, "127.0.0.1");
    open_it();
    cr_assert(answer.kind == REPORTER_STORE_OPEN && strcmp(answer.words, "127.0.0.1") == 0, "%s",
              answer.words);

    order.must = true;
    open_it();
    cr_assert(eq(int, (int)answer.kind, REPORTER_STORE_FAILED));
    cr_assert(
        eq(str, answer.words, "the key-value store cannot listen on 192.0.2.1: no address of this host"));
    cr_assert(eq(int, store_host_generation(host), -1));
}

Test(store_host, a_name_that_no_server_knows_is_not_used_unless_it_must_be)
{
    order.alone = false;
    snprintf(order.named, sizeof order.named, "no-such-host.invalid");
    add_guest(0, 1, "127.0.0.1");
    open_it();
    cr_assert(eq(int, (int)answer.kind, REPORTER_STORE_OPEN), "%s", answer.words);

    order.must = true;
    open_it();
    cr_assert(eq(int, (int)answer.kind, REPORTER_STORE_FAILED));
    cr_assert_not_null(strstr(answer.words, "the key-value store cannot listen on no-such-host.invalid: "));
}

Test(store_host, the_next_generation_gets_another_port)
{
    int port;

    add_guest(0, 1, "127.0.0.1");
    open_it();
    port = answer.port;
    open_it();
    cr_assert(answer.kind == REPORTER_STORE_OPEN && answer.port != port);
}

Test(store_host, a_closed_one_has_no_store)
{
    add_guest(0, 1, "127.0.0.1");
    open_it();
    store_host_close(host);
    cr_assert(eq(int, store_host_generation(host), -1));
    store_host_look(host);
    cr_assert(eq(int, (int)changed.kind, 0));
}

Test(store_host, an_order_in_which_it_takes_no_part_fails)
{
    order.self = 2;
    add_guest(0, 1, "127.0.0.1");
    open_it();
    cr_assert(eq(int, (int)answer.kind, REPORTER_STORE_FAILED));
}
