#include "shard_runtime/engine/rehearse.h"

#include "shard_runtime/numerics/numerics.h"

enum { HEADS = 2, SEQ = 16, HEAD_DIM = 8 };

void engine_rehearse(void)
{
    /* q k^T of each head, in tensors (seq, heads, head_dim) */
    const struct matmul_desc desc = {
        .outer = 1,
        .inner = HEADS,
        .m = SEQ,
        .n = SEQ,
        .k = HEAD_DIM,
        .a = { .inner_stride = HEAD_DIM, .row_stride = HEADS * HEAD_DIM, .col_stride = 1 },
        .b = { .inner_stride = HEAD_DIM, .row_stride = 1, .col_stride = HEADS * HEAD_DIM },
        .c = { .inner_stride = SEQ * SEQ, .row_stride = SEQ, .col_stride = 1 },
        .dtype = FSDP_F32,
        .c_dtype = FSDP_F32,
        .alpha = 1,
    };
    struct numerics numerics;
    struct matmul *product;
    struct fsdp_err ignored = { 0 };
    size_t scratch_bytes;

    if (numerics_open(&numerics, &(struct numerics_config){ .threads = 1, .name = "auto" }, &ignored) !=
        FSDP_OK)
        return;
    if (numerics.ops->matmul_create(&numerics, &desc, &product, &scratch_bytes, &ignored) == FSDP_OK)
        numerics.ops->matmul_destroy(product);
    numerics_close(&numerics);
}
