/* The public save and load in a world of one; other world sizes are tests/system/test_resume.sh. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fsdp/fsdp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 2, SEQ = 3, CLASSES = 5, N_ELEMS = CLASSES * 4 };

static char folder[64];
static struct fsdp_context *context;

struct run {
    struct fsdp_module *tree;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
};

static void open_all(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-engine.XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    unsetenv("FSDP_LINK_FD");
    cr_assert(eq(int, fsdp_context_create(&context, &(struct fsdp_context_options){ .threads = 1 }, NULL), FSDP_OK));
}

static void close_all(void)
{
    char command[128];

    fsdp_context_destroy(context);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert(eq(int, system(command), 0));
}

TestSuite(checkpoint_api, .init = open_all, .fini = close_all);

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_call(fsdp_module_child(self, "embedding"), x));
}

static void run_open(struct run *run, size_t dim, uint64_t seed)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = SEQ, .seed = seed };
    const struct fsdp_optimizer_options adamw = fsdp_optimizer_defaults();

    run->tree = fsdp_module_create(forward, NULL);
    fsdp_embedding(run->tree, "embedding", CLASSES, dim);
    fsdp_linear(run->tree, "output", dim, CLASSES, false);
    cr_assert(eq(int, fsdp_fully_shard(run->tree, NULL, NULL), FSDP_OK));
    cr_assert(eq(int, fsdp_model_create(&run->model, context, run->tree, &options, NULL), FSDP_OK));
    cr_assert(eq(int, fsdp_optimizer_create(&run->optimizer, run->model, &adamw, NULL), FSDP_OK));
}

static void run_close(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->tree);
}

static void run_steps(struct run *run, int n, float out[N_ELEMS])
{
    static const int32_t tokens[] = { 0, 1, 2, 3, 4, 0 }, targets[] = { 1, 2, 3, 4, 0, 1 };
    const struct fsdp_batch batch = { .input = tokens, .targets = targets };
    struct fsdp_loss loss;

    for (int i = 0; i < n; i++) {
        cr_assert(eq(int, fsdp_model_forward_backward(run->model, &batch, 1, &loss, NULL), FSDP_OK));
        cr_assert(eq(int, fsdp_optimizer_step(run->optimizer, NULL), FSDP_OK));
    }
    cr_assert(eq(int, fsdp_parameter_gather(run->model, "output.weight", FSDP_VALUE, out, N_ELEMS, NULL), FSDP_OK));
}

static const struct fsdp_checkpoint_state saved = { .step = 3, .cursor = 36, .seed = 7 };

static void save_after_three_steps(void)
{
    float weights[N_ELEMS];
    struct run run;

    run_open(&run, 4, 7);
    run_steps(&run, 3, weights);
    cr_assert(eq(int, fsdp_checkpoint_save(run.model, run.optimizer, folder, &saved, 0, NULL, NULL), FSDP_OK));
    run_close(&run);
}

Test(checkpoint_api, a_loaded_run_goes_on_to_the_bit)
{
    struct fsdp_checkpoint_state state;
    float straight[N_ELEMS], resumed[N_ELEMS];
    char words[FSDP_MADE_WITH_BYTES];
    struct run run;

    run_open(&run, 4, 7);
    run_steps(&run, 5, straight);
    run_close(&run);
    save_after_three_steps();
    run_open(&run, 4, 99); /* other initial weights: all of them must come from the checkpoint */

    cr_assert(eq(int, fsdp_checkpoint_load(run.model, run.optimizer, folder, -1, &state, NULL), FSDP_OK));
    run_steps(&run, 2, resumed);

    cr_assert_arr_eq(resumed, straight, sizeof straight);
    cr_assert(eq(u64, state.step, 3));
    cr_assert(eq(u64, state.cursor, 36));
    cr_assert(eq(u64, state.seed, 7));
    cr_assert(eq(u64, state.optimizer_step, 3));
    cr_assert(eq(u64, fsdp_optimizer_step_count(run.optimizer), 5));
    cr_assert(eq(int, state.world_size, 1));
    cr_assert_str_eq(state.made_with, fsdp_context_describe(context, words, sizeof words));
    run_close(&run);
}

Test(checkpoint_api, weights_alone_are_loaded_from_a_whole_checkpoint)
{
    struct fsdp_checkpoint_state state;
    float straight[N_ELEMS], weights[N_ELEMS];
    struct run run;

    run_open(&run, 4, 7);
    run_steps(&run, 3, straight);
    run_close(&run);
    save_after_three_steps();
    run_open(&run, 4, 99);

    cr_assert(eq(int, fsdp_checkpoint_load(run.model, NULL, folder, 3, &state, NULL), FSDP_OK));
    run_steps(&run, 0, weights);

    cr_assert_arr_eq(weights, straight, sizeof straight);
    run_close(&run);
}

Test(checkpoint_api, another_models_checkpoint_is_refused_by_the_first_tensor)
{
    struct fsdp_checkpoint_state state;
    struct fsdp_err err = { 0 };
    struct run run;

    save_after_three_steps();
    run_open(&run, 6, 7);

    cr_assert(eq(int, fsdp_checkpoint_load(run.model, run.optimizer, folder, 3, &state, &err), FSDP_ERR_MISMATCH));
    cr_assert_not_null(strstr(err.message, "embedding.weight"), "%s", err.message);
    run_close(&run);
}

Test(checkpoint_api, none_there_is_not_found)
{
    struct fsdp_checkpoint_state state;
    struct run run;

    run_open(&run, 4, 7);

    cr_assert(eq(int, fsdp_checkpoint_load(run.model, run.optimizer, folder, -1, &state, NULL), FSDP_ERR_NOT_FOUND));
    cr_assert(eq(int, fsdp_checkpoint_load(run.model, run.optimizer, folder, 8, &state, NULL), FSDP_ERR_NOT_FOUND));
    run_close(&run);
}

Test(checkpoint_api, a_flipped_bit_is_seen_before_anything_is_loaded)
{
    struct fsdp_checkpoint_state state;
    struct fsdp_err err = { 0 };
    char path[160];
    struct run run;
    FILE *file;

    save_after_three_steps();
    snprintf(path, sizeof path, "%s/step-00000003/shard-00001-model-00001-of-00001.safetensors", folder);
    file = fopen(path, "r+");
    cr_assert_not_null(file);
    cr_assert(eq(int, fseek(file, -3, SEEK_END), 0));
    fputc(0x55, file);
    fclose(file);
    run_open(&run, 4, 7);

    cr_assert(eq(int, fsdp_checkpoint_load(run.model, run.optimizer, folder, 3, &state, &err), FSDP_ERR_FORMAT));
    cr_assert_not_null(strstr(err.message, "shard-00001"), "%s", err.message);
    run_close(&run);
}

Test(checkpoint_api, retention_keeps_what_was_loaded)
{
    struct fsdp_checkpoint_state state = saved;
    char path[160];
    struct run run;

    save_after_three_steps();
    run_open(&run, 4, 7);
    cr_assert(eq(int, fsdp_checkpoint_load(run.model, run.optimizer, folder, 3, &state, NULL), FSDP_OK));
    for (state.step = 4; state.step < 8; state.step++)
        cr_assert(eq(int, fsdp_checkpoint_save(run.model, run.optimizer, folder, &state, 2, NULL, NULL), FSDP_OK));

    for (int step = 3; step < 8; step++) {
        snprintf(path, sizeof path, "%s/step-%08d", folder, step);
        cr_assert(eq(int, access(path, F_OK), step == 3 || step >= 6 ? 0 : -1), "step %d", step);
    }
    run_close(&run);
}
