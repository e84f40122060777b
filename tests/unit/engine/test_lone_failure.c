/*
 * One rank fails in the middle of a step, the others do not: at every operation, forward and backward, in
 * turn. No rank waits for ever (a world of threads meets at barriers), and every rank learns who failed and
 * why. After fsdp_module_reset_iteration() the run goes on with the bits it would have had. A script of the
 * same name does this between processes, over real transports.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

enum { MAX_OPS = 128 };

struct way {
    int W, replicate, victim;
    enum fsdp_reshard reshard;
    int reshard_size;
    bool halves, each, overlaps, updates, float8;
    size_t n_micro;
    enum fsdp_gradient_sync sync;
};

/* What is to fail on this thread's rank: the operation, and in which pass; NULL: nothing. */
static _Thread_local const struct graph_op *doomed;
static _Thread_local bool in_backward;
static _Thread_local const struct graph_kind *real[MAX_OPS];
static _Thread_local struct graph_kind false_kinds[MAX_OPS];
static _Thread_local const struct graph *whose;

static int number_of(const struct graph_op *op)
{
    int i = 0;

    while (whose->ops[i] != op)
        i++;
    return i;
}

static enum fsdp_status run_op(struct nn_run *run, const struct graph_op *op, bool back, struct fsdp_err *err)
{
    const struct graph_kind *kind = real[number_of(op)];

    if (op == doomed && back == in_backward)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory, as the test wants it");
    return (back ? kind->backward : kind->forward)(run, op, err);
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    return run_op(run, op, false, err);
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    return run_op(run, op, true, err);
}

/*
 * Every operation of the model runs through the two above; those that fuse are run apart, with the same bits.
 */
static void lay_fuses(struct fsdp_model *model)
{
    whose = &model->training.graph;
    cr_assert(whose->n_ops <= MAX_OPS);
    for (size_t i = 0; i < whose->n_ops; i++) {
        real[i] = whose->ops[i]->kind;
        false_kinds[i] = *real[i];
        false_kinds[i].forward = forward;
        false_kinds[i].backward = real[i]->backward != NULL ? backward : NULL;
        whose->ops[i]->kind = &false_kinds[i];
    }
    for (int e = 0; e < model->training.plan.n_entries; e++)
        if (plan_is_operation(&model->training.plan.entries[e]))
            model->training.plan.entries[e].op.with_next = model->training.plan.entries[e].op.with_before =
                false;
}

static void take_away_fuses(struct fsdp_model *model)
{
    for (size_t i = 0; i < whose->n_ops; i++)
        model->training.graph.ops[i]->kind = real[i];
}

static enum fsdp_status update(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model, (void)group, (void)user, (void)err;
    return FSDP_OK;
}

static enum fsdp_status step(struct rig *rig, const struct way *way, int number)
{
    enum fsdp_status status = FSDP_OK;

    if (!way->halves)
        return rig_backward(rig, number, RIG_IN_ONE_CALL);
    rig_fill(rig, number);
    for (size_t m = 0; m < way->n_micro && status == FSDP_OK; m++)
        status = fsdp_model_forward(rig->model, &rig->micro[m], &rig->loss, &rig->err);
    for (size_t m = 0; m < (way->each ? way->n_micro : 1) && status == FSDP_OK; m++)
        status = fsdp_model_backward(rig->model, &rig->err);
    return status;
}

/* Step 7 fails on all ranks, with the words of the victim. */
static void expect_failure(struct rig *rig, const struct way *way, const char *what)
{
    const int rank = fsdp_context_rank(rig->context);
    char prefix[24];

    snprintf(prefix, sizeof prefix, "rank %d: ", way->victim);
    cr_expect(step(rig, way, 7) == FSDP_ERR_NOMEM, "%s: %s", what, rig->err.message);
    cr_expect_not_null(strstr(rig->err.message, "no memory, as the test wants it"), "%s: %s", what,
                       rig->err.message);
    cr_expect((strncmp(rig->err.message, prefix, strlen(prefix)) == 0) == (rank != way->victim), "%s: %s",
              what, rig->err.message);
    doomed = NULL;
}

static void open_rig(struct rig *rig, struct fsdp_context *context, const struct way *way,
                     struct fsdp_mixed_precision_policy *mp)
{
    rig_init(rig, context);
    rig->n_micro = way->n_micro;
    rig->options.accumulates = way->n_micro > 1 && !way->halves;
    rig->options.forwards = way->halves ? way->n_micro : 1;
    rig->options.backwards = way->each ? FSDP_BACKWARD_OF_EACH : FSDP_BACKWARD_OF_SUM;
    rig->options.gradient_sync = way->sync;
    rig->options.overlap = way->overlaps ? FSDP_OVERLAP_ON : FSDP_OVERLAP_OFF;
    rig->tiny.reshard = way->reshard;
    rig->tiny.reshard_size = way->reshard_size;
    *mp = fsdp_mixed_precision_defaults();
    mp->float8_gather = true;
    mp->reduce_dtype = FSDP_F32;
    rig->tiny.heads = way->float8 ? 4 : rig->tiny.heads;
    rig->tiny.mp_policy = way->float8 ? mp : NULL;
    rig_mesh(rig, way->replicate, 1);
    if (way->updates)
        fsdp_module_register_post_accumulate_grad_hook(rig_root(rig), update, NULL, true);
    rig_model(rig);
}

static void fail_everywhere(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    struct fsdp_mixed_precision_policy mp;
    struct rig rig;
    float *want;

    open_rig(&rig, context, way, &mp);
    must(step(&rig, way, 1), &rig.err);
    want = rig_copy(&rig, FSDP_GRADIENT);
    lay_fuses(rig.model);
    for (size_t i = 0; i < 2 * whose->n_ops; i++) {
        const struct graph_op *op = whose->ops[i / 2];
        enum fsdp_status status;
        char what[96];

        if (i % 2 == 1 && (real[i / 2]->backward == NULL || !op->output->needs_grad))
            continue;
        snprintf(what, sizeof what, "%s of %s", i % 2 == 1 ? "backward" : "forward", op->name);
        doomed = fsdp_context_rank(context) == way->victim ? op : NULL;
        in_backward = i % 2 == 1;
        expect_failure(&rig, way, what);
        status = fsdp_module_reset_iteration(rig.model, &rig.err);
        /* A rank that fails in forward ends the step before any hook is called. */
        cr_expect(status == (way->updates && in_backward ? FSDP_ERR_UNSUPPORTED : FSDP_OK), "%s: %s", what,
                  rig.err.message);
        must(step(&rig, way, 1), &rig.err);
        cr_expect(rig_is(&rig, FSDP_GRADIENT, want), "%s: other bits afterwards", what);
    }
    take_away_fuses(rig.model);
    free(want);
    rig_close(&rig);
}

Test(lone_failure, of_any_operation_is_told_to_all_and_changes_no_bit_afterwards, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 1, .victim = 0, .n_micro = 1 },
        { .W = 2, .victim = 1, .n_micro = 1 },
        { .W = 3, .victim = 0, .n_micro = 2 },
        { .W = 2, .victim = 0, .n_micro = 2, .sync = FSDP_SYNC_EVERY, .reshard = FSDP_RESHARD_TRUE },
        { .W = 2, .victim = 1, .n_micro = 1, .overlaps = true },
        { .W = 4, .victim = 2, .n_micro = 1, .replicate = 2 },
        { .W = 4, .victim = 3, .n_micro = 1, .reshard_size = 2, .reshard = FSDP_RESHARD_TO },
        { .W = 2, .victim = 1, .n_micro = 2, .halves = true },
        { .W = 3, .victim = 1, .n_micro = 2, .halves = true, .each = true, .sync = FSDP_SYNC_EVERY },
        { .W = 2, .victim = 0, .n_micro = 2, .halves = true, .each = true, .overlaps = true },
        { .W = 2, .victim = 1, .n_micro = 1, .float8 = true },
        { .W = 2, .victim = 0, .n_micro = 1, .float8 = true, .overlaps = true },
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        world_run(ways[i].W, fail_everywhere, (void *)(uintptr_t)&ways[i]);
}

/* Of parameters that hooks updated inside the failed backward nobody says that they are what they were. */
Test(lone_failure, behind_hooks_on_final_gradients_is_not_undone, .timeout = 3000)
{
    struct way way = { .W = 2, .victim = 1, .n_micro = 1, .updates = true };

    world_run(way.W, fail_everywhere, &way);
}

static enum fsdp_status talk(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                             void *user, struct fsdp_err *err)
{
    return user != NULL ? fsdp_all_reduce(user, row, n_elems, dtype, FSDP_MAX, stream, err) : FSDP_OK;
}

struct talking {
    bool talks, overlaps;
    size_t n_micro;
};

/*
 * Where hooks of other ranks would wait for this rank's, it leaves the groups, with the words of what failed.
 * (Those that wait are real processes: tests/support/workers/lone_failure.c.)
 */
static void fail_before_hook(struct fsdp_context *context, void *user)
{
    const struct talking *how = user;
    const struct way way = { .W = 1, .n_micro = how->n_micro };
    struct rig rig;

    rig_init(&rig, context);
    rig.n_micro = how->n_micro;
    rig.options.accumulates = how->n_micro > 1;
    rig.options.overlap = how->overlaps ? FSDP_OVERLAP_ON : FSDP_OVERLAP_OFF;
    fsdp_module_set_all_reduce_hook(rig_block(&rig, 0), talk, how->talks ? context->comm : NULL);
    rig_model(&rig);
    must(step(&rig, &way, 1), &rig.err);
    cr_expect_eq(rig.model->hooks_talk, how->talks);
    lay_fuses(rig.model);
    doomed = whose->ops[whose->n_ops - 1];
    in_backward = false;
    expect_failure(&rig, &way, "before a hook");
    take_away_fuses(rig.model);
    cr_expect_eq(model_is_broken(rig.model), how->talks);
    rig_close(&rig);
}

Test(lone_failure, before_a_hook_that_talks_leaves_nobody_waiting_in_it)
{
    for (int i = 0; i < 8; i++) {
        struct talking how = { .talks = i & 1, .overlaps = i & 2, .n_micro = i & 4 ? 2 : 1 };

        world_run(1, fail_before_hook, &how);
    }
}

enum { UPDATES = 4, FAILS_IN = 2 };

static enum fsdp_status step_group(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model;
    return fsdp_optimizer_step_group(*(struct fsdp_optimizer **)user, group, err);
}

struct updated {
    bool fails;
    double norms[2][UPDATES]; /* of each rank, of the weights in the end of each step: any bit shows */
};

static double sum_of(const float *x, size_t bytes)
{
    double sum = 0;

    for (size_t i = 0; i < bytes / sizeof *x; i++)
        sum += x[i] * (double)(i + 1);
    return sum;
}

/* The failed step: told to all, with what it left of the weights; then they are what they were before it. */
static void fail_and_load(struct rig *rig, const struct way *way)
{
    const int rank = fsdp_context_rank(rig->context);
    float *checkpoint = rig_copy(rig, FSDP_VALUE);

    lay_fuses(rig->model);
    /* An operation of the first block: backward did the last block before. */
    doomed = rank == way->victim ? whose->ops[whose->n_ops / 4] : NULL;
    in_backward = true;
    expect_failure(rig, way, "an optimizer in backward");
    take_away_fuses(rig->model);
    cr_expect(!rig_is(rig, FSDP_VALUE, checkpoint), "rank %d updated nothing before the failure", rank);
    expect_refused(fsdp_module_reset_iteration(rig->model, &rig->err), FSDP_ERR_UNSUPPORTED,
                   "a checkpoint has them", &rig->err);
    cr_expect_eq(fsdp_module_reset_iteration(rig->model, &rig->err), FSDP_OK, "it is said once");
    memcpy(rig->model->memory[PLACE_DEVICE].parameters, checkpoint,
           rig->model->memory[PLACE_DEVICE].parameter_bytes);
    free(checkpoint);
}

static void update_in_backward(struct fsdp_context *context, void *user)
{
    static const struct way way = { .W = 2, .victim = 1, .n_micro = 1 };
    struct updated *updated = user;
    struct rig rig;

    rig_init(&rig, context);
    rig.updates.kind = FSDP_SGD;
    fsdp_module_register_post_accumulate_grad_hook(rig_root(&rig), step_group, &rig.optimizer, true);
    rig_open(&rig);
    for (int i = 0; i < UPDATES; i++) {
        if (updated->fails && i == FAILS_IN)
            fail_and_load(&rig, &way);
        rig_step(&rig, i);
        updated->norms[rig.rank][i] = sum_of(rig.model->memory[PLACE_DEVICE].parameters,
                                             rig.model->memory[PLACE_DEVICE].parameter_bytes);
    }
    rig_close(&rig);
}

/*
 * Weights are not undone: those of each rank are loaded again. Groups, plan and the optimizer's own memory
 * are sound.
 */
Test(lone_failure, of_an_optimizer_in_backward_goes_on_from_a_checkpoint)
{
    struct updated sound = { .fails = false }, failed = { .fails = true };

    world_run(2, update_in_backward, &sound);
    world_run(2, update_in_backward, &failed);
    cr_expect(sound.norms[0][UPDATES - 1] != sound.norms[0][UPDATES - 2]);
    cr_expect(memcmp(sound.norms, failed.norms, sizeof sound.norms) == 0, "other bits afterwards");
}
