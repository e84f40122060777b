/*
 * bench_mapping JSON_FILE: what one mapping that the ranks of a host share would gain over the buffers each
 * has of its own.
 *
 * Gather: from shards to the moment when a kernel has read every weight. Ours, as the engine does it:
 * all-gather into the rank's own buffer, unpack, read. Shared: meet (nobody reads any more), each rank writes
 * its rows into the mapping, meet, read. Reduce: from the kernel that writes gradients to the sum of this
 * rank's rows. Ours: write, pack, reduce-scatter. Shared: each rank writes its gradients into a mapping that
 * the others see, meet, each adds up its rows of all, meet. The limit is the kernel's reading or writing
 * alone. In GB/s of the whole buffer, from the first rank's start to the last one's end. The three take
 * turns. A turn is as many units as make 64 MiB, 16 at most, each with memory of its own.
 */
#include "shard_runtime/comm/reduce.h"
#include "tests/bench/ranks.h"

enum { BYTES_MAX = 64 << 20 };
enum op { GATHER, REDUCE };
/* The ways are the buffers each has of its own, the kernel alone, and the mapping. */

/*
 * One rank's memory: shards or sums, two private buffers; of the mappings one for weights, one a rank for
 * gradients.
 */
struct rank {
    struct fsdp_comm *comm;
    int rank, W;
    float *rows, *whole, *packed;
    float *weights, *gradients[RANKS_MOST];
    volatile double sink; /* so that the sums are made */
};

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

static enum fsdp_status gather_once(struct rank *r, enum way way, size_t first, size_t n,
                                    struct fsdp_err *err)
{
    const size_t own = n / (size_t)r->W;
    enum fsdp_status status = FSDP_OK;

    if (way == OURS) {
        status = fsdp_all_gather(r->comm, r->rows + first, r->packed + first, own, FSDP_F32, NULL, err);
        memcpy(r->whole + first, r->packed + first, n * sizeof(float));
    } else if (way == PEER) {
        status = fsdp_barrier(r->comm, err);
        memcpy(r->weights + first + (size_t)r->rank * own, r->rows + first, own * sizeof(float));
        if (status == FSDP_OK)
            status = fsdp_barrier(r->comm, err);
    }
    r->sink += consume((way == PEER ? r->weights : r->whole) + first, n);
    return status;
}

static enum fsdp_status reduce_once(struct rank *r, enum way way, size_t first, size_t n,
                                    struct fsdp_err *err)
{
    const size_t own = n / (size_t)r->W;
    const void *sources[RANKS_MOST];
    enum fsdp_status status = FSDP_OK;

    produce((way == PEER ? r->gradients[r->rank] : r->whole) + first, n, (float)r->rank);
    if (way == OURS) {
        memcpy(r->packed + first, r->whole + first, n * sizeof(float));
        status = fsdp_reduce_scatter(r->comm, r->packed + first, r->rows + first, own, FSDP_F32, FSDP_SUM,
                                     NULL, err);
    } else if (way == PEER) {
        status = fsdp_barrier(r->comm, err);
        for (int i = 0; i < r->W; i++)
            sources[i] = r->gradients[i] + first + (size_t)r->rank * own;
        reduce_sources(r->rows + first, FSDP_F32, sources, FSDP_F32, r->W, own, FSDP_SUM, 1);
        if (status == FSDP_OK)
            status = fsdp_barrier(r->comm, err);
    }
    return status;
}

static enum fsdp_status turn(void *own, int op, enum way way, size_t bytes, struct span *spans,
                             struct fsdp_err *err)
{
    struct rank *r = own;
    const size_t n = bytes / sizeof(float);
    enum fsdp_status status = FSDP_OK;

    spans[r->rank].start = bench_now();
    for (size_t i = 0; i < ranks_turns(bytes) && status == FSDP_OK; i++)
        status = (op == GATHER ? gather_once : reduce_once)(r, way, i * n, n, err);
    spans[r->rank].end = bench_now();
    return status;
}

static struct rank shared; /* mappings, made before the fork */

static void *prepare(struct fsdp_comm *comm)
{
    shared.comm = comm;
    shared.rank = fsdp_comm_rank(comm);
    shared.W = fsdp_comm_size(comm);
    shared.rows = ranks_map(BYTES_MAX, false);
    shared.whole = ranks_map(BYTES_MAX, false);
    shared.packed = ranks_map(BYTES_MAX, false);
    produce(shared.rows, BYTES_MAX / sizeof(float), 1.0f);
    return &shared;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 1 << 20, 4 << 20, 16 << 20, 64 << 20 };
    struct ranks ranks = { .ops = { "gather and read", "write and reduce" },
                           .limit_name = "the kernel alone",
                           .peer_name = "one shared mapping",
                           .sizes = sizes,
                           .runs = 15,
                           .warm = 2,
                           .prepare = prepare,
                           .turn = turn };
    struct report report;

    if (argc < 2 || !report_begin(&report, argv[1]))
        return 2;
    shared.weights = ranks_map(BYTES_MAX, true);
    for (int i = 0; i < RANKS_MOST; i++)
        shared.gradients[i] = ranks_map(BYTES_MAX, true);
    for (int W = 2; W <= RANKS_MOST; W += 2)
        ranks_run(&ranks, W, &report);
    return report_end(&report) ? 0 : 1;
}
