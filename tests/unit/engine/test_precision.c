/*
 * Mixed precision from end to end: it learns as float32 does, at every world size alike, in either dtype of the
 * reduction; the master weights stay float32; and only one rounding is between a copy and the value.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/world.h"

enum { GLOBAL_BATCH = 12, STEPS = 12 };

struct run {
    int W;
    size_t n_micro;
    enum fsdp_gradient_sync sync;
    int param, reduce, output; /* FSDP_DTYPE_NONE: none */
    bool only_blocks;          /* the root stays float32: inputs of blocks are cast */
    bool keep_after_backward;
    double losses[STEPS], norms[STEPS];
    size_t gather_bytes;
};

static void train(struct fsdp_context *context, void *user)
{
    struct run *run = user;
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    struct tiny tiny = tiny_defaults;
    const size_t batch = GLOBAL_BATCH / (size_t)run->W / run->n_micro;
    const struct fsdp_model_options options = { .batch = batch,
                                                .seq = tiny.seq,
                                                .seed = 42,
                                                .accumulates = run->n_micro > 1,
                                                .gradient_sync = run->sync };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };
    struct fsdp_memory memory;

    mp.param_dtype = run->param;
    mp.reduce_dtype = run->reduce;
    mp.output_dtype = run->output;
    tiny.mp_policy = &mp;
    tiny.root_in_f32 = run->only_blocks;
    tiny.keep_after_backward = run->keep_after_backward;
    updates.lr = 1e-2;
    root = tiny_build(&tiny, &err);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK, "%s", err.message);
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[6][GLOBAL_BATCH * 6], targets[6][GLOBAL_BATCH * 6];
        struct fsdp_batch micro[6];
        struct fsdp_loss loss;
        double norm;

        for (size_t m = 0; m < run->n_micro; m++) {
            const uint64_t first = (uint64_t)step * GLOBAL_BATCH +
                                   (m * (size_t)run->W + (size_t)fsdp_context_rank(context)) * batch;

            tiny_samples(&tiny, first, batch, tokens[m], targets[m]);
            micro[m] =
                (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
        }
        cr_assert(fsdp_model_forward_backward(model, micro, run->n_micro, &loss, &err) == FSDP_OK, "%s",
                  err.message);
        cr_assert(fsdp_clip_grad_norm(model, 1.0, &norm, &err) == FSDP_OK, "%s", err.message);
        cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK, "%s", err.message);
        if (fsdp_context_rank(context) == 0) {
            run->losses[step] = loss.mean;
            run->norms[step] = norm;
        }
    }
    fsdp_model_memory(model, &memory);
    if (fsdp_context_rank(context) == 0)
        run->gather_bytes = memory.gather;
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

ParameterizedTestParameters(precision, learns_as_float32_does)
{
    static struct run runs[] = {
        { .W = 1, .n_micro = 1, .param = FSDP_BF16, .reduce = FSDP_F32, .output = -1 },
        { .W = 1, .n_micro = 3, .param = FSDP_BF16, .reduce = -1, .output = -1, .keep_after_backward = true },
        { .W = 2, .n_micro = 1, .param = FSDP_BF16, .reduce = FSDP_F32, .output = -1 },
        { .W = 2, .n_micro = 1, .param = FSDP_BF16, .reduce = -1, .output = -1 },
        { .W = 3, .n_micro = 1, .param = FSDP_BF16, .reduce = FSDP_BF16, .output = FSDP_F32 },
        { .W = 2, .n_micro = 3, .param = FSDP_BF16, .reduce = FSDP_F32, .output = -1 },
        { .W = 2, .n_micro = 3, .param = FSDP_BF16, .reduce = -1, .output = -1, .sync = FSDP_SYNC_EVERY },
        { .W = 3,
          .n_micro = 2,
          .param = FSDP_BF16,
          .reduce = FSDP_F32,
          .output = -1,
          .sync = FSDP_SYNC_EVERY },
        { .W = 2, .n_micro = 1, .param = -1, .reduce = FSDP_BF16, .output = -1 },
        { .W = 2, .n_micro = 3, .param = -1, .reduce = FSDP_BF16, .output = FSDP_BF16 },
        { .W = 2,
          .n_micro = 1,
          .param = FSDP_BF16,
          .reduce = FSDP_F32,
          .output = FSDP_F32,
          .only_blocks = true },
        { .W = 1,
          .n_micro = 1,
          .param = FSDP_BF16,
          .reduce = FSDP_F32,
          .output = FSDP_F32,
          .only_blocks = true },
        { .W = 6, .n_micro = 1, .param = FSDP_BF16, .reduce = FSDP_F32, .output = -1 },
    };

    return cr_make_param_array(struct run, runs, sizeof runs / sizeof *runs);
}

ParameterizedTest(struct run *run, precision, learns_as_float32_does)
{
    static struct run exact;

    exact = (struct run){ .W = run->W, .n_micro = run->n_micro, .param = -1, .reduce = -1, .output = -1 };
    world_run(exact.W, train, &exact);
    world_run(run->W, train, run);

    cr_expect(run->losses[STEPS - 1] < 0.8 * run->losses[0], "%g, then %g", run->losses[0],
              run->losses[STEPS - 1]);
    /* bfloat16 has 8 bits: 4e-3 a rounding. Losses of a few steps stay close, and are not the same. */
    for (int step = 0; step < STEPS; step++) {
        cr_expect(fabs(run->losses[step] - exact.losses[step]) < 5e-3 * exact.losses[step],
                  "step %d: %g, not %g", step, run->losses[step], exact.losses[step]);
        cr_expect(fabs(run->norms[step] - exact.norms[step]) < 3e-2 * exact.norms[step],
                  "step %d: norm %g, not %g", step, run->norms[step], exact.norms[step]);
    }
    cr_expect(memcmp(run->norms, exact.norms, sizeof exact.norms) != 0, "nothing was rounded");
    if (run->W > 1 && run->param == FSDP_BF16 && !run->only_blocks)
        cr_expect(run->gather_bytes < exact.gather_bytes * 6 / 10, "%zu of %zu bytes", run->gather_bytes,
                  exact.gather_bytes);
}

/* --- refusals ------------------------------------------------------------------------------------------------ */

static struct fsdp_value *mixed_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "linear"), x);
}

static void refuse_mixed(struct fsdp_context *context, void *user)
{
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    const struct fsdp_fully_shard_options options = { .mp_policy = &mp };
    const struct fsdp_model_options of_model = { .batch = 2, .seq = 3, .input_features = 4 };
    struct fsdp_module *root = fsdp_module_create(mixed_forward, NULL);
    struct fsdp_err err = { 0 };
    struct fsdp_model *model;

    (void)user;
    fsdp_linear(root, "linear", 4, 5, true);
    mp.param_dtype = FSDP_I32;
    cr_expect(fsdp_fully_shard(root, &options, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "param_dtype"), "%s", err.message);
    mp.param_dtype = FSDP_BF16;
    mp.cast_forward_inputs = false;
    cr_expect(fsdp_fully_shard(root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_expect(fsdp_model_create(&model, context, root, &of_model, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "cast_forward_inputs"), "%s", err.message);
    fsdp_module_destroy(root);
}

Test(precision, an_input_that_nobody_casts_is_refused)
{
    world_run(1, refuse_mixed, NULL);
}
