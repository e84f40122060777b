/*
 * Ignored parameters: all of them on every rank, gradients of their own, saved once; and optimizer groups by
 * name.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/rig.h"

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
    must(fsdp_fully_shard(root, &sharding, &err), &err);
    must(fsdp_model_create(&model, context, root, &options, &err), &err);
    must(fsdp_model_parameter(model, 0, &info, &err), &err);
    cr_expect(strcmp(info.name, "a.weight") == 0 && info.everywhere && info.first_row == 0 &&
              info.n_rows == 5);
    fill(rank, input, targets);
    must(fsdp_model_forward_backward(model, &micro, 1, &loss, &err), &err);
    must(fsdp_clip_grad_norm(model, 1e-3, &seen->norm, &err), &err);
    must(fsdp_parameter_gather(model, "a.weight", FSDP_GRADIENT, seen->gradient[rank], 20, &err), &err);
    world_drop(NULL, model, root);
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

/* What the first group that matches says of a parameter: its rate and its decay. */
static void expected(const char *name, double *rate, double *decay)
{
    *rate = 1e-3;
    *decay = 0.1;
    if (strncmp(name, "layers.", 7) == 0 && strcmp(strrchr(name, '.'), ".weight") == 0)
        *rate = 0;
    else if (strncmp(name, "layers.0.", 9) == 0)
        *rate = 2e-3, *decay = 0;
    else if (strncmp(name, "output.", 7) == 0)
        *decay = 0.5;
}

static void group(struct fsdp_context *context, void *user)
{
    static const struct fsdp_optimizer_group groups[] = { { "layers.*.weight", 0.0, -1 },
                                                          { "layers.0.*", 2e-3, 0.0 },
                                                          { "output.*", -1, 0.5 } },
                                             wrong[] = { { "layer.*", 1e-3, -1 } };
    static _Thread_local float before[RIG_ELEMS], after[RIG_ELEMS], grad[RIG_ELEMS];
    struct rig rig;

    (void)user;
    rig_init(&rig, context);
    rig.updates.groups = groups;
    rig.updates.n_groups = 3;
    rig.updates.lr = 1e-3;
    rig_open(&rig);
    (void)rig_gather(&rig, FSDP_VALUE, before);
    rig_step(&rig, 0);
    (void)rig_gather(&rig, FSDP_VALUE, after);
    (void)rig_gather(&rig, FSDP_GRADIENT, grad);
    for (size_t i = 0, e = 0; i < fsdp_model_parameter_count(rig.model); i++) {
        struct fsdp_parameter_info info;
        double rate, decay;
        size_t end;

        fsdp_model_parameter(rig.model, i, &info, NULL);
        expected(info.name, &rate, &decay);
        /* Of AdamW's first step: the sign of the gradient, and the decay. */
        for (end = e + info.n_elems; e < end; e++) {
            const double sign = grad[e] > 0 ? 1 : grad[e] < 0 ? -1 : 0;

            cr_assert((fabsf(grad[e]) <= 1e-4f && rate != 0) ||
                          fabs(after[e] - (before[e] * (1 - rate * decay) - rate * sign)) <
                              2e-7 + rate * 1e-3,
                      "%s: %g after %g", info.name, after[e], before[e]);
        }
    }
    fsdp_optimizer_destroy(rig.optimizer);
    rig.updates.groups = wrong;
    rig.updates.n_groups = 1;
    expect_refused(fsdp_optimizer_create(&rig.optimizer, rig.model, &rig.updates, &rig.err), FSDP_ERR_ARG,
                   "layer.*", &rig.err);
    rig_close(&rig);
}

WorldTest(units, a_parameter_is_updated_as_the_first_group_says_that_its_name_matches, group, 1, 2);
