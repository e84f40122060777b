/*
 * bench_comm JSON_FILE: all-gather and reduce-scatter of 1, 4 and 64 MiB between 2 and 4 processes of this
 * host.
 *
 * The figure is the size of the whole buffer (gathered, or reduced) over the time from the first rank's start
 * to the last one's end. Limit: as many processes, each copying as many bytes from one buffer of its own to
 * another, at once. Peer: gloo through the Python with PyTorch that FSDP_BENCH_PYTHON names. All three take
 * turns. A turn is as many collectives as move 64 MiB, 16 at most, one after the other. So it measures them,
 * and not how long a process takes to wake up. Each has memory of its own, as in training, where nothing of a
 * parameter is left in the cache from its last use.
 */
#include "tests/bench/ranks.h"

enum { BYTES_MAX = 64 << 20 };
enum op { ALL_GATHER, REDUCE_SCATTER };

static struct peer gloo[RANKS_MOST];
static bool with_gloo;

/* One rank's buffers: what is whole, and what is a rank's part of it. */
struct rank {
    struct fsdp_comm *comm;
    float *a, *b;
};

static enum fsdp_status once(const struct rank *r, int op, enum way way, size_t bytes, size_t first,
                             struct fsdp_err *err)
{
    const size_t n = bytes / sizeof(float) / (size_t)fsdp_comm_size(r->comm);
    float *a = r->a + first, *b = r->b + first;

    if (way == OURS && op == ALL_GATHER)
        return fsdp_all_gather(r->comm, a, b, n, FSDP_F32, NULL, err);
    if (way == OURS)
        return fsdp_reduce_scatter(r->comm, b, a, n, FSDP_F32, FSDP_SUM, NULL, err);
    memcpy(b, a, bytes);
    __asm__ volatile("" : : "r"(a), "r"(b) : "memory"); /* every copy is made */
    return FSDP_OK;
}

/* Gives all ranks of gloo a turn, and takes their spans. */
static void run_gloo(int W, int op, size_t bytes, struct span *spans)
{
    char line[128];

    for (int r = 0; r < W; r++)
        dprintf(gloo[r].orders, "%s %zu %zu\n", op == ALL_GATHER ? "all_gather" : "reduce_scatter", bytes,
                ranks_turns(bytes));
    for (int r = 0; r < W; r++)
        if (!peer_read(&gloo[r], line, sizeof line) ||
            sscanf(line, "%lf %lf", &spans[r].start, &spans[r].end) != 2)
            bench_die("a rank of gloo ended");
}

/* While gloo has its turn, our ranks sleep in the barrier before the next. */
static enum fsdp_status turn(void *own, int op, enum way way, size_t bytes, struct span *spans,
                             struct fsdp_err *err)
{
    const struct rank *r = own;
    const int rank = fsdp_comm_rank(r->comm);
    enum fsdp_status status = FSDP_OK;

    if (way == PEER) {
        if (rank == 0 && with_gloo)
            run_gloo(fsdp_comm_size(r->comm), op, bytes, spans);
        return FSDP_OK;
    }
    spans[rank].start = bench_now();
    for (size_t i = 0; i < ranks_turns(bytes) && status == FSDP_OK; i++)
        status = once(r, op, way, bytes, i * bytes / sizeof(float), err);
    spans[rank].end = bench_now();
    return status;
}

static void *prepare(struct fsdp_comm *comm)
{
    static struct rank r;

    r = (struct rank){ comm, ranks_map(BYTES_MAX, false), ranks_map(BYTES_MAX, false) };
    memset(r.a, 0, BYTES_MAX);
    memset(r.b, 0, BYTES_MAX);
    return &r;
}

static bool start_gloo(int W, char *store)
{
    const char *python = peer_python();
    char rank[16], world[16];
    bool ready = python != NULL;

    snprintf(world, sizeof world, "%d", W);
    for (int r = 0; r < W && python != NULL; r++) {
        snprintf(rank, sizeof rank, "%d", r);
        peer_start(&gloo[r],
                   (const char *const[]){ python, "tests/bench/gloo_rank.py", rank, world, store, NULL });
    }
    for (int r = 0; r < W && python != NULL; r++)
        ready = peer_is_ready(&gloo[r]) && ready;
    if (python != NULL && !ready)
        fprintf(stderr, "bench_comm: %s has no gloo for us\n", python);
    return ready;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 1 << 20, 4 << 20, 64 << 20, 0 };
    struct ranks ranks = { .ops = { "all-gather", "reduce-scatter" },
                           .limit_name = "as many processes copying the same bytes at once",
                           .sizes = sizes,
                           .runs = 31,
                           .warm = 3,
                           .prepare = prepare,
                           .turn = turn };
    struct report report;

    if (argc < 2 || !report_begin(&report, argv[1]))
        return 2;
    signal(SIGPIPE, SIG_IGN);
    for (int W = 2; W <= RANKS_MOST; W += 2) {
        char store[] = "/tmp/fsdp-bench.XXXXXX";
        const int fd = mkstemp(store);

        if (fd < 0)
            bench_die(store);
        close(fd);
        unlink(store);
        with_gloo = start_gloo(W, store);
        ranks.peer_name = with_gloo ? "gloo (PyTorch)" : NULL;
        ranks_run(&ranks, W, &report);
        if (peer_python() != NULL)
            peers_stop(gloo, W);
        unlink(store);
    }
    return report_end(&report) ? 0 : 1;
}
