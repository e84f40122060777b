/*
 * Training with the optimizer's state in a file. The bits are the same as with it in memory, at worlds 1 to
 * 4, for every kind of state and windows that cut tensors anywhere. It also works with updates inside
 * backward, and through a checkpoint both ways.
 */
#include <criterion/criterion.h>
#include <fsdp/forecast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/shardfile/io.h"
#include "tests/unit/engine/rig.h"
#include "tests/unit/shardfile/files.h"

enum { STEPS = 4 };

struct way {
    enum fsdp_optimizer_kind kind;
    double momentum;
    size_t window_bytes;
    bool by_group;
    char directory[256]; /* of the files */
};

/* A directory of the build's, which may itself be in memory: then there is nothing to see here. */
static bool make_directory(struct way *way)
{
    snprintf(way->directory, sizeof way->directory, "%s/offload-XXXXXX", BUILD_DIR);
    return mkdtemp(way->directory) != NULL;
}

static struct fsdp_optimizer_options options_of(const struct way *way, bool offloads)
{
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();

    options.kind = way->kind;
    options.momentum = way->momentum;
    options.offload_dir = offloads ? way->directory : NULL;
    options.offload_window_bytes = way->window_bytes;
    return options;
}

/* False: the files cannot be where the build is. */
static bool open_run(struct rig *rig, struct fsdp_context *context, const struct way *way, bool offloads,
                     uint64_t seed)
{
    enum fsdp_status status;

    rig_init(rig, context);
    rig->options.seed = seed;
    rig->updates = options_of(way, offloads);
    rig_model(rig);
    status = fsdp_optimizer_create(&rig->optimizer, rig->model, &rig->updates, &rig->err);
    if (status == FSDP_ERR_CONFIG) {
        rig_close(rig);
        return false;
    }
    must(status, &rig->err);
    return true;
}

static void step(struct rig *rig, int number, const struct way *way)
{
    must(rig_backward(rig, number, RIG_IN_ONE_CALL), &rig->err);
    if (way->by_group)
        must(fsdp_optimizer_step_group(rig->optimizer, 1, &rig->err), &rig->err);
    must(fsdp_optimizer_step(rig->optimizer, &rig->err), &rig->err);
}

/* Equal parameters and equal states, bit by bit. */
static void compare(struct rig *a, struct rig *b)
{
    const size_t n_params = fsdp_model_parameter_count(a->model);
    const size_t n_states = fsdp_optimizer_state_count(a->optimizer);
    struct fsdp_tensor_shard *left = calloc(n_params + n_states, sizeof *left);
    struct fsdp_tensor_shard *right = calloc(n_params + n_states, sizeof *right);

    fsdp_model_state(a->model, left);
    fsdp_model_state(b->model, right);
    fsdp_optimizer_state(a->optimizer, left + n_params);
    fsdp_optimizer_state(b->optimizer, right + n_params);
    cr_assert_eq(fsdp_optimizer_state_count(b->optimizer), n_states);
    for (size_t i = 0; i < n_params + n_states; i++) {
        size_t n = left[i].n_rows;
        float *got;

        for (int d = 1; d < left[i].n_dims; d++)
            n *= left[i].shape[d];
        got = right[i].data;
        cr_assert_str_eq(left[i].name, right[i].name);
        if (i >= n_params) {
            cr_assert(right[i].data == NULL, "it is in the file");
            got = malloc(n * sizeof *got + 1);
            cr_assert(fsdp_optimizer_read_state(b->optimizer, i - n_params, 0, n, got, NULL) == FSDP_OK);
            cr_assert(fsdp_optimizer_read_state(b->optimizer, i - n_params, 1, n, got, NULL) == FSDP_ERR_ARG);
        }
        cr_assert(memcmp(left[i].data, got, n * sizeof *got) == 0, "%s differs", left[i].name);
        if (i >= n_params)
            free(got);
    }
    free(left);
    free(right);
}

static void train_both(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    const bool has_state = way->kind == FSDP_ADAMW || way->momentum > 0;
    struct rig kept, offloaded;

    cr_assert(open_run(&kept, context, way, false, 1));
    if (open_run(&offloaded, context, way, true, 1)) {
        const size_t bytes = fsdp_optimizer_offloaded_bytes(offloaded.optimizer);

        struct io_names names = { 0 };

        cr_assert(!has_state || io_posix.list(&io_posix, way->directory, &names) == 0);
        cr_assert_eq(names.n, 0, "the file has no name");
        io_names_free(&names);
        cr_assert(has_state ? bytes >= fsdp_optimizer_bytes(kept.optimizer) : bytes == 0, "%zu bytes", bytes);
        for (int i = 0; i < STEPS; i++) {
            step(&kept, i, way);
            step(&offloaded, i, way);
            compare(&kept, &offloaded);
        }
        rig_close(&offloaded);
    } else {
        cr_assert(has_state, "a file was wanted");
    }
    rig_close(&kept);
}

Test(offload_training, changes_no_bit_at_any_world_size, .timeout = 3000)
{
    static const struct way ways[] = {
        { .kind = FSDP_ADAMW, .window_bytes = 1 },
        { .kind = FSDP_ADAMW, .window_bytes = 40000, .by_group = true },
        { .kind = FSDP_ADAMW },
        { .kind = FSDP_SGD, .momentum = 0.9, .window_bytes = 1 },
        { .kind = FSDP_SGD, .momentum = 0.9, .by_group = true },
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int W = 1; W <= 4; W++) {
            struct way way = ways[i];

            cr_assert(make_directory(&way));
            world_run(W, train_both, &way);
            cr_assert(rmdir(way.directory) == 0, "nothing is left there");
        }
}

Test(offload_training, an_optimizer_without_state_needs_no_file, .timeout = 600)
{
    struct way way = { .kind = FSDP_SGD };

    snprintf(way.directory, sizeof way.directory, "/nowhere/that/could/be/made/\x01");
    world_run(2, train_both, &way);
}

static const char *saves_to;

/* Saved by one that offloads, loaded by one that does not, and the other way round; both go on alike. */
static void through_a_checkpoint(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    struct fsdp_checkpoint_state state = { .seed = 1, .step = 1 }, found;
    struct rig first, kept, offloaded;
    struct fsdp_err err = { 0 };

    if (!open_run(&first, context, way, true, 1))
        return;
    step(&first, 0, way);
    must(fsdp_checkpoint_save(first.model, first.optimizer, saves_to, &state, 0, NULL, &err), &err);
    cr_assert(open_run(&kept, context, way, false, 7));
    must(fsdp_checkpoint_load(kept.model, kept.optimizer, saves_to, 1, &found, &err), &err);
    compare(&kept, &first);
    step(&kept, 1, way);
    state.step = 2;
    must(fsdp_checkpoint_save(kept.model, kept.optimizer, saves_to, &state, 0, NULL, &err), &err);
    cr_assert(open_run(&offloaded, context, way, true, 8));
    must(fsdp_checkpoint_load(offloaded.model, offloaded.optimizer, saves_to, 2, &found, &err), &err);
    compare(&kept, &offloaded);
    step(&kept, 2, way);
    step(&offloaded, 2, way);
    compare(&kept, &offloaded);
    rig_close(&offloaded);
    rig_close(&kept);
    rig_close(&first);
}

Test(offload_training, a_checkpoint_goes_in_and_out_of_the_file, .timeout = 1200)
{
    struct way way = { .kind = FSDP_ADAMW, .window_bytes = 1 };

    cr_assert(make_directory(&way));
    saves_to = files_begin();
    world_run(1, through_a_checkpoint, &way);
    cr_assert(rmdir(way.directory) == 0);
    files_end();
}

static void check_forecast(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    const struct fsdp_forecast_world world = {
        .size = fsdp_context_world_size(context), .ranks_per_host = 1, .threads = 1, .n_micro = 1
    };
    struct fsdp_forecast forecast;
    struct rig run;

    if (!open_run(&run, context, way, true, 1))
        return;
    must(fsdp_model_forecast(run.root, &run.options, &run.updates, &world, &forecast, &run.err), &run.err);
    if (fsdp_context_rank(context) == 0) {
        cr_assert_eq(forecast.optimizer, fsdp_optimizer_bytes(run.optimizer));
        cr_assert_eq(forecast.offloaded, fsdp_optimizer_offloaded_bytes(run.optimizer));
        cr_assert(forecast.offloaded >= forecast.optimizer && forecast.optimizer > 0);
    }
    rig_close(&run);
}

Test(offload_training, a_forecast_knows_the_window_and_the_file, .timeout = 600)
{
    setenv("FSDP_NUMERICS", "ref", 1); /* as world_run() has it */
    for (int W = 1; W <= 3; W += 2)
        for (size_t window = 0; window <= 30000; window += 30000) {
            struct way way = { .kind = FSDP_ADAMW, .window_bytes = window };

            cr_assert(make_directory(&way));
            world_run(W, check_forecast, &way);
            cr_assert(rmdir(way.directory) == 0);
        }
}
