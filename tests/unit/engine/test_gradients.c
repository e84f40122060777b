/*
 * Gradients of a whole small transformer against central differences of its loss, tensor by tensor, along a
 * random direction. The reference numerics; every operation with a backward is in it.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "shard_runtime/core/rng.h"
#include "tests/unit/engine/rig.h"

/* Every rank has the same samples. */
static double loss_of(struct rig *rig)
{
    rig->rank = 0;
    rig->ranks = 1;
    must(rig_backward(rig, 2, RIG_IN_ONE_CALL), &rig->err);
    return rig->loss.mean;
}

/* The loss along `direction` from the parameter's value, by a fourth-order difference. */
static double slope(struct rig *rig, const struct fsdp_parameter_info *info, const float *value,
                    const float *direction)
{
    static const double places[] = { -2, -1, 1, 2 }, weights[] = { 1, -8, 8, -1 };
    const double h = 4e-3;
    float *moved = calloc(info->n_elems, sizeof *moved);
    double sum = 0;

    for (int p = 0; p < 4; p++) {
        for (size_t i = 0; i < info->n_elems; i++)
            moved[i] = value[i] + (float)(places[p] * h) * direction[i];
        fsdp_parameter_set(rig->model, info->name, moved, info->n_elems, NULL);
        sum += weights[p] * loss_of(rig);
    }
    fsdp_parameter_set(rig->model, info->name, value, info->n_elems, NULL);
    free(moved);
    return sum / (12 * h);
}

/* Larger weights than at the start of training, so that no gradient is lost in rounding. */
static void spread(struct fsdp_model *model)
{
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;
        float *value;

        fsdp_model_parameter(model, i, &info, NULL);
        value = calloc(info.n_elems, sizeof *value);
        rng_fill_normal(rng_key(3, info.name), 0, value, info.n_elems, 0.3f);
        for (size_t e = 0; info.n_dims == 1 && e < info.n_elems; e++)
            value[e] += 1.0f;
        fsdp_parameter_set(model, info.name, value, info.n_elems, NULL);
        free(value);
    }
}

static void check_parameter(struct rig *rig, size_t index)
{
    struct fsdp_model *model = rig->model;
    struct fsdp_parameter_info info;
    float *value, *gradient, *direction;
    double along = 0, norm = 0, measured;

    fsdp_model_parameter(model, index, &info, NULL);
    if (rig->tiny.frozen && !info.has_gradient)
        return;
    value = calloc(info.n_elems, sizeof *value);
    gradient = calloc(info.n_elems, sizeof *gradient);
    direction = calloc(info.n_elems, sizeof *direction);
    loss_of(rig);
    fsdp_parameter_gather(model, info.name, FSDP_VALUE, value, info.n_elems, NULL);
    fsdp_parameter_gather(model, info.name, FSDP_GRADIENT, gradient, info.n_elems, NULL);
    rng_fill_normal(rng_key(11, info.name), 0, direction, info.n_elems, 1.0f);
    for (size_t i = 0; i < info.n_elems; i++) {
        along += (double)gradient[i] * direction[i];
        norm += (double)gradient[i] * gradient[i];
    }
    measured = slope(rig, &info, value, direction);
    /* fp32 loss of about 1e-7 over h = 4e-3, against gradients of 0.01 and more. */
    cr_assert(norm > 0 && fabs(measured - along) < 2e-3 * (sqrt(norm) + fabs(along)) + 1e-4,
              "%s: the loss changes by %g, the gradient says %g", info.name, measured, along);
    free(value);
    free(gradient);
    free(direction);
}

/* root NULL: the tiny model. */
static void check_tree(struct fsdp_context *context, const struct tiny *tiny, struct fsdp_module *root)
{
    struct rig rig;

    rig_init(&rig, context);
    rig.tiny = *tiny;
    rig.options = (struct fsdp_model_options){ .batch = 3, .seq = tiny->seq, .seed = 1 };
    rig.root = root;
    rig_model(&rig);
    spread(rig.model);
    for (size_t i = 0; i < fsdp_model_parameter_count(rig.model); i++)
        check_parameter(&rig, i);
    rig_close(&rig);
}

static void check_model(struct fsdp_context *context, void *user)
{
    check_tree(context, user, NULL);
}

/* Values used more than once, in every way that makes the plan add, copy or share gradients; one unit called
 * twice. */
static struct fsdp_value *knot_unit(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct fsdp_value *h = fsdp_call(fsdp_module_child(self, "norm"), x);
    struct fsdp_value *twice = fsdp_add(h, h);
    struct fsdp_value *attended = fsdp_scaled_dot_product_attention(h, twice, h, 3, true, 0.2f);
    struct fsdp_value *bent = fsdp_silu(fsdp_add(attended, x));

    (void)user;
    x = fsdp_add_dropout(x, fsdp_call(fsdp_module_child(self, "linear"), fsdp_dropout(bent, 0.1f)), 0.2f);
    x = fsdp_add(x, fsdp_add_dropout(fsdp_gelu(x), fsdp_call(fsdp_module_child(self, "linear"), x), 0.2f));
    return fsdp_call(fsdp_module_child(self, "norm"), fsdp_add(bent, x));
}

static struct fsdp_value *knot_root(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    struct fsdp_value *x = fsdp_call(fsdp_module_child(self, "embedding"), tokens);
    struct fsdp_value *y = fsdp_call(fsdp_module_child(self, "unit"), x);

    (void)user;
    y = fsdp_add(fsdp_call(fsdp_module_child(self, "unit"), fsdp_gelu(y)), fsdp_add(x, y));
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_add(y, fsdp_add(y, y)));
}

static void check_knot(struct fsdp_context *context, void *user)
{
    const struct tiny *tiny = user;
    struct fsdp_module *root = fsdp_module_create(knot_root, NULL);
    struct fsdp_module *unit = fsdp_module_add(root, "unit", knot_unit, NULL);

    fsdp_embedding(root, "embedding", tiny->vocab, tiny->dim);
    fsdp_layer_norm(unit, "norm", tiny->dim, 1e-5f);
    fsdp_linear(unit, "linear", tiny->dim, tiny->dim, true);
    fsdp_linear(root, "output", tiny->dim, tiny->vocab, true);
    fsdp_fully_shard(unit, NULL, NULL);
    fsdp_fully_shard(root, NULL, NULL);
    check_tree(context, tiny, root);
}

/*
 * What GPT-2 has and the tutorial's transformer has not: (in, out) weights, q, k and v in one tensor, GELU by
 * tanh.
 */
static struct fsdp_value *gpt2_like(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    struct fsdp_value *x = fsdp_call(fsdp_module_child(self, "embedding"), tokens);
    struct fsdp_value *qkv = fsdp_call(fsdp_module_child(self, "c_attn"), x);

    (void)user;
    x = fsdp_add(x, fsdp_packed_attention(qkv, 3, true, 0.2f));
    x = fsdp_gelu_tanh(fsdp_call(fsdp_module_child(self, "c_fc"), x));
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_add(x, fsdp_gelu_tanh(x)));
}

static void check_gpt2_like(struct fsdp_context *context, void *user)
{
    const struct tiny *tiny = user;
    struct fsdp_module *root = fsdp_module_create(gpt2_like, NULL);

    fsdp_embedding(root, "embedding", tiny->vocab, tiny->dim);
    fsdp_conv1d(root, "c_attn", tiny->dim, 3 * tiny->dim, true);
    fsdp_conv1d(root, "c_fc", tiny->dim, 2 * tiny->dim, true);
    fsdp_conv1d(root, "output", 2 * tiny->dim, tiny->vocab, false);
    fsdp_fully_shard(root, NULL, NULL);
    check_tree(context, tiny, root);
}

Test(gradients, agree_through_packed_attention_and_transposed_weights)
{
    struct tiny tiny = tiny_defaults;

    world_run(1, check_gpt2_like, &tiny);
    world_run(2, check_gpt2_like, &tiny);
    tiny.seq = 65; /* no matrix is stored from 64 on */
    world_run(1, check_gpt2_like, &tiny);
}

Test(gradients, agree_where_values_and_units_are_used_many_times)
{
    struct tiny tiny = tiny_defaults;

    world_run(1, check_knot, &tiny);
    world_run(2, check_knot, &tiny);
}

Test(gradients, agree_with_differences_of_the_loss)
{
    struct tiny tiny = tiny_defaults;

    world_run(1, check_model, &tiny);
}

Test(gradients, agree_with_rms_norms)
{
    struct tiny tiny = tiny_defaults;

    tiny.rms = true;
    tiny.dropout = 0.2f;
    world_run(1, check_model, &tiny);
    world_run(2, check_model, &tiny);
    tiny.frozen = true;
    world_run(2, check_model, &tiny);
}

Test(gradients, agree_with_dropout_and_without_a_causal_mask)
{
    struct tiny tiny = tiny_defaults;

    tiny.dropout = 0.3f;
    tiny.causal = false;
    world_run(1, check_model, &tiny);
}
