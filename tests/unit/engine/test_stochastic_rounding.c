/*
 * Gathers that round stochastically: every copy is what the definition of the draws gives of its master, at every world
 * size, sharding and split, and all gathers of a step give the same. What draws themselves are like: device/test_cast.c.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/world.h"

enum { GLOBAL_BATCH = 4, STEPS = 4, SEED = 42, MAX_ELEMS = 512 };

struct way {
    int W, replicate, tensor; /* 0: 1 */
    bool columns, offloads;
    size_t n_micro; /* 0: 1 */
    enum fsdp_reshard reshard;
    bool keep_after_backward, by_hand, nearest, exact; /* exact: in float32 */
    enum fsdp_overlap overlap;
    double losses[STEPS], norms[STEPS];
};

struct run {
    struct fsdp_device_mesh *mesh, *shards, *tensor; /* the two: slices of it */
    struct tiny tiny;
    struct fsdp_mixed_precision_policy mp;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
};

static void must(enum fsdp_status status, const struct fsdp_err *err)
{
    cr_assert(status == FSDP_OK, "%s", err->message);
}

static int parts_of(const struct way *way)
{
    return way->tensor > 1 ? way->tensor : 1;
}

static size_t micro_of(const struct way *way)
{
    return way->n_micro > 0 ? way->n_micro : 1;
}

/* Of a rank in a micro-step. */
static size_t batch_of(const struct way *way)
{
    return GLOBAL_BATCH / (size_t)(way->W / parts_of(way)) / micro_of(way);
}

/* Replicas of shards, or shards of parts. */
static void open_meshes(struct run *run, struct fsdp_context *context, const struct way *way)
{
    static const char *const dims[] = { "replicate", "shard", "tensor" };
    const int inner = way->replicate > 1 ? way->W / way->replicate : parts_of(way);
    const char *const *names = way->replicate > 1 ? &dims[0] : &dims[1];
    struct fsdp_err err = { 0 };

    if (way->replicate <= 1 && inner == 1)
        return;
    must(fsdp_init_device_mesh(&run->mesh, context, 2, (int[]){ way->W / inner, inner }, names, &err), &err);
    run->tiny.mesh = run->mesh;
    if (way->replicate > 1)
        return;
    must(fsdp_device_mesh_slice(&run->shards, run->mesh, &names[0], 1, &err), &err);
    must(fsdp_device_mesh_slice(&run->tensor, run->mesh, &names[1], 1, &err), &err);
    run->tiny.heads = 4;
    run->tiny.mesh = run->shards;
    run->tiny.tensor = run->tensor;
}

static void open_run(struct run *run, struct fsdp_context *context, const struct way *way)
{
    const struct fsdp_model_options options = { .batch = batch_of(way),
                                                .seq = 6,
                                                .seed = SEED,
                                                .accumulates = micro_of(way) > 1,
                                                .overlap = way->overlap };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };

    memset(run, 0, sizeof *run);
    run->mp = fsdp_mixed_precision_defaults();
    run->mp.param_dtype = way->exact ? FSDP_F32 : FSDP_BF16;
    run->mp.reduce_dtype = FSDP_F32;
    run->mp.stochastic_rounding = !way->nearest && !way->exact;
    run->tiny = tiny_defaults;
    run->tiny.mp_policy = &run->mp;
    run->tiny.columns = way->columns;
    run->tiny.reshard = way->reshard;
    run->tiny.offloads = way->offloads;
    run->tiny.keep_after_backward = way->keep_after_backward;
    open_meshes(run, context, way);
    updates.lr = 1e-2;
    run->root = tiny_build(&run->tiny, &err);
    must(fsdp_model_create(&run->model, context, run->root, &options, &err), &err);
    must(fsdp_optimizer_create(&run->optimizer, run->model, &updates, &err), &err);
}

static void close_run(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
    fsdp_device_mesh_destroy(run->tensor);
    fsdp_device_mesh_destroy(run->shards);
    fsdp_device_mesh_destroy(run->mesh);
}

static void unshard_all(struct run *run)
{
    const struct fsdp_module *layers = fsdp_module_child(run->root, "layers");
    struct fsdp_err err = { 0 };

    must(fsdp_module_unshard(run->model, run->root, false, NULL, &err), &err);
    for (size_t l = 0; l < run->tiny.layers; l++)
        must(fsdp_module_unshard(run->model, fsdp_module_child_at(layers, l), false, NULL, &err), &err);
}

/* What device.h and rounding.h say, element by element. */
static uint16_t expected(const char *name, uint64_t step, size_t i, float value)
{
    uint32_t words[4];

    rng_philox(rng_key(rng_key(SEED, "round"), name), step, i / 8, words);
    return bf16_of_f32_drawn(value, words[i / 2 % 4] >> (i % 2 == 0 ? 0 : 16) & 0xffffu);
}

/* Where element i of this rank's part is in the whole. */
static size_t in_whole(const struct fsdp_parameter *p, size_t i)
{
    const size_t part = (size_t)p->split.part, cols = p->n_dims > 1 ? p->shape[1] : 1;

    return p->split.n_parts == 1 ? i
           : p->split.dim == 0   ? part * p->n_elems + i
                                 : (i / cols * (size_t)p->split.n_parts + part) * cols + i % cols;
}

/* Every copy, after `step` updates; adds up how many differ from what rounding to nearest gives. */
static size_t check_copies(struct run *run, uint64_t step)
{
    size_t n_moved = 0;

    unshard_all(run);
    for (int p = 0; p < run->model->layout.n_params; p++) {
        const struct fsdp_parameter *parameter = run->model->layout.params[p].parameter;
        float whole[MAX_ELEMS];
        struct fsdp_err err = { 0 };
        enum fsdp_dtype dtype;
        const void *data;

        cr_assert(parameter->whole_elems <= MAX_ELEMS);
        must(fsdp_parameter_gather(run->model, parameter->name, FSDP_VALUE, whole, parameter->whole_elems,
                                   &err),
             &err);
        must(fsdp_parameter_unsharded(run->model, parameter->name, &data, &dtype, &err), &err);
        cr_assert(dtype == FSDP_BF16);
        for (size_t i = 0; i < parameter->n_elems; i++) {
            const uint16_t got = ((const uint16_t *)data)[i];
            const size_t at = in_whole(parameter, i);

            cr_assert_eq(got, expected(parameter->name, step, at, whole[at]), "%s[%zu] after %llu updates",
                         parameter->name, at, (unsigned long long)step);
            n_moved += got != bf16_of_f32(whole[at]);
        }
    }
    return n_moved;
}

static double train_step(struct run *run, const struct way *way, int step, double *norm)
{
    const size_t n_micro = micro_of(way), batch = batch_of(way);
    const int T = parts_of(way), data_rank = fsdp_context_rank(fsdp_model_context(run->model)) / T;
    int32_t tokens[2][GLOBAL_BATCH * 6], targets[2][GLOBAL_BATCH * 6];
    struct fsdp_batch micro[2];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    for (size_t m = 0; m < n_micro; m++) {
        const uint64_t first =
            (uint64_t)step * GLOBAL_BATCH + (m * (size_t)(way->W / T) + (size_t)data_rank) * batch;

        tiny_samples(&run->tiny, first, batch, tokens[m], targets[m]);
        micro[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
    }
    must(fsdp_model_forward_backward(run->model, micro, n_micro, &loss, &err), &err);
    must(fsdp_clip_grad_norm(run->model, 1.0, norm, &err), &err);
    must(fsdp_optimizer_step(run->optimizer, &err), &err);
    return loss.mean;
}

/* Updated once, and then as if it had been many times. */
static void copies_are_drawn(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    struct run run;
    double norm;

    open_run(&run, context, way);
    cr_expect(check_copies(&run, 0) > 100, "nothing was drawn");
    train_step(&run, way, 0, &norm);
    cr_expect(check_copies(&run, 1) > 100, "nothing was drawn");
    fsdp_module_reshard(run.model, run.root);
    for (size_t l = 0; l < run.tiny.layers; l++)
        fsdp_module_reshard(run.model, fsdp_module_child_at(fsdp_module_child(run.root, "layers"), l));
    fsdp_optimizer_set_step_count(run.optimizer, UINT64_C(1) << 40);
    check_copies(&run, UINT64_C(1) << 40);
    close_run(&run);
}

Test(stochastic_rounding, copies_are_the_draws_of_their_masters_in_every_world, .timeout = 1200)
{
    static struct way ways[] = { { .W = 1 },
                                 { .W = 2 },
                                 { .W = 3 }, /* no size divides evenly */
                                 { .W = 4 },
                                 { .W = 2, .columns = true },
                                 { .W = 4, .columns = true },
                                 { .W = 4, .replicate = 2 },
                                 { .W = 2, .tensor = 2 },
                                 { .W = 4, .tensor = 2, .columns = true },
                                 { .W = 2, .offloads = true } };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ways[i].reshard = FSDP_RESHARD_TRUE;
        world_run(ways[i].W, copies_are_drawn, &ways[i]);
    }
}

static void train(struct fsdp_context *context, void *user)
{
    struct way *way = user;
    struct run run;

    open_run(&run, context, way);
    for (int step = 0; step < STEPS; step++) {
        double norm, loss;

        if (way->by_hand)
            unshard_all(&run);
        loss = train_step(&run, way, step, &norm);
        if (fsdp_context_rank(context) == 0) {
            way->losses[step] = loss;
            way->norms[step] = norm;
        }
    }
    close_run(&run);
}

/* Backward gathers again, or keeps what forward had; micro-steps gather again, or keep; gathers are made by hand. */
Test(stochastic_rounding, all_gathers_of_a_step_are_the_same, .timeout = 1200)
{
    static const struct way others[] = { { .reshard = FSDP_RESHARD_FALSE },
                                         { .reshard = FSDP_RESHARD_TRUE, .keep_after_backward = true },
                                         { .reshard = FSDP_RESHARD_TRUE, .by_hand = true },
                                         { .reshard = FSDP_RESHARD_TRUE, .overlap = FSDP_OVERLAP_ON } };

    for (int W = 1; W <= 2; W++)
        for (size_t n_micro = 1; n_micro <= 2; n_micro++) {
            struct way base = { .W = W, .n_micro = n_micro, .reshard = FSDP_RESHARD_TRUE };

            world_run(W, train, &base);
            for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
                struct way way = others[i];

                way.W = W;
                way.n_micro = n_micro;
                world_run(W, train, &way);
                cr_expect_arr_eq(way.losses, base.losses, sizeof base.losses, "W %d, micro %zu, way %zu", W,
                                 n_micro, i);
                cr_expect_arr_eq(way.norms, base.norms, sizeof base.norms, "W %d, micro %zu, way %zu", W,
                                 n_micro, i);
            }
        }
}

/* A rounding is at most 2^-7 of a weight, twice that of one to nearest, whose losses are held to 5e-3 in test_precision.c. */
Test(stochastic_rounding, losses_stay_near_those_of_float32, .timeout = 600)
{
    struct way drawn = { .W = 2, .reshard = FSDP_RESHARD_TRUE }, nearest = drawn, exact = drawn;

    nearest.nearest = true;
    exact.exact = true;
    world_run(2, train, &drawn);
    world_run(2, train, &nearest);
    world_run(2, train, &exact);
    for (int step = 0; step < STEPS; step++)
        cr_expect(fabs(drawn.losses[step] - exact.losses[step]) < 1e-2 * exact.losses[step],
                  "step %d: %g, not %g", step, drawn.losses[step], exact.losses[step]);
    cr_expect(memcmp(drawn.norms, nearest.norms, sizeof nearest.norms) != 0, "nothing was drawn");
}

Test(stochastic_rounding, what_has_nothing_to_draw_is_refused)
{
    static const struct {
        int dtype;
        bool float8, refused;
    } cases[] = { { FSDP_DTYPE_NONE, false, true },
                  { FSDP_F32, false, true },
                  { FSDP_BF16, true, true },
                  { FSDP_BF16, false, false } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
        const struct fsdp_fully_shard_options options = { .mp_policy = &mp };
        struct fsdp_module *unit = fsdp_linear(fsdp_module_create(NULL, NULL), "unit", 4, 5, true);
        struct fsdp_err err = { 0 };

        mp.param_dtype = cases[i].dtype;
        mp.float8_gather = cases[i].float8;
        mp.stochastic_rounding = true;
        cr_expect(fsdp_fully_shard(unit, &options, &err) == (cases[i].refused ? FSDP_ERR_ARG : FSDP_OK));
        if (cases[i].refused)
            cr_expect_not_null(strstr(err.message, "stochastic_rounding"), "%s", err.message);
        fsdp_module_destroy(unit);
    }
}
