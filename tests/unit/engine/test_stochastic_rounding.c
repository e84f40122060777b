/*
 * Gathers that round stochastically. Every copy is its master rounded by the definition of the draws, at
 * every world size, sharding and split. All gathers of a step give the same copy. The draws themselves are
 * tested with the device's casts.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

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
    struct rig rig;
    struct fsdp_mixed_precision_policy mp;
};

/* Replicas of shards, or shards of parts. */
static struct rig *open_run(struct run *run, struct fsdp_context *context, const struct way *way)
{
    struct rig *rig = &run->rig;

    rig_init(rig, context);
    run->mp = fsdp_mixed_precision_defaults();
    run->mp.param_dtype = way->exact ? FSDP_F32 : FSDP_BF16;
    run->mp.reduce_dtype = FSDP_F32;
    run->mp.stochastic_rounding = !way->nearest && !way->exact;
    rig->tiny.mp_policy = &run->mp;
    rig->tiny.columns = way->columns;
    rig->tiny.reshard = way->reshard;
    rig->tiny.offloads = way->offloads;
    rig->tiny.keep_after_backward = way->keep_after_backward;
    rig->tiny.heads = way->tensor > 1 ? 4 : rig->tiny.heads;
    rig_mesh(rig, way->replicate, way->tensor);
    rig->n_micro = way->n_micro > 0 ? way->n_micro : 1;
    rig->options.batch = GLOBAL_BATCH / (size_t)rig->ranks / rig->n_micro;
    rig->options.seed = SEED;
    rig->options.accumulates = rig->n_micro > 1;
    rig->options.overlap = way->overlap;
    rig->updates.lr = 1e-2;
    rig_open(rig);
    return rig;
}

static void unshard_all(struct rig *rig)
{
    must(fsdp_module_unshard(rig->model, rig->root, false, NULL, &rig->err), &rig->err);
    for (size_t l = 0; l < rig->tiny.layers; l++)
        must(fsdp_module_unshard(rig->model, rig_block(rig, l), false, NULL, &rig->err), &rig->err);
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

/* Checks every copy, after `step` updates. Returns how many differ from what rounding to nearest gives. */
static size_t check_copies(struct rig *rig, uint64_t step)
{
    size_t n_moved = 0;

    unshard_all(rig);
    for (int p = 0; p < rig->model->layout.n_params; p++) {
        const struct fsdp_parameter *parameter = rig->model->layout.params[p].parameter;
        const char *name = parameter->name;
        float whole[MAX_ELEMS];
        enum fsdp_dtype dtype;
        const void *data;

        cr_assert(parameter->whole_elems <= MAX_ELEMS);
        must(fsdp_parameter_gather(rig->model, name, FSDP_VALUE, whole, parameter->whole_elems, &rig->err),
             &rig->err);
        must(fsdp_parameter_unsharded(rig->model, name, &data, &dtype, &rig->err), &rig->err);
        cr_assert(dtype == FSDP_BF16);
        for (size_t i = 0; i < parameter->n_elems; i++) {
            const uint16_t got = ((const uint16_t *)data)[i];
            const size_t at = in_whole(parameter, i);

            cr_assert_eq(got, expected(name, step, at, whole[at]), "%s[%zu] after %llu updates", name, at,
                         (unsigned long long)step);
            n_moved += got != bf16_of_f32(whole[at]);
        }
    }
    return n_moved;
}

/* Returns the norm of the gradients. */
static double train_step(struct rig *rig, int step)
{
    double norm;

    must(rig_backward(rig, step, RIG_IN_ONE_CALL), &rig->err);
    must(fsdp_clip_grad_norm(rig->model, 1.0, &norm, &rig->err), &rig->err);
    must(fsdp_optimizer_step(rig->optimizer, &rig->err), &rig->err);
    return norm;
}

/* Updated once, and then as if it had been many times. */
static void copies_are_drawn(struct fsdp_context *context, void *user)
{
    struct run run;
    struct rig *rig = open_run(&run, context, user);

    cr_expect(check_copies(rig, 0) > 100, "nothing was drawn");
    train_step(rig, 0);
    cr_expect(check_copies(rig, 1) > 100, "nothing was drawn");
    fsdp_module_reshard(rig->model, rig->root);
    for (size_t l = 0; l < rig->tiny.layers; l++)
        fsdp_module_reshard(rig->model, rig_block(rig, l));
    fsdp_optimizer_set_step_count(rig->optimizer, UINT64_C(1) << 40);
    check_copies(rig, UINT64_C(1) << 40);
    rig_close(rig);
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
    struct rig *rig = open_run(&run, context, way);

    for (int step = 0; step < STEPS; step++) {
        double norm;

        if (way->by_hand)
            unshard_all(rig);
        norm = train_step(rig, step);
        if (fsdp_context_rank(context) == 0) {
            way->losses[step] = rig->loss.mean;
            way->norms[step] = norm;
        }
    }
    rig_close(rig);
}

/*
 * Backward gathers again, or keeps what forward had; micro-steps gather again, or keep; gathers are made by
 * hand.
 */
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

/*
 * A rounding is at most 2^-7 of a weight, twice that of one to nearest, whose losses are held to 5e-3 in
 * test_precision.c.
 */
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
