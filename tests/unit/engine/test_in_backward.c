/*
 * An optimizer inside backward takes nothing that is not finite: the loss is looked at before backward, each
 * group's gradients before their update. What was updated before that is named, and is not saved.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"
#include "tests/unit/shardfile/files.h"

static const char *directory;

struct run {
    struct rig rig;
    bool eager;  /* hooks also update the group that comes next, whose gradients are not there yet */
    bool spoils; /* this rank's shard of the gradients of layers.0, after they were reduced */
    enum fsdp_status early; /* what the eager update gave */
    bool watches;           /* hooks update nothing, */
    bool refuses;           /* and end the step */
};

static enum fsdp_status update(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    struct run *run = user;

    (void)model;
    if (run->watches)
        return run->refuses ? fsdp_fail(err, FSDP_ERR_IO, "a hook refuses") : FSDP_OK;
    if (run->eager && group > 0)
        run->early = fsdp_optimizer_step_group(run->rig.optimizer, group - 1, err);
    return fsdp_optimizer_step_group(run->rig.optimizer, group, err);
}

static enum fsdp_status spoil(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                              void *user, struct fsdp_err *err)
{
    const struct run *run = user;

    (void)n_elems, (void)stream, (void)err;
    cr_assert(dtype == FSDP_F32);
    if (run->spoils)
        *(float *)row = (float)NAN;
    return FSDP_OK;
}

/* Steps are of two micro-steps. */
static struct rig *open_run(struct run *run, struct fsdp_context *context)
{
    struct rig *rig = &run->rig;

    *run = (struct run){ 0 };
    rig_init(rig, context);
    rig->n_micro = 2;
    rig->options.accumulates = true;
    fsdp_module_register_post_accumulate_grad_hook(rig_root(rig), update, run, true);
    fsdp_module_set_all_reduce_hook(rig_block(rig, 0), spoil, run);
    rig_open(rig);
    return rig;
}

static enum fsdp_status save(struct rig *rig, uint64_t step)
{
    const struct fsdp_checkpoint_state state = { .step = step };

    fsdp_err_clear(&rig->err);
    return fsdp_checkpoint_save(rig->model, rig->optimizer, directory, &state, 0, NULL, &rig->err);
}

static void load_first(struct rig *rig)
{
    struct fsdp_checkpoint_state state;

    must(fsdp_checkpoint_load(rig->model, rig->optimizer, directory, 1, &state, &rig->err), &rig->err);
}

static void expect_no_update(struct rig *rig, const char *when)
{
    float *before = rig_copy(rig, FSDP_VALUE);

    for (int g = 0; g < rig->model->layout.n_groups; g++)
        expect_refused(fsdp_optimizer_step_group(rig->optimizer, g, &rig->err), FSDP_ERR_ARG,
                       "left no gradients", &rig->err);
    cr_expect(rig_is(rig, FSDP_VALUE, before), "%s: weights changed", when);
    free(before);
}

/* A loss */

static void step_on_loss(struct fsdp_context *context, void *user)
{
    float bad[12], *before;
    struct run run;
    struct rig *rig = open_run(&run, context);

    (void)user;
    for (int i = 0; i < 12; i++)
        bad[i] = i == 5 ? INFINITY : 1.0f;
    rig_step(rig, 0);
    must(fsdp_parameter_set(rig->model, "norm.weight", bad, 12, &rig->err), &rig->err);
    before = rig_copy(rig, FSDP_VALUE);
    for (int way = 0; way < RIG_N_WAYS; way++) {
        expect_refused(rig_backward(rig, 1, (enum rig_way)way), FSDP_ERR_NOT_FINITE,
                       "the loss is not finite: backward, which updates parameters, was not run", &rig->err);
        cr_expect(rig_is(rig, FSDP_VALUE, before), "way %d: weights changed", way);
        expect_refused(fsdp_optimizer_step(rig->optimizer, &rig->err), FSDP_ERR_ARG, "left no gradients",
                       &rig->err);
        must(fsdp_module_reset_iteration(rig->model, &rig->err), &rig->err); /* nothing is to be undone */
        must(model_check_not_torn(rig->model, &rig->err), &rig->err);
    }
    bad[5] = 1.0f;
    must(fsdp_parameter_set(rig->model, "norm.weight", bad, 12, &rig->err), &rig->err);
    rig_step(rig, 1);
    cr_expect_eq(fsdp_optimizer_step_count(rig->optimizer), 2);
    free(before);
    rig_close(rig);
}

WorldTest(in_backward, a_loss_that_is_not_finite_ends_the_step_before_any_update, step_on_loss, 1, 2);

/* A gradient */

/* The rows of layers.0 on this rank are what they were. */
static void expect_first_layer(const struct rig *rig, const float *before)
{
    const float *const all = rig->model->memory[PLACE_DEVICE].parameters;

    for (size_t i = 0; i < fsdp_model_parameter_count(rig->model); i++) {
        struct fsdp_parameter_info info;
        size_t n_own;
        const float *rows = model_shard(rig->model, FSDP_VALUE, (int)i, &n_own);

        cr_assert(fsdp_model_parameter(rig->model, i, &info, NULL) == FSDP_OK);
        cr_expect(strncmp(info.name, "layers.0.", 9) != 0 ||
                      memcmp(rows, before + (rows - all), n_own * sizeof *rows) == 0,
                  "%s was updated", info.name);
    }
}

static void step_on_gradient(struct fsdp_context *context, void *user)
{
    const bool victim = fsdp_context_rank(context) + 1 == fsdp_context_world_size(context);
    struct run run;
    struct rig *rig = open_run(&run, context);

    (void)user;
    must(rig_backward(rig, 0, RIG_IN_ONE_CALL), &rig->err);
    expect_refused(save(rig, 1), FSDP_ERR_ARG, "fsdp_optimizer_step() ends it", &rig->err);
    must(fsdp_optimizer_step(rig->optimizer, &rig->err), &rig->err);
    for (int way = 0; way < RIG_N_WAYS; way++) {
        float *before = rig_copy(rig, FSDP_VALUE);

        run.spoils = victim;
        expect_refused(rig_backward(rig, 1, (enum rig_way)way), FSDP_ERR_NOT_FINITE,
                       "the gradient of \"layers.0.attention_norm.weight\" is not finite", &rig->err);
        cr_expect_not_null(strstr(rig->err.message, "and not undone: \"layers.1\""), "%s", rig->err.message);
        run.spoils = false;
        cr_expect(!rig_is(rig, FSDP_VALUE, before), "nothing was updated before");
        if (victim)
            expect_first_layer(rig, before);
        expect_refused(fsdp_optimizer_step(rig->optimizer, &rig->err), FSDP_ERR_ARG, "left no gradients",
                       &rig->err);
        cr_expect_eq(fsdp_module_reset_iteration(rig->model, &rig->err), FSDP_ERR_UNSUPPORTED);
        expect_refused(save(rig, 2), FSDP_ERR_ARG, "a checkpoint must be loaded", &rig->err);
        free(before);
    }
    rig_close(rig);
}

WorldTest(in_backward, a_gradient_that_is_not_finite_on_one_rank_ends_the_step_on_all, step_on_gradient, 1,
          3);

static void go_on_from_checkpoint(struct fsdp_context *context, void *user)
{
    struct run run;
    struct rig *rig = open_run(&run, context);
    float *sound;

    (void)user;
    rig_step(rig, 0);
    must(save(rig, 1), &rig->err);
    rig_step(rig, 1);
    sound = rig_copy(rig, FSDP_VALUE);
    run.spoils = true;
    cr_expect_eq(rig_backward(rig, 2, RIG_IN_ONE_CALL), FSDP_ERR_NOT_FINITE);
    run.spoils = false;
    expect_refused(save(rig, 2), FSDP_ERR_ARG, "a checkpoint must be loaded", &rig->err);
    load_first(rig);
    rig_step(rig, 1);
    cr_expect(rig_is(rig, FSDP_VALUE, sound), "other bits after the checkpoint was loaded");
    must(save(rig, 2), &rig->err);
    free(sound);
    rig_close(rig);
}

static void open_directory(void)
{
    directory = files_begin();
}

Test(in_backward, a_step_that_failed_is_not_saved_until_a_checkpoint_is_loaded, .init = open_directory,
     .fini = files_end)
{
    world_run(1, go_on_from_checkpoint, NULL);
}

/* Gradients of a step before, or of none: a group whose turn has not come has no others. */
static void step_too_early(struct fsdp_context *context, void *user)
{
    struct run run;
    struct rig *rig = open_run(&run, context);

    (void)user;
    run.eager = true;
    must(rig_backward(rig, 0, RIG_IN_ONE_CALL), &rig->err);
    cr_expect_eq(run.early, FSDP_ERR_ARG);
    must(fsdp_optimizer_step(rig->optimizer, &rig->err), &rig->err);
    rig_close(rig);
}

WorldTest(in_backward, a_group_is_not_updated_before_its_gradients_are_final, step_too_early, 2);

/* Hooks were called on final gradients, and then these were dropped: no update takes them. */
static void step_too_late(struct fsdp_context *context, void *user)
{
    struct run run;
    struct rig *rig = open_run(&run, context);

    (void)user;
    run.watches = true;
    for (int way = 0; way < RIG_N_WAYS; way++) {
        must(rig_backward(rig, 0, (enum rig_way)way), &rig->err);
        must(fsdp_module_reset_iteration(rig->model, &rig->err), &rig->err);
        expect_no_update(rig, "reset");
        run.refuses = fsdp_context_rank(context) == 0;
        expect_refused(rig_backward(rig, 1, (enum rig_way)way), FSDP_ERR_IO, "a hook refuses", &rig->err);
        run.refuses = false;
        expect_no_update(rig, "failed");
    }
    rig_step(rig, 2);
    if (fsdp_context_world_size(context) == 1) { /* there is no agent that publishes for two */
        must(save(rig, 1), &rig->err);
        load_first(rig);
        expect_no_update(rig, "loaded");
    }
    rig_close(rig);
}

Test(in_backward, a_group_is_not_updated_with_gradients_that_were_dropped, .init = open_directory,
     .fini = files_end)
{
    world_run(1, step_too_late, NULL);
    world_run(2, step_too_late, NULL);
}

/* Backward has updated the groups, and fsdp_optimizer_step() does not count the update. */
static void drop_updated_step(struct fsdp_context *context, void *user)
{
    struct run run;
    struct rig *rig = open_run(&run, context);

    (void)user;
    rig_step(rig, 0);
    must(save(rig, 1), &rig->err);
    for (int reset = 0; reset < 2; reset++) {
        must(rig_backward(rig, 1, RIG_IN_ONE_CALL), &rig->err);
        if (reset == 1)
            must(fsdp_module_reset_iteration(rig->model, &rig->err), &rig->err);
        rig_step(rig, 2);
        expect_refused(save(rig, 2), FSDP_ERR_ARG, "a checkpoint must be loaded", &rig->err);
        load_first(rig);
        must(save(rig, 1), &rig->err);
    }
    rig_close(rig);
}

Test(in_backward, a_step_that_was_dropped_after_its_updates_is_not_saved, .init = open_directory,
     .fini = files_end)
{
    world_run(1, drop_updated_step, NULL);
}

/* Bits */

enum { STEPS = 5 };

struct inside {
    int W, R;
    size_t n_micro;
    enum fsdp_gradient_sync sync;
    bool on;
    double losses[STEPS];
};

static enum fsdp_status update_now(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model;
    return fsdp_optimizer_step_group(*(struct fsdp_optimizer **)user, group, err);
}

static void train_inside(struct fsdp_context *context, void *user)
{
    struct inside *run = user;
    struct rig rig;

    rig_init(&rig, context);
    rig.n_micro = run->n_micro;
    rig.options.accumulates = run->n_micro > 1;
    rig.options.gradient_sync = run->sync;
    rig.updates.lr = 1e-2;
    rig_mesh(&rig, run->R, 1);
    fsdp_module_register_post_accumulate_grad_hook(rig_root(&rig), run->on ? update_now : NULL,
                                                   &rig.optimizer, true);
    rig_open(&rig);
    for (int s = 0; s < STEPS; s++) {
        must(rig_backward(&rig, s, RIG_IN_ONE_CALL), &rig.err);
        cr_assert(!run->on || fsdp_optimizer_step_group(rig.optimizer, 0, &rig.err) == FSDP_ERR_ARG,
                  "it was updated already");
        must(fsdp_optimizer_step(rig.optimizer, &rig.err), &rig.err);
        if (rig.rank == 0)
            run->losses[s] = rig.loss.mean;
    }
    cr_expect(fsdp_optimizer_step_count(rig.optimizer) == STEPS);
    rig_close(&rig);
}

Test(in_backward, updates_give_the_bits_of_one_update_after_it)
{
    static const struct inside ways[] = {
        { .W = 1, .R = 1, .n_micro = 1 },
        { .W = 1, .R = 1, .n_micro = 2 },
        { .W = 3, .R = 1, .n_micro = 1 },
        { .W = 2, .R = 1, .n_micro = 2 },
        { .W = 2, .R = 2, .n_micro = 2, .sync = FSDP_SYNC_EVERY },
        { .W = 1, .R = 2, .n_micro = 1 },
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct inside outside = ways[i], inside = ways[i];

        inside.on = true;
        world_run(ways[i].W * ways[i].R, train_inside, &outside);
        world_run(ways[i].W * ways[i].R, train_inside, &inside);
        cr_expect(memcmp(inside.losses, outside.losses, sizeof inside.losses) == 0, "way %zu", i);
        cr_expect(inside.losses[STEPS - 1] != inside.losses[0]);
    }
}
