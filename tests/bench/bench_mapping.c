/*
 * bench_mapping JSON_FILE: what one mapping that the ranks of a host share would gain over the buffers each has of its own.
 *
 * Gather: from shards to the moment when a kernel has read every weight. Ours, as the engine does it: all-gather into the
 * rank's own buffer, unpack, read. Shared: meet (nobody reads any more), each rank writes its rows into the mapping, meet,
 * read. Reduce: from the kernel that writes gradients to the sum of this rank's rows. Ours: write, pack, reduce-scatter.
 * Shared: each rank writes its gradients into a mapping that the others see, meet, each adds up its rows of all, meet.
 * The limit is the kernel's reading or writing alone. In GB/s of the whole buffer, from the first rank's start to the last
 * one's end; the three take turns, a turn is as many units as make 64 MiB, 16 at most, each with memory of its own.
 */
#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/comm/reduce.h"
#include "tests/bench/ranks.h"
#include "tests/bench/report.h"
#include "tests/bench/runs.h"
#include "tests/support/mini_agent.h"

enum { MOST = 4, BYTES_MAX = 64 << 20, RUNS = 15, N_SIZES = 4, N_PATHS = 3 };
enum op { GATHER, REDUCE, N_OPS };
enum path { PRIVATE, SHARED, ALONE };

static const size_t sizes[N_SIZES] = { 1 << 20, 4 << 20, 16 << 20, 64 << 20 };

struct span {
    double start, end;
};

/* Written by the ranks, read by the bench when they have ended. */
struct results {
    struct span spans[N_OPS][N_SIZES][N_PATHS][RUNS][MOST];
};

/* One rank's memory: shards or sums, two private buffers; of the mappings one for weights, one a rank for gradients. */
struct rank {
    struct fsdp_comm *comm;
    int rank, W;
    float *rows, *whole, *packed;
    float *weights, *gradients[MOST];
    struct results *results;
    double sink;
};

static struct mini_agent agent;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static float *map(bool shared)
{
    void *at = mmap(NULL, BYTES_MAX, PROT_READ | PROT_WRITE,
                    MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);

    if (at == MAP_FAILED)
        die("mmap");
    madvise(at, BYTES_MAX, MADV_HUGEPAGE);
    return at;
}

/* A kernel that reads all weights once, and one that writes all gradients once. */
static double consume(const float *at, size_t n)
{
    float sums[16] = { 0 };

    for (size_t i = 0; i < n; i += 16)
        for (int lane = 0; lane < 16; lane++)
            sums[lane] += at[i + (size_t)lane];
    for (int lane = 1; lane < 16; lane++)
        sums[0] += sums[lane];
    return sums[0];
}

static void produce(float *at, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        at[i] = value;
}

static enum fsdp_status gather_once(struct rank *r, enum path path, size_t first, size_t n,
                                    struct fsdp_err *err)
{
    const size_t own = n / (size_t)r->W;
    enum fsdp_status status = FSDP_OK;

    if (path == PRIVATE) {
        status = fsdp_all_gather(r->comm, r->rows + first, r->packed + first, own, FSDP_F32, NULL, err);
        memcpy(r->whole + first, r->packed + first, n * sizeof(float));
    } else if (path == SHARED) {
        status = fsdp_barrier(r->comm, err);
        memcpy(r->weights + first + (size_t)r->rank * own, r->rows + first, own * sizeof(float));
        if (status == FSDP_OK)
            status = fsdp_barrier(r->comm, err);
    }
    r->sink += consume((path == SHARED ? r->weights : r->whole) + first, n);
    return status;
}

static enum fsdp_status reduce_once(struct rank *r, enum path path, size_t first, size_t n,
                                    struct fsdp_err *err)
{
    const size_t own = n / (size_t)r->W;
    const void *sources[MOST];
    enum fsdp_status status = FSDP_OK;

    produce((path == SHARED ? r->gradients[r->rank] : r->whole) + first, n, (float)r->rank);
    if (path == PRIVATE) {
        memcpy(r->packed + first, r->whole + first, n * sizeof(float));
        status = fsdp_reduce_scatter(r->comm, r->packed + first, r->rows + first, own, FSDP_F32, FSDP_SUM,
                                     NULL, err);
    } else if (path == SHARED) {
        status = fsdp_barrier(r->comm, err);
        for (int i = 0; i < r->W; i++)
            sources[i] = r->gradients[i] + first + (size_t)r->rank * own;
        reduce_sources(r->rows + first, FSDP_F32, sources, FSDP_F32, r->W, own, FSDP_SUM, 1);
        if (status == FSDP_OK)
            status = fsdp_barrier(r->comm, err);
    }
    return status;
}

static size_t turns_of(size_t bytes)
{
    return BYTES_MAX / bytes > 16 ? 16 : BYTES_MAX / bytes;
}

static enum fsdp_status run(struct rank *r, enum op op, enum path path, size_t bytes, struct span *span,
                            struct fsdp_err *err)
{
    const size_t n = bytes / sizeof(float);
    enum fsdp_status status = fsdp_barrier(r->comm, err);

    if (status == FSDP_OK)
        status = fsdp_barrier(r->comm, err); /* the first woke everyone up */
    span->start = report_now();
    for (size_t turn = 0; turn < turns_of(bytes) && status == FSDP_OK; turn++)
        status =
            op == GATHER ? gather_once(r, path, turn * n, n, err) : reduce_once(r, path, turn * n, n, err);
    span->end = report_now();
    return status;
}

static enum fsdp_status run_all(struct rank *r, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    for (int op = 0; op < N_OPS; op++)
        for (int s = 0; s < N_SIZES; s++)
            for (int i = -2; i < bench_runs(RUNS); i++) /* two to warm up */
                for (int path = 0; path < N_PATHS && status == FSDP_OK; path++)
                    status = run(r, (enum op)op, (enum path)path, sizes[s],
                                 &r->results->spans[op][s][path][i < 0 ? 0 : i][r->rank], err);
    return status;
}

static int rank_main(int rank, void *arg)
{
    struct rank r = *(struct rank *)arg; /* mappings and results, made before the fork */
    struct comm_config config = { .name = "bench", .rank = rank, .size = r.W };
    struct link *link = NULL;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    r.rank = rank;
    r.rows = map(false);
    r.whole = map(false);
    r.packed = map(false);
    produce(r.rows, BYTES_MAX / sizeof(float), 1.0f);
    rank_pin(rank);
    status = link_open(&link, &err);
    config.link = link;
    if (status == FSDP_OK)
        status = comm_create(&r.comm, &config, &err);
    if (status == FSDP_OK)
        status = run_all(&r, &err);
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", err.message);
    fsdp_comm_destroy(r.comm);
    link_close(link);
    return status != FSDP_OK || r.sink < 0;
}

static double rate(const struct span *spans, int W, size_t bytes)
{
    struct span all = spans[0];

    for (int r = 1; r < W; r++) {
        all.start = spans[r].start < all.start ? spans[r].start : all.start;
        all.end = spans[r].end > all.end ? spans[r].end : all.end;
    }
    return 1e-9 * (double)bytes * (double)turns_of(bytes) / (all.end - all.start);
}

static void add_rows(struct report *report, const struct results *results, int W)
{
    for (int op = 0; op < N_OPS; op++)
        for (int s = 0; s < N_SIZES; s++) {
            double figures[N_PATHS][RUNS];
            char what[80];

            for (int path = 0; path < N_PATHS; path++)
                for (int i = 0; i < bench_runs(RUNS); i++)
                    figures[path][i] = rate(results->spans[op][s][path][i], W, sizes[s]);
            snprintf(what, sizeof what, "%s, %zu MiB, %d processes",
                     op == GATHER ? "gather and read" : "write and reduce", sizes[s] >> 20, W);
            report_add(report, &(struct report_row){ .what = what,
                                                     .unit = "GB/s",
                                                     .higher_is_better = true,
                                                     .ours = figures[PRIVATE],
                                                     .peer = figures[SHARED],
                                                     .limit = figures[ALONE],
                                                     .n = bench_runs(RUNS),
                                                     .peer_name = "one shared mapping",
                                                     .limit_name = "the kernel alone" });
        }
}

int main(int argc, char **argv)
{
    struct rank shared = { .weights = map(true) };
    struct report report;

    if (argc < 2 || !report_begin(&report, argv[1]))
        return 2;
    for (int i = 0; i < MOST; i++)
        shared.gradients[i] = map(true);
    shared.results =
        mmap(NULL, sizeof *shared.results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared.results == MAP_FAILED)
        die("mmap");
    for (int W = 2; W <= MOST; W += 2) {
        fflush(NULL);
        memset(&agent, 0, sizeof agent);
        agent.W = shared.W = W;
        agent.n_nodes = 1;
        mini_run(&agent, rank_main, &shared);
        for (int r = 0; r < W; r++)
            if (agent.statuses[r] != 0)
                return 1;
        add_rows(&report, shared.results, W);
    }
    return report_end(&report) ? 0 : 1;
}
