/*
 * Tensor parallelism together with sharding. Weights, norms and whole tensors are those of a world of one at
 * every size of the two dimensions. Memory and traffic are planned. What cannot be split is refused on every
 * rank.
 */
#include <criterion/criterion.h>
#include <fsdp/forecast.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm.h"
#include "tests/unit/engine/rig.h"

enum { BATCH = 2, N_NORMS = 4 };

static const double norm_types[N_NORMS] = { 1, 2, 3, INFINITY };
static const char *const dims[] = { "dp", "tp" };

struct meshes {
    struct fsdp_device_mesh *all, *dp, *tp;
};

/* context NULL: for planning. */
static struct tiny open_meshes(struct meshes *m, struct fsdp_context *context, int W, int T)
{
    struct tiny tiny = tiny_defaults;
    struct fsdp_err err = { 0 };

    must(fsdp_init_device_mesh(&m->all, context, 2, (int[]){ W, T }, dims, &err), &err);
    must(fsdp_device_mesh_slice(&m->dp, m->all, &dims[0], 1, &err), &err);
    must(fsdp_device_mesh_slice(&m->tp, m->all, &dims[1], 1, &err), &err);
    tiny.heads = 4;
    tiny.mesh = m->dp;
    tiny.tensor = m->tp;
    return tiny;
}

static void close_meshes(struct meshes *m)
{
    fsdp_device_mesh_destroy(m->tp);
    fsdp_device_mesh_destroy(m->dp);
    fsdp_device_mesh_destroy(m->all);
}

/* A model over W times T ranks, each of which has the same samples. */
static void start(struct rig *rig, struct fsdp_context *context, int T)
{
    rig_init(rig, context);
    rig->tiny.heads = 4;
    rig_mesh(rig, 1, T);
    rig->rank = 0;
    rig->ranks = 1;
    rig_model(rig);
}

/* What rank 0 saw. */
struct seen {
    int W, T;
    size_t n_elems;
    float initial[RIG_ELEMS], after[RIG_ELEMS];
    double norms[N_NORMS];
};

static void look(struct fsdp_context *context, void *user)
{
    struct seen *kept = user, *seen = fsdp_context_rank(context) == 0 ? kept : calloc(1, sizeof *seen);
    struct rig rig;

    start(&rig, context, kept->T);
    seen->n_elems = rig_gather(&rig, FSDP_VALUE, seen->initial);
    must(rig_backward(&rig, 0, RIG_IN_ONE_CALL), &rig.err);
    for (int n = 0; n < N_NORMS; n++)
        must(fsdp_clip_grad_norm_of(rig.model, 0, norm_types[n], &seen->norms[n], &rig.err), &rig.err);
    for (size_t i = 0, first = 0; i < fsdp_model_parameter_count(rig.model); i++) { /* undoes gather */
        struct fsdp_parameter_info info;
        float *values;

        fsdp_model_parameter(rig.model, i, &info, NULL);
        values = calloc(info.n_elems, sizeof *values);
        for (size_t e = 0; e < info.n_elems; e++)
            values[e] = (float)(first + e);
        must(fsdp_parameter_set(rig.model, info.name, values, info.n_elems, &rig.err), &rig.err);
        first += info.n_elems;
        free(values);
    }
    (void)rig_gather(&rig, FSDP_VALUE, seen->after);
    rig_close(&rig);
    if (seen != kept)
        free(seen);
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
        cr_assert_eq(many.n_elems, one.n_elems);
        for (size_t i = 0; i < one.n_elems; i++)
            cr_assert(many.initial[i] == one.initial[i] && many.after[i] == (float)i &&
                          one.after[i] == (float)i,
                      "%d x %d: element %zu: %g and %g", many.W, many.T, i, many.initial[i], many.after[i]);
        for (int n = 0; n < N_NORMS; n++)
            cr_expect(fabs(many.norms[n] - one.norms[n]) <= 5e-6 * one.norms[n],
                      "%d x %d: norm %g is %.9g, not %.9g", many.W, many.T, norm_types[n], many.norms[n],
                      one.norms[n]);
    }
}

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
    tiny = open_meshes(&meshes, NULL, W, T);
    root = tiny_build(&tiny, &err);
    cr_assert_not_null(root, "%s", err.message);
    must(fsdp_model_forecast(root, &options, NULL, &world, &forecast, &err), &err);
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
    struct fsdp_memory memory;
    struct rig rig;

    start(&rig, context, planned->T);
    fsdp_model_memory(rig.model, &memory);
    cr_expect(memcmp(&memory, &planned->forecast.memory, sizeof memory) == 0, "arena %zu, planned %zu",
              memory.arena, planned->forecast.memory.arena);
    rig_close(&rig);
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

/*
 * Each block all-reduces its activations twice in forward and twice in backward, for attention and for
 * feed_forward.
 */
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
        must(fsdp_colwise_parallel(fsdp_module_child(root, "a"), meshes.tp, &err), &err);
        must(fsdp_rowwise_parallel(fsdp_module_child(root, "b"), meshes.tp, &err), &err);
        must(fsdp_fully_shard(root, &by, &err), &err);
        cr_expect(fsdp_model_create(&model, context, root, &options, &err) != FSDP_OK, "%s", uses[u].how);
        cr_expect_not_null(strstr(err.message, uses[u].words), "%s: %s", uses[u].how, err.message);
        fsdp_module_destroy(root);
    }
    close_meshes(&meshes);
}

WorldTest(tensor_parallel, what_needs_all_features_refuses_a_part, refuse_uses, 2);

static struct fsdp_value *pass_on(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "b"), fsdp_call(fsdp_module_child(self, "a"), x));
}

static void refuse_marks(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root = fsdp_module_create(pass_on, NULL), *a, *b, *odd, *norm;
    const struct fsdp_parallel_rule no_match = { "layers.*", FSDP_COLWISE_PARALLEL };
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
    expect_refused(fsdp_colwise_parallel(norm, meshes.tp, &err), FSDP_ERR_ARG, "no linear", &err);
    expect_refused(fsdp_colwise_parallel(odd, meshes.tp, &err), FSDP_ERR_ARG, "do not divide the 7", &err);
    expect_refused(fsdp_colwise_parallel(a, meshes.all, &err), FSDP_ERR_ARG, "one dimension", &err);
    expect_refused(fsdp_parallelize_module(root, meshes.tp, &no_match, 1, &err), FSDP_ERR_ARG, "layers.*",
                   &err);
    must(fsdp_colwise_parallel(a, meshes.tp, &err), &err);
    expect_refused(fsdp_rowwise_parallel(a, meshes.tp, &err), FSDP_ERR_ARG, "split already", &err);
    must(fsdp_rowwise_parallel(b, meshes.tp, &err), &err);
    must(fsdp_fully_shard(root, NULL, &err), &err);
    expect_refused(fsdp_colwise_parallel(odd, meshes.tp, &err), FSDP_ERR_ARG, "sharded already", &err);
    cr_expect(fsdp_model_create(&model, context, root, &options, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "\"norm\" is no linear"), "the tree keeps the first: %s",
                       err.message);
    fsdp_module_destroy(root);
    root = fsdp_module_create(pass_on, NULL);
    must(fsdp_colwise_parallel(fsdp_linear(root, "a", 8, 8, true), meshes.tp, &err), &err);
    must(fsdp_fully_shard(root, NULL, &err), &err); /* over all ranks: those that split too */
    expect_refused(fsdp_model_create(&model, context, root, &options, &err), FSDP_ERR_ARG,
                   "ranks that the model is sharded over", &err);
    fsdp_module_destroy(root);
    close_meshes(&meshes);
}

WorldTest(tensor_parallel, what_cannot_be_split_is_refused, refuse_marks, 4);

static void give_other_samples(struct fsdp_context *context, void *user)
{
    const int rank = fsdp_context_rank(context);
    struct rig rig;

    (void)user;
    start(&rig, context, 2);
    rig_fill(&rig, 0);
    tiny_samples(&rig.tiny, rank == 3 ? 9 : 0, BATCH, rig.tokens, rig.targets);
    expect_refused(rig_run(&rig), FSDP_ERR_MISMATCH, "different samples", &rig.err);
    cr_expect((strncmp(rig.err.message, "rank 2: ", 8) == 0) == (rank < 2), "%s", rig.err.message);
    must(rig_backward(&rig, 0, RIG_IN_ONE_CALL), &rig.err); /* and goes on with the right ones */
    rig_close(&rig);
}

WorldTest(tensor_parallel, ranks_of_a_group_with_different_samples_are_told_apart_at_once, give_other_samples,
          4);

/* Ranks 0 and 2 train one model, 1 and 3 another: groups smaller than the world that never meet. */
static void train_apart(struct fsdp_context *context, void *user)
{
    struct fsdp_checkpoint_state state = { 0 };
    const int rank = fsdp_context_rank(context);
    double *losses = user;
    struct meshes meshes;
    struct rig rig;

    rig_init(&rig, context);
    (void)open_meshes(&meshes, context, 2, 2);
    rig.tiny.mesh = meshes.dp;
    rig.rank = rank % 2;
    rig.ranks = 2;
    rig_model(&rig);
    must(rig_backward(&rig, 0, RIG_IN_ONE_CALL), &rig.err);
    cr_expect_eq(rig.loss.n_targets, 2 * BATCH * 6);
    losses[rank] = rig.loss.mean;
    expect_refused(fsdp_checkpoint_save(rig.model, NULL, "nowhere", &state, 0, NULL, &rig.err),
                   FSDP_ERR_UNSUPPORTED, "2 of the world's 4", &rig.err);
    rig_close(&rig);
    close_meshes(&meshes);
}

Test(tensor_parallel, groups_smaller_than_the_world_train_apart)
{
    double losses[4];

    world_run(4, train_apart, losses);
    cr_expect(losses[0] == losses[2] && losses[1] == losses[3] && losses[0] != losses[1]);
}
