/*
 * Every collective, type, operation and size over every shape of the cpu back end. Results are compared to
 * the bit with plain sums in the order that the runtime promises. That is in rank order inside each node,
 * then over the nodes.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "tests/unit/comm/grid.h"

/*
 * Sizes around a chunk and the limits of small sums; the last is more than one piece of a sum over both
 * sides.
 */
static const size_t sizes[] = { 0, 1, 7, 16, 65, 1025, 8192, 140001 };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* The running collective, the same on every rank. */
struct cell {
    enum { GATHER, SCATTER, REDUCE, BROADCAST } kind;
    int round, root;
    enum fsdp_dtype dtype;
    enum fsdp_reduce_op op;
    size_t n;
    bool in_place;
};

/* Element i of what `rank` brings: odd fractions, so that another order of summing gives other bits. */
static double value_of(int round, int rank, size_t i)
{
    uint64_t x = (uint64_t)round * 64 + (uint64_t)rank + (i << 20) + 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((int64_t)(x ^ x >> 31) >> 20) / (double)(1 << 21);
}

static float round_bf16(float x)
{
    return bf16_to_f32(bf16_of_f32(x));
}

static void store(void *at, size_t i, enum fsdp_dtype dtype, double x)
{
    switch (dtype) {
    case FSDP_F32:
        ((float *)at)[i] = (float)x;
        break;
    case FSDP_BF16:
        ((uint16_t *)at)[i] = bf16_of_f32((float)x);
        break;
    case FSDP_F64:
        ((double *)at)[i] = x;
        break;
    case FSDP_I64:
        ((int64_t *)at)[i] = (int64_t)(x * 4096);
        break;
    case FSDP_I32:
        ((int32_t *)at)[i] = (int32_t)x;
        break;
    default:
        ((uint8_t *)at)[i] = (uint8_t)(int64_t)x;
        break;
    }
}

static void fill(void *at, const struct cell *cell, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        store(at, i, cell->dtype, value_of(cell->round, rank, i));
}

/*
 * Store element i of the reduction at out[at]. bfloat16 is summed in float32; an all-reduce rounds it after
 * each side.
 */
#define REDUCE(T, OF, STORED)                                                                                \
    T total = 0;                                                                                             \
    for (int node = 0; node < grid.shape.n_nodes; node++) {                                                  \
        T part = 0;                                                                                          \
        for (int l = 0; l < per_node; l++) {                                                                 \
            const T x = (T)OF(value_of(cell->round, node * per_node + l, i));                                \
            part = l == 0 ? x : cell->op == FSDP_MAX ? (x > part ? x : part) : part + x;                     \
        }                                                                                                    \
        part = STORED(part);                                                                                 \
        total = node == 0 ? part : cell->op == FSDP_MAX ? (part > total ? part : total) : total + part;      \
    }                                                                                                        \
    if (cell->op == FSDP_MEAN)                                                                               \
    total /= (T)grid.shape.W

#define SAME(x)        (x)
#define TO_I64(x)      (int64_t)((x)*4096)
#define TO_BF16(x)     round_bf16((float)(x))
#define STORED_BF16(x) (cell->kind == REDUCE && per_node > 1 && grid.shape.n_nodes > 1 ? round_bf16(x) : (x))

static void expect(void *out, size_t at, size_t i, const struct cell *cell)
{
    const int per_node = grid.shape.W / grid.shape.n_nodes;

    if (cell->dtype == FSDP_F64) {
        REDUCE(double, SAME, SAME);
        ((double *)out)[at] = total;
    } else if (cell->dtype == FSDP_I64) {
        REDUCE(int64_t, TO_I64, SAME);
        ((int64_t *)out)[at] = total;
    } else if (cell->dtype == FSDP_BF16) {
        REDUCE(float, TO_BF16, STORED_BF16);
        ((uint16_t *)out)[at] = bf16_of_f32(total);
    } else {
        REDUCE(float, SAME, SAME);
        ((float *)out)[at] = total;
    }
}

/* A buffer with 64 bytes of a mark after it, where an overrun is seen. */
static unsigned char *buffer(size_t bytes)
{
    unsigned char *at = malloc(bytes + 64);

    memset(at, 0x77, bytes);
    memset(at + bytes, 0xa5, 64);
    return at;
}

static bool is_whole(const unsigned char *at, size_t bytes)
{
    for (int i = 0; i < 64; i++)
        if (at[bytes + (size_t)i] != 0xa5)
            return false;
    return true;
}

static enum fsdp_status call(struct rank *me, const struct cell *cell, void *send, void *recv)
{
    switch (cell->kind) {
    case GATHER:
        return fsdp_all_gather(me->comm, send, recv, cell->n, cell->dtype, NULL, &me->err);
    case SCATTER:
        return fsdp_reduce_scatter(me->comm, send, recv, cell->n, cell->dtype, cell->op, NULL, &me->err);
    case REDUCE:
        return fsdp_all_reduce(me->comm, recv, cell->n, cell->dtype, cell->op, NULL, &me->err);
    default:
        return fsdp_broadcast(me->comm, recv, cell->n, cell->root, NULL, &me->err);
    }
}

/* What this rank must have after the call. */
static void expect_all(void *out, const struct rank *me, const struct cell *cell)
{
    const size_t bytes = cell->n * fsdp_dtype_size(cell->dtype);

    if (cell->kind == BROADCAST)
        fill(out, cell, cell->n, cell->root);
    else if (cell->kind == GATHER)
        for (int r = 0; r < grid.shape.W; r++)
            fill((unsigned char *)out + (size_t)r * bytes, cell, cell->n, r);
    else
        for (size_t i = 0; i < cell->n; i++)
            expect(out, i, cell->kind == SCATTER ? (size_t)me->r * cell->n + i : i, cell);
}

/* The whole of one collective: the result, what is after each buffer, and what was sent. */
static int try(struct rank *me, const struct cell *cell)
{
    static const char *const names[] = { "all_gather", "reduce_scatter", "all_reduce", "broadcast" };
    const size_t bytes = cell->n * fsdp_dtype_size(cell->dtype), all = bytes * (size_t)grid.shape.W;
    const size_t n_sent = cell->kind == SCATTER ? cell->n * (size_t)grid.shape.W : cell->n;
    unsigned char *large = buffer(all), *own = buffer(bytes), *expected = buffer(all), *sent = buffer(all);
    unsigned char *part = cell->in_place ? large + (size_t)me->r * bytes : own;
    unsigned char *send = cell->kind == SCATTER ? large : cell->kind == GATHER ? part : own;
    unsigned char *recv = cell->kind == GATHER ? large : cell->kind == SCATTER ? part : own;
    int bad = 0;

    fill(send, cell, n_sent, me->r);
    fill(sent, cell, n_sent, me->r);
    expect_all(expected, me, cell);
    if (call(me, cell, send, recv) != FSDP_OK)
        bad = grid_bad(me, names[cell->kind]);
    else if (memcmp(recv, expected, cell->kind == GATHER ? all : bytes) != 0 || !is_whole(large, all) ||
             !is_whole(own, bytes))
        bad = grid_bad(me, "a collective gave other bytes");
    else if (cell->kind == SCATTER && !cell->in_place && memcmp(send, sent, all) != 0)
        bad = grid_bad(me, "reduce_scatter changed what was sent");
    free(large), free(own), free(expected), free(sent);
    return bad;
}

static int every_cell(struct rank *me)
{
    static const enum fsdp_dtype dtypes[] = { FSDP_F32, FSDP_BF16, FSDP_F64, FSDP_I64, FSDP_I32, FSDP_U8 };
    /* The large one in small chunks, or on many ranks, only takes long. */
    const int n_sizes = grid.chunk != 0 || grid.shape.W > 4 ? N_SIZES - 1 : N_SIZES;
    struct cell cell = { 0 };

    for (int s = 0; s < n_sizes; s++)
        for (int d = 0; d < 6; d++) {
            cell.n = sizes[s];
            cell.dtype = dtypes[d];
            cell.in_place = (cell.round++ & 1) != 0;
            cell.kind = GATHER;
            if (try(me, &cell) != 0)
                return 1;
            for (int op = FSDP_SUM; op <= FSDP_MAX; op++) {
                cell.op = (enum fsdp_reduce_op)op;
                cell.round++;
                cell.in_place = !cell.in_place;
                cell.kind = SCATTER;
                if ((cell.dtype == FSDP_F32 || cell.dtype == FSDP_BF16) && try(me, &cell) != 0)
                    return 1;
                cell.kind = REDUCE;
                if (cell.dtype != FSDP_I32 && cell.dtype != FSDP_U8 &&
                    (cell.dtype != FSDP_I64 || op != FSDP_MEAN) && try(me, &cell) != 0)
                    return 1;
            }
            cell.kind = BROADCAST;
            for (cell.root = 0; cell.root < grid.shape.W && cell.dtype == FSDP_U8; cell.root++)
                if (try(me, &cell) != 0)
                    return 1;
        }
    return fsdp_barrier(me->comm, &me->err) == FSDP_OK ? 0 : grid_bad(me, "barrier");
}

ParameterizedTestParameters(comm_grid, every_collective_is_right_to_the_bit)
{
    static struct shape shapes[] = { { 1, 1 }, { 2, 1 }, { 3, 1 }, { 4, 1 }, { 8, 1 }, { 2, 2 },
                                     { 3, 3 }, { 4, 4 }, { 8, 8 }, { 4, 2 }, { 8, 2 }, { 8, 4 } };

    return cr_make_param_array(struct shape, shapes, sizeof shapes / sizeof *shapes);
}

ParameterizedTest(struct shape *shape, comm_grid, every_collective_is_right_to_the_bit)
{
    cr_expect_eq(grid_run_joined(*shape, 0, every_cell), 0);
    cr_expect_eq(grid_run_joined(*shape, 100, every_cell), 0);
}
