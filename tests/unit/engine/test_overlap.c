/*
 * The second thread: its order, its failures; that a step through it is the same step, and that it does run beside the
 * first one.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/overlap.h"
#include "tests/unit/engine/world.h"

/* --- the thread alone ------------------------------------------------------------------------------------- */

enum { N_TASKS = 1000, CAPACITY = 16 };

struct log_of {
    int entries[N_TASKS];
    int n, fails_at;
    pthread_t thread;
};

static enum fsdp_status note(void *user, int entry, struct fsdp_err *err)
{
    struct log_of *log = user;

    log->thread = pthread_self();
    log->entries[log->n++] = entry;
    return entry == log->fails_at ? fsdp_fail(err, FSDP_ERR_PEER, "entry %d", entry) : FSDP_OK;
}

Test(overlap, entries_run_in_order_on_one_other_thread, .timeout = 600)
{
    struct log_of log = { .fails_at = -1 };
    struct overlap *overlap;

    cr_assert(overlap_create(&overlap, CAPACITY, NULL) == FSDP_OK);
    for (int i = 0; i < N_TASKS; i++) {
        overlap_give(overlap, note, &log, i);
        if (i % CAPACITY == CAPACITY - 1) {
            cr_assert(overlap_wait(overlap, i, NULL) == FSDP_OK);
            cr_assert_eq(log.n, i + 1, "what was given before is done before");
        }
    }
    cr_assert(overlap_finish(overlap, NULL) == FSDP_OK);
    cr_assert_eq(log.n, N_TASKS);
    for (int i = 0; i < N_TASKS; i++)
        cr_assert_eq(log.entries[i], i);
    cr_assert(!pthread_equal(log.thread, pthread_self()));
    overlap_destroy(overlap);
}

Test(overlap, after_a_failure_nothing_runs_until_it_was_told, .timeout = 600)
{
    struct log_of log = { .fails_at = 2 };
    struct fsdp_err err = { 0 };
    struct overlap *overlap;

    cr_assert(overlap_create(&overlap, CAPACITY, NULL) == FSDP_OK);
    for (int i = 0; i < 6; i++)
        overlap_give(overlap, note, &log, i);
    cr_assert(overlap_wait(overlap, 5, &err) == FSDP_ERR_PEER);
    cr_assert_str_eq(err.message, "entry 2");
    cr_assert(overlap_finish(overlap, NULL) == FSDP_ERR_PEER);
    cr_assert_eq(log.n, 3);
    overlap_give(overlap, note, &log, 7);
    cr_assert(overlap_finish(overlap, NULL) == FSDP_OK, "the failure is forgotten once it was told");
    cr_assert(log.n == 4 && log.entries[3] == 7);
    overlap_destroy(overlap);
}

Test(overlap, one_that_was_never_used_ends, .timeout = 600)
{
    struct overlap *overlap;

    cr_assert(overlap_create(&overlap, CAPACITY, NULL) == FSDP_OK);
    cr_assert(overlap_finish(overlap, NULL) == FSDP_OK);
    overlap_destroy(overlap);
    overlap_destroy(NULL);
}

/* --- steps ------------------------------------------------------------------------------------------------ */

enum { STEPS = 3, BATCH = 2, MAX_ELEMS = 1 << 16 };

/* A transport that is slow by a timer, and looks whether the rank's other thread gets on with its work meanwhile. */
enum { DELAY_MS = 10 };
static const struct comm_ops *fast_ops;
static struct comm_ops slow_ops;
static atomic_int n_beside, n_delays; /* of all ranks */

static void wait_a_delay(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = DELAY_MS * 1000000 }, NULL);
    atomic_fetch_add(&n_delays, 1);
}

static void be_slow(const struct fsdp_comm *comm)
{
    const struct fsdp_progress *page = link_progress(comm->link);
    const uint64_t beat = atomic_load(&page->beat_ns);

    wait_a_delay();
    if (atomic_load(&page->beat_ns) != beat) /* no thread but the one that computes stores one now */
        atomic_fetch_add(&n_beside, 1);
}

static enum fsdp_status slow_gather(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                    enum fsdp_dtype dtype, struct fsdp_err *err)
{
    be_slow(comm);
    return fast_ops->all_gather(comm, send, recv, n_elems, dtype, err);
}

static enum fsdp_status slow_reduce(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                    enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err)
{
    be_slow(comm);
    return fast_ops->reduce_scatter(comm, send, recv, n_elems, dtype, op, err);
}

/* Kernels that take as long as a collective does: with no spare core there would else be nothing to compute meanwhile. */
static const struct numerics_ops *fast_kernels;
static struct numerics_ops slow_kernels;

static void slow_gelu(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                      size_t n_elems)
{
    wait_a_delay();
    fast_kernels->gelu(numerics, stream, x, y, n_elems);
}

static void slow_gelu_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                               const float *x, float *dx, size_t n_elems)
{
    wait_a_delay();
    fast_kernels->gelu_backward(numerics, stream, dy, x, dx, n_elems);
}

struct try_it {
    enum fsdp_overlap overlap;
    bool slow, slow_kernels;
    size_t n_micro, layers; /* layers 0: the defaults' */
    double losses[STEPS], fastest_s,
        delays_s;   /* of a step: the fastest one's time; all that it was delayed for */
    float *weights; /* whole, as rank 0 sees them at the end */
    size_t n_elems;
};

static void keep_weights(struct fsdp_model *model, struct try_it *t)
{
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;

        fsdp_model_parameter(model, i, &info, NULL);
        cr_assert(t->n_elems + info.n_elems < MAX_ELEMS);
        cr_assert(fsdp_parameter_gather(model, info.name, FSDP_VALUE, t->weights + t->n_elems, info.n_elems,
                                        NULL) == FSDP_OK);
        t->n_elems += info.n_elems;
    }
}

static void slow_down(struct fsdp_context *context, bool kernels)
{
    struct fsdp_comm *comm = fsdp_context_comm(context);

    comm->ops = &slow_ops;
    if (kernels)
        context->numerics.ops = &slow_kernels;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void one_step(struct fsdp_model *model, struct try_it *t, int step)
{
    const struct fsdp_context *context = fsdp_model_context(model);
    int32_t tokens[3][BATCH * 8], targets[3][BATCH * 8];
    struct fsdp_batch batch[3];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    double began;

    for (size_t m = 0; m < t->n_micro; m++) {
        const uint64_t sample = ((uint64_t)step * 100 + m * 8 + (uint64_t)fsdp_context_rank(context)) * BATCH;

        tiny_samples(&tiny_defaults, sample, BATCH, tokens[m], targets[m]);
        batch[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = sample };
    }
    began = now_s();
    cr_assert(fsdp_model_forward_backward(model, batch, t->n_micro, &loss, &err) == FSDP_OK, "%s",
              err.message);
    began = now_s() - began;
    if (step == 0 || began < t->fastest_s)
        t->fastest_s = began;
    t->losses[step] = loss.mean;
}

static void train(struct fsdp_context *context, void *user)
{
    struct try_it scratch = *(struct try_it *)user;
    struct try_it *t = fsdp_context_rank(context) == 0 ? user : &scratch;
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny_defaults.seq,
                                                .seed = 5,
                                                .accumulates = t->n_micro > 1,
                                                .overlap = t->overlap };
    struct fsdp_err err = { 0 };
    struct tiny tiny = tiny_defaults;
    struct fsdp_optimizer *optimizer;
    struct fsdp_module *root;
    struct fsdp_model *model;

    if (t->layers > 0)
        tiny.layers = t->layers;
    root = tiny_build(&tiny, &err);
    t->weights = calloc(MAX_ELEMS, sizeof *t->weights);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK);
    if (t->slow)
        slow_down(context, t->slow_kernels);
    for (int step = 0; step < STEPS; step++) {
        one_step(model, t, step);
        cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK);
    }
    /* Behind the last reduction no rank is delayed any more, and beyond the barrier all are again. */
    t->delays_s = 1e-3 * DELAY_MS * atomic_load(&n_delays) / (fsdp_context_world_size(context) * STEPS);
    cr_assert(fsdp_barrier(fsdp_context_comm(context), &err) == FSDP_OK, "%s", err.message);
    if (!t->slow_kernels) /* each of them a collective, slow as the others */
        keep_weights(model, t);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    if (t == &scratch)
        free(t->weights);
}

Test(overlap_step, no_bit_changes, .timeout = 2400)
{
    for (int W = 2; W <= 4; W++)
        for (size_t n_micro = 1; n_micro <= 3; n_micro += 2) {
            struct try_it inline_run = { .overlap = FSDP_OVERLAP_OFF, .n_micro = n_micro };
            struct try_it beside = { .overlap = FSDP_OVERLAP_ON, .n_micro = n_micro };

            world_run(W, train, &inline_run);
            world_run(W, train, &beside);
            cr_expect(memcmp(inline_run.losses, beside.losses, sizeof beside.losses) == 0, "W %d", W);
            cr_expect(memcmp(inline_run.weights, beside.weights, beside.n_elems * sizeof(float)) == 0, "W %d",
                      W);
            free(inline_run.weights);
            free(beside.weights);
        }
}

static void find_ops(struct fsdp_context *context, void *user)
{
    (void)user;
    if (fsdp_context_rank(context) != 0)
        return;
    fast_ops = fsdp_context_comm(context)->ops;
    fast_kernels = context->numerics.ops;
}

static void make_slow_ops(void)
{
    world_run(2, find_ops, NULL);
    slow_ops = *fast_ops;
    slow_ops.all_gather = slow_gather;
    slow_ops.reduce_scatter = slow_reduce;
    slow_kernels = *fast_kernels;
    slow_kernels.gelu = slow_gelu;
    slow_kernels.gelu_backward = slow_gelu_backward;
}

Test(overlap_step, while_a_slow_transport_gathers_the_rank_computes, .timeout = 2400)
{
    struct try_it inline_run = { .overlap = FSDP_OVERLAP_OFF, .slow = true, .n_micro = 1 };
    struct try_it beside = { .overlap = FSDP_OVERLAP_ON, .slow = true, .n_micro = 1 };

    make_slow_ops();

    world_run(2, train, &inline_run);
    cr_expect_eq(atomic_load(&n_beside), 0, "inline nothing runs beside a collective");
    world_run(2, train, &beside);
    cr_expect(atomic_load(&n_beside) > 0, "of some tens of collectives at least one had company");
    cr_expect(memcmp(inline_run.losses, beside.losses, sizeof beside.losses) == 0);
    cr_expect(memcmp(inline_run.weights, beside.weights, beside.n_elems * sizeof(float)) == 0);
    free(inline_run.weights);
    free(beside.weights);
}

static void time_steps(struct try_it *t)
{
    atomic_store(&n_delays, 0);
    world_run(2, train, t);
    free(t->weights);
}

/*
 * Of 6 blocks a gather of the next one and a reduction of the last one run beside each block that computes: most of the
 * transport's delays are hidden. Both are timers, so that a busy machine lengthens the two runs alike; they take turns, and the
 * fastest step of each counts, to which noise only adds.
 */
Test(overlap_step, a_step_takes_less_than_its_kernels_and_a_slow_transport_together, .timeout = 2400)
{
    double inline_s = 1e9, beside_s = 1e9;

    make_slow_ops();
    for (int round = 0; round < 2; round++) {
        struct try_it inline_run = {
            .overlap = FSDP_OVERLAP_OFF, .slow = true, .slow_kernels = true, .n_micro = 1, .layers = 6
        };
        struct try_it beside = inline_run;

        beside.overlap = FSDP_OVERLAP_ON;
        time_steps(&inline_run);
        time_steps(&beside);
        cr_assert(inline_run.delays_s > 0.2 && fabs(beside.delays_s - inline_run.delays_s) < 1e-6,
                  "%g s and %g s: not the same collectives and kernels", inline_run.delays_s,
                  beside.delays_s);
        cr_expect(inline_run.fastest_s >= inline_run.delays_s,
                  "inline a step takes %g s, less than %g s of delays", inline_run.fastest_s,
                  inline_run.delays_s); /* nobody sleeps shorter than asked */
        inline_s = fmin(inline_s, inline_run.fastest_s);
        beside_s = fmin(beside_s, beside.fastest_s);
    }
    cr_expect(beside_s < 0.9 * inline_s, "%g s beside, %g s inline", beside_s, inline_s);
}

/* --- which way `auto` goes ---------------------------------------------------------------------------------- */

Test(overlap, a_cpu_that_no_rank_computes_on_is_idle_time)
{
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int threads = 1; threads <= 4; threads++) {
            const int busy = ranks * threads;

            cr_expect(context_leaves_idle_time(1, ranks, threads, busy + 1), "one is spare");
            cr_expect(!context_leaves_idle_time(1, ranks, threads, busy), "each has its thread");
            cr_expect(!context_leaves_idle_time(1, ranks, threads, busy - 1), "fewer than threads");
            cr_expect(!context_leaves_idle_time(1, ranks, threads, 0), "nobody knows");
            cr_expect(context_leaves_idle_time(2, ranks, threads, 1), "a network is waited for");
        }
}

/* The calling thread's CPUs for the length of a question: context_has_idle_time() asks for them. Without an agent a rank is
 * the only one that it knows of on its host. */
static void on_one_cpu(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .seq = tiny_defaults.seq };
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_model *model;
    cpu_set_t own, first;
    int cpu = 0;

    (void)user;
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(sched_getaffinity(0, sizeof own, &own) == 0);
    cr_expect(context_has_idle_time(context) == (CPU_COUNT(&own) > context->threads));
    cr_expect(model_overlaps(model) == context_has_idle_time(context), "auto asks that");
    while (!CPU_ISSET(cpu, &own))
        cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    cr_assert(sched_setaffinity(0, sizeof first, &first) == 0);
    cr_expect(!context_has_idle_time(context) && !model_overlaps(model), "one cpu, and it computes");
    model->options.overlap = FSDP_OVERLAP_ON;
    cr_expect(model_overlaps(model), "who says on gets it");
    cr_expect(sched_setaffinity(0, sizeof own, &own) == 0);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(overlap, auto_runs_inline_where_no_cpu_is_spare)
{
    world_run(2, on_one_cpu, NULL);
}
