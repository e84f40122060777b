/*
 * bench_comm JSON_FILE: all-gather and reduce-scatter of 1, 4 and 64 MiB between 2 and 4 processes of this host.
 *
 * The figure is the size of the whole buffer (gathered, or reduced) over the time from the first rank's start to the last
 * one's end. Limit: as many
 * processes, each copying as many bytes from one buffer of its own to another, at once. Peer: gloo through the Python
 * with PyTorch that FSDP_BENCH_PYTHON names. All three take turns; a turn is as many collectives as move 64 MiB, 16 at
 * most, one after the other, so that it measures them and not how long a process takes to wake up; each of them on
 * memory of its own, as in training, where nothing of a parameter is left in the cache from its last use.
 */
#include <fcntl.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"
#include "tests/bench/ranks.h"
#include "tests/bench/report.h"
#include "tests/bench/runs.h"
#include "tests/support/mini_agent.h"

enum { MOST = 4, BYTES_MAX = 64 << 20, RUNS = 31 };

enum op { ALL_GATHER, REDUCE_SCATTER, COPY };

struct order {
    enum op op;
    int turns;
    size_t bytes;
};

/* When a rank began and ended its turn, CLOCK_MONOTONIC. */
struct span {
    double start, end;
};

/* One process of either kind: orders go down, spans come up. */
struct worker {
    pid_t pid;
    int orders, spans;
};

static struct mini_agent agent;
static struct {
    int W;
    int orders[MOST][2], spans[MOST][2];
} pipes;

static int turns_of(size_t bytes)
{
    const size_t n = (64 << 20) / bytes;

    return n > 16 ? 16 : (int)n;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* --- a rank of ours -------------------------------------------------------------------------------------- */

static float *touched(void)
{
    float *at = aligned_alloc(1 << 21, BYTES_MAX);

    if (at == NULL)
        die("buffer");
    madvise(at, BYTES_MAX, MADV_HUGEPAGE);
    memset(at, 0, BYTES_MAX);
    return at;
}

static enum fsdp_status once(struct fsdp_comm *comm, enum op op, size_t bytes, float *a, float *b,
                             struct fsdp_err *err)
{
    const size_t n = bytes / sizeof(float) / (size_t)fsdp_comm_size(comm);

    if (op == ALL_GATHER)
        return fsdp_all_gather(comm, a, b, n, FSDP_F32, NULL, err);
    if (op == REDUCE_SCATTER)
        return fsdp_reduce_scatter(comm, b, a, n, FSDP_F32, FSDP_SUM, NULL, err);
    memcpy(b, a, bytes);
    __asm__ volatile("" : : "r"(a), "r"(b) : "memory"); /* every copy is made */
    return FSDP_OK;
}

static enum fsdp_status obey(struct fsdp_comm *comm, const struct order *order, float *a, float *b,
                             struct span *span, struct fsdp_err *err)
{
    enum fsdp_status status = fsdp_barrier(comm, err);

    if (status == FSDP_OK)
        status = fsdp_barrier(comm, err); /* the first woke everyone up */
    span->start = report_now();
    for (int i = 0; i < order->turns && status == FSDP_OK; i++)
        status = once(comm, order->op, order->bytes, a + (size_t)i * order->bytes / sizeof *a,
                      b + (size_t)i * order->bytes / sizeof *b, err);
    span->end = report_now();
    return status;
}

static int rank_main(int rank, void *arg)
{
    struct comm_config config = { .name = "bench", .rank = rank, .size = pipes.W };
    struct fsdp_comm *comm = NULL;
    struct link *link = NULL;
    struct fsdp_err err = { 0 };
    struct order order;
    float *a, *b;

    (void)arg;
    for (int r = 0; r < pipes.W; r++) {
        if (r != rank)
            close(pipes.orders[r][0]), close(pipes.spans[r][1]);
    }
    if (link_open(&link, &err) != FSDP_OK ||
        (config.link = link, comm_create(&comm, &config, &err)) != FSDP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    rank_pin(rank);
    a = touched();
    b = touched();
    while (read(pipes.orders[rank][0], &order, sizeof order) == sizeof order) {
        struct span span;

        if (obey(comm, &order, a, b, &span, &err) != FSDP_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        if (write(pipes.spans[rank][1], &span, sizeof span) != sizeof span)
            return 1;
    }
    fsdp_comm_destroy(comm);
    link_close(link);
    return 0;
}

/* The agent and its ranks, below a process of their own. */
static void start_ours(struct worker *workers, int W)
{
    pid_t pid;

    pipes.W = W;
    for (int r = 0; r < W; r++)
        if (pipe(pipes.orders[r]) < 0 || pipe(pipes.spans[r]) < 0)
            die("pipe");
    pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        memset(&agent, 0, sizeof agent);
        agent.W = W;
        agent.n_nodes = 1;
        for (int r = 0; r < W; r++) /* the bench's ends: a rank must see them close */
            close(pipes.orders[r][1]), close(pipes.spans[r][0]);
        mini_run(&agent, rank_main, NULL);
        exit(0);
    }
    for (int r = 0; r < W; r++) {
        close(pipes.orders[r][0]), close(pipes.spans[r][1]);
        workers[r] = (struct worker){ .pid = r == 0 ? pid : 0,
                                      .orders = pipes.orders[r][1],
                                      .spans = pipes.spans[r][0] };
    }
}

/* Seconds of one collective of a turn: from the first start to the last end. */
static double seconds_of(const struct span *spans, int W, size_t bytes)
{
    struct span all = spans[0];

    for (int r = 1; r < W; r++) {
        all.start = spans[r].start < all.start ? spans[r].start : all.start;
        all.end = spans[r].end > all.end ? spans[r].end : all.end;
    }
    return (all.end - all.start) / turns_of(bytes);
}

static double run_ours(struct worker *workers, int W, enum op op, size_t bytes)
{
    const struct order order = { .op = op, .turns = turns_of(bytes), .bytes = bytes };
    struct span spans[MOST];

    for (int r = 0; r < W; r++)
        if (write(workers[r].orders, &order, sizeof order) != sizeof order)
            die("order");
    for (int r = 0; r < W; r++)
        if (read(workers[r].spans, &spans[r], sizeof spans[r]) != sizeof spans[r])
            die("a rank of ours ended");
    return seconds_of(spans, W, bytes);
}

/* --- gloo ------------------------------------------------------------------------------------------------ */

static void start_gloo_rank(struct worker *worker, const char *python, int r, int W, const char *store)
{
    int down[2], up[2];
    char rank_text[16], world_text[16];

    if (pipe2(down, O_CLOEXEC) < 0 || pipe2(up, O_CLOEXEC) < 0)
        die("pipe");
    worker->pid = fork();
    if (worker->pid < 0)
        die("fork");
    if (worker->pid == 0) {
        dup2(down[0], 0), dup2(up[1], 1);
        setenv("OMP_NUM_THREADS", "1", 1);
        setenv("GLOO_SOCKET_IFNAME", "lo", 1);
        snprintf(rank_text, sizeof rank_text, "%d", r);
        snprintf(world_text, sizeof world_text, "%d", W);
        execlp(python, python, "tests/bench/gloo_rank.py", rank_text, world_text, store, (char *)NULL);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    worker->orders = down[1];
    worker->spans = up[0];
}

static bool start_gloo(struct worker *workers, int W, char *store)
{
    const char *python = getenv("FSDP_BENCH_PYTHON");
    bool ready = true;
    char line[64];
    int fd;

    if (python == NULL || python[0] == '\0')
        return false;
    fd = mkstemp(store);
    if (fd < 0)
        die(store);
    close(fd);
    unlink(store);
    for (int r = 0; r < W; r++)
        start_gloo_rank(&workers[r], python, r, W, store);
    for (int r = 0; r < W; r++)
        ready = rank_read_line(workers[r].spans, line, sizeof line) && strcmp(line, "ready") == 0 && ready;
    if (!ready)
        fprintf(stderr, "bench_comm: %s has no gloo for us\n", python);
    return ready;
}

static double run_gloo(struct worker *workers, int W, enum op op, size_t bytes)
{
    struct span spans[MOST];
    char line[128];

    for (int r = 0; r < W; r++)
        dprintf(workers[r].orders, "%s %zu %d\n", op == ALL_GATHER ? "all_gather" : "reduce_scatter", bytes,
                turns_of(bytes));
    for (int r = 0; r < W; r++)
        if (!rank_read_line(workers[r].spans, line, sizeof line) ||
            sscanf(line, "%lf %lf", &spans[r].start, &spans[r].end) != 2)
            die("a rank of gloo ended");
    return seconds_of(spans, W, bytes);
}

/* --- the table ------------------------------------------------------------------------------------------- */

static void stop(struct worker *workers, int W)
{
    for (int r = 0; r < W; r++)
        close(workers[r].orders), close(workers[r].spans);
    for (int r = 0; r < W; r++)
        if (workers[r].pid > 0)
            waitpid(workers[r].pid, NULL, 0);
}

static void measure(struct report *report, struct worker *ours, struct worker *gloo, bool with_gloo, int W,
                    enum op op, size_t bytes)
{
    const int n = bench_runs(RUNS), n_warm = 3;
    double us[RUNS], limit[RUNS], peer[RUNS];
    char what[80];

    for (int i = -n_warm; i < n; i++) {
        const int at = i < 0 ? 0 : i;

        us[at] = 1e-9 * (double)bytes / run_ours(ours, W, op, bytes);
        limit[at] = 1e-9 * (double)bytes / run_ours(ours, W, COPY, bytes);
        if (with_gloo)
            peer[at] = 1e-9 * (double)bytes / run_gloo(gloo, W, op, bytes);
    }
    snprintf(what, sizeof what, "%s, %zu MiB, %d processes",
             op == ALL_GATHER ? "all-gather" : "reduce-scatter", bytes >> 20, W);
    report_add(report,
               &(struct report_row){ .what = what,
                                     .unit = "GB/s",
                                     .higher_is_better = true,
                                     .ours = us,
                                     .peer = with_gloo ? peer : NULL,
                                     .limit = limit,
                                     .n = n,
                                     .peer_name = "gloo (PyTorch)",
                                     .limit_name = "as many processes copying the same bytes at once" });
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 1 << 20, 4 << 20, 64 << 20 };
    struct report report;

    if (argc < 2 || !report_begin(&report, argv[1]))
        return 2;
    signal(SIGPIPE, SIG_IGN);
    for (int W = 2; W <= MOST; W += 2) {
        struct worker ours[MOST], gloo[MOST];
        char store[] = "/tmp/fsdp-bench.XXXXXX";
        bool with_gloo;

        fflush(NULL);
        start_ours(ours, W);
        for (int r = 0; r < W; r++)
            fcntl(ours[r].orders, F_SETFD, FD_CLOEXEC), fcntl(ours[r].spans, F_SETFD, FD_CLOEXEC);
        with_gloo = start_gloo(gloo, W, store);
        for (int op = ALL_GATHER; op <= REDUCE_SCATTER; op++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                measure(&report, ours, gloo, with_gloo, W, (enum op)op, sizes[s]);
        stop(ours, W);
        if (with_gloo)
            stop(gloo, W);
        unlink(store);
    }
    return report_end(&report) ? 0 : 1;
}
