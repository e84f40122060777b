#include "shard_runtime/numerics/ref.h"

static enum fsdp_status ref_open(struct numerics *numerics, struct fsdp_err *err)
{
    (void)err;
    numerics->threads = 1; /* whatever was asked for: this is what a manifest should say */
    return FSDP_OK;
}

static void ref_close(struct numerics *numerics)
{
    (void)numerics;
}

const struct numerics_ops numerics_ref_ops = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .matmul_create = ref_matmul_create,
    .matmul_destroy = ref_matmul_destroy,
    .matmul_run = ref_matmul_run,
    .column_sum = ref_column_sum,
    .add = ref_add,
    .dropout = ref_dropout,
    .layer_norm = ref_layer_norm,
    .layer_norm_backward = ref_layer_norm_backward,
    .layer_norm_scratch = ref_layer_norm_scratch,
    .gelu = ref_gelu,
    .gelu_backward = ref_gelu_backward,
    .gelu_tanh = ref_gelu_tanh,
    .gelu_tanh_backward = ref_gelu_tanh_backward,
    .softmax = ref_softmax,
    .softmax_backward = ref_softmax_backward,
    .attention_create = ref_attention_create,
    .attention_destroy = ref_attention_destroy,
    .attention_forward = ref_attention_forward,
    .attention_backward = ref_attention_backward,
    .embedding = ref_embedding,
    .embedding_backward = ref_embedding_backward,
    .cross_entropy = ref_cross_entropy,
    .adamw = ref_adamw,
    .sgd = ref_sgd,
    .sum_powers = ref_sum_powers,
    .sum_squares = ref_sum_squares,
};
