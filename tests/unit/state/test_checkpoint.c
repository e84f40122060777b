/*
 * A run that is saved and goes on in another process's shoes: the same bits as the run that was not
 * interrupted. (The files themselves, crashes and other world sizes: tests/unit/checkpoint and the system
 * tests.)
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/engine/world.h"

enum { BATCH = 4, SAVE_AT = 3, STEPS = 6 };

struct run {
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
};

static char directory[64];

static void open_run(struct run *run, struct fsdp_context *context, uint64_t seed, size_t dim)
{
    static _Thread_local struct tiny tiny; /* forward looks at it as long as the model lives */
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6, .seed = seed };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };

    tiny = tiny_defaults;
    tiny.dim = dim;
    run->root = tiny_build(&tiny, &err);
    cr_assert(fsdp_model_create(&run->model, context, run->root, &options, &err) == FSDP_OK, "%s",
              err.message);
    cr_assert(fsdp_optimizer_create(&run->optimizer, run->model, &updates, &err) == FSDP_OK, "%s",
              err.message);
}

static void close_run(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
}

static double step(struct run *run, uint64_t cursor)
{
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets, .first_sample = cursor };
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    tiny_samples(&tiny_defaults, cursor, BATCH, tokens, targets);
    cr_assert(fsdp_model_forward_backward(run->model, &micro, 1, &loss, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_step(run->optimizer, &err) == FSDP_OK, "%s", err.message);
    return loss.mean;
}

static void save_and_resume(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state = { .seed = 1 }, found = { 0 };
    double wanted[STEPS], got;
    struct fsdp_err err = { 0 };
    struct run run, resumed;

    (void)user;
    open_run(&run, context, 1, 12);
    for (int i = 0; i < STEPS; i++) {
        wanted[i] = step(&run, (uint64_t)i * BATCH);
        if (i + 1 != SAVE_AT)
            continue;
        state.step = SAVE_AT;
        state.cursor = SAVE_AT * BATCH;
        cr_assert(fsdp_checkpoint_save(run.model, run.optimizer, directory, &state, 0, NULL, &err) == FSDP_OK,
                  "%s", err.message);
    }
    open_run(&resumed, context, 99, 12); /* other initial weights: all must come from the checkpoint */
    cr_assert(fsdp_checkpoint_load(resumed.model, resumed.optimizer, directory, -1, &found, &err) == FSDP_OK,
              "%s", err.message);
    cr_assert(found.step == SAVE_AT && found.cursor == SAVE_AT * BATCH && found.seed == 1 &&
              found.optimizer_step == SAVE_AT);
    for (int i = SAVE_AT; i < STEPS; i++) {
        got = step(&resumed, (uint64_t)i * BATCH);
        cr_assert(memcmp(&got, &wanted[i], sizeof got) == 0, "step %d: %.17g, not %.17g", i + 1, got,
                  wanted[i]);
    }
    close_run(&resumed);
    close_run(&run);
}

static void refuse_others(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state = { .step = 1 };
    struct fsdp_err err = { 0 };
    struct run run, other;

    (void)user;
    open_run(&run, context, 1, 12);
    cr_assert(fsdp_checkpoint_load(run.model, run.optimizer, directory, -1, &state, &err) ==
              FSDP_ERR_NOT_FOUND);
    cr_assert(fsdp_checkpoint_save(run.model, run.optimizer, directory, &state, 0, NULL, &err) == FSDP_OK,
              "%s", err.message);
    open_run(&other, context, 1, 18);
    cr_assert(fsdp_checkpoint_load(other.model, other.optimizer, directory, 1, &state, &err) ==
                  FSDP_ERR_MISMATCH,
              "%s", err.message);
    cr_assert(fsdp_checkpoint_load(run.model, NULL, directory, 1, &state, &err) == FSDP_OK,
              "weights alone: %s", err.message);
    close_run(&other);
    close_run(&run);
}

static const char *own_directory(int rank, char out[96])
{
    snprintf(out, 96, "%s/%d", directory, rank);
    return out;
}

static void save_steps_apart(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct run run;

    (void)user;
    open_run(&run, context, 1, 12);
    for (int rank = 0; rank < 3; rank++) {
        const struct fsdp_checkpoint_state state = { .step = 10 + (uint64_t)rank };
        char path[96];

        cr_assert(fsdp_checkpoint_save(run.model, run.optimizer, own_directory(rank, path), &state, 0, NULL,
                                       &err) == FSDP_OK,
                  "%s", err.message);
    }
    close_run(&run);
}

static void load_steps_apart(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct fsdp_err err = { 0 };
    struct run run;
    char path[96];

    (void)user;
    open_run(&run, context, 1, 12);
    cr_assert(fsdp_checkpoint_load(run.model, run.optimizer, own_directory(1, path), -1, &state, &err) ==
                      FSDP_OK &&
                  state.step == 11,
              "%s", err.message);
    own_directory(fsdp_context_rank(context), path);
    cr_assert(fsdp_checkpoint_load(run.model, run.optimizer, path, -1, &state, &err) == FSDP_ERR_MISMATCH);
    cr_assert(strstr(err.message, "from step 10 to step 12") != NULL, "%s", err.message);
    close_run(&run);
}

static void make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/fsdp-unit.XXXXXX");
    cr_assert(mkdtemp(directory) != NULL);
}

static void remove_directory(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    cr_assert(system(command) == 0);
}

Test(engine_checkpoint, resumes_bit_for_bit, .init = make_directory, .fini = remove_directory)
{
    world_run(1, save_and_resume, NULL);
}

Test(engine_checkpoint, of_another_model_is_refused, .init = make_directory, .fini = remove_directory)
{
    world_run(1, refuse_others, NULL);
}

Test(engine_checkpoint, ranks_do_not_go_on_from_different_steps, .init = make_directory,
     .fini = remove_directory)
{
    world_run(1, save_steps_apart, NULL);
    world_run(3, load_steps_apart, NULL);
}
