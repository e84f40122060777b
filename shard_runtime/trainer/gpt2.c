#include "shard_runtime/trainer/gpt2.h"

#include <math.h>

#include "shard_runtime/job/model_files.h"

static const float norm_eps = 1e-5f;
enum { MLP_FACTOR = 4, N_PARTS = 3 };

static struct fsdp_value *attention(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const struct job *job = user;

    x = fsdp_packed_attention(models_call(self, "c_attn", x), job->model.heads, true,
                              (float)job->model.dropout);
    return models_call(self, "c_proj", x);
}

static struct fsdp_value *mlp(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return models_call(self, "c_proj", fsdp_gelu_tanh(models_call(self, "c_fc", x)));
}

/*
 * Adds a linear layer whose result is added to the residual stream. Each block has two of them. Their smaller
 * initial weights keep the variance of the stream from growing with the number of layers.
 */
static void add_ending(struct fsdp_module *parent, const char *name, size_t in, size_t out,
                       const struct job *job)
{
    struct fsdp_module *product = fsdp_conv1d(parent, name, in, out, true);

    if (product != NULL) /* otherwise the tree keeps the failure */
        (void)fsdp_parameter_set_init_std(product, "weight", 0.02f / sqrtf(2.0f * (float)job->model.layers),
                                          NULL);
}

static void add_block(struct fsdp_module *blocks, uint64_t index, const struct job *job)
{
    const size_t dim = job->model.dim;
    struct fsdp_module *self = models_add_block(blocks, index, job), *part;

    fsdp_layer_norm(self, "ln_1", dim, norm_eps);
    part = fsdp_module_add(self, "attn", attention, (void *)job);
    fsdp_conv1d(part, "c_attn", dim, N_PARTS * dim, true);
    add_ending(part, "c_proj", dim, dim, job);
    fsdp_layer_norm(self, "ln_2", dim, norm_eps);
    part = fsdp_module_add(self, "mlp", mlp, NULL);
    fsdp_conv1d(part, "c_fc", dim, MLP_FACTOR * dim, true);
    add_ending(part, "c_proj", MLP_FACTOR * dim, dim, job);
}

const struct models_kind gpt2_kind = { .name = "gpt2",
                                       .tokens = "wte",
                                       .positions = "wpe",
                                       .blocks = "h",
                                       .norm = "ln_f",
                                       .head = "lm_head",
                                       .tied = true,
                                       .add_block = add_block,
                                       .weights = { .prefix = JOB_GPT2_PREFIX,
                                                    .passed_over = job_gpt2_passed_over,
                                                    .n_passed_over = JOB_GPT2_PASSED_OVER } };
