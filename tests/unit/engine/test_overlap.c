/*
 * A step whose collectives run on a second thread is the same step, and they do run while the first one
 * computes.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

enum { STEPS = 3 };

/*
 * A slow transport, which looks whether the rank's other thread gets on with its work meanwhile. Where that
 * is expected, the two wait for each other, because either may be without a CPU for long:
 *   1. The thread that computes comes to an entry that does not need the last collective. It waits until the
 *      second thread is in that collective.
 *   2. The second thread waits there until the other one has come to its next entry.
 * The second thread does not wait in a collective that the other one waits for, nor in one before the last.
 */
static const struct comm_ops *fast_ops;
static struct comm_ops slow_ops;
static atomic_int n_beside[2]; /* gathers, reductions; of all ranks */
static bool has_company;

static struct meeting {
    const struct program *program;
    pthread_t computes;
    int last; /* the entry that gave the last collective */
    atomic_int n_given, n_begun;
    atomic_bool is_waited_for; /* the last collective, by the thread that computes */
} meetings[2];                 /* of each rank */

/* One that never comes fails the test after a minute. */
#define WAIT_UNTIL(condition)                                                                                \
    for (int ms = 60000; ms > 0 && !(condition); ms--)                                                       \
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL)

static bool waits_for(const struct plan_entry *entry, int other)
{
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        if (s != PLAN_COMPUTE && entry->waits[s] >= other)
            return true;
    return false;
}

/* The thread that computes comes to an entry, or to the end. */
static void on_entry(void *observer, int number)
{
    struct meeting *m = observer;
    const struct plan *plan = &m->program->plan;
    const struct plan_entry *entry = &plan->entries[number];

    if (number == plan->n_entries)
        return;
    if (entry->kind == PLAN_GATHER || entry->kind == PLAN_REDUCE) {
        m->last = number;
        m->is_waited_for = number == plan->n_entries - 1;
        m->n_given++;
    } else if (entry->stream == PLAN_COMPUTE && m->n_given > 0) {
        m->is_waited_for = waits_for(entry, m->last);
        WAIT_UNTIL(m->is_waited_for || m->n_begun >= m->n_given);
    }
}

static enum fsdp_status slow_run(struct fsdp_comm *comm, const struct comm_work *work, struct fsdp_err *err)
{
    const bool gathers = work->call.kind == COMM_ALL_GATHER;
    const struct fsdp_progress *page = link_progress(comm->link);
    const uint64_t beat = atomic_load(&page->beat_ns);
    struct meeting *m = &meetings[comm->rank];

    if (!gathers && work->call.kind != COMM_REDUCE_SCATTER)
        return fast_ops->run(comm, work, err);
    if (!pthread_equal(pthread_self(), m->computes)) {
        m->n_begun++;
        WAIT_UNTIL(page->beat_ns != beat || m->is_waited_for || m->n_begun < m->n_given);
    } else {
        nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000000 }, NULL);
    }
    if (atomic_load(&page->beat_ns) != beat) /* no thread but the one that computes stores one now */
        atomic_fetch_add(&n_beside[gathers ? 0 : 1], 1);
    return fast_ops->run(comm, work, err);
}

struct try_it {
    enum fsdp_overlap overlap;
    bool slow;
    size_t n_micro;
    double losses[STEPS];
    float weights[RIG_ELEMS]; /* whole, as rank 0 sees them at the end */
};

static void train(struct fsdp_context *context, void *user)
{
    struct try_it scratch = *(struct try_it *)user;
    struct try_it *t = fsdp_context_rank(context) == 0 ? user : &scratch;
    struct rig rig;

    rig_init(&rig, context);
    rig.n_micro = t->n_micro;
    rig.options.accumulates = t->n_micro > 1;
    rig.options.overlap = t->overlap;
    /* With one, the entry after a reduction waits for it. */
    cr_assert(fsdp_module_set_reduce_scatter_max_input_buffers(rig_root(&rig), 2, true, &rig.err) == FSDP_OK);
    rig_open(&rig);
    if (t->slow) {
        struct meeting *m = &meetings[fsdp_context_rank(context)];

        *m = (struct meeting){ .program = &rig.model->training, .computes = pthread_self() };
        if (has_company) {
            rig.model->training.observe = on_entry;
            rig.model->training.observer = m;
        }
        fsdp_context_comm(context)->ops = &slow_ops;
    }
    for (int step = 0; step < STEPS; step++)
        t->losses[step] = rig_step(&rig, step);
    (void)rig_gather(&rig, FSDP_VALUE, t->weights);
    rig_close(&rig);
}

/* The same steps inline and through a second thread: the same bits. */
static void expect_same_bits(int W, size_t n_micro, bool slow)
{
    struct try_it inline_run = { .overlap = FSDP_OVERLAP_OFF, .n_micro = n_micro, .slow = slow };
    struct try_it threaded = { .overlap = FSDP_OVERLAP_ON, .n_micro = n_micro, .slow = slow };

    has_company = false;
    world_run(W, train, &inline_run);
    cr_expect(n_beside[0] + n_beside[1] == 0, "inline nothing runs at the time of a collective");
    has_company = true;
    world_run(W, train, &threaded);
    cr_expect(memcmp(inline_run.losses, threaded.losses, sizeof threaded.losses) == 0, "W %d", W);
    cr_expect(memcmp(inline_run.weights, threaded.weights, sizeof threaded.weights) == 0, "W %d", W);
}

Test(overlap_step, no_bit_changes, .timeout = 2400)
{
    for (int W = 2; W <= 4; W++)
        for (size_t n_micro = 1; n_micro <= 3; n_micro += 2)
            expect_same_bits(W, n_micro, false);
}

static void find_ops(struct fsdp_context *context, void *user)
{
    (void)user;
    fast_ops = fsdp_context_comm(context)->ops;
}

Test(overlap_step, while_a_slow_transport_gathers_and_reduces_the_rank_computes, .timeout = 2400)
{
    world_run(1, find_ops, NULL);
    slow_ops = *fast_ops;
    slow_ops.run = slow_run;
    expect_same_bits(2, 1, true);
    cr_expect(n_beside[0] > 0 && n_beside[1] > 0, "of tens of each, %d gathers and %d reductions had company",
              n_beside[0], n_beside[1]);
}

/* Which way `auto` goes */

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

/*
 * context_has_idle_time() asks for the calling thread's CPUs, which are changed for a moment. Without an
 * agent a rank is the only one that it knows of on its host.
 */
static void on_one_cpu(struct fsdp_context *context, void *user)
{
    cpu_set_t own, first;
    struct rig rig;
    int cpu = 0;

    (void)user;
    rig_init(&rig, context);
    rig.options.batch = 0;
    rig_model(&rig);
    cr_assert(sched_getaffinity(0, sizeof own, &own) == 0);
    cr_expect(context_has_idle_time(context) == (CPU_COUNT(&own) > context->threads));
    cr_expect(model_overlaps(rig.model) == context_has_idle_time(context), "auto asks that");
    while (!CPU_ISSET(cpu, &own))
        cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    cr_assert(sched_setaffinity(0, sizeof first, &first) == 0);
    cr_expect(!context_has_idle_time(context) && !model_overlaps(rig.model), "one cpu, and it computes");
    rig.model->options.overlap = FSDP_OVERLAP_ON;
    cr_expect(model_overlaps(rig.model), "who says on gets it");
    cr_expect(sched_setaffinity(0, sizeof own, &own) == 0);
    rig_close(&rig);
}

WorldTest(overlap, auto_runs_inline_where_no_cpu_is_spare, on_one_cpu, 2);
