/*
 * A step that ends in an error leaves nothing behind: after fsdp_module_reset_iteration() the run goes on with the bits
 * it would have had. Norms of other orders. A communicator of its own for reductions changes no bit.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/world.h"

enum { BATCH = 2, STEPS = 5 };

struct run {
    int W;
    bool fails, accumulates, separate;
    enum fsdp_gradient_sync sync;
    double losses[STEPS], norms[STEPS];
};

struct fuse {
    int calls_left; /* the call that fails is the last of them; below 0: never */
};

static enum fsdp_status burn(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                             void *user, struct fsdp_err *err)
{
    struct fuse *fuse = user;

    (void)row;
    (void)n_elems;
    (void)dtype;
    (void)stream;
    if (fuse->calls_left-- == 0)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory, as the test wants it");
    return FSDP_OK;
}

static enum fsdp_status step(struct fsdp_model *model, struct fsdp_context *context, int number,
                             size_t n_micro, struct fsdp_loss *loss, struct fsdp_err *err)
{
    int32_t tokens[2][BATCH * 6], targets[2][BATCH * 6];
    struct fsdp_batch micro[2];

    for (size_t m = 0; m < n_micro; m++) {
        const uint64_t first = (uint64_t)(number * 20 + (int)m * 7 + fsdp_context_rank(context) * BATCH);

        tiny_samples(&tiny_defaults, first, BATCH, tokens[m], targets[m]);
        micro[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
    }
    return fsdp_model_forward_backward(model, micro, n_micro, loss, err);
}

static void train(struct fsdp_context *context, void *user)
{
    struct run *run = user;
    struct fuse fuse = { -1 };
    const size_t n_micro = run->accumulates ? 2 : 1;
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny_defaults.seq,
                                                .seed = 4,
                                                .accumulates = run->accumulates,
                                                .gradient_sync = run->sync };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model;
    struct fsdp_loss loss;
    struct fsdp_err err = { 0 };
    double norm;

    fsdp_module_set_all_reduce_hook(fsdp_module_child_at(fsdp_module_child(root, "layers"), 1), burn, &fuse);
    fsdp_module_set_separate_reduce_scatter_group(root, run->separate, false);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK, "%s", err.message);
    for (int s = 0; s < STEPS; s++) {
        if (run->fails && s % 2 == 1) {
            fuse.calls_left = run->accumulates && run->sync == FSDP_SYNC_EVERY ? s / 2 : 0;
            cr_assert(step(model, context, 99, n_micro, &loss, &err) == FSDP_ERR_NOMEM, "%s", err.message);
            cr_expect_not_null(strstr(err.message, "as the test wants it"), "%s", err.message);
            cr_assert(fsdp_module_reset_iteration(model, &err) == FSDP_OK, "%s", err.message);
            cr_assert(fsdp_clip_grad_norm(model, 1.0, &norm, &err) == FSDP_ERR_ARG, "nothing is left of it");
            fuse.calls_left = -1;
        }
        cr_assert(step(model, context, s, n_micro, &loss, &err) == FSDP_OK, "%s", err.message);
        cr_assert(fsdp_clip_grad_norm(model, 0.5, &norm, &err) == FSDP_OK);
        cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK);
        if (fsdp_context_rank(context) == 0) {
            run->losses[s] = loss.mean;
            run->norms[s] = norm;
        }
    }
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

static void expect_same_bits(struct run *changed)
{
    struct run plain = *changed;

    plain.fails = plain.separate = false;
    world_run(plain.W, train, &plain);
    world_run(changed->W, train, changed);
    cr_expect(memcmp(plain.losses, changed->losses, sizeof plain.losses) == 0);
    cr_expect(memcmp(plain.norms, changed->norms, sizeof plain.norms) == 0);
}

Test(recovery, a_failed_step_changes_no_bit_of_those_after_it)
{
    for (int W = 1; W <= 3; W++)
        for (int way = 0; way < 3; way++)
            expect_same_bits(&(struct run){ .W = W,
                                            .fails = true,
                                            .accumulates = way > 0,
                                            .sync = way == 2 ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST });
}

Test(recovery, reductions_of_their_own_communicator_change_no_bit)
{
    expect_same_bits(&(struct run){ .W = 2, .separate = true });
    expect_same_bits(&(struct run){ .W = 3, .separate = true, .accumulates = true, .sync = FSDP_SYNC_EVERY });
}

/* --- the optimizer inside backward */

struct inside {
    int W, R;
    size_t n_micro;
    enum fsdp_gradient_sync sync;
    bool on;
    double losses[STEPS];
};

static enum fsdp_status update_now(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model;
    return fsdp_optimizer_step_group(*(struct fsdp_optimizer **)user, group, err);
}

static void train_inside(struct fsdp_context *context, void *user)
{
    static const char *const names[] = { "replicate", "shard" };
    struct inside *run = user;
    const int sizes[] = { run->R, run->W };
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny_defaults.seq,
                                                .seed = 4,
                                                .accumulates = run->n_micro > 1,
                                                .gradient_sync = run->sync };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct tiny tiny = tiny_defaults;
    struct fsdp_optimizer *optimizer = NULL;
    struct fsdp_device_mesh *mesh;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_loss loss;
    struct fsdp_err err = { 0 };

    updates.lr = 1e-2;
    cr_assert(fsdp_init_device_mesh(&mesh, context, 2, sizes, names, &err) == FSDP_OK, "%s", err.message);
    tiny.mesh = mesh;
    root = tiny_build(&tiny, &err);
    fsdp_module_register_post_accumulate_grad_hook(root, run->on ? update_now : NULL, &optimizer, true);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK, "%s", err.message);
    for (int s = 0; s < STEPS; s++) {
        cr_assert(step(model, context, s, run->n_micro, &loss, &err) == FSDP_OK, "%s", err.message);
        cr_assert(!run->on || fsdp_optimizer_step_group(optimizer, 0, &err) == FSDP_ERR_ARG,
                  "it was updated already");
        cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK);
        if (fsdp_context_rank(context) == 0)
            run->losses[s] = loss.mean;
    }
    cr_expect(fsdp_optimizer_step_count(optimizer) == STEPS);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(mesh);
}

Test(recovery, an_optimizer_inside_backward_changes_no_bit)
{
    static const struct inside ways[] = {
        { .W = 1, .R = 1, .n_micro = 1 },
        { .W = 1, .R = 1, .n_micro = 2 },
        { .W = 3, .R = 1, .n_micro = 1 },
        { .W = 2, .R = 1, .n_micro = 2 },
        { .W = 2, .R = 2, .n_micro = 2, .sync = FSDP_SYNC_EVERY },
        { .W = 1, .R = 2, .n_micro = 1 },
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct inside outside = ways[i], inside = ways[i];

        inside.on = true;
        world_run(ways[i].W * ways[i].R, train_inside, &outside);
        world_run(ways[i].W * ways[i].R, train_inside, &inside);
        cr_expect(memcmp(inside.losses, outside.losses, sizeof inside.losses) == 0, "way %zu", i);
        cr_expect(inside.losses[STEPS - 1] != inside.losses[0]);
    }
}

/* --- norms */

static void measure(struct fsdp_context *context, void *user)
{
    static const double orders[] = { 1, 2, 3, INFINITY };
    const struct fsdp_model_options options = { .batch = BATCH, .seq = tiny_defaults.seq, .seed = 4 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    struct fsdp_model *model;
    struct fsdp_loss loss;
    struct fsdp_err err = { 0 };

    (void)user;
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    for (int o = 0; o < 4; o++) {
        double want = 0, norm, clipped;

        cr_assert(step(model, context, 1, 1, &loss, &err) == FSDP_OK, "%s", err.message);
        for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
            struct fsdp_parameter_info info;
            float *grad;

            fsdp_model_parameter(model, i, &info, NULL);
            grad = calloc(info.n_elems, sizeof *grad);
            cr_assert(fsdp_parameter_gather(model, info.name, FSDP_GRADIENT, grad, info.n_elems, &err) ==
                      FSDP_OK);
            for (size_t e = 0; e < info.n_elems; e++)
                want = isinf(orders[o]) ? fmax(want, fabs((double)grad[e]))
                                        : want + pow(fabs((double)grad[e]), orders[o]);
            free(grad);
        }
        if (!isinf(orders[o]))
            want = pow(want, 1 / orders[o]);
        cr_assert(fsdp_clip_grad_norm_of(model, want / 2, orders[o], &norm, &err) == FSDP_OK, "%s",
                  err.message);
        cr_expect(fabs(norm - want) < 1e-6 * want, "order %g: %g, not %g", orders[o], norm, want);
        cr_assert(fsdp_clip_grad_norm_of(model, 0, orders[o], &clipped, &err) == FSDP_OK);
        cr_expect(fabs(clipped - want / 2) < 1e-4 * want, "order %g: clipped to %g", orders[o], clipped);
    }
    cr_expect(fsdp_clip_grad_norm_of(model, 1, 0.5, &(double){ 0 }, &err) == FSDP_ERR_ARG);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(recovery, norms_of_every_order_are_those_of_all_gradients_and_clip_to_the_limit)
{
    world_run(1, measure, NULL);
    world_run(3, measure, NULL);
}
