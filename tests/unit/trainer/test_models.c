#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/module.h"
#include "shard_runtime/trainer/models.h"

static struct job small(void)
{
    struct job job = { 0 };

    job.model.kind = (char *)"transformer";
    job.model.layers = 2;
    job.model.dim = 8;
    job.model.heads = 2;
    job.model.vocab = 10;
    job.model.seq = 5;
    job.model.causal = true;
    job.parallel.reshard_after_backward = true;
    return job;
}

Test(models, heads_that_do_not_divide_dim_and_other_kinds_are_refused)
{
    struct fsdp_err err = { 0 };
    struct job job = small();
    struct fsdp_module *tree;

    job.model.heads = 3;
    cr_assert(eq(int, models_create(&tree, &job, NULL, &err), FSDP_ERR_CONFIG));
    cr_assert_null(tree);
    cr_assert_str_eq(err.message, "model.heads: 3 heads do not divide model.dim 8");
    job.model.kind = (char *)"llama";
    cr_assert(eq(int, models_create(&tree, &job, NULL, NULL), FSDP_ERR_UNSUPPORTED));
}

/* Each parameter is a line "name shape group". */
static void expect_parameters(const struct job *job, const char *want)
{
    const struct fsdp_model_options options = { .batch = 1, .seq = 5, .seed = 1 };
    struct fsdp_context *context;
    struct fsdp_module *tree;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };
    char out[4096];
    size_t length = 0;

    cr_assert(eq(int, fsdp_context_create(&context, &(struct fsdp_context_options){ .threads = 1 }, NULL),
                 FSDP_OK));
    cr_assert(eq(int, models_create(&tree, job, NULL, &err), FSDP_OK), "%s", err.message);
    cr_assert(eq(int, fsdp_model_create(&model, context, tree, &options, &err), FSDP_OK), "%s", err.message);
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;

        cr_assert(eq(int, fsdp_model_parameter(model, i, &info, NULL), FSDP_OK));
        length += (size_t)snprintf(out + length, sizeof out - length, "%s %zu", info.name, info.shape[0]);
        for (int d = 1; d < info.n_dims; d++)
            length += (size_t)snprintf(out + length, sizeof out - length, "x%zu", info.shape[d]);
        length += (size_t)snprintf(out + length, sizeof out - length, " %d\n", info.group);
    }
    cr_expect_str_eq(out, want);
    fsdp_model_destroy(model);
    fsdp_module_destroy(tree);
    fsdp_context_destroy(context);
}

Test(models, each_has_its_names_shapes_and_a_group_a_block)
{
    static const struct {
        const char *kind;
        int norm, layers;
        const char *parameters;
    } models[] = {
        { "transformer", JOB_LAYERNORM, 2,
          "tok_embeddings.weight 10x8 0\npos_embeddings.weight 5x8 0\n"
          "layers.0.attention_norm.weight 8 1\nlayers.0.attention_norm.bias 8 1\n"
          "layers.0.attention.wq.weight 8x8 1\nlayers.0.attention.wk.weight 8x8 1\n"
          "layers.0.attention.wv.weight 8x8 1\nlayers.0.attention.wo.weight 8x8 1\n"
          "layers.0.ffn_norm.weight 8 1\nlayers.0.ffn_norm.bias 8 1\n"
          "layers.0.feed_forward.w1.weight 32x8 1\nlayers.0.feed_forward.w1.bias 32 1\n"
          "layers.0.feed_forward.w2.weight 8x32 1\nlayers.0.feed_forward.w2.bias 8 1\n"
          "layers.1.attention_norm.weight 8 2\nlayers.1.attention_norm.bias 8 2\n"
          "layers.1.attention.wq.weight 8x8 2\nlayers.1.attention.wk.weight 8x8 2\n"
          "layers.1.attention.wv.weight 8x8 2\nlayers.1.attention.wo.weight 8x8 2\n"
          "layers.1.ffn_norm.weight 8 2\nlayers.1.ffn_norm.bias 8 2\n"
          "layers.1.feed_forward.w1.weight 32x8 2\nlayers.1.feed_forward.w1.bias 32 2\n"
          "layers.1.feed_forward.w2.weight 8x32 2\nlayers.1.feed_forward.w2.bias 8 2\n"
          "norm.weight 8 0\nnorm.bias 8 0\noutput.weight 10x8 0\n" },
        /* The same names, and no bias. */
        { "transformer", JOB_RMSNORM, 1,
          "tok_embeddings.weight 10x8 0\npos_embeddings.weight 5x8 0\n"
          "layers.0.attention_norm.weight 8 1\n"
          "layers.0.attention.wq.weight 8x8 1\nlayers.0.attention.wk.weight 8x8 1\n"
          "layers.0.attention.wv.weight 8x8 1\nlayers.0.attention.wo.weight 8x8 1\n"
          "layers.0.ffn_norm.weight 8 1\n"
          "layers.0.feed_forward.w1.weight 32x8 1\nlayers.0.feed_forward.w1.bias 32 1\n"
          "layers.0.feed_forward.w2.weight 8x32 1\nlayers.0.feed_forward.w2.bias 8 1\n"
          "norm.weight 8 0\noutput.weight 10x8 0\n" },
        /* Hugging Face's names and shapes. */
        { "gpt2", JOB_LAYERNORM, 1,
          "wte.weight 10x8 0\nwpe.weight 5x8 0\n"
          "h.0.ln_1.weight 8 1\nh.0.ln_1.bias 8 1\n"
          "h.0.attn.c_attn.weight 8x24 1\nh.0.attn.c_attn.bias 24 1\n"
          "h.0.attn.c_proj.weight 8x8 1\nh.0.attn.c_proj.bias 8 1\n"
          "h.0.ln_2.weight 8 1\nh.0.ln_2.bias 8 1\n"
          "h.0.mlp.c_fc.weight 8x32 1\nh.0.mlp.c_fc.bias 32 1\n"
          "h.0.mlp.c_proj.weight 32x8 1\nh.0.mlp.c_proj.bias 8 1\n"
          "ln_f.weight 8 0\nln_f.bias 8 0\n" },
    };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct job job = small();

        job.model.kind = (char *)(uintptr_t)models[i].kind;
        job.model.norm = models[i].norm;
        job.model.layers = (uint64_t)models[i].layers;
        expect_parameters(&job, models[i].parameters);
    }
}
