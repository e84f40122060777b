/*
 * Gathers in float8 from end to end: what every rank computes with are the codes of the whole weights, at every world and
 * every way of sharding alike; training learns as without; what is not finite, and what a device cannot do, is told.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/e4m3.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, STEPS = 8, MAX_ELEMS = 512 };

struct way {
    int W, replicate, tensor; /* 0 counts as 1; W counts all ranks */
    bool bf16, plain;         /* plain: without float8 */
    enum fsdp_reshard reshard;
    int reshard_size;
    bool one_group, tied, listed, frozen, columns, keep_after_backward;
    size_t n_micro; /* 0: 1 */
    enum fsdp_gradient_sync sync;
    enum fsdp_overlap overlap;
    enum fsdp_activation_checkpoint checkpoint;
    bool counted, apart,
        by_hand; /* with a gather of our own; each rank its own samples; unsharded before each step */
    double losses[STEPS], evaluated; /* of the last samples, after the last update */
};

static void must(enum fsdp_status status, const struct fsdp_err *err)
{
    cr_assert(status == FSDP_OK, "%s", err->message);
}

/* A model on this rank, and what it was made of. */
struct run {
    struct fsdp_device_mesh *all, *data, *tensor;
    struct fsdp_mixed_precision_policy mp;
    struct tiny tiny;
    struct fsdp_module *root;
    struct fsdp_model *model;
};

static enum fsdp_status bytes_alone(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                    enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                    struct fsdp_err *err)
{
    (void)user;
    cr_assert(dtype == FSDP_U8 && n_elems % 16 == 0);
    return fsdp_all_gather(group, send, recv, n_elems, dtype, stream, err);
}

static void open_meshes(struct run *run, struct fsdp_context *context, const struct way *way)
{
    static const char *const names[] = { "replicate", "shard", "tensor" };
    const int R = way->replicate > 1 ? way->replicate : 1, T = way->tensor > 1 ? way->tensor : 1;
    struct fsdp_err err = { 0 };

    if (R == 1 && T == 1)
        return;
    must(fsdp_init_device_mesh(&run->all, context, 3, (int[]){ R, way->W / (R * T), T }, names, &err), &err);
    must(fsdp_device_mesh_slice(&run->data, run->all, R > 1 ? names : &names[1], R > 1 ? 2 : 1, &err), &err);
    if (T > 1)
        must(fsdp_device_mesh_slice(&run->tensor, run->all, &names[2], 1, &err), &err);
}

static void open_run(struct run *run, struct fsdp_context *context, const struct way *way)
{
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny_defaults.seq,
                                                .seed = 5,
                                                .accumulates = way->n_micro > 1,
                                                .gradient_sync = way->sync,
                                                .overlap = way->overlap };
    struct fsdp_module *layers;
    struct fsdp_err err = { 0 };

    memset(run, 0, sizeof *run);
    open_meshes(run, context, way);
    run->mp = fsdp_mixed_precision_defaults();
    run->mp.float8_gather = !way->plain;
    run->mp.param_dtype = way->bf16 ? FSDP_BF16 : FSDP_DTYPE_NONE;
    run->mp.reduce_dtype = FSDP_F32;
    run->tiny = tiny_defaults;
    run->tiny.heads = 4;
    run->tiny.mp_policy = &run->mp;
    run->tiny.mesh = run->data;
    run->tiny.tensor = run->tensor;
    run->tiny.reshard = way->reshard_size > 0 ? FSDP_RESHARD_TO : way->reshard;
    run->tiny.reshard_size = way->reshard_size;
    run->tiny.one_group = way->one_group;
    run->tiny.tied = way->tied;
    run->tiny.listed = way->listed;
    run->tiny.frozen = way->frozen;
    run->tiny.columns = way->columns;
    run->tiny.keep_after_backward = way->keep_after_backward;
    run->root = tiny_build(&run->tiny, &err);
    cr_assert_not_null(run->root, "%s", err.message);
    layers = fsdp_module_child(run->root, "layers");
    for (size_t i = 0; i < fsdp_module_child_count(layers); i++) {
        fsdp_checkpoint_wrapper(fsdp_module_child_at(layers, i), way->checkpoint);
        if (way->counted)
            fsdp_module_set_custom_all_gather(fsdp_module_child_at(layers, i), bytes_alone, NULL);
    }
    must(fsdp_model_create(&run->model, context, run->root, &options, &err), &err);
}

static void close_run(struct run *run)
{
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
    fsdp_device_mesh_destroy(run->tensor);
    fsdp_device_mesh_destroy(run->data);
    fsdp_device_mesh_destroy(run->all);
}

/* --- the weights --------------------------------------------------------------------------------------------- */

static void unshard_all(struct run *run, bool async)
{
    struct fsdp_err err = { 0 };

    for (const struct fsdp_module *m = run->root; m != NULL; m = module_next(run->root, m))
        if (m->sharded)
            must(fsdp_module_unshard(run->model, m, async, NULL, &err), &err);
}

/* Where element i of this rank's part of a matrix stands in the whole. */
static size_t place_in_whole(const struct fsdp_parameter_info *info, size_t i)
{
    const size_t split_rows = info->n_splits > 1 && info->split_dim == 0 ? (size_t)info->n_splits : 1;
    const size_t split_columns = info->n_splits > 1 && info->split_dim == 1 ? (size_t)info->n_splits : 1;
    const size_t columns = info->n_dims > 1 ? info->shape[1] : 1, part_columns = columns / split_columns;
    const size_t part_rows = info->shape[0] / split_rows, part = (size_t)info->split;
    const size_t row = i / part_columns + (split_rows > 1 ? part * part_rows : 0);

    return row * columns + i % part_columns + (split_columns > 1 ? part * part_columns : 0);
}

static float read_at(const void *array, enum fsdp_dtype dtype, size_t i)
{
    return dtype == FSDP_F32 ? ((const float *)array)[i] : bf16_to_f32(((const uint16_t *)array)[i]);
}

static float rounded(float value, enum fsdp_dtype dtype)
{
    return dtype == FSDP_F32 ? value : bf16_to_f32(bf16_of_f32(value));
}

/* Master weights are what the seed says, whoever has which; codes are of these, with the largest size of all of them. */
static void expect_codes_of_masters(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    size_t n_coded = 0;
    struct run run;

    open_run(&run, context, way);
    for (size_t p = 0; p < fsdp_model_parameter_count(run.model); p++) {
        float whole[MAX_ELEMS], amax = 0;
        const struct plan_param *param = &run.model->layout.params[p];
        struct fsdp_parameter_info info;
        struct fsdp_err err = { 0 };
        enum fsdp_dtype dtype;
        const void *seen;

        must(fsdp_model_parameter(run.model, p, &info, &err), &err);
        must(fsdp_parameter_gather(run.model, info.name, FSDP_VALUE, whole, info.n_elems, &err), &err);
        unshard_all(&run, false);
        must(fsdp_parameter_unsharded(run.model, info.name, &seen, &dtype, &err), &err);
        cr_assert_eq(dtype, way->bf16 ? FSDP_BF16 : FSDP_F32);
        for (size_t i = 0; i < info.n_elems; i++)
            amax = fmaxf(amax, fabsf(whole[i]));
        n_coded += param->coded >= 0;
        for (size_t i = 0; i < param->parameter->n_elems; i++) {
            const float master = whole[place_in_whole(&info, i)];
            const float want =
                param->coded < 0 ? master : e4m3_value(e4m3_of_f32(master / e4m3_scale(amax)), amax);

            cr_assert(read_at(seen, dtype, i) == rounded(want, dtype), "W %d, %s [%zu]: %g, not %g", way->W,
                      info.name, i, (double)read_at(seen, dtype, i), (double)want);
        }
    }
    cr_assert_eq(n_coded, way->tied ? 2 * 6 : 2 * 6 + 1, "%zu", n_coded);
    close_run(&run);
}

Test(float8_gather, every_rank_sees_the_codes_of_the_whole_weights, .timeout = 2400)
{
    for (int W = 1; W <= 6; W++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct way ways[] = { { .W = W },
                                  { .W = W, .one_group = true },
                                  { .W = W, .tied = true },
                                  { .W = W, .listed = true },
                                  { .W = W, .frozen = true },
                                  { .W = W % 3 == 0 || W == 5 ? 2 : W, .columns = true } };

            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                ways[i].bf16 = bf16 != 0;
                world_run(ways[i].W, expect_codes_of_masters, &ways[i]);
            }
        }
}

/* The largest size is of all parts of a split tensor, and replicas have the same codes. */
Test(float8_gather, parts_and_replicas_share_one_scale, .timeout = 2400)
{
    struct way ways[] = { { .W = 2, .tensor = 2 },
                          { .W = 4, .tensor = 2 },
                          { .W = 4, .tensor = 4 },
                          { .W = 6, .tensor = 2, .bf16 = true },
                          { .W = 4, .replicate = 2 },
                          { .W = 2, .replicate = 2 },
                          { .W = 6, .replicate = 2, .bf16 = true },
                          { .W = 8, .replicate = 2, .tensor = 2 } };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        world_run(ways[i].W, expect_codes_of_masters, &ways[i]);
}

/* --- training ------------------------------------------------------------------------------------------------ */

/* Its program is another, with gathers of its own. */
static double evaluate(struct run *run)
{
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    const float *logits;

    tiny_samples(&run->tiny, 3, BATCH, tokens, targets);
    must(fsdp_model_prepare_evaluation(run->model, BATCH, run->tiny.seq, &err), &err);
    must(fsdp_model_evaluate(run->model, tokens, targets, &logits, &loss, &err), &err);
    return loss.mean;
}

static void train(struct fsdp_context *context, void *user)
{
    struct way *way = user;
    const size_t n_micro = way->n_micro > 1 ? way->n_micro : 1;
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer;
    struct fsdp_err err = { 0 };
    struct run run;

    updates.lr = 1e-2;
    open_run(&run, context, way);
    must(fsdp_optimizer_create(&optimizer, run.model, &updates, &err), &err);
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[4][BATCH * 6], targets[4][BATCH * 6];
        struct fsdp_batch micro[4];
        struct fsdp_loss loss;

        for (size_t m = 0; m < n_micro; m++) {
            const uint64_t rank = way->apart ? (uint64_t)fsdp_context_rank(context) : 0;
            const uint64_t first =
                (((uint64_t)step * n_micro + m) * (way->apart ? (uint64_t)way->W : 1) + rank) * BATCH;

            tiny_samples(&run.tiny, first, BATCH, tokens[m], targets[m]);
            micro[m] =
                (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
        }
        if (way->by_hand)
            unshard_all(&run, way->overlap == FSDP_OVERLAP_ON);
        must(fsdp_model_forward_backward(run.model, micro, n_micro, &loss, &err), &err);
        must(fsdp_optimizer_step(optimizer, &err), &err);
        if (fsdp_context_rank(context) == 0)
            way->losses[step] = loss.mean;
    }
    way->evaluated = evaluate(&run);
    fsdp_optimizer_destroy(optimizer);
    close_run(&run);
}

static void expect_same_losses(struct way *ways, size_t n_ways)
{
    for (size_t i = 0; i < n_ways; i++) {
        world_run(ways[i].W, train, &ways[i]);
        cr_expect(memcmp(ways[i].losses, ways[0].losses, sizeof ways[0].losses) == 0,
                  "way %zu, W %d: %.17g at the end, not %.17g", i, ways[i].W, ways[i].losses[STEPS - 1],
                  ways[0].losses[STEPS - 1]);
        cr_expect(memcmp(&ways[i].evaluated, &ways[0].evaluated, sizeof ways[0].evaluated) == 0,
                  "way %zu, W %d: evaluated %.17g, not %.17g", i, ways[i].W, ways[i].evaluated,
                  ways[0].evaluated);
    }
    cr_expect(ways[0].losses[STEPS - 1] < 0.95 * ways[0].losses[0], "%g, then %g", ways[0].losses[0],
              ways[0].losses[STEPS - 1]);
}

/*
 * Every rank has the same samples, so that the mean of their gradients is each one's own, exactly in worlds of 2 and 4 (of
 * three times a number the last bit is lost, and found again): what is left to differ are the weights they compute with.
 */
Test(float8_gather, losses_are_the_same_bits_in_every_world, .timeout = 2400)
{
    struct way ways[] = { { .W = 1 },
                          { .W = 2 },
                          { .W = 4 },
                          { .W = 2, .overlap = FSDP_OVERLAP_ON },
                          { .W = 2, .counted = true },
                          { .W = 1, .by_hand = true },
                          { .W = 2, .by_hand = true },
                          { .W = 2, .by_hand = true, .overlap = FSDP_OVERLAP_ON },
                          { .W = 2, .one_group = true },
                          { .W = 2, .reshard = FSDP_RESHARD_FALSE },
                          { .W = 4, .reshard_size = 2 },
                          { .W = 4, .reshard_size = 2, .overlap = FSDP_OVERLAP_ON },
                          { .W = 4, .replicate = 2 },
                          { .W = 2, .replicate = 2 },
                          { .W = 2, .columns = true },
                          { .W = 2, .checkpoint = FSDP_CHECKPOINT_FULL } };

    expect_same_losses(ways, sizeof ways / sizeof *ways);
}

/* Of one rank gradients go to their float32 shards unrounded, as without float8: worlds of two and more are alike. */
Test(float8_gather, and_so_they_are_in_bfloat16, .timeout = 2400)
{
    struct way ways[] = { { .W = 2, .bf16 = true },
                          { .W = 4, .bf16 = true },
                          { .W = 4, .bf16 = true, .reshard_size = 2 },
                          { .W = 4, .bf16 = true, .replicate = 2 },
                          { .W = 2, .bf16 = true, .overlap = FSDP_OVERLAP_ON } };

    expect_same_losses(ways, sizeof ways / sizeof *ways);
}

Test(float8_gather, and_over_micro_steps_with_weights_kept_or_not, .timeout = 2400)
{
    struct way ways[] = {
        { .W = 1, .n_micro = 3 },
        { .W = 2, .n_micro = 3 },
        { .W = 2, .n_micro = 3, .keep_after_backward = true },
        { .W = 4, .n_micro = 3, .keep_after_backward = true, .reshard = FSDP_RESHARD_FALSE },
        { .W = 2, .n_micro = 3, .keep_after_backward = true, .overlap = FSDP_OVERLAP_ON }
    };

    expect_same_losses(ways, sizeof ways / sizeof *ways);
}

/* Weights of three bits of mantissa: losses of these steps stay within 2 % of those of bfloat16 without float8. */
Test(float8_gather, training_stays_near_that_of_bfloat16, .timeout = 2400)
{
    static const int worlds[] = { 1, 2, 3, 4 };

    for (int w = 0; w < 4; w++) {
        struct way coded = { .W = worlds[w], .bf16 = true, .apart = true }, plain = coded;

        plain.plain = true;
        world_run(plain.W, train, &plain);
        world_run(coded.W, train, &coded);
        cr_expect(memcmp(coded.losses, plain.losses, sizeof plain.losses) != 0, "nothing was rounded");
        for (int step = 0; step < STEPS; step++)
            cr_expect(fabs(coded.losses[step] - plain.losses[step]) <= 2e-2 * plain.losses[step],
                      "W %d, step %d: %g, not %g", worlds[w], step, coded.losses[step], plain.losses[step]);
    }
}

/* --- what goes wrong ----------------------------------------------------------------------------------------- */

/* The last element is another rank's where there are several: all of them see it, in that tensor alone. */
static void spoil_one(struct fsdp_context *context, void *user)
{
    static const char spoilt[] = "layers.1.feed_forward.w1.weight",
                      sound[] = "layers.1.feed_forward.w2.weight";
    const struct way *way = user;
    float values[MAX_ELEMS] = { 0 };
    struct fsdp_err err = { 0 };
    enum fsdp_dtype dtype;
    const void *seen;
    struct run run;

    open_run(&run, context, way);
    values[20 * 12 - 1] = way->apart ? NAN : -INFINITY;
    must(fsdp_parameter_set(run.model, spoilt, values, 20 * 12, &err), &err);
    unshard_all(&run, false);
    must(fsdp_parameter_unsharded(run.model, spoilt, &seen, &dtype, &err), &err);
    for (size_t i = 0; i < 20 * 12; i++)
        cr_assert(isnan(read_at(seen, dtype, i)));
    must(fsdp_parameter_unsharded(run.model, sound, &seen, &dtype, &err), &err);
    for (size_t i = 0; i < 20 * 12; i++)
        cr_assert(isfinite(read_at(seen, dtype, i)));
    close_run(&run);
}

Test(float8_gather, a_weight_that_is_not_finite_is_seen_by_every_rank)
{
    for (int W = 1; W <= 4; W++)
        for (int nan = 0; nan < 2; nan++) {
            struct way way = { .W = W, .apart = nan != 0, .bf16 = W % 2 == 0 };

            world_run(W, spoil_one, &way);
        }
}

static enum fsdp_status too_old(const struct device *device, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "device %d is too old", device->local_rank);
}

static void refuse(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = tiny_defaults.seq };
    const struct device_ops *const own = context->device.ops;
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    struct device_ops old = *own;
    struct tiny tiny = tiny_defaults;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root;
    struct fsdp_model *model;

    (void)user;
    old.check_float8 = too_old;
    tiny.mp_policy = &mp;
    for (int asks = 0; asks < 2; asks++) {
        mp.float8_gather = asks != 0;
        root = tiny_build(&tiny, &err);
        context->device.ops = &old;
        cr_expect(fsdp_model_create(&model, context, root, &options, &err) ==
                  (asks ? FSDP_ERR_UNSUPPORTED : FSDP_OK));
        cr_expect((model == NULL) == (asks != 0));
        cr_expect(!asks || strstr(err.message, "float8: device 0 is too old") != NULL, "%s", err.message);
        fsdp_model_destroy(model);
        context->device.ops = own;
        fsdp_module_destroy(root);
    }
}

Test(float8_gather, a_device_that_is_too_old_refuses_it_and_nothing_else)
{
    world_run(1, refuse, NULL);
}
