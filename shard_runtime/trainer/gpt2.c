#include "shard_runtime/trainer/gpt2.h"

#include <math.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/trainer/models.h"

static const float norm_eps = 1e-5f;
enum { MLP_FACTOR = 4, N_PARTS = 3 };

static const char *const beside[] = { "h.*.attn.bias", "h.*.attn.masked_bias", "lm_head.weight" };
const struct fsdp_weight_names gpt2_weight_names = { .prefix = "transformer.",
                                                     .passed_over = beside,
                                                     .n_passed_over = sizeof beside / sizeof *beside };

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

/* tokens (batch, seq) -> logits (batch, seq, vocab) */
static struct fsdp_value *gpt2(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    const struct job *job = user;
    struct fsdp_module *blocks = fsdp_module_child(self, "h");
    struct fsdp_value *x;

    x = fsdp_embed(fsdp_module_child(self, "wte"), fsdp_module_child(self, "wpe"), tokens);
    x = fsdp_dropout(x, (float)job->model.dropout);
    for (size_t i = 0; i < fsdp_module_child_count(blocks); i++)
        x = fsdp_call(fsdp_module_child_at(blocks, i), x);
    return models_call(self, "lm_head", models_call(self, "ln_f", x));
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

enum fsdp_status gpt2_create(struct fsdp_module **root, const struct job *job, struct fsdp_err *err)
{
    const size_t dim = job->model.dim;
    struct fsdp_module *tree = *root = fsdp_module_create(gpt2, (void *)job);
    struct fsdp_module *blocks;

    if (tree == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the model's tree");
    fsdp_embedding(tree, "wte", job->model.vocab, dim);
    fsdp_embedding(tree, "wpe", job->model.seq, dim);
    blocks = fsdp_module_add(tree, "h", NULL, NULL);
    for (uint64_t i = 0; i < job->model.layers; i++)
        add_block(blocks, i, job);
    fsdp_layer_norm(tree, "ln_f", dim, norm_eps);
    fsdp_linear(tree, "lm_head", dim, job->model.vocab, false);
    OK_OR_RETURN(fsdp_module_check(tree, err));
    return fsdp_module_tie_parameter(fsdp_module_child(tree, "lm_head"), "weight",
                                     fsdp_module_child(tree, "wte"), "weight", err);
}
