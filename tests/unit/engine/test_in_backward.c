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
#include "tests/unit/engine/world.h"

enum { BATCH = 2, SEQ = 6 };
enum way { IN_ONE_CALL, CALL_BY_CALL, IN_HALVES, N_WAYS };

static char directory[64];

struct run {
    struct fsdp_context *context;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    struct fsdp_err err;
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
        run->early = fsdp_optimizer_step_group(run->optimizer, group - 1, err);
    return fsdp_optimizer_step_group(run->optimizer, group, err);
}

static enum fsdp_status spoil(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                              void *user, struct fsdp_err *err)
{
    const struct run *run = user;

    (void)n_elems;
    (void)stream;
    (void)err;
    cr_assert(dtype == FSDP_F32);
    if (run->spoils)
        *(float *)row = (float)NAN;
    return FSDP_OK;
}

static void open_run(struct run *run, struct fsdp_context *context)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = SEQ, .seed = 4, .accumulates = true };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);

    *run = (struct run){ .context = context, .root = root };
    fsdp_module_register_post_accumulate_grad_hook(root, update, run, true);
    fsdp_module_set_all_reduce_hook(fsdp_module_child_at(fsdp_module_child(root, "layers"), 0), spoil, run);
    cr_assert(fsdp_model_create(&run->model, context, root, &options, &run->err) == FSDP_OK, "%s",
              run->err.message);
    cr_assert(fsdp_optimizer_create(&run->optimizer, run->model, &updates, &run->err) == FSDP_OK, "%s",
              run->err.message);
}

static void close_run(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
}

/* Two micro-steps, up to their last backward. */
static enum fsdp_status backward(struct run *run, int number, enum way way)
{
    int32_t tokens[2][BATCH * SEQ], targets[2][BATCH * SEQ];
    enum fsdp_status status = FSDP_OK;
    struct fsdp_batch micro[2];
    struct fsdp_loss loss;

    fsdp_err_clear(&run->err);
    for (int m = 0; m < 2; m++) {
        const uint64_t first = (uint64_t)(number * 40 + m * 9 + fsdp_context_rank(run->context) * BATCH);

        tiny_samples(&tiny_defaults, first, BATCH, tokens[m], targets[m]);
        micro[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
    }
    if (way == IN_ONE_CALL)
        return fsdp_model_forward_backward(run->model, micro, 2, &loss, &run->err);
    for (int m = 0; m < 2 && status == FSDP_OK; m++) {
        fsdp_module_set_is_last_backward(run->model, m == 1);
        if (way == CALL_BY_CALL) {
            status = fsdp_model_forward_backward(run->model, &micro[m], 1, &loss, &run->err);
            continue;
        }
        status = fsdp_model_forward(run->model, &micro[m], &loss, &run->err);
        if (status == FSDP_OK)
            status = fsdp_model_backward(run->model, &run->err);
    }
    fsdp_module_set_is_last_backward(run->model, true);
    return status;
}

static void must(const struct run *run, enum fsdp_status status)
{
    cr_assert(status == FSDP_OK, "%s", run->err.message);
}

static void expect_words(const struct run *run, enum fsdp_status status, enum fsdp_status want,
                         const char *words)
{
    cr_expect_eq(status, want, "%s", run->err.message);
    cr_expect_not_null(strstr(run->err.message, words), "\"%s\" is not in \"%s\"", words, run->err.message);
}

static float *copy_weights(const struct run *run)
{
    const struct model_memory *memory = &run->model->memory[PLACE_DEVICE];
    float *out = malloc(memory->parameter_bytes);

    memcpy(out, memory->parameters, memory->parameter_bytes);
    return out;
}

static bool weights_are(const struct run *run, const float *want)
{
    const struct model_memory *memory = &run->model->memory[PLACE_DEVICE];

    return memcmp(memory->parameters, want, memory->parameter_bytes) == 0;
}

static enum fsdp_status save(struct run *run, uint64_t step)
{
    const struct fsdp_checkpoint_state state = { .step = step };

    fsdp_err_clear(&run->err);
    return fsdp_checkpoint_save(run->model, run->optimizer, directory, &state, 0, NULL, &run->err);
}

/* --- a loss ------------------------------------------------------------------------------------------------
 * */

static void step_on_loss(struct fsdp_context *context, void *user)
{
    float bad[12], *before;
    struct run run;

    (void)user;
    open_run(&run, context);
    for (int i = 0; i < 12; i++)
        bad[i] = i == 5 ? INFINITY : 1.0f;
    must(&run, backward(&run, 0, IN_ONE_CALL));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    must(&run, fsdp_parameter_set(run.model, "norm.weight", bad, 12, &run.err));
    before = copy_weights(&run);
    for (int way = 0; way < N_WAYS; way++) {
        expect_words(&run, backward(&run, 1, (enum way)way), FSDP_ERR_NOT_FINITE,
                     "the loss is not finite: backward, which updates parameters, was not run");
        cr_expect(weights_are(&run, before), "way %d: weights changed", way);
        expect_words(&run, fsdp_optimizer_step(run.optimizer, &run.err), FSDP_ERR_ARG, "left no gradients");
        must(&run, fsdp_module_reset_iteration(run.model, &run.err)); /* nothing is to be undone */
        must(&run, model_check_not_torn(run.model, &run.err));
    }
    bad[5] = 1.0f;
    must(&run, fsdp_parameter_set(run.model, "norm.weight", bad, 12, &run.err));
    must(&run, backward(&run, 1, IN_ONE_CALL));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    cr_expect_eq(fsdp_optimizer_step_count(run.optimizer), 2);
    free(before);
    close_run(&run);
}

Test(in_backward, a_loss_that_is_not_finite_ends_the_step_before_any_update)
{
    world_run(1, step_on_loss, NULL);
    world_run(2, step_on_loss, NULL);
}

/* --- a gradient --------------------------------------------------------------------------------------------
 * */

/* The rows of layers.0 on this rank are what they were. */
static void expect_first_layer(const struct run *run, const float *before)
{
    const float *const all = run->model->memory[PLACE_DEVICE].parameters;

    for (size_t i = 0; i < fsdp_model_parameter_count(run->model); i++) {
        struct fsdp_parameter_info info;
        size_t n_own;
        const float *rows = model_shard(run->model, FSDP_VALUE, (int)i, &n_own);

        cr_assert(fsdp_model_parameter(run->model, i, &info, NULL) == FSDP_OK);
        cr_expect(strncmp(info.name, "layers.0.", 9) != 0 ||
                      memcmp(rows, before + (rows - all), n_own * sizeof *rows) == 0,
                  "%s was updated", info.name);
    }
}

static void step_on_gradient(struct fsdp_context *context, void *user)
{
    const bool victim = fsdp_context_rank(context) + 1 == fsdp_context_world_size(context);
    struct run run;
    float *before;

    (void)user;
    open_run(&run, context);
    must(&run, backward(&run, 0, IN_ONE_CALL));
    expect_words(&run, save(&run, 1), FSDP_ERR_ARG, "fsdp_optimizer_step() ends it");
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    for (int way = 0; way < N_WAYS; way++) {
        before = copy_weights(&run);
        run.spoils = victim;
        expect_words(&run, backward(&run, 1, (enum way)way), FSDP_ERR_NOT_FINITE,
                     "the gradient of \"layers.0.attention_norm.weight\" is not finite");
        cr_expect_not_null(strstr(run.err.message, "and not undone: \"layers.1\""), "%s", run.err.message);
        run.spoils = false;
        cr_expect(!weights_are(&run, before), "nothing was updated before");
        if (victim)
            expect_first_layer(&run, before);
        expect_words(&run, fsdp_optimizer_step(run.optimizer, &run.err), FSDP_ERR_ARG, "left no gradients");
        cr_expect_eq(fsdp_module_reset_iteration(run.model, &run.err), FSDP_ERR_UNSUPPORTED);
        expect_words(&run, save(&run, 2), FSDP_ERR_ARG, "a checkpoint must be loaded");
        free(before);
    }
    close_run(&run);
}

Test(in_backward, a_gradient_that_is_not_finite_on_one_rank_ends_the_step_on_all)
{
    world_run(1, step_on_gradient, NULL);
    world_run(3, step_on_gradient, NULL);
}

static void go_on_from_checkpoint(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct run run;
    float *sound;

    (void)user;
    open_run(&run, context);
    must(&run, backward(&run, 0, IN_ONE_CALL));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    must(&run, save(&run, 1));
    must(&run, backward(&run, 1, IN_ONE_CALL));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    sound = copy_weights(&run);
    run.spoils = true;
    cr_expect_eq(backward(&run, 2, IN_ONE_CALL), FSDP_ERR_NOT_FINITE);
    run.spoils = false;
    expect_words(&run, save(&run, 2), FSDP_ERR_ARG, "a checkpoint must be loaded");
    must(&run, fsdp_checkpoint_load(run.model, run.optimizer, directory, 1, &state, &run.err));
    must(&run, backward(&run, 1, IN_ONE_CALL));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    cr_expect(weights_are(&run, sound), "other bits after the checkpoint was loaded");
    must(&run, save(&run, 2));
    free(sound);
    close_run(&run);
}

static void open_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/fsdp-in-backward-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
}

static void remove_directory(void)
{
    char command[96];

    snprintf(command, sizeof command, "rm -r %s", directory);
    cr_expect(system(command) == 0);
}

Test(in_backward, a_step_that_failed_is_not_saved_until_a_checkpoint_is_loaded, .init = open_directory,
     .fini = remove_directory)
{
    world_run(1, go_on_from_checkpoint, NULL);
}

/* Gradients of a step before, or of none: a group whose turn has not come has no others. */
static void step_too_early(struct fsdp_context *context, void *user)
{
    struct run run;

    (void)user;
    open_run(&run, context);
    run.eager = true;
    must(&run, backward(&run, 0, IN_ONE_CALL));
    cr_expect_eq(run.early, FSDP_ERR_ARG);
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    close_run(&run);
}

Test(in_backward, a_group_is_not_updated_before_its_gradients_are_final)
{
    world_run(2, step_too_early, NULL);
}

static void expect_no_update(struct run *run, const char *when)
{
    float *before = copy_weights(run);

    for (int g = 0; g < run->model->layout.n_groups; g++)
        expect_words(run, fsdp_optimizer_step_group(run->optimizer, g, &run->err), FSDP_ERR_ARG,
                     "left no gradients");
    cr_expect(weights_are(run, before), "%s: weights changed", when);
    free(before);
}

/* Hooks were called on final gradients, and then these were dropped: no update takes them. */
static void step_too_late(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct run run;

    (void)user;
    open_run(&run, context);
    run.watches = true;
    for (int way = 0; way < N_WAYS; way++) {
        must(&run, backward(&run, 0, (enum way)way));
        must(&run, fsdp_module_reset_iteration(run.model, &run.err));
        expect_no_update(&run, "reset");
        run.refuses = fsdp_context_rank(context) == 0;
        expect_words(&run, backward(&run, 1, (enum way)way), FSDP_ERR_IO, "a hook refuses");
        run.refuses = false;
        expect_no_update(&run, "failed");
    }
    must(&run, backward(&run, 2, IN_ONE_CALL));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    if (fsdp_context_world_size(context) == 1) { /* there is no agent that publishes for two */
        must(&run, save(&run, 1));
        must(&run, fsdp_checkpoint_load(run.model, run.optimizer, directory, 1, &state, &run.err));
        expect_no_update(&run, "loaded");
    }
    close_run(&run);
}

Test(in_backward, a_group_is_not_updated_with_gradients_that_were_dropped, .init = open_directory,
     .fini = remove_directory)
{
    world_run(1, step_too_late, NULL);
    world_run(2, step_too_late, NULL);
}

/* Backward has updated the groups, and fsdp_optimizer_step() does not count the update. */
static void drop_updated_step(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct run run;

    (void)user;
    open_run(&run, context);
    must(&run, backward(&run, 0, IN_ONE_CALL));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    must(&run, save(&run, 1));
    for (int reset = 0; reset < 2; reset++) {
        must(&run, backward(&run, 1, IN_ONE_CALL));
        if (reset == 1)
            must(&run, fsdp_module_reset_iteration(run.model, &run.err));
        must(&run, backward(&run, 2, IN_ONE_CALL));
        must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
        expect_words(&run, save(&run, 2), FSDP_ERR_ARG, "a checkpoint must be loaded");
        must(&run, fsdp_checkpoint_load(run.model, run.optimizer, directory, 1, &state, &run.err));
        must(&run, save(&run, 1));
    }
    close_run(&run);
}

Test(in_backward, a_step_that_was_dropped_after_its_updates_is_not_saved, .init = open_directory,
     .fini = remove_directory)
{
    world_run(1, drop_updated_step, NULL);
}
