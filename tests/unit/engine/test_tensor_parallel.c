/*
 * Tensor parallelism beside sharding: weights, norms and whole tensors are those of a world of one at every size of the two
 * dimensions; memory and traffic are planned; what cannot be split is refused on every rank.
 */
#include <criterion/criterion.h>
#include <fsdp/forecast.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, MAX_PARAMS = 64, N_NORMS = 4 };

static const double norm_types[N_NORMS] = { 1, 2, 3, INFINITY };
static const char *const dims[] = { "dp", "tp" };

struct meshes {
    struct fsdp_device_mesh *all, *dp, *tp;
};

/* context NULL: for planning. */
static void open_meshes(struct meshes *m, struct fsdp_context *context, int W, int T)
{
    struct fsdp_err err = { 0 };

    cr_assert(fsdp_init_device_mesh(&m->all, context, 2, (int[]){ W, T }, dims, &err) == FSDP_OK, "%s",
              err.message);
    cr_assert(fsdp_device_mesh_slice(&m->dp, m->all, &dims[0], 1, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_device_mesh_slice(&m->tp, m->all, &dims[1], 1, &err) == FSDP_OK, "%s", err.message);
}

static void close_meshes(struct meshes *m)
{
    fsdp_device_mesh_destroy(m->tp);
    fsdp_device_mesh_destroy(m->dp);
    fsdp_device_mesh_destroy(m->all);
}

static struct tiny tiny_of(const struct meshes *m)
{
    struct tiny tiny = tiny_defaults;

    tiny.heads = 4;
    tiny.mesh = m->dp;
    tiny.tensor = m->tp;
    return tiny;
}

/* What rank 0 saw. */
struct seen {
    int W, T;
    size_t n_params, n_elems[MAX_PARAMS];
    float *initial[MAX_PARAMS], *after[MAX_PARAMS];
    double norms[N_NORMS];
};

static void copy_all(struct fsdp_model *model, struct seen *seen, float **into)
{
    const bool keeps = fsdp_context_rank(fsdp_model_context(model)) == 0;

    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;
        struct fsdp_err err = { 0 };
        float *whole;

        fsdp_model_parameter(model, i, &info, NULL);
        whole = calloc(info.n_elems, sizeof *whole);
        cr_assert(fsdp_parameter_gather(model, info.name, FSDP_VALUE, whole, info.n_elems, &err) == FSDP_OK,
                  "%s", err.message);
        if (!keeps) {
            free(whole);
            continue;
        }
        seen->n_params = fsdp_model_parameter_count(model);
        seen->n_elems[i] = info.n_elems;
        into[i] = whole;
    }
}

static void step(struct fsdp_model *model, const struct tiny *tiny, uint64_t first, struct fsdp_err *err)
{
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets, .first_sample = first };
    struct fsdp_loss loss;

    tiny_samples(tiny, first, BATCH, tokens, targets);
    cr_assert(fsdp_model_forward_backward(model, &micro, 1, &loss, err) == FSDP_OK, "%s", err->message);
}

static void look(struct fsdp_context *context, void *user)
{
    struct seen *seen = user;
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6, .seed = 7 };
    struct meshes meshes;
    struct tiny tiny;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root;
    struct fsdp_model *model;

    open_meshes(&meshes, context, seen->W, seen->T);
    tiny = tiny_of(&meshes);
    root = tiny_build(&tiny, &err);
    cr_assert_not_null(root, "%s", err.message);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    copy_all(model, seen, seen->initial);
    step(model, &tiny, 0, &err); /* every rank the same samples: the same mean at every size */
    for (int n = 0; n < N_NORMS; n++) {
        double norm;

        cr_assert(fsdp_clip_grad_norm_of(model, 0, norm_types[n], &norm, &err) == FSDP_OK, "%s", err.message);
        if (fsdp_context_rank(context) == 0)
            seen->norms[n] = norm;
    }
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) { /* set is the other way of gather */
        struct fsdp_parameter_info info;
        float *values;

        fsdp_model_parameter(model, i, &info, NULL);
        values = calloc(info.n_elems, sizeof *values);
        for (size_t e = 0; e < info.n_elems; e++)
            values[e] = (float)(i * 100000 + e);
        cr_assert(fsdp_parameter_set(model, info.name, values, info.n_elems, &err) == FSDP_OK, "%s",
                  err.message);
        free(values);
    }
    copy_all(model, seen, seen->after);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
}

static void release(struct seen *seen)
{
    for (size_t i = 0; i < seen->n_params; i++) {
        free(seen->initial[i]);
        free(seen->after[i]);
    }
}

Test(tensor_parallel, weights_and_norms_are_those_of_one_rank_at_every_size, .timeout = 1200)
{
    static const int sizes[][2] = { { 1, 2 }, { 2, 2 }, { 1, 4 }, { 3, 2 }, { 2, 4 }, { 4, 1 } };
    static struct seen one, many;

    one = (struct seen){ .W = 1, .T = 1 };
    world_run(1, look, &one);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        many = (struct seen){ .W = sizes[s][0], .T = sizes[s][1] };
        world_run(many.W * many.T, look, &many);
        cr_assert_eq(many.n_params, one.n_params);
        for (size_t i = 0; i < one.n_params; i++) {
            cr_assert_eq(many.n_elems[i], one.n_elems[i]);
            cr_expect(memcmp(many.initial[i], one.initial[i], one.n_elems[i] * sizeof(float)) == 0,
                      "%d x %d: parameter %zu begins otherwise", many.W, many.T, i);
            for (size_t e = 0; e < one.n_elems[i]; e++)
                cr_assert(many.after[i][e] == (float)(i * 100000 + e) && one.after[i][e] == many.after[i][e]);
        }
        for (int n = 0; n < N_NORMS; n++)
            cr_expect(fabs(many.norms[n] - one.norms[n]) <= 5e-6 * one.norms[n],
                      "%d x %d: norm %g is %.9g, not %.9g", many.W, many.T, norm_types[n], many.norms[n],
                      one.norms[n]);
        release(&many);
    }
    release(&one);
}

/* --- planned ------------------------------------------------------------------------------------------------ */

static struct fsdp_forecast forecast_of(int W, int T)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6 };
    const struct fsdp_forecast_world world = {
        .size = W * T, .ranks_per_host = W * T, .threads = 1, .n_micro = 1
    };
    struct fsdp_forecast forecast;
    struct meshes meshes;
    struct tiny tiny;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root;

    setenv("FSDP_NUMERICS", "ref", 1); /* as world_run() has it */
    open_meshes(&meshes, NULL, W, T);
    tiny = tiny_of(&meshes);
    root = tiny_build(&tiny, &err);
    cr_assert_not_null(root, "%s", err.message);
    cr_assert(fsdp_model_forecast(root, &options, NULL, &world, &forecast, &err) == FSDP_OK, "%s",
              err.message);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
    return forecast;
}

struct planned {
    int W, T;
    struct fsdp_forecast forecast;
};

static void compare_memory(struct fsdp_context *context, void *user)
{
    const struct planned *planned = user;
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6 };
    struct fsdp_memory memory;
    struct meshes meshes;
    struct tiny tiny;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root;
    struct fsdp_model *model;

    open_meshes(&meshes, context, planned->W, planned->T);
    tiny = tiny_of(&meshes);
    root = tiny_build(&tiny, &err);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    fsdp_model_memory(model, &memory);
    cr_expect(memcmp(&memory, &planned->forecast.memory, sizeof memory) == 0, "arena %zu, planned %zu",
              memory.arena, planned->forecast.memory.arena);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
}

Test(tensor_parallel, memory_is_planned_and_less_than_without, .timeout = 600)
{
    static const int sizes[][2] = { { 1, 2 }, { 2, 2 }, { 1, 4 }, { 2, 4 } };
    const struct fsdp_forecast one = forecast_of(1, 1);

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct planned planned = { .W = sizes[s][0],
                                   .T = sizes[s][1],
                                   .forecast = forecast_of(sizes[s][0], sizes[s][1]) };

        cr_expect(planned.forecast.memory.parameters < one.memory.parameters &&
                  planned.forecast.memory.activations < one.memory.activations);
        world_run(planned.W * planned.T, compare_memory, &planned);
    }
}

/* Each block all-reduces its activations twice in forward and twice in backward, for attention and for feed_forward. */
Test(tensor_parallel, collectives_are_counted_and_their_buffers_too)
{
    const struct tiny *t = &tiny_defaults;
    const uint64_t value_bytes = BATCH * t->seq * t->dim * sizeof(float);

    for (int T = 2; T <= 4; T += 2) {
        const struct fsdp_forecast split = forecast_of(2, T), whole = forecast_of(2 * T, 1);

        cr_expect(split.all_reduce.n_calls == 4 * t->layers && whole.all_reduce.n_calls == 0);
        cr_expect_eq(split.all_reduce.sent_bytes,
                     4 * t->layers * 2 * value_bytes * (uint64_t)(T - 1) / (uint64_t)T);
        cr_expect_eq(split.shared, comm_shared_bytes(2 * T) + comm_shared_bytes(2) + comm_shared_bytes(T));
        cr_expect_eq(split.node_shared,
                     comm_shared_bytes(2 * T) + (size_t)T * comm_shared_bytes(2) + 2 * comm_shared_bytes(T));
        cr_expect_eq(whole.shared, 2 * comm_shared_bytes(2 * T));
        cr_expect_eq(whole.node_shared, whole.shared);
        cr_expect(split.staging == 0 && whole.staging == 0, "one node needs no memory for a network");
    }
}

/* --- refused ------------------------------------------------------------------------------------------------ */

static struct fsdp_value *use_as(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const char *how = user;
    struct fsdp_value *part = fsdp_call(fsdp_module_child(self, "a"), x);

    if (strcmp(how, "norm") == 0)
        return fsdp_call(fsdp_module_child(self, "norm"), part);
    if (strcmp(how, "result") == 0)
        return part;
    if (strcmp(how, "sum") == 0)
        return fsdp_add(part, x);
    if (strcmp(how, "dropout") == 0)
        return fsdp_call(fsdp_module_child(self, "b"), fsdp_dropout(part, 0.5f));
    if (strcmp(how, "rows") == 0)
        return fsdp_call(fsdp_module_child(self, "b"), x);
    if (strcmp(how, "plain") == 0)
        return fsdp_call(fsdp_module_child(self, "c"), part);
    return fsdp_call(fsdp_module_child(self, "b"),
                     fsdp_scaled_dot_product_attention(part, part, part, 2, true, 0.5f)); /* "attention" */
}

static void refuse_uses(struct fsdp_context *context, void *user)
{
    static const struct {
        const char *how, *words;
    } uses[] = { { "norm", "has a part of the features" },
                 { "result", "must be whole" },
                 { "sum", "is given (2, 3, 4) and (2, 3, 8)" },
                 { "dropout", "has a part of the features" },
                 { "rows", "the row-parallel linear \"b\"" },
                 { "plain", "must be row-parallel" },
                 { "attention", "dropout of heads" } };
    const struct fsdp_model_options options = { .batch = 2, .seq = 3, .input_features = 8 };
    struct meshes meshes;
    struct fsdp_err err = { 0 };

    (void)user;
    open_meshes(&meshes, context, 1, 2);
    for (size_t u = 0; u < sizeof uses / sizeof *uses; u++) {
        struct fsdp_module *root = fsdp_module_create(use_as, (void *)(uintptr_t)uses[u].how);
        const struct fsdp_fully_shard_options by = { .mesh = meshes.dp };
        struct fsdp_model *model;

        fsdp_linear(root, "a", 8, 8, true);
        fsdp_linear(root, "b", 8, 8, true);
        fsdp_linear(root, "c", 8, 8, true);
        fsdp_layer_norm(root, "norm", 4, 1e-5f);
        cr_assert(fsdp_colwise_parallel(fsdp_module_child(root, "a"), meshes.tp, &err) == FSDP_OK);
        cr_assert(fsdp_rowwise_parallel(fsdp_module_child(root, "b"), meshes.tp, &err) == FSDP_OK);
        cr_assert(fsdp_fully_shard(root, &by, &err) == FSDP_OK, "%s", err.message);
        cr_expect(fsdp_model_create(&model, context, root, &options, &err) != FSDP_OK, "%s", uses[u].how);
        cr_expect_not_null(strstr(err.message, uses[u].words), "%s: %s", uses[u].how, err.message);
        fsdp_module_destroy(root);
    }
    close_meshes(&meshes);
}

Test(tensor_parallel, what_needs_all_features_refuses_a_part)
{
    world_run(2, refuse_uses, NULL);
}

static struct fsdp_value *pass_on(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "b"), fsdp_call(fsdp_module_child(self, "a"), x));
}

static void refuse_marks(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root = fsdp_module_create(pass_on, NULL), *a, *b, *odd, *norm;
    const struct fsdp_parallel_rule nobody = { "layers.*", FSDP_COLWISE_PARALLEL };
    const struct fsdp_model_options options = { .batch = 2, .seq = 3, .input_features = 8 };
    struct fsdp_model *model;
    struct meshes meshes;
    struct fsdp_err err = { 0 };

    (void)user;
    open_meshes(&meshes, context, 2, 2);
    a = fsdp_linear(root, "a", 8, 8, true);
    b = fsdp_linear(root, "b", 8, 8, false);
    odd = fsdp_linear(root, "odd", 8, 7, true);
    norm = fsdp_layer_norm(root, "norm", 8, 1e-5f);
    cr_expect(fsdp_colwise_parallel(norm, meshes.tp, &err) == FSDP_ERR_ARG &&
              strstr(err.message, "no linear"));
    cr_expect(fsdp_colwise_parallel(odd, meshes.tp, &err) == FSDP_ERR_ARG &&
              strstr(err.message, "do not divide the 7"));
    cr_expect(fsdp_colwise_parallel(a, meshes.all, &err) == FSDP_ERR_ARG &&
              strstr(err.message, "one dimension"));
    cr_expect(fsdp_parallelize_module(root, meshes.tp, &nobody, 1, &err) == FSDP_ERR_ARG &&
              strstr(err.message, "layers.*"));
    cr_assert(fsdp_colwise_parallel(a, meshes.tp, &err) == FSDP_OK);
    cr_expect(fsdp_rowwise_parallel(a, meshes.tp, &err) == FSDP_ERR_ARG &&
              strstr(err.message, "split already"));
    cr_assert(fsdp_rowwise_parallel(b, meshes.tp, &err) == FSDP_OK);
    cr_assert(fsdp_fully_shard(root, NULL, &err) == FSDP_OK);
    cr_expect(fsdp_colwise_parallel(odd, meshes.tp, &err) == FSDP_ERR_ARG &&
              strstr(err.message, "sharded already"));
    cr_expect(fsdp_model_create(&model, context, root, &options, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "\"norm\" is no linear"), "the tree keeps the first: %s",
                       err.message);
    fsdp_module_destroy(root);
    root = fsdp_module_create(pass_on, NULL);
    cr_assert(fsdp_colwise_parallel(fsdp_linear(root, "a", 8, 8, true), meshes.tp, &err) == FSDP_OK);
    cr_assert(fsdp_fully_shard(root, NULL, &err) == FSDP_OK); /* over all ranks: those that split too */
    cr_expect(fsdp_model_create(&model, context, root, &options, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "ranks that the model is sharded over"), "%s", err.message);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
}

Test(tensor_parallel, what_cannot_be_split_is_refused)
{
    world_run(4, refuse_marks, NULL);
}

static void give_other_samples(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6 };
    const int rank = fsdp_context_rank(context);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets, .first_sample = 0 };
    struct meshes meshes;
    struct tiny tiny;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_loss loss;

    (void)user;
    open_meshes(&meshes, context, 2, 2);
    tiny = tiny_of(&meshes);
    root = tiny_build(&tiny, &err);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    tiny_samples(&tiny, rank == 3 ? 9 : 0, BATCH, tokens, targets);
    cr_expect(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_ERR_MISMATCH, "rank %d: %s",
              rank, err.message);
    cr_expect_not_null(strstr(err.message, "different samples"), "%s", err.message);
    cr_expect((strncmp(err.message, "rank 2: ", 8) == 0) == (rank < 2), "%s", err.message);
    step(model, &tiny, 0, &err); /* and goes on with the right ones */
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
}

Test(tensor_parallel, ranks_of_a_group_with_different_samples_are_told_apart_at_once, .timeout = 300)
{
    world_run(4, give_other_samples, NULL);
}

/* --- sub-worlds -------------------------------------------------------------------------------------------- */

/* Ranks 0 and 2 train one model, 1 and 3 another: groups smaller than the world that never meet. */
static void train_apart(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6 };
    struct fsdp_checkpoint_state state = { 0 };
    double *losses = user;
    struct tiny tiny = tiny_defaults;
    struct meshes meshes;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root;
    struct fsdp_model *model;
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    struct fsdp_loss loss;

    open_meshes(&meshes, context, 2, 2);
    tiny.mesh = meshes.dp;
    root = tiny_build(&tiny, &err);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    tiny_samples(&tiny, (uint64_t)fsdp_context_rank(context) % 2 * 5, BATCH, tokens, targets);
    cr_assert(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_OK, "%s", err.message);
    cr_expect_eq(loss.n_targets, 2 * BATCH * 6);
    losses[fsdp_context_rank(context)] = loss.mean;
    cr_expect(fsdp_checkpoint_save(model, NULL, "nowhere", &state, 0, NULL, &err) == FSDP_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(err.message, "2 of the world's 4"), "%s", err.message);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
}

Test(tensor_parallel, groups_smaller_than_the_world_train_apart)
{
    double losses[4];

    world_run(4, train_apart, losses);
    cr_expect(losses[0] == losses[2] && losses[1] == losses[3] && losses[0] != losses[1]);
}
