/*
 * Ignored parameters: all of them on every rank, gradients of their own, saved once; and optimizer groups by name.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/world.h"

enum { BATCH = 2 };

static struct fsdp_value *two_linears(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_gelu(fsdp_call(fsdp_module_child(self, "a"), x));
    return fsdp_call(fsdp_module_child(self, "b"), x);
}

/* Inputs that differ from rank to rank, so that local gradients do. */
static void fill(int rank, float *input, int32_t *targets)
{
    for (int i = 0; i < BATCH * 3 * 4; i++)
        input[i] = (float)((i * 7 + rank * 3) % 11) * 0.2f - 1.0f;
    for (int i = 0; i < BATCH * 3; i++)
        targets[i] = (i + rank) % 5;
}

struct seen {
    float gradient[8][20];
    double norm;
};

static void ignore(struct fsdp_context *context, void *user)
{
    static const char *const names[] = { "a.weight" };
    const struct fsdp_fully_shard_options sharding = { .ignored_params = names, .n_ignored_params = 1 };
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 3, .input_features = 4, .seed = 3 };
    const int rank = fsdp_context_rank(context);
    struct fsdp_module *root = fsdp_module_create(two_linears, NULL);
    struct seen *seen = user;
    float input[BATCH * 3 * 4];
    int32_t targets[BATCH * 3];
    const struct fsdp_batch micro = { .input = input, .targets = targets };
    struct fsdp_parameter_info info;
    struct fsdp_model *model;
    struct fsdp_loss loss;
    struct fsdp_err err = { 0 };

    fsdp_linear(root, "a", 4, 5, true);
    fsdp_linear(root, "b", 5, 5, false);
    cr_assert(fsdp_fully_shard(root, &sharding, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_parameter(model, 0, &info, &err) == FSDP_OK);
    cr_expect(strcmp(info.name, "a.weight") == 0 && info.everywhere && info.first_row == 0 &&
              info.n_rows == 5);
    fill(rank, input, targets);
    cr_assert(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_clip_grad_norm(model, 1e-3, &seen->norm, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_parameter_gather(model, "a.weight", FSDP_GRADIENT, seen->gradient[rank], 20, &err) ==
                  FSDP_OK,
              "%s", err.message);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(units, gradients_of_ignored_parameters_stay_on_their_rank_unclipped)
{
    static struct seen seen;
    double size = 0;

    world_run(3, ignore, &seen);

    for (int i = 0; i < 20; i++)
        size += (double)seen.gradient[0][i] * seen.gradient[0][i];
    cr_expect(sqrt(size) > 1e-3, "%g: a clipped one would be smaller", sqrt(size));
    cr_expect(memcmp(seen.gradient[0], seen.gradient[1], sizeof seen.gradient[0]) != 0,
              "nobody reduced them");
    cr_expect(seen.norm > 0);
}

/* --- optimizer groups */

static void group(struct fsdp_context *context, void *user)
{
    static const struct fsdp_optimizer_group groups[] = { { "layers.*.weight", 0.0, -1 },
                                                          { "layers.0.*", 2e-3, 0.0 },
                                                          { "output.*", -1, 0.5 } },
                                             wrong[] = { { "layer.*", 1e-3, -1 } };
    const struct fsdp_model_options options = { .batch = BATCH, .seq = tiny_defaults.seq, .seed = 9 };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model;
    struct fsdp_loss loss;
    struct fsdp_err err = { 0 };

    (void)user;
    updates.groups = groups;
    updates.n_groups = 3;
    updates.lr = 1e-3;
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK, "%s", err.message);
    tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
            static float before[64][512];
            float after[512], grad[512];
            struct fsdp_parameter_info info;
            double rate, decay;

            fsdp_model_parameter(model, i, &info, NULL);
            if (pass == 0) {
                if (i == 0)
                    cr_assert(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_OK);
                cr_assert(fsdp_parameter_gather(model, info.name, FSDP_VALUE, before[i], info.n_elems,
                                                &err) == FSDP_OK);
                continue;
            }
            if (i == 0)
                cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK);
            cr_assert(fsdp_parameter_gather(model, info.name, FSDP_VALUE, after, info.n_elems, &err) ==
                      FSDP_OK);
            cr_assert(fsdp_parameter_gather(model, info.name, FSDP_GRADIENT, grad, info.n_elems, &err) ==
                      FSDP_OK);
            rate = 1e-3;
            decay = 0.1;
            if (strncmp(info.name, "layers.", 7) == 0 && strcmp(strrchr(info.name, '.'), ".weight") == 0)
                rate = 0;
            else if (strncmp(info.name, "layers.0.", 9) == 0)
                rate = 2e-3, decay = 0;
            else if (strncmp(info.name, "output.", 7) == 0)
                decay = 0.5;
            /* Of AdamW's first step: the sign of the gradient, and the decay. */
            for (size_t e = 0; e < info.n_elems; e++)
                if (fabsf(grad[e]) > 1e-4f || rate == 0)
                    cr_assert(fabs(after[e] - (before[i][e] * (1 - rate * decay) -
                                               rate * (grad[e] > 0   ? 1
                                                       : grad[e] < 0 ? -1
                                                                     : 0))) < 2e-7 + rate * 1e-3,
                              "%s[%zu]: %g after %g", info.name, e, after[e], before[i][e]);
        }
    fsdp_optimizer_destroy(optimizer);
    updates.groups = wrong;
    updates.n_groups = 1;
    cr_expect(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "layer.*"), "%s", err.message);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(units, a_parameter_is_updated_as_the_first_group_says_that_its_name_matches)
{
    world_run(1, group, NULL);
    world_run(2, group, NULL);
}
