/*
 * A run that is saved and goes on in another process's shoes: the same bits as the run that was not
 * interrupted. (The files themselves, crashes and other world sizes: tests/unit/checkpoint and the system
 * tests.)
 */
#include <stdio.h>

#include "tests/unit/engine/rig.h"
#include "tests/unit/shardfile/files.h"

enum { SAVE_AT = 3, STEPS = 6 };

static const char *directory;

static void open_run(struct rig *rig, struct fsdp_context *context, uint64_t seed, size_t dim)
{
    rig_init(rig, context);
    rig->tiny.dim = dim;
    rig->options.seed = seed;
    rig_open(rig);
}

static enum fsdp_status save(struct rig *rig, const char *path, const struct fsdp_checkpoint_state *state)
{
    return fsdp_checkpoint_save(rig->model, rig->optimizer, path, state, 0, NULL, &rig->err);
}

static enum fsdp_status load(struct rig *rig, const char *path, int64_t step,
                             struct fsdp_checkpoint_state *state)
{
    return fsdp_checkpoint_load(rig->model, rig->optimizer, path, step, state, &rig->err);
}

static void save_and_resume(struct fsdp_context *context, void *user)
{
    const struct fsdp_checkpoint_state state = { .seed = 1, .step = SAVE_AT, .cursor = SAVE_AT * 2 };
    struct fsdp_checkpoint_state found = { 0 };
    double wanted[STEPS], got;
    struct rig rig, resumed;

    (void)user;
    open_run(&rig, context, 1, 12);
    for (int i = 0; i < STEPS; i++) {
        wanted[i] = rig_step(&rig, i);
        if (i + 1 == SAVE_AT)
            must(save(&rig, directory, &state), &rig.err);
    }
    open_run(&resumed, context, 99, 12); /* other initial weights: all must come from the checkpoint */
    must(load(&resumed, directory, -1, &found), &resumed.err);
    cr_assert(found.step == SAVE_AT && found.cursor == SAVE_AT * 2 && found.seed == 1 &&
              found.optimizer_step == SAVE_AT);
    for (int i = SAVE_AT; i < STEPS; i++) {
        got = rig_step(&resumed, i);
        cr_assert(memcmp(&got, &wanted[i], sizeof got) == 0, "step %d: %.17g, not %.17g", i + 1, got,
                  wanted[i]);
    }
    rig_close(&resumed);
    rig_close(&rig);
}

static void refuse_others(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state = { .step = 1 };
    struct rig rig, other;

    (void)user;
    open_run(&rig, context, 1, 12);
    cr_assert(load(&rig, directory, -1, &state) == FSDP_ERR_NOT_FOUND);
    must(save(&rig, directory, &state), &rig.err);
    open_run(&other, context, 1, 18);
    cr_assert(load(&other, directory, 1, &state) == FSDP_ERR_MISMATCH, "%s", other.err.message);
    cr_assert(fsdp_checkpoint_load(rig.model, NULL, directory, 1, &state, &rig.err) == FSDP_OK,
              "weights alone: %s", rig.err.message);
    rig_close(&other);
    rig_close(&rig);
}

static void save_three(struct fsdp_context *context, void *user)
{
    struct rig rig;

    (void)user;
    open_run(&rig, context, 1, 12);
    for (int i = 1; i <= 3; i++) {
        const struct fsdp_checkpoint_state state = { .step = (uint64_t)i, .cursor = (uint64_t)i * 2 };

        rig_step(&rig, i);
        must(save(&rig, directory, &state), &rig.err);
    }
    rig_close(&rig);
}

/* Flips a bit in the last tensor of a step. */
static void damage(int step)
{
    char path[160], byte;
    FILE *file;

    snprintf(path, sizeof path, "%s/step-%08d/shard-00001-model-00001-of-00001.safetensors", directory, step);
    file = fopen(path, "r+b");
    cr_assert(file != NULL && fseek(file, -1, SEEK_END) == 0 && fread(&byte, 1, 1, file) == 1);
    byte ^= 1;
    cr_assert(fseek(file, -1, SEEK_END) == 0 && fwrite(&byte, 1, 1, file) == 1 && fclose(file) == 0);
}

static void load_second(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state = { 0 };
    struct rig rig;

    (void)user;
    open_run(&rig, context, 99, 12);
    expect_refused(load(&rig, directory, 3, &state), FSDP_ERR_FORMAT, "the file is damaged", &rig.err);
    must(load(&rig, directory, -1, &state), &rig.err);
    cr_assert(state.step == 2 && state.cursor == 4 && state.optimizer_step == 2, "step %d", (int)state.step);
    rig_close(&rig);
}

static void load_none(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state = { 0 };
    struct rig rig;

    (void)user;
    open_run(&rig, context, 99, 12);
    expect_refused(load(&rig, directory, -1, &state), FSDP_ERR_FORMAT, "none of the 3 checkpoints", &rig.err);
    rig_close(&rig);
}

static const char *own_directory(int rank, char out[96])
{
    snprintf(out, 96, "%s/%d", directory, rank);
    return out;
}

static void save_steps_apart(struct fsdp_context *context, void *user)
{
    struct rig rig;

    (void)user;
    rig_start(&rig, context);
    for (int rank = 0; rank < 3; rank++) {
        const struct fsdp_checkpoint_state state = { .step = 10 + (uint64_t)rank };
        char path[96];

        must(save(&rig, own_directory(rank, path), &state), &rig.err);
    }
    rig_close(&rig);
}

static void load_steps_apart(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct rig rig;
    char path[96];

    (void)user;
    rig_start(&rig, context);
    must(load(&rig, own_directory(1, path), -1, &state), &rig.err);
    cr_assert_eq(state.step, 11);
    expect_refused(load(&rig, own_directory(rig.rank, path), -1, &state), FSDP_ERR_MISMATCH,
                   "from step 10 to step 12", &rig.err);
    rig_close(&rig);
}

static void make_directory(void)
{
    directory = files_begin();
}

TestSuite(engine_checkpoint, .init = make_directory, .fini = files_end);

WorldTest(engine_checkpoint, resumes_bit_for_bit, save_and_resume, 1);

WorldTest(engine_checkpoint, of_another_model_is_refused, refuse_others, 1);

Test(engine_checkpoint, ranks_do_not_go_on_from_different_steps)
{
    world_run(1, save_steps_apart, NULL);
    world_run(3, load_steps_apart, NULL);
}

Test(engine_checkpoint, ranks_pass_over_what_one_of_them_finds_damaged, .timeout = 600)
{
    world_run(1, save_three, NULL);
    damage(3);
    for (int W = 1; W <= 3; W++)
        world_run(W, load_second, NULL);
    damage(2);
    damage(1);
    for (int W = 1; W <= 3; W++)
        world_run(W, load_none, NULL);
}
