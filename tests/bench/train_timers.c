/*
 * fsdp-train with a stopwatch, for bench_train: where a step's time goes, and how long its matrix products
 * take alone. The Makefile links the trainer and libfsdp with --wrap of the functions below; nothing of it is
 * in the product.
 *
 * Between two steps a rank waits at its gate, the pipes $FSDP_BENCH_GATE/RANK.orders and RANK.reports, for an
 * order. 's' runs the next step. 'p' runs only the products of a step, on buffers of their own. 'q' lets the
 * rest of the run go on unmeasured. The rank answers each order with a struct train_report when it reaches
 * the gate again.
 */
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

#include "shard_runtime/core/overlap.h"
#include "shard_runtime/nn/nn.h"
#include "shard_runtime/trainer/batch.h"
#include "tests/bench/bench.h"
#include "tests/bench/train_report.h"

#include <fsdp/comm.h>
#include <fsdp/fsdp.h>

/* Declares both, so that what follows is the body of the one that the program calls. */
#define WRAPPED(type, name, ...)                                                                             \
    type __real_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__)

/*
 * What this rank computed, on any thread. On a machine that others use as well the clock on the wall says
 * more of them than of us.
 */
static double work_s(void)
{
    return bench_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/* The pipes; used at the end of this file. */
static struct {
    int orders, reports;
    char last;      /* the order that is being carried out, 0 before the first */
    bool open;      /* no more orders */
    double began_s; /* CPU time when the order began */
} gate = { .orders = -1, .reports = -1 };

/* The products of a step */

enum { MOST_CALLS = 65536 };
enum { A, B, C, BIAS, SCRATCH, N_OPERANDS };

static const struct numerics_ops *sound;
static struct numerics_ops timed;

static struct {
    size_t most_bytes[N_OPERANDS];    /* what the largest product needs */
    struct matmul *calls[MOST_CALLS]; /* in the order of the last step */
    int n_calls;
} products;

static struct train_report spent;
static pthread_t compute_thread;

/* Elements up to the last one of a view. */
static size_t extent(const struct matmul_desc *d, const struct matmul_view *view, size_t rows, size_t cols)
{
    return (d->outer - 1) * view->outer_stride + (d->inner - 1) * view->inner_stride +
           (rows - 1) * view->row_stride + (cols - 1) * view->col_stride + 1;
}

static enum fsdp_status timed_create(struct numerics *numerics, const struct matmul_desc *desc,
                                     struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err)
{
    const enum fsdp_status status = sound->matmul_create(numerics, desc, out, scratch_bytes, err);
    const size_t needs[N_OPERANDS] = { [A] = 4 * extent(desc, &desc->a, desc->m, desc->k),
                                       [B] = 4 * extent(desc, &desc->b, desc->k, desc->n),
                                       [C] = 4 * extent(desc, &desc->c, desc->m, desc->n),
                                       [BIAS] = 4 * desc->n,
                                       [SCRATCH] = *scratch_bytes };

    for (int i = 0; i < N_OPERANDS; i++)
        if (needs[i] > products.most_bytes[i])
            products.most_bytes[i] = needs[i];
    return status;
}

static enum fsdp_status timed_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                  const void *b, const void *bias, void *c, void *scratch,
                                  struct fsdp_err *err)
{
    const double began = work_s();
    const enum fsdp_status status = sound->matmul_run(matmul, stream, a, b, bias, c, scratch, err);

    spent.products_s += work_s() - began;
    if (products.n_calls < MOST_CALLS)
        products.calls[products.n_calls] = matmul;
    products.n_calls++;
    return status;
}

/*
 * Small numbers in either dtype: the bits of 1/256 of float32 read as two of bfloat16 are 1/256 and 0. The
 * pages go back to the system after the products, so that the next step's memory is its own.
 */
static void *make_operand(size_t size_bytes)
{
    float *x = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (x == MAP_FAILED)
        bench_die("buffers for products");
    for (size_t i = 0; i < size_bytes / sizeof *x; i++)
        x[i] = 0x1p-8f;
    return x;
}

static void replay(void)
{
    void *o[N_OPERANDS];
    struct fsdp_err err = { 0 };

    for (int i = 0; i < N_OPERANDS; i++)
        o[i] = make_operand(products.most_bytes[i] + 64);
    spent.start_s = bench_now();
    gate.began_s = work_s();
    for (int i = 0; i < products.n_calls && i < MOST_CALLS; i++)
        if (sound->matmul_run(products.calls[i], NULL, o[A], o[B], o[BIAS], o[C], o[SCRATCH], &err) !=
            FSDP_OK)
            bench_die(err.message);
    spent.end_s = bench_now();
    spent.work_s = work_s() - gate.began_s;
    for (int i = 0; i < N_OPERANDS; i++)
        munmap(o[i], products.most_bytes[i] + 64);
}

WRAPPED(enum fsdp_status, numerics_open, struct numerics *numerics, const struct numerics_config *config,
        struct fsdp_err *err)
{
    const enum fsdp_status status = __real_numerics_open(numerics, config, err);

    if (status != FSDP_OK)
        return status;
    compute_thread = pthread_self();
    sound = numerics->ops;
    timed = *sound;
    timed.matmul_create = timed_create;
    timed.matmul_run = timed_run;
    numerics->ops = &timed;
    return FSDP_OK;
}

/* What else a step is made of */

/* Waiting of the thread that computes: in a collective, or for one on the second thread. */
static void count_wait(double began)
{
    if (pthread_equal(pthread_self(), compute_thread))
        spent.wait_s += bench_now() - began;
}

/* The clock of operations: work without products, which are counted by themselves. */
static double own_work_s(void)
{
    return work_s() - spent.products_s;
}

static void count_kernels(double began)
{
    spent.kernels_s += own_work_s() - began;
}

static void count_optimizer(double began)
{
    spent.optimizer_s += work_s() - began;
}

/*
 * Wraps a function of the given parameters and arguments: what `count` makes of `began`, the clock before it.
 */
#define TIMED(name, parameters, arguments, clock, count)                                                     \
    enum fsdp_status __real_##name parameters;                                                               \
    enum fsdp_status __wrap_##name parameters;                                                               \
    enum fsdp_status __wrap_##name parameters                                                                \
    {                                                                                                        \
        const double began = clock();                                                                        \
        const enum fsdp_status status = __real_##name arguments;                                             \
                                                                                                             \
        count(began);                                                                                        \
        return status;                                                                                       \
    }

TIMED(fsdp_all_gather,
      (struct fsdp_comm * comm, const void *send, void *recv, size_t n_elems, enum fsdp_dtype dtype,
       struct device_stream *stream, struct fsdp_err *err),
      (comm, send, recv, n_elems, dtype, stream, err), bench_now, count_wait)
TIMED(fsdp_reduce_scatter,
      (struct fsdp_comm * comm, const void *send, void *recv, size_t n_elems, enum fsdp_dtype dtype,
       enum fsdp_reduce_op op, struct device_stream *stream, struct fsdp_err *err),
      (comm, send, recv, n_elems, dtype, op, stream, err), bench_now, count_wait)
TIMED(fsdp_all_reduce,
      (struct fsdp_comm * comm, void *buffer, size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
       struct device_stream *stream, struct fsdp_err *err),
      (comm, buffer, n_elems, dtype, op, stream, err), bench_now, count_wait)
TIMED(overlap_wait, (struct overlap * overlap, int entry, struct fsdp_err *err), (overlap, entry, err),
      bench_now, count_wait)
TIMED(overlap_finish, (struct overlap * overlap, struct fsdp_err *err), (overlap, err), bench_now, count_wait)
TIMED(fsdp_optimizer_step, (struct fsdp_optimizer * optimizer, struct fsdp_err *err), (optimizer, err),
      work_s, count_optimizer)
TIMED(fsdp_clip_grad_norm, (struct fsdp_model * model, double max_norm, double *norm, struct fsdp_err *err),
      (model, max_norm, norm, err), work_s, count_optimizer)

TIMED(nn_forward, (struct nn_run * run, const struct graph_op *op, struct fsdp_err *err), (run, op, err),
      own_work_s, count_kernels)
TIMED(nn_backward, (struct nn_run * run, const struct graph_op *op, struct fsdp_err *err), (run, op, err),
      own_work_s, count_kernels)
TIMED(nn_forward_fused,
      (struct nn_run * first_run, const struct graph_op *first, struct nn_run *second_run,
       const struct graph_op *second, struct fsdp_err *err),
      (first_run, first, second_run, second, err), own_work_s, count_kernels)

/* The gate */

static int open_end(const char *end, int flags)
{
    const char *folder = getenv("FSDP_BENCH_GATE"), *rank = getenv("RANK");
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/%s.%s", folder != NULL ? folder : ".", rank != NULL ? rank : "0", end);
    fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        bench_die(path);
    return fd;
}

static void report(void)
{
    if (write(gate.reports, &spent, sizeof spent) != sizeof spent)
        exit(1);
}

static void stand_at_gate(void)
{
    if (gate.orders < 0) {
        gate.orders = open_end("orders", O_RDONLY);
        gate.reports = open_end("reports", O_WRONLY);
    }
    for (;;) {
        if (gate.last == 's') {
            spent.end_s = bench_now();
            spent.work_s = work_s() - gate.began_s;
        }
        if (gate.last != 0)
            report();
        if (read(gate.orders, &gate.last, 1) != 1)
            exit(1);
        memset(&spent, 0, sizeof spent);
        spent.start_s = bench_now();
        gate.began_s = work_s();
        if (gate.last != 'p')
            break;
        replay();
    }
    products.n_calls = 0;
    gate.open = gate.last == 'q';
}

WRAPPED(enum fsdp_status, batch_fill, struct batch *batch, const struct tokens *tokens,
        const struct order *order, uint64_t cursor, int rank, int W, struct fsdp_err *err)
{
    if (!gate.open)
        stand_at_gate();
    return __real_batch_fill(batch, tokens, order, cursor, rank, W, err);
}
