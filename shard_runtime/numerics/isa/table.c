#include "shard_runtime/numerics/isa/kernels.h"

const struct row_kernels ISA_NAME(row_kernels) = {
    .isa = ISA_STRING(ISA),
    .add = row_add,
    .column_sum = row_column_sum,
    .dropout = row_dropout,
    .layer_norm = row_layer_norm,
    .layer_norm_backward = row_layer_norm_backward,
    .gelu = row_gelu,
    .gelu_backward = row_gelu_backward,
    .gelu_tanh = row_gelu_tanh,
    .gelu_tanh_backward = row_gelu_tanh_backward,
    .softmax = row_softmax,
    .softmax_backward = row_softmax_backward,
    .attention_softmax = row_attention_softmax,
    .attention_again = row_attention_again,
    .cross_entropy = row_cross_entropy,
    .adamw = row_adamw,
    .sgd = row_sgd,
    .sum_squares = row_sum_squares,
    .from_bf16 = row_from_bf16,
    .to_bf16 = row_to_bf16,
};
