#include "tests/unit/engine/tiny.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/rng.h"

const struct tiny tiny_defaults = {
    .layers = 2, .dim = 12, .heads = 3, .vocab = 19, .seq = 6, .hidden = 20, .causal = true
};

struct tiny tiny_with(struct tiny marks)
{
    marks.layers = tiny_defaults.layers;
    marks.dim = tiny_defaults.dim;
    marks.heads = tiny_defaults.heads;
    marks.vocab = tiny_defaults.vocab;
    marks.seq = tiny_defaults.seq;
    marks.hidden = tiny_defaults.hidden;
    marks.causal = tiny_defaults.causal;
    return marks;
}

static struct fsdp_value *mlp_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_gelu(fsdp_call(fsdp_module_child(self, "w1"), x));
    return fsdp_call(fsdp_module_child(self, "w2"), x);
}

static struct fsdp_value *block_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const struct tiny *tiny = user;
    struct fsdp_value *h = fsdp_call(fsdp_module_child(self, "attention_norm"), x);

    x = fsdp_add_dropout(x, fsdp_call(fsdp_module_child(self, "attention"), h), tiny->dropout);
    if (tiny->skips != NULL && strcmp(fsdp_module_path(self), tiny->skips) == 0)
        return x;
    h = fsdp_call(fsdp_module_child(self, "ffn_norm"), x);
    return fsdp_add_dropout(x, fsdp_call(fsdp_module_child(self, "feed_forward"), h), tiny->dropout);
}

static struct fsdp_value *model_forward(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    const struct tiny *tiny = user;
    struct fsdp_module *layers = fsdp_module_child(self, "layers");
    struct fsdp_value *x;

    x = fsdp_embed(fsdp_module_child(self, "tok_embeddings"), fsdp_module_child(self, "pos_embeddings"),
                   tokens);
    x = fsdp_dropout(x, tiny->dropout);
    for (int visit = 0; visit < (tiny->visits > 0 ? tiny->visits : 1); visit++)
        for (size_t i = 0; i < fsdp_module_child_count(layers); i++)
            x = fsdp_call(fsdp_module_child_at(layers, i), x);
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_call(fsdp_module_child(self, "norm"), x));
}

static void add_norm(struct fsdp_module *parent, const char *name, const struct tiny *tiny)
{
    (tiny->rms ? fsdp_rms_norm : fsdp_layer_norm)(parent, name, tiny->dim, 1e-5f);
}

static void build_block(struct fsdp_module *block, const struct tiny *tiny)
{
    struct fsdp_module *mlp;

    add_norm(block, "attention_norm", tiny);
    fsdp_attention(block, "attention", tiny->dim, tiny->heads, tiny->causal, tiny->dropout);
    add_norm(block, "ffn_norm", tiny);
    mlp = fsdp_module_add(block, "feed_forward", mlp_forward, NULL);
    fsdp_linear(mlp, "w1", tiny->dim, tiny->hidden, true);
    fsdp_linear(mlp, "w2", tiny->hidden, tiny->dim, true);
}

static void freeze(struct fsdp_module *root, bool rms)
{
    struct fsdp_module *layers = fsdp_module_child(root, "layers");

    fsdp_module_requires_grad(fsdp_module_child(root, "pos_embeddings"), false);
    for (size_t i = 0; i < fsdp_module_child_count(layers); i++) {
        struct fsdp_module *block = fsdp_module_child_at(layers, i), *attention;

        attention = fsdp_module_child(block, "attention");
        fsdp_module_requires_grad(attention, false);
        fsdp_module_requires_grad(fsdp_module_child(attention, "wo"), true);
        fsdp_parameter_set_requires_grad(fsdp_module_child(block, "ffn_norm"), rms ? "weight" : "bias", false,
                                         NULL);
    }
}

static int last_dimension(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)name;
    (void)n_dims;
    (void)shape;
    (void)user;
    return -1;
}

static enum fsdp_status shard_tiny(struct fsdp_module *root, const struct tiny *tiny, struct fsdp_err *err)
{
    const enum fsdp_offload offload = tiny->offloads ? FSDP_OFFLOAD_CPU : FSDP_OFFLOAD_NONE;
    const struct fsdp_fully_shard_options options = { .reshard_after_forward = tiny->reshard,
                                                      .reshard_size = tiny->reshard_size,
                                                      .mp_policy = tiny->mp_policy,
                                                      .mesh = tiny->mesh,
                                                      .shard_placement_fn =
                                                          tiny->columns ? last_dimension : NULL,
                                                      .offload_policy = offload,
                                                      .pin_memory = !tiny->unpinned };
    const struct fsdp_fully_shard_options of_root = { .reshard_after_forward = tiny->reshard,
                                                      .reshard_size = tiny->reshard_size,
                                                      .mesh = tiny->mesh,
                                                      .offload_policy = offload,
                                                      .pin_memory = !tiny->unpinned };
    struct fsdp_module *layers = fsdp_module_child(root, "layers");
    enum fsdp_status status = FSDP_OK;

    for (size_t i = 0; i < tiny->layers && status == FSDP_OK && !tiny->one_group; i++) {
        struct fsdp_module *two[] = { fsdp_module_child_at(layers, i), fsdp_module_child_at(layers, i + 1) };

        status = tiny->listed && i == 0   ? fsdp_fully_shard_modules(two, 2, &options, err)
                 : tiny->listed && i == 1 ? FSDP_OK
                                          : fsdp_fully_shard(two[0], &options, err);
    }
    if (status == FSDP_OK && (tiny->tied || tiny->listed))
        status = fsdp_fully_shard_modules((struct fsdp_module *[]){ fsdp_module_child(root, "tok_embeddings"),
                                                                    fsdp_module_child(root, "norm"),
                                                                    fsdp_module_child(root, "output") },
                                          3, &options, err);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(root, tiny->root_in_f32 ? &of_root : &options, err);
    if (tiny->keep_after_backward)
        fsdp_module_set_reshard_after_backward(root, false, true);
    return status;
}

static enum fsdp_status split_tiny(struct fsdp_module *root, struct fsdp_device_mesh *mesh,
                                   struct fsdp_err *err)
{
    static const struct fsdp_parallel_rule rules[] = { { "layers.*.w[qkv]", FSDP_COLWISE_PARALLEL },
                                                       { "layers.*.wo", FSDP_ROWWISE_PARALLEL },
                                                       { "layers.*.w1", FSDP_COLWISE_PARALLEL },
                                                       { "layers.*.w2", FSDP_ROWWISE_PARALLEL } };

    return fsdp_parallelize_module(root, mesh, rules, sizeof rules / sizeof *rules, err);
}

struct fsdp_module *tiny_tree(const struct tiny *tiny)
{
    struct fsdp_module *root = fsdp_module_create(model_forward, (void *)(uintptr_t)tiny);
    struct fsdp_module *layers = fsdp_module_add(root, "layers", NULL, NULL);

    fsdp_embedding(root, "tok_embeddings", tiny->vocab, tiny->dim);
    fsdp_embedding(root, "pos_embeddings", tiny->seq, tiny->dim);
    for (size_t i = 0; i < tiny->layers; i++) {
        struct fsdp_module *block;
        char name[24];

        snprintf(name, sizeof name, "%zu", i);
        block = fsdp_module_add(layers, name, block_forward, (void *)(uintptr_t)tiny);
        build_block(block, tiny);
    }
    add_norm(root, "norm", tiny);
    fsdp_linear(root, "output", tiny->dim, tiny->vocab, false);
    if (tiny->tied)
        fsdp_module_tie_parameter(fsdp_module_child(root, "output"), "weight",
                                  fsdp_module_child(root, "tok_embeddings"), "weight", NULL);
    return root;
}

struct fsdp_module *tiny_build(const struct tiny *tiny, struct fsdp_err *err)
{
    struct fsdp_module *root = tiny_tree(tiny);

    if (tiny->frozen)
        freeze(root, tiny->rms);
    if ((tiny->tensor == NULL || split_tiny(root, tiny->tensor, err) == FSDP_OK) &&
        shard_tiny(root, tiny, err) == FSDP_OK)
        return root;
    fsdp_module_destroy(root);
    return NULL;
}

void tiny_samples(const struct tiny *tiny, uint64_t first, size_t batch, int32_t *tokens, int32_t *targets)
{
    for (size_t i = 0; i < batch * tiny->seq; i++) {
        const uint64_t place = (first + i / tiny->seq) * tiny->seq + i % tiny->seq;

        tokens[i] = (int32_t)rng_below(7, place % 40, tiny->vocab);
        targets[i] = (int32_t)rng_below(7, (place + 1) % 40, tiny->vocab);
    }
}
