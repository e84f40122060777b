/*
 * Gathers in float8 from end to end. Every rank computes with the codes of the whole weights, at every world
 * and every way of sharding alike. Training learns as without. What is not finite, and what a device cannot
 * do, is reported.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/e4m3.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

enum { STEPS = 8, MAX_ELEMS = 512 };

struct way {
    int W, replicate, tensor; /* 0 counts as 1; W counts all ranks */
    bool bf16, plain;         /* plain: without float8 */
    struct tiny tiny;
    size_t n_micro; /* 0: 1 */
    enum fsdp_gradient_sync sync;
    enum fsdp_overlap overlap;
    enum fsdp_activation_checkpoint checkpoint;
    bool counted;                    /* with a gather of the test's own */
    bool apart;                      /* each rank has its own samples */
    bool by_hand;                    /* unsharded before each step */
    double losses[STEPS], evaluated; /* of the last samples, after the last update */
};

struct run {
    struct rig rig;
    struct fsdp_mixed_precision_policy mp;
};

static enum fsdp_status bytes_alone(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                    enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                    struct fsdp_err *err)
{
    (void)user;
    cr_assert(dtype == FSDP_U8 && n_elems % 16 == 0);
    return fsdp_all_gather(group, send, recv, n_elems, dtype, stream, err);
}

static struct rig *open_run(struct run *run, struct fsdp_context *context, const struct way *way)
{
    struct rig *rig = &run->rig;

    rig_init(rig, context);
    run->mp = fsdp_mixed_precision_defaults();
    run->mp.float8_gather = !way->plain;
    run->mp.param_dtype = way->bf16 ? FSDP_BF16 : FSDP_DTYPE_NONE;
    run->mp.reduce_dtype = FSDP_F32;
    rig->tiny = tiny_with(way->tiny);
    rig->tiny.heads = 4;
    rig->tiny.mp_policy = &run->mp;
    if (rig->tiny.reshard_size > 0)
        rig->tiny.reshard = FSDP_RESHARD_TO;
    rig_mesh(rig, way->replicate, way->tensor);
    if (!way->apart) {
        rig->rank = 0;
        rig->ranks = 1;
    }
    rig->n_micro = way->n_micro > 1 ? way->n_micro : 1;
    rig->options.accumulates = rig->n_micro > 1;
    rig->options.gradient_sync = way->sync;
    rig->options.overlap = way->overlap;
    rig->options.seed = 5;
    rig->updates.lr = 1e-2;
    for (size_t i = 0; i < rig->tiny.layers; i++) {
        fsdp_checkpoint_wrapper(rig_block(rig, i), way->checkpoint);
        if (way->counted)
            fsdp_module_set_custom_all_gather(rig_block(rig, i), bytes_alone, NULL);
    }
    rig_open(rig);
    return rig;
}

static void unshard_all(struct rig *rig, bool async)
{
    for (const struct fsdp_module *m = rig->root; m != NULL; m = module_next(rig->root, m))
        if (m->sharded)
            must(fsdp_module_unshard(rig->model, m, async, NULL, &rig->err), &rig->err);
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

/* Whichever rank holds which master weights: the codes are of these, with the largest size of all of them. */
static void expect_codes_of_masters(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    size_t n_coded = 0;
    struct run run;
    struct rig *rig = open_run(&run, context, way);

    for (size_t p = 0; p < fsdp_model_parameter_count(rig->model); p++) {
        float whole[MAX_ELEMS], amax = 0;
        const struct plan_param *param = &rig->model->layout.params[p];
        struct fsdp_parameter_info info;
        enum fsdp_dtype dtype;
        const void *seen;

        must(fsdp_model_parameter(rig->model, p, &info, &rig->err), &rig->err);
        must(fsdp_parameter_gather(rig->model, info.name, FSDP_VALUE, whole, info.n_elems, &rig->err),
             &rig->err);
        unshard_all(rig, false);
        must(fsdp_parameter_unsharded(rig->model, info.name, &seen, &dtype, &rig->err), &rig->err);
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
    cr_assert_eq(n_coded, way->tiny.tied ? 2 * 6 : 2 * 6 + 1, "%zu", n_coded);
    rig_close(rig);
}

Test(float8_gather, every_rank_sees_the_codes_of_the_whole_weights, .timeout = 2400)
{
    for (int W = 1; W <= 6; W++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct way ways[] = { { .W = W },
                                  { .W = W, .tiny.one_group = true },
                                  { .W = W, .tiny.tied = true },
                                  { .W = W, .tiny.listed = true },
                                  { .W = W, .tiny.frozen = true },
                                  { .W = W % 3 == 0 || W == 5 ? 2 : W, .tiny.columns = true } };

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

static void train(struct fsdp_context *context, void *user)
{
    struct way *way = user;
    struct fsdp_loss evaluated;
    struct run run;
    struct rig *rig = open_run(&run, context, way);

    for (int step = 0; step < STEPS; step++) {
        if (way->by_hand)
            unshard_all(rig, way->overlap == FSDP_OVERLAP_ON);
        rig_step(rig, step);
        if (fsdp_context_rank(context) == 0)
            way->losses[step] = rig->loss.mean;
    }
    /* An evaluation has another program, with gathers of its own. */
    must(fsdp_model_prepare_evaluation(rig->model, 2, 6, &rig->err), &rig->err);
    tiny_samples(&rig->tiny, 3, 2, rig->tokens, rig->targets);
    must(fsdp_model_evaluate(rig->model, rig->tokens, rig->targets, NULL, &evaluated, &rig->err), &rig->err);
    way->evaluated = evaluated.mean;
    rig_close(rig);
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
 * Every rank has the same samples, so the mean of their gradients is each one's own. In worlds of 2 and 4 it
 * is so exactly; three times a number loses the last bit, and the division finds it again. So only the
 * weights with which they compute could differ.
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
                          { .W = 2, .tiny.one_group = true },
                          { .W = 2, .tiny.reshard = FSDP_RESHARD_FALSE },
                          { .W = 4, .tiny.reshard_size = 2 },
                          { .W = 4, .tiny.reshard_size = 2, .overlap = FSDP_OVERLAP_ON },
                          { .W = 4, .replicate = 2 },
                          { .W = 2, .replicate = 2 },
                          { .W = 2, .tiny.columns = true },
                          { .W = 2, .checkpoint = FSDP_CHECKPOINT_FULL } };

    expect_same_losses(ways, sizeof ways / sizeof *ways);
}

/*
 * Of one rank gradients go to their float32 shards unrounded, as without float8: worlds of two and more are
 * alike.
 */
Test(float8_gather, and_so_they_are_in_bfloat16, .timeout = 2400)
{
    struct way ways[] = { { .W = 2, .bf16 = true },
                          { .W = 4, .bf16 = true },
                          { .W = 4, .bf16 = true, .tiny.reshard_size = 2 },
                          { .W = 4, .bf16 = true, .replicate = 2 },
                          { .W = 2, .bf16 = true, .overlap = FSDP_OVERLAP_ON } };

    expect_same_losses(ways, sizeof ways / sizeof *ways);
}

Test(float8_gather, and_over_micro_steps_with_weights_kept_or_not, .timeout = 2400)
{
    struct way ways[] = {
        { .W = 1, .n_micro = 3 },
        { .W = 2, .n_micro = 3 },
        { .W = 2, .n_micro = 3, .tiny.keep_after_backward = true },
        { .W = 4, .n_micro = 3, .tiny.keep_after_backward = true, .tiny.reshard = FSDP_RESHARD_FALSE },
        { .W = 2, .n_micro = 3, .tiny.keep_after_backward = true, .overlap = FSDP_OVERLAP_ON }
    };

    expect_same_losses(ways, sizeof ways / sizeof *ways);
}

/*
 * Weights of three bits of mantissa: losses of these steps stay within 2 % of those of bfloat16 without
 * float8.
 */
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

/* The last element is another rank's where there are several: all of them see it, in that tensor alone. */
static void spoil_one(struct fsdp_context *context, void *user)
{
    static const char spoilt[] = "layers.1.feed_forward.w1.weight",
                      sound[] = "layers.1.feed_forward.w2.weight";
    const struct way *way = user;
    float values[MAX_ELEMS] = { 0 };
    enum fsdp_dtype dtype;
    const void *seen;
    struct run run;
    struct rig *rig = open_run(&run, context, way);

    values[20 * 12 - 1] = way->apart ? NAN : -INFINITY;
    must(fsdp_parameter_set(rig->model, spoilt, values, 20 * 12, &rig->err), &rig->err);
    unshard_all(rig, false);
    must(fsdp_parameter_unsharded(rig->model, spoilt, &seen, &dtype, &rig->err), &rig->err);
    for (size_t i = 0; i < 20 * 12; i++)
        cr_assert(isnan(read_at(seen, dtype, i)));
    must(fsdp_parameter_unsharded(rig->model, sound, &seen, &dtype, &rig->err), &rig->err);
    for (size_t i = 0; i < 20 * 12; i++)
        cr_assert(isfinite(read_at(seen, dtype, i)));
    rig_close(rig);
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
    const struct device_ops *const own = context->device.ops;
    struct device_ops old = *own;

    (void)user;
    old.check_float8 = too_old;
    for (int asks = 0; asks < 2; asks++) {
        struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
        struct rig rig;

        rig_init(&rig, context);
        mp.float8_gather = asks != 0;
        rig.tiny.mp_policy = &mp;
        context->device.ops = &old;
        if (asks)
            expect_refused(fsdp_model_create(&rig.model, context, rig_root(&rig), &rig.options, &rig.err),
                           FSDP_ERR_UNSUPPORTED, "float8: device 0 is too old", &rig.err);
        else
            rig_model(&rig);
        cr_expect((rig.model == NULL) == (asks != 0));
        fsdp_model_destroy(rig.model);
        rig.model = NULL;
        context->device.ops = own;
        rig_close(&rig);
    }
}

WorldTest(float8_gather, a_device_that_is_too_old_refuses_it_and_nothing_else, refuse, 1);
