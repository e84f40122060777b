/*
 * fsdp-train with a stopwatch, for bench_train: where a step's time goes, and how long its matrix products take
 * alone. The Makefile links the trainer and libfsdp with --wrap of the functions below; nothing of it is in the product.
 *
 * Between two steps a rank stands still at its gate, the pipes $FSDP_BENCH_GATE/RANK.orders and RANK.reports, and takes
 * orders: 's' runs the next step, 'p' runs the products of a step and nothing else, on buffers of their own, 'q' lets
 * the rest of the run go on unmeasured. Each is answered with a struct train_report once the gate is reached again.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/engine/overlap.h"
#include "shard_runtime/nn/nn.h"
#include "shard_runtime/trainer/batch.h"
#include "tests/bench/train_report.h"

#include <fsdp/comm.h>
#include <fsdp/fsdp.h>

/* Declares both, so that what follows is the body of the one that the program calls. */
#define WRAPPED(type, name, ...)                                                                             \
    type __real_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__)

static double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now_s(void)
{
    return seconds(CLOCK_MONOTONIC);
}

/* What this rank computed, on any thread: on a machine that others use as well the clock on the wall says more of
 * them than of us. */
static double work_s(void)
{
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}

/* The pipes; used at the end of this file. */
static struct {
    int orders, reports;
    char last;      /* the order that is being carried out, 0 before the first */
    bool open;      /* no more orders */
    double began_s; /* CPU time when the order began */
} gate = { .orders = -1, .reports = -1 };

/* --- the products of a step ------------------------------------------------------------------------------ */

enum { MOST_PRODUCTS = 256, MOST_CALLS = 65536 };

static const struct numerics_ops *sound;
static struct numerics_ops timed;

static struct {
    struct matmul *matmul[MOST_PRODUCTS]; /* with what each needs, */
    size_t a[MOST_PRODUCTS], b[MOST_PRODUCTS], c[MOST_PRODUCTS], bias[MOST_PRODUCTS], scratch[MOST_PRODUCTS];
    int n;
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
    const int i = products.n;

    if (status != FSDP_OK)
        return status;
    if (i == MOST_PRODUCTS)
        return fsdp_fail(err, FSDP_ERR_ARG, "bench_train: more than %d products", MOST_PRODUCTS);
    products.matmul[i] = *out;
    products.a[i] = extent(desc, &desc->a, desc->m, desc->k);
    products.b[i] = extent(desc, &desc->b, desc->k, desc->n);
    products.c[i] = extent(desc, &desc->c, desc->m, desc->n);
    products.bias[i] = desc->bias ? desc->n : 0;
    products.scratch[i] = *scratch_bytes;
    products.n++;
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

static size_t largest(const size_t *sizes)
{
    size_t most = 0;

    for (int i = 0; i < products.n; i++)
        most = sizes[i] > most ? sizes[i] : most;
    return most;
}

struct operand {
    void *data;
    size_t size_bytes;
};

/* Small numbers in either dtype: the bits of 1/256 of float32 read as two of bfloat16 are 1/256 and 0. Pages of its own,
 * which are the system's again when it is dropped: the memory of the next step is to be the step's. */
static struct operand make_operand(size_t n_elems)
{
    struct operand o = { .size_bytes = n_elems * sizeof(float) + 64 };
    float *x = mmap(NULL, o.size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (x == MAP_FAILED) {
        perror("bench_train: buffers for products");
        exit(1);
    }
    for (size_t i = 0; i < o.size_bytes / sizeof *x; i++)
        x[i] = 0x1p-8f;
    o.data = x;
    return o;
}

static void replay(void)
{
    enum { A, B, C, BIAS, SCRATCH, N_OPERANDS };
    const struct operand o[N_OPERANDS] = { [A] = make_operand(largest(products.a)),
                                           [B] = make_operand(largest(products.b)),
                                           [C] = make_operand(largest(products.c)),
                                           [BIAS] = make_operand(largest(products.bias)),
                                           [SCRATCH] =
                                               make_operand(largest(products.scratch) / sizeof(float) + 16) };
    struct fsdp_err err = { 0 };

    spent.start_s = now_s();
    gate.began_s = work_s();
    for (int i = 0; i < products.n_calls && i < MOST_CALLS; i++)
        if (sound->matmul_run(products.calls[i], NULL, o[A].data, o[B].data, o[BIAS].data, o[C].data,
                              o[SCRATCH].data, &err) != FSDP_OK) {
            fprintf(stderr, "bench_train: %s\n", err.message);
            exit(1);
        }
    spent.end_s = now_s();
    spent.work_s = work_s() - gate.began_s;
    for (int i = 0; i < N_OPERANDS; i++)
        munmap(o[i].data, o[i].size_bytes);
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

/* --- what else a step is made of ------------------------------------------------------------------------- */

/* FSDP_BENCH_KINDS: seconds by kind of operation, on stderr at the end: what to make faster next. */
static struct {
    const char *name[64];
    double forward_s[64], backward_s[64];
    int n;
} kinds;

static void count_kind(const char *name, double forward_s, double backward_s)
{
    int i = 0;

    while (i < kinds.n && strcmp(kinds.name[i], name) != 0)
        i++;
    if (i == 64)
        return;
    if (i == kinds.n)
        kinds.name[kinds.n++] = name;
    kinds.forward_s[i] += forward_s;
    kinds.backward_s[i] += backward_s;
}

WRAPPED(enum fsdp_status, nn_forward, struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const double began = work_s(), products_s = spent.products_s;
    const enum fsdp_status status = __real_nn_forward(run, op, err);
    const double own = work_s() - began - (spent.products_s - products_s);

    spent.kernels_s += own;
    count_kind(op->kind->name, own, 0);
    return status;
}

WRAPPED(enum fsdp_status, nn_forward_fused, struct nn_run *first_run, const struct graph_op *first,
        struct nn_run *second_run, const struct graph_op *second, struct fsdp_err *err)
{
    const double began = work_s();
    const enum fsdp_status status = __real_nn_forward_fused(first_run, first, second_run, second, err);

    spent.kernels_s += work_s() - began;
    count_kind("two in one", work_s() - began, 0);
    return status;
}

WRAPPED(enum fsdp_status, nn_backward, struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const double began = work_s(), products_s = spent.products_s;
    const enum fsdp_status status = __real_nn_backward(run, op, err);
    const double own = work_s() - began - (spent.products_s - products_s);

    spent.kernels_s += own;
    count_kind(op->kind->name, 0, own);
    return status;
}

/* Waiting of the thread that computes: in a collective, or for one on the second thread. */
static void count_wait(double began)
{
    if (pthread_equal(pthread_self(), compute_thread))
        spent.wait_s += now_s() - began;
}

WRAPPED(enum fsdp_status, fsdp_all_gather, struct fsdp_comm *comm, const void *send, void *recv,
        size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream, struct fsdp_err *err)
{
    const double began = now_s();
    const enum fsdp_status status = __real_fsdp_all_gather(comm, send, recv, n_elems, dtype, stream, err);

    count_wait(began);
    return status;
}

WRAPPED(enum fsdp_status, fsdp_reduce_scatter, struct fsdp_comm *comm, const void *send, void *recv,
        size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct device_stream *stream,
        struct fsdp_err *err)
{
    const double began = now_s();
    const enum fsdp_status status =
        __real_fsdp_reduce_scatter(comm, send, recv, n_elems, dtype, op, stream, err);

    count_wait(began);
    return status;
}

WRAPPED(enum fsdp_status, fsdp_all_reduce, struct fsdp_comm *comm, void *buffer, size_t n_elems,
        enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct device_stream *stream, struct fsdp_err *err)
{
    const double began = now_s();
    const enum fsdp_status status = __real_fsdp_all_reduce(comm, buffer, n_elems, dtype, op, stream, err);

    count_wait(began);
    return status;
}

WRAPPED(enum fsdp_status, overlap_wait, struct overlap *overlap, int entry, struct fsdp_err *err)
{
    const double began = now_s();
    const enum fsdp_status status = __real_overlap_wait(overlap, entry, err);

    count_wait(began);
    return status;
}

WRAPPED(enum fsdp_status, overlap_finish, struct overlap *overlap, struct fsdp_err *err)
{
    const double began = now_s();
    const enum fsdp_status status = __real_overlap_finish(overlap, err);

    count_wait(began);
    return status;
}

WRAPPED(enum fsdp_status, fsdp_optimizer_step, struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    const double began = work_s();
    const enum fsdp_status status = __real_fsdp_optimizer_step(optimizer, err);

    spent.optimizer_s += work_s() - began;
    return status;
}

WRAPPED(enum fsdp_status, fsdp_clip_grad_norm, struct fsdp_model *model, double max_norm, double *norm,
        struct fsdp_err *err)
{
    const double began = work_s();
    const enum fsdp_status status = __real_fsdp_clip_grad_norm(model, max_norm, norm, err);

    spent.optimizer_s += work_s() - began;
    return status;
}

/* --- the gate -------------------------------------------------------------------------------------------- */

static int open_end(const char *end, int flags)
{
    const char *folder = getenv("FSDP_BENCH_GATE"), *rank = getenv("RANK");
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/%s.%s", folder != NULL ? folder : ".", rank != NULL ? rank : "0", end);
    fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "bench_train: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    return fd;
}

static void report(void)
{
    if (write(gate.reports, &spent, sizeof spent) != sizeof spent)
        exit(1);
}

static void print_kinds(void)
{
    if (getenv("FSDP_BENCH_KINDS") == NULL)
        return;
    for (int i = 0; i < kinds.n; i++)
        fprintf(stderr, "%-16s forward %8.4f s  backward %8.4f s, products left out\n", kinds.name[i],
                kinds.forward_s[i], kinds.backward_s[i]);
}

static void stand_at_gate(void)
{
    if (gate.orders < 0) {
        gate.orders = open_end("orders", O_RDONLY);
        gate.reports = open_end("reports", O_WRONLY);
    }
    for (;;) {
        if (gate.last == 's') {
            spent.end_s = now_s();
            spent.work_s = work_s() - gate.began_s;
        }
        if (gate.last != 0)
            report();
        if (read(gate.orders, &gate.last, 1) != 1)
            exit(1);
        memset(&spent, 0, sizeof spent);
        spent.start_s = now_s();
        gate.began_s = work_s();
        if (gate.last != 'p')
            break;
        replay();
    }
    products.n_calls = 0;
    gate.open = gate.last == 'q';
    if (gate.open)
        print_kinds();
}

WRAPPED(enum fsdp_status, batch_fill, struct batch *batch, const struct tokens *tokens,
        const struct order *order, uint64_t cursor, int rank, int W, struct fsdp_err *err)
{
    if (!gate.open)
        stand_at_gate();
    return __real_batch_fill(batch, tokens, order, cursor, rank, W, err);
}
