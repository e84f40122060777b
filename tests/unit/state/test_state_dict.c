/*
 * The whole of a sharded model on rank 0 and back again at several world sizes.
 */
#include <criterion/criterion.h>
#include <fsdp/state_dict.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/rig.h"

struct place {
    struct fsdp_module *root;
    struct fsdp_model *model;
};

static struct place make_model(struct fsdp_context *context, const struct tiny *tiny, uint64_t seed)
{
    const struct fsdp_model_options options = { .batch = 1, .seq = tiny->seq, .seed = seed };
    struct fsdp_err err = { 0 };
    struct place place = { .root = tiny_build(tiny, &err) };

    must(fsdp_model_create(&place.model, context, place.root, &options, &err), &err);
    return place;
}

static void drop_model(struct place *place)
{
    fsdp_model_destroy(place->model);
    fsdp_module_destroy(place->root);
}

/* Is every parameter on this rank, row for row, that of a model of `seed`? */
static void expect_seed(struct fsdp_context *context, const struct tiny *tiny, struct fsdp_model *model,
                        uint64_t seed)
{
    struct place other = make_model(context, tiny, seed);
    const size_t n = fsdp_model_parameter_count(model);
    struct fsdp_tensor_shard *mine = calloc(n, sizeof *mine), *theirs = calloc(n, sizeof *theirs);

    fsdp_model_state(model, mine);
    fsdp_model_state(other.model, theirs);
    for (size_t i = 0; i < n; i++) {
        size_t row = 1;

        for (int d = 1; d < mine[i].n_dims; d++)
            row *= mine[i].shape[d];
        cr_assert(mine[i].n_rows == 0 ||
                      memcmp(mine[i].data, theirs[i].data, mine[i].n_rows * row * sizeof(float)) == 0,
                  "%s", mine[i].name);
    }
    free(mine);
    free(theirs);
    drop_model(&other);
}

static void there_and_back_on(struct fsdp_context *context, const struct tiny *tiny, bool first)
{
    struct place from = make_model(context, tiny, 7), to = make_model(context, tiny, 8);
    struct fsdp_full_state_dict state;
    struct fsdp_err err = { 0 };

    must(fsdp_get_full_state_dict(from.model, &state, &err), &err);
    cr_assert_eq(state.n_tensors, first ? fsdp_model_parameter_count(from.model) : 0);
    for (size_t i = 0; i < state.n_tensors; i++) {
        struct fsdp_parameter_info info;

        must(fsdp_model_parameter(from.model, i, &info, &err), &err);
        cr_assert_str_eq(state.tensors[i].name, info.name);
    }
    must(fsdp_set_full_state_dict(to.model, first ? &state : NULL, &err), &err);
    expect_seed(context, tiny, to.model, 7);
    fsdp_full_state_dict_fini(&state);
    drop_model(&from);
    drop_model(&to);
}

static void there_and_back(struct fsdp_context *context, void *user)
{
    (void)user;
    there_and_back_on(context, &tiny_defaults, fsdp_context_rank(context) == 0);
}

WorldTest(state_dict, what_is_gathered_and_broadcast_is_the_same_model, there_and_back, 1, 2, 3, 4, 5);

/* The upper half of the world has a model; the lower half calls nothing. */
static void there_and_back_in_half(struct fsdp_context *context, void *user)
{
    static const char *const names[] = { "half", "replicate", "shard" };
    const int W = fsdp_context_world_size(context), sizes[] = { 2, W / 4, 2 };
    struct fsdp_device_mesh *all, *half;
    struct tiny tiny = tiny_defaults;
    struct fsdp_err err = { 0 };

    (void)user;
    must(fsdp_init_device_mesh(&all, context, 3, sizes, names, &err), &err);
    must(fsdp_device_mesh_slice(&half, all, &names[1], 2, &err), &err);
    tiny.mesh = half;
    if (fsdp_device_mesh_get_local_rank(all, 0) == 1)
        there_and_back_on(context, &tiny, fsdp_context_rank(context) == W / 2);
    fsdp_device_mesh_destroy(half);
    fsdp_device_mesh_destroy(all);
}

Test(state_dict, a_model_of_some_ranks_is_gathered_on_its_first_and_broadcast_from_there, .timeout = 120)
{
    for (int W = 4; W <= 8; W += 4)
        world_run(W, there_and_back_in_half, NULL);
}

static void misfit(struct fsdp_context *context, void *user)
{
    struct place place = make_model(context, &tiny_defaults, 7);
    const bool first = fsdp_context_rank(context) == 0;
    struct fsdp_full_state_dict state;
    struct fsdp_err err = { 0 };

    (void)user;
    must(fsdp_get_full_state_dict(place.model, &state, &err), &err);
    if (first)
        state.tensors[3].name = "another";
    expect_refused(fsdp_set_full_state_dict(place.model, first ? &state : NULL, &err), FSDP_ERR_MISMATCH,
                   first ? "is missing" : "rank 0: ", &err);
    fsdp_err_clear(&err);
    cr_assert(fsdp_set_full_state_dict(place.model, NULL, &err) == FSDP_ERR_ARG, "none was given");
    expect_seed(context, &tiny_defaults, place.model, 7);
    fsdp_full_state_dict_fini(&state);
    drop_model(&place);
}

WorldTest(state_dict, a_misfit_is_told_on_every_rank_and_changes_nothing, misfit, 1, 2, 3);

/* The value of element number `at` of state tensor `index`, in row-major order of the whole. */
static float state_value(size_t index, size_t at)
{
    return (float)(1000 * index + at % 1000 + 1);
}

/* Fills this rank's part of each state tensor, or compares it, by where its box says that it is. */
static void each_state(struct fsdp_optimizer *optimizer, bool fills)
{
    const size_t n = fsdp_optimizer_state_count(optimizer);
    struct fsdp_tensor_shard *shards = calloc(n, sizeof *shards);
    struct fsdp_err err = { 0 };

    fsdp_optimizer_state(optimizer, shards);
    for (size_t i = 0; i < n; i++) {
        const struct fsdp_tensor_shard *shard = &shards[i];
        const size_t rows = shard->sizes[0], columns = shard->n_dims > 1 ? shard->sizes[1] : 1,
                     whole_columns = shard->n_dims > 1 ? shard->shape[1] : 1;
        float *values = calloc(rows * columns + 1, sizeof *values),
              *wanted = calloc(rows * columns + 1, sizeof *wanted);

        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < columns; c++)
                wanted[r * columns + c] = state_value(i, (shard->offsets[0] + r) * whole_columns +
                                                             (shard->n_dims > 1 ? shard->offsets[1] : 0) + c);
        if (fills) {
            must(fsdp_optimizer_write_state(optimizer, i, 0, rows * columns, wanted, &err), &err);
        } else {
            must(fsdp_optimizer_read_state(optimizer, i, 0, rows * columns, values, &err), &err);
            cr_assert(memcmp(values, wanted, rows * columns * sizeof *values) == 0, "%s", shard->name);
        }
        free(values);
        free(wanted);
    }
    free(shards);
}

/* `user` is the directory of the state's file, or NULL. */
static void optimizer_there_and_back(struct fsdp_context *context, void *user)
{
    const struct fsdp_optimizer_options options = {
        .kind = FSDP_ADAMW, .lr = 1e-3f, .betas = { 0.9f, 0.95f }, .eps = 1e-8f, .offload_dir = user
    };
    struct place from = make_model(context, &tiny_defaults, 7), to = make_model(context, &tiny_defaults, 7);
    const bool first = fsdp_context_rank(context) == 0;
    struct fsdp_optimizer *one, *two;
    struct fsdp_full_state_dict state;
    struct fsdp_err err = { 0 };

    must(fsdp_optimizer_create(&one, from.model, &options, &err), &err);
    must(fsdp_optimizer_create(&two, to.model, &options, &err), &err);
    each_state(one, true);

    must(fsdp_get_full_optimizer_state(one, &state, &err), &err);
    cr_assert_eq(state.n_tensors, first ? fsdp_optimizer_state_count(one) : 0);
    for (size_t i = 0; i < state.n_tensors; i++)
        for (size_t at = 0; at < state.tensors[i].n_elems; at++)
            cr_assert(state.tensors[i].data[at] == state_value(i, at), "%s, %zu", state.tensors[i].name, at);
    if (first)
        cr_assert(strncmp(state.tensors[0].name, "optimizer.exp_avg.", 18) == 0);
    must(fsdp_set_full_optimizer_state(two, first ? &state : NULL, &err), &err);
    each_state(two, false);

    if (first)
        state.n_tensors--;
    expect_refused(fsdp_set_full_optimizer_state(two, first ? &state : NULL, &err), FSDP_ERR_MISMATCH,
                   first ? "is missing" : "rank 0: ", &err);
    each_state(two, false);
    if (first)
        state.n_tensors++;
    fsdp_full_state_dict_fini(&state);
    fsdp_optimizer_destroy(one);
    fsdp_optimizer_destroy(two);
    drop_model(&from);
    drop_model(&to);
}

WorldTest(state_dict, the_optimizers_state_is_gathered_and_broadcast_too, optimizer_there_and_back, 1, 2, 3,
          4, 5);

Test(state_dict, so_is_a_state_in_a_file, .timeout = 120)
{
    char directory[] = BUILD_DIR; /* on a disk */

    for (int W = 1; W <= 3; W += 2)
        world_run(W, optimizer_there_and_back, directory);
}
