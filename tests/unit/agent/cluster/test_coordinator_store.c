/* The workers of this node come to the store that the coordinator opened for them. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/agent/cluster/stage.h"

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

static void kill_and_end(void)
{
    for (int i = 0; i < N_WORKERS; i++)
        if (workers[i] > 0) {
            kill(workers[i], SIGKILL);
            waitpid(workers[i], NULL, 0);
        }
    end();
}

TestSuite(coordinator_store, .init = make_config, .fini = kill_and_end, .timeout = 300);

Test(coordinator_store, workers_that_come_together_cost_one_search_and_each_is_known)
{
    config.n_workers = N_WORKERS;
    begin(1, 1, 0, 1);
    wait_for(1);
    cr_assert(eq(int, attendance_complete(&coordinator->attendance), 0));
    start_workers(actors[0].plan.master_port);
    while (!attendance_complete(&coordinator->attendance))
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(eq(int, coordinator->n_searches, 1));
    cr_assert(eq(int, coordinator->n_vain_searches, 0));
    for (int i = 0; i < N_WORKERS; i++) {
        bool known = false;

        for (int k = 0; k < coordinator->attendance.nodes[0].n_known; k++)
            known = known || coordinator->attendance.nodes[0].known[k] == workers[i];
        cr_assert(known, "worker %d", i);
    }
    cr_assert(eq(sz, coordinator->sockets.n_entries, 0), "all have come, and none is looked for any more");
}
