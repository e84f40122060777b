/*
 * Initial values are drawn when something first reads a value, on this rank's rows of what nothing has
 * filled, and nowhere else. Draws are counted, never timed.
 */
#include <fsdp/state_dict.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "tests/unit/engine/apart_device.h"
#include "tests/unit/engine/rig.h"
#include "tests/unit/shardfile/files.h"

enum { SEED = 7, OTHER_SEED = 8 };

/* How the model is made. */
struct way {
    const char *what;
    struct tiny tiny;
    bool ignores; /* some parameters are left out of sharding: every rank holds all of them */
    bool apart;   /* on a device with memory of its own */
};

static const struct way *the_way;
static uint64_t saved_step;
static const char *folder, *path;

static void open_run(struct rig *rig, struct fsdp_context *context, uint64_t seed)
{
    static const char *const ignored[] = { "norm.weight", "pos_embeddings.weight" };
    const struct fsdp_fully_shard_options ignoring = { .ignored_params = ignored, .n_ignored_params = 2 };

    rig_init(rig, context);
    rig->tiny = tiny_with(the_way->tiny);
    rig->options.seed = seed;
    if (the_way->ignores) {
        rig->root = tiny_tree(&rig->tiny);
        must(fsdp_fully_shard(rig->root, &ignoring, &rig->err), &rig->err);
    }
    rig_model(rig);
    cr_assert_eq(rig->model->n_drawn, 0, "%s: create drew %zu elements", the_way->what, rig->model->n_drawn);
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

/*
 * The rows of this rank are those of a model of `seed`; with `other` every second parameter is of that seed.
 */
static void expect_rows(struct rig *rig, uint64_t seed, uint64_t other)
{
    const size_t n = fsdp_model_parameter_count(rig->model);
    struct fsdp_tensor_shard *mine = calloc(n, sizeof *mine), *theirs = calloc(n, sizeof *theirs);
    struct rig made;

    fsdp_model_state(rig->model, mine);
    for (size_t odd = 0; odd < 2; odd++) {
        open_run(&made, rig->context, odd ? other : seed);
        fsdp_model_state(made.model, theirs);
        for (size_t i = odd; i < n; i += 2) {
            size_t n_elems;

            (void)model_shard_elems(rig->model, FSDP_VALUE, (int)i, &n_elems);
            cr_assert(memcmp(mine[i].data, theirs[i].data, n_elems * sizeof(float)) == 0,
                      "%s: %s is of another seed", the_way->what, mine[i].name);
        }
        rig_close(&made);
    }
    free(mine);
    free(theirs);
}

static void evaluate(struct rig *rig)
{
    rig_fill(rig, 0);
    must(fsdp_model_prepare_evaluation(rig->model, 2, 6, &rig->err), &rig->err);
    must(fsdp_model_evaluate(rig->model, rig->tokens, NULL, NULL, NULL, &rig->err), &rig->err);
}

static void by_state(struct rig *rig)
{
    struct fsdp_tensor_shard *shards = calloc(fsdp_model_parameter_count(rig->model), sizeof *shards);

    fsdp_model_state(rig->model, shards);
    free(shards);
}

static void by_gather(struct rig *rig)
{
    float out[RIG_ELEMS];

    (void)rig_gather(rig, FSDP_VALUE, out);
}

static void by_full_state(struct rig *rig)
{
    struct fsdp_full_state_dict state;

    must(fsdp_get_full_state_dict(rig->model, &state, &rig->err), &rig->err);
    fsdp_full_state_dict_fini(&state);
}

/* A world of one gathers nothing, unless the unit offloads: then the shard itself is shown. */
static void by_unshard(struct rig *rig)
{
    enum fsdp_dtype dtype;
    const void *data;

    must(fsdp_module_unshard(rig->model, rig->root, false, NULL, &rig->err), &rig->err);
    if (rig->ranks == 1)
        must(fsdp_parameter_unsharded(rig->model, "norm.weight", &data, &dtype, &rig->err), &rig->err);
    fsdp_module_reshard(rig->model, rig->root);
}

static void by_step(struct rig *rig)
{
    must(rig_backward(rig, 0, RIG_IN_ONE_CALL), &rig->err);
}

static void by_halves(struct rig *rig)
{
    must(rig_backward(rig, 0, RIG_IN_HALVES), &rig->err);
}

/* Ranks that are threads cannot save together: there is no agent to publish what they wrote. */
static void by_save(struct rig *rig)
{
    struct fsdp_checkpoint_state state = { 0 };

    if (rig->ranks > 1) {
        by_state(rig);
        return;
    }
    state.step = ++saved_step;
    must(fsdp_checkpoint_save(rig->model, NULL, folder, &state, 0, NULL, &rig->err), &rig->err);
}

static const struct reader {
    const char *what;
    void (*read)(struct rig *rig);
} readers[] = { { "state", by_state },     { "gather", by_gather },    { "full state dict", by_full_state },
                { "unshard", by_unshard }, { "evaluation", evaluate }, { "step", by_step },
                { "halves", by_halves },   { "save", by_save } };

static void read_first(struct fsdp_context *context, void *user)
{
    const struct reader *reader = user;
    struct rig rig;

    open_run(&rig, context, SEED);
    for (int again = 0; again < 2; again++) {
        reader->read(&rig);
        cr_expect_eq(rig.model->n_drawn, own_elems(rig.model, false), "%s: %s %d drew %zu elements of %zu",
                     the_way->what, reader->what, again, rig.model->n_drawn, own_elems(rig.model, false));
        expect_rows(&rig, SEED, SEED);
    }
    rig_close(&rig);
}

/* Two models; the values of `from` are to become those of `to`. */
static void open_two(struct rig *from, struct rig *to, struct fsdp_context *context)
{
    open_run(from, context, SEED);
    open_run(to, context, OTHER_SEED);
}

static void expect_loaded(struct rig *to)
{
    evaluate(to);
    cr_expect_eq(to->model->n_drawn, 0, "%s: %zu elements were drawn of a model that was loaded or set",
                 the_way->what, to->model->n_drawn);
    expect_rows(to, SEED, SEED);
}

static void load_checkpoint(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct rig from, to;

    (void)user;
    open_two(&from, &to, context);
    by_save(&from); /* by a world of one, which comes first */
    must(fsdp_checkpoint_load(to.model, NULL, folder, (int64_t)saved_step, &state, &to.err), &to.err);
    expect_loaded(&to);
    rig_close(&to);
    rig_close(&from);
}

/* Rank 0 writes every tensor, or every second one, as another tool would. */
static void write_weights(struct rig *rig, bool half)
{
    struct fsdp_full_state_dict state;
    struct safetensors_written written;
    struct safetensors_tensor *tensors;
    size_t n = 0;

    must(fsdp_get_full_state_dict(rig->model, &state, &rig->err), &rig->err);
    tensors = calloc(state.n_tensors + 1, sizeof *tensors);
    for (size_t i = 0; i < state.n_tensors; i += half ? 2 : 1, n++) {
        tensors[n] = (struct safetensors_tensor){ .name = state.tensors[i].name,
                                                  .dtype = FSDP_F32,
                                                  .n_dims = (size_t)state.tensors[i].n_dims,
                                                  .data = state.tensors[i].data };
        for (int d = 0; d < state.tensors[i].n_dims; d++)
            tensors[n].shape[d] = state.tensors[i].shape[d];
    }
    if (rig->rank == 0)
        must(safetensors_write(&io_posix, path, tensors, n, NULL, 0, 8, false, &written, &rig->err),
             &rig->err);
    free(tensors);
    fsdp_full_state_dict_fini(&state);
    must(fsdp_barrier(fsdp_context_comm(rig->context), &rig->err), &rig->err);
}

static void load_weights(struct fsdp_context *context, void *user)
{
    const bool half = *(const bool *)user;
    struct fsdp_load_report report;
    struct rig from, to;
    size_t missing;

    open_two(&from, &to, context);
    write_weights(&from, half);
    missing = half ? own_elems(to.model, true) : 0;

    if (half) { /* refused whole: it leaves all values as they are, which is not drawn yet */
        cr_expect(fsdp_model_load_weights(to.model, path, true, &report, &to.err) == FSDP_ERR_MISMATCH);
        fsdp_load_report_fini(&report);
        fsdp_err_clear(&to.err);
    }
    must(fsdp_model_load_weights(to.model, path, !half, &report, &to.err), &to.err);
    fsdp_load_report_fini(&report);
    evaluate(&to);

    cr_expect_eq(to.model->n_drawn, missing, "%s: %zu elements were drawn, and %zu were not in the file",
                 the_way->what, to.model->n_drawn, missing);
    expect_rows(&to, SEED, half ? OTHER_SEED : SEED);
    must(fsdp_barrier(fsdp_context_comm(context), &to.err), &to.err); /* the file is written again */
    rig_close(&to);
    rig_close(&from);
}

static void set_all(struct fsdp_context *context, void *user)
{
    struct fsdp_full_state_dict state;
    struct rig from, to;

    (void)user;
    open_two(&from, &to, context);
    must(fsdp_get_full_state_dict(from.model, &state, &from.err), &from.err);
    must(fsdp_set_full_state_dict(to.model, to.rank == 0 ? &state : NULL, &to.err), &to.err);
    expect_loaded(&to);
    fsdp_full_state_dict_fini(&state);
    rig_close(&to);
    rig_close(&from);
}

static void fail_to_load(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state;
    struct rig rig;

    (void)user;
    open_run(&rig, context, SEED);
    cr_expect(fsdp_checkpoint_load(rig.model, NULL, folder, 77, &state, NULL) != FSDP_OK);
    cr_expect_eq(rig.model->n_drawn, 0);
    evaluate(&rig);
    expect_rows(&rig, SEED, SEED);
    rig_close(&rig);
}

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
    static const struct way ways[] = { { .what = "plain" },
                                       { .what = "tied", .tiny.tied = true },
                                       { .what = "cut along columns", .tiny.columns = true },
                                       { .what = "frozen", .tiny.frozen = true },
                                       { .what = "ignored", .ignores = true },
                                       { .what = "on a device", .apart = true },
                                       { .what = "offloaded", .apart = true, .tiny.offloads = true } };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        the_way = &ways[i];
        for (int W = 1; W <= (the_way->tiny.columns ? 2 : 3); W++)
            world_run(W, install, &(struct on_device){ body, user });
    }
}

static void make_folder(void)
{
    folder = files_begin();
    path = files_path(folder, "model.safetensors");
}

TestSuite(initial, .init = make_folder, .fini = files_end, .timeout = 1200);

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
        must(fsdp_fully_shard(root, NULL, &err), &err);
        must(fsdp_context_create(&context, &how, &err), &err);
        must(fsdp_model_create(&model, context, root, &options, &err), &err);
        must(fsdp_parameter_gather(model, "a.weight", FSDP_VALUE, threads == 1 ? first : values, ROWS * COLS,
                                   &err),
             &err);
        cr_expect(threads == 1 || memcmp(first, values, sizeof first) == 0, "%d threads", threads);
        fsdp_model_destroy(model);
        fsdp_context_destroy(context);
        fsdp_module_destroy(root);
    }
}
