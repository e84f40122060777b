/*
 * Initial values are drawn when something first reads a value, on this rank's rows of what nothing has filled, and nowhere
 * else. Draws are counted, never timed.
 */
#include <criterion/criterion.h>
#include <fsdp/state_dict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "tests/unit/engine/apart_device.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, SEQ = 6, SEED = 7, OTHER_SEED = 8 };

/* How the model is made. */
struct way {
    const char *what;
    struct tiny tiny;
    bool ignores; /* some parameters are left out of sharding: every rank holds all of them */
    bool apart;   /* on a device with memory of its own */
};

static const struct way *the_way;
static uint64_t saved_step;
static char folder[] = "/tmp/fsdp-initial.XXXXXX", path[64];

struct run {
    struct tiny tiny; /* forward looks at it as long as the model lives */
    struct fsdp_module *root;
    struct fsdp_model *model;
};

static void must(enum fsdp_status status, const struct fsdp_err *err)
{
    cr_assert(status == FSDP_OK, "%s: %s", the_way->what, err->message);
}

static void open_run(struct run *run, struct fsdp_context *context, uint64_t seed)
{
    static const char *const ignored[] = { "norm.weight", "pos_embeddings.weight" };
    const struct fsdp_fully_shard_options ignoring = { .ignored_params = ignored, .n_ignored_params = 2 };
    const struct fsdp_model_options options = { .batch = BATCH, .seq = SEQ, .seed = seed };
    struct fsdp_err err = { 0 };

    *run = (struct run){ .tiny = the_way->tiny };
    run->root = the_way->ignores ? tiny_tree(&run->tiny) : tiny_build(&run->tiny, &err);
    if (the_way->ignores)
        must(fsdp_fully_shard(run->root, &ignoring, &err), &err);
    must(fsdp_model_create(&run->model, context, run->root, &options, &err), &err);
    cr_assert_eq(run->model->n_drawn, 0, "%s: create drew %zu elements", the_way->what, run->model->n_drawn);
}

static void close_run(struct run *run)
{
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
}

/* Elements of this rank, of all parameters or of every second one. */
static size_t own_elems(const struct fsdp_model *model, bool odd_ones)
{
    size_t sum = 0, n;

    for (int i = odd_ones; i < model->layout.n_params; i += odd_ones ? 2 : 1) {
        (void)model_shard_elems(model, FSDP_VALUE, i, &n);
        sum += n;
    }
    return sum;
}

/* The rows of this rank of parameter `index`, as a model of `seed` has them from the start. */
static void expect_rows(struct fsdp_context *context, struct fsdp_model *model, int index, uint64_t seed)
{
    const size_t n = fsdp_model_parameter_count(model);
    struct fsdp_tensor_shard *mine = calloc(n, sizeof *mine), *theirs = calloc(n, sizeof *theirs);
    struct run other;
    size_t n_elems;

    open_run(&other, context, seed);
    fsdp_model_state(model, mine);
    fsdp_model_state(other.model, theirs);
    (void)model_shard_elems(model, FSDP_VALUE, index, &n_elems);
    cr_assert(memcmp(mine[index].data, theirs[index].data, n_elems * sizeof(float)) == 0,
              "%s: %s is not that of seed %d", the_way->what, mine[index].name, (int)seed);
    free(mine);
    free(theirs);
    close_run(&other);
}

static void expect_all_rows(struct fsdp_context *context, struct fsdp_model *model, uint64_t seed)
{
    for (int i = 0; i < model->layout.n_params; i++)
        expect_rows(context, model, i, seed);
}

static void evaluate(struct fsdp_model *model)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    struct fsdp_err err = { 0 };

    tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
    must(fsdp_model_prepare_evaluation(model, BATCH, SEQ, &err), &err);
    must(fsdp_model_evaluate(model, tokens, NULL, NULL, NULL, &err), &err);
}

/* --- everything that reads values or shows where they are draws them first ---------------------------------- */

static void by_state(struct fsdp_model *model)
{
    struct fsdp_tensor_shard *shards = calloc(fsdp_model_parameter_count(model), sizeof *shards);

    fsdp_model_state(model, shards);
    free(shards);
}

static void by_gather(struct fsdp_model *model)
{
    float out[19 * 12];
    struct fsdp_err err = { 0 };

    must(fsdp_parameter_gather(model, "tok_embeddings.weight", FSDP_VALUE, out, 19 * 12, &err), &err);
}

static void by_full_state(struct fsdp_model *model)
{
    struct fsdp_full_state_dict state;
    struct fsdp_err err = { 0 };

    must(fsdp_get_full_state_dict(model, &state, &err), &err);
    fsdp_full_state_dict_fini(&state);
}

/* A world of one gathers nothing, unless the unit offloads: then the shard itself is shown. */
static void by_unshard(struct fsdp_model *model)
{
    struct fsdp_err err = { 0 };
    enum fsdp_dtype dtype;
    const void *data;

    must(fsdp_module_unshard(model, model->root, false, NULL, &err), &err);
    if (fsdp_context_world_size(fsdp_model_context(model)) == 1)
        must(fsdp_parameter_unsharded(model, "norm.weight", &data, &dtype, &err), &err);
    fsdp_module_reshard(model, model->root);
}

static void by_step(struct fsdp_model *model)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    const struct fsdp_batch batch = { .input = tokens, .targets = targets };
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
    must(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);
}

static void by_halves(struct fsdp_model *model)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    const struct fsdp_batch batch = { .input = tokens, .targets = targets };
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
    must(fsdp_model_forward(model, &batch, &loss, &err), &err);
    must(fsdp_model_backward(model, &err), &err);
}

/* Ranks that are threads cannot save together: there is no agent to publish what they wrote. */
static void by_save(struct fsdp_model *model)
{
    struct fsdp_checkpoint_state state = { 0 };
    struct fsdp_err err = { 0 };

    if (fsdp_context_world_size(fsdp_model_context(model)) > 1) {
        by_state(model);
        return;
    }
    state.step = ++saved_step;
    must(fsdp_checkpoint_save(model, NULL, folder, &state, 0, NULL, &err), &err);
}

static const struct reader {
    const char *what;
    void (*read)(struct fsdp_model *model);
} readers[] = { { "state", by_state },     { "gather", by_gather },    { "full state dict", by_full_state },
                { "unshard", by_unshard }, { "evaluation", evaluate }, { "step", by_step },
                { "halves", by_halves },   { "save", by_save } };

static void read_first(struct fsdp_context *context, void *user)
{
    const struct reader *reader = user;
    struct run run;

    open_run(&run, context, SEED);
    reader->read(run.model);
    cr_expect_eq(run.model->n_drawn, own_elems(run.model, false), "%s: %s drew %zu elements of %zu",
                 the_way->what, reader->what, run.model->n_drawn, own_elems(run.model, false));
    expect_all_rows(context, run.model, SEED);
    reader->read(run.model);
    cr_expect_eq(run.model->n_drawn, own_elems(run.model, false), "%s: %s drew again", the_way->what,
                 reader->what);
    close_run(&run);
}

/* --- what is filled is not drawn ---------------------------------------------------------------------------- */

static void load_checkpoint(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct run from, to;
    struct fsdp_err err = { 0 };

    (void)user;
    open_run(&from, context, SEED);
    open_run(&to, context, OTHER_SEED);
    by_save(from.model); /* by a world of one, which comes first */
    must(fsdp_checkpoint_load(to.model, NULL, folder, (int64_t)saved_step, &state, &err), &err);
    evaluate(to.model);
    cr_expect_eq(to.model->n_drawn, 0, "%s: %zu elements were drawn of a model that was loaded",
                 the_way->what, to.model->n_drawn);
    expect_all_rows(context, to.model, SEED);
    close_run(&to);
    close_run(&from);
}

/* Rank 0 writes every tensor, or every second one, as another tool would. */
static void write_weights(struct fsdp_context *context, struct fsdp_model *model, bool half)
{
    struct fsdp_full_state_dict state;
    struct safetensors_written written;
    struct safetensors_tensor *tensors;
    struct fsdp_err err = { 0 };
    size_t n = 0;

    must(fsdp_get_full_state_dict(model, &state, &err), &err);
    tensors = calloc(state.n_tensors + 1, sizeof *tensors);
    for (size_t i = 0; i < state.n_tensors; i += half ? 2 : 1, n++) {
        tensors[n] = (struct safetensors_tensor){ .name = state.tensors[i].name,
                                                  .dtype = FSDP_F32,
                                                  .n_dims = (size_t)state.tensors[i].n_dims,
                                                  .data = state.tensors[i].data };
        for (int d = 0; d < state.tensors[i].n_dims; d++)
            tensors[n].shape[d] = state.tensors[i].shape[d];
    }
    if (fsdp_context_rank(context) == 0)
        must(safetensors_write(&io_posix, path, tensors, n, NULL, 0, 8, &written, &err), &err);
    free(tensors);
    fsdp_full_state_dict_fini(&state);
    must(fsdp_barrier(fsdp_context_comm(context), &err), &err);
}

static void load_weights(struct fsdp_context *context, void *user)
{
    const bool half = *(const bool *)user;
    struct fsdp_load_report report;
    struct run from, to;
    struct fsdp_err err = { 0 };
    size_t missing;

    open_run(&from, context, SEED);
    open_run(&to, context, OTHER_SEED);
    write_weights(context, from.model, half);
    missing = half ? own_elems(to.model, true) : 0;

    if (half) { /* refused whole: it leaves all values as they are, which is not drawn yet */
        cr_expect(fsdp_model_load_weights(to.model, path, true, &report, &err) == FSDP_ERR_MISMATCH);
        fsdp_load_report_fini(&report);
        fsdp_err_clear(&err);
    }
    must(fsdp_model_load_weights(to.model, path, !half, &report, &err), &err);
    fsdp_load_report_fini(&report);
    evaluate(to.model);

    cr_expect_eq(to.model->n_drawn, missing, "%s: %zu elements were drawn, and %zu were not in the file",
                 the_way->what, to.model->n_drawn, missing);
    for (int i = 0; i < to.model->layout.n_params; i++)
        expect_rows(context, to.model, i, half && i % 2 == 1 ? OTHER_SEED : SEED);
    must(fsdp_barrier(fsdp_context_comm(context), &err), &err); /* the file is written again */
    close_run(&to);
    close_run(&from);
}

static void set_all(struct fsdp_context *context, void *user)
{
    const bool first = fsdp_context_rank(context) == 0;
    struct fsdp_full_state_dict state;
    struct run from, to;
    struct fsdp_err err = { 0 };

    (void)user;
    open_run(&from, context, SEED);
    open_run(&to, context, OTHER_SEED);
    must(fsdp_get_full_state_dict(from.model, &state, &err), &err);
    must(fsdp_set_full_state_dict(to.model, first ? &state : NULL, &err), &err);
    evaluate(to.model);
    cr_expect_eq(to.model->n_drawn, 0, "%s: %zu elements were drawn of a model that was set", the_way->what,
                 to.model->n_drawn);
    expect_all_rows(context, to.model, SEED);
    fsdp_full_state_dict_fini(&state);
    close_run(&to);
    close_run(&from);
}

static void fail_to_load(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct fsdp_err err = { 0 };
    struct run run;

    (void)user;
    open_run(&run, context, SEED);
    cr_expect(fsdp_checkpoint_load(run.model, NULL, folder, 77, &state, &err) != FSDP_OK);
    cr_expect_eq(run.model->n_drawn, 0);
    evaluate(run.model);
    expect_all_rows(context, run.model, SEED);
    close_run(&run);
}

/* --- every way of making a model ------------------------------------------------------------------------------ */

struct on_device {
    world_body body;
    void *user;
};

static void install(struct fsdp_context *context, void *user)
{
    const struct on_device *inner = user;
    struct apart_device *apart = calloc(1, sizeof *apart);

    if (the_way->apart)
        apart_device_install(apart, context);
    inner->body(context, inner->user);
    if (the_way->apart)
        apart_device_remove(apart, context);
    free(apart);
}

static void each_way(world_body body, void *user)
{
    static struct way ways[] = { { .what = "plain" },
                                 { .what = "tied", .tiny.tied = true },
                                 { .what = "cut along columns", .tiny.columns = true },
                                 { .what = "frozen", .tiny.frozen = true },
                                 { .what = "ignored", .ignores = true },
                                 { .what = "on a device", .apart = true },
                                 { .what = "offloaded", .apart = true, .tiny.offloads = true } };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct tiny *tiny = &ways[i].tiny, marked = *tiny;

        *tiny = tiny_defaults;
        tiny->tied = marked.tied;
        tiny->columns = marked.columns;
        tiny->frozen = marked.frozen;
        tiny->offloads = marked.offloads;
        the_way = &ways[i];
        for (int W = 1; W <= (tiny->columns ? 2 : 3); W++)
            world_run(W, install, &(struct on_device){ body, user });
    }
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/fsdp-initial.XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
}

static void remove_folder(void)
{
    char command[96];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(initial, .init = make_folder, .fini = remove_folder, .timeout = 1200);

Test(initial, the_first_that_reads_a_value_draws_all)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        each_way(read_first, (void *)(uintptr_t)&readers[i]);
}

Test(initial, a_checkpoint_that_is_loaded_costs_no_draw)
{
    each_way(load_checkpoint, NULL);
}

Test(initial, a_file_of_all_weights_costs_no_draw)
{
    each_way(load_weights, &(bool){ false });
}

Test(initial, what_a_file_has_not_is_drawn_and_nothing_else)
{
    each_way(load_weights, &(bool){ true });
}

Test(initial, what_the_program_sets_costs_no_draw)
{
    each_way(set_all, NULL);
}

Test(initial, a_load_that_fails_leaves_the_initial_values)
{
    each_way(fail_to_load, NULL);
}

/* --- threads -------------------------------------------------------------------------------------------------- */

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "a"), x);
}

/* Enough elements that every thread has some, and no number of threads divides them. */
enum { ROWS = 251, COLS = 67 };

Test(initial, any_number_of_threads_draws_the_same)
{
    const struct fsdp_model_options options = { .batch = 1, .seq = 1, .input_features = COLS, .seed = SEED };
    static float first[ROWS * COLS], values[ROWS * COLS];

    for (int threads = 1; threads <= 5; threads++) {
        const struct fsdp_context_options how = { .numerics = "ref", .threads = threads };
        struct fsdp_module *root = fsdp_module_create(forward, NULL);
        struct fsdp_context *context;
        struct fsdp_err err = { 0 };
        struct fsdp_model *model;

        fsdp_linear(root, "a", COLS, ROWS, false);
        cr_assert(fsdp_fully_shard(root, NULL, &err) == FSDP_OK);
        cr_assert(fsdp_context_create(&context, &how, &err) == FSDP_OK, "%s", err.message);
        cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
        cr_assert(fsdp_parameter_gather(model, "a.weight", FSDP_VALUE, threads == 1 ? first : values,
                                        ROWS * COLS, &err) == FSDP_OK);
        cr_expect(threads == 1 || memcmp(first, values, sizeof first) == 0, "%d threads", threads);
        fsdp_model_destroy(model);
        fsdp_context_destroy(context);
        fsdp_module_destroy(root);
    }
}
