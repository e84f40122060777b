#include "shard_runtime/checkpoint/tensors.h"

#include "shard_runtime/shard/layout.h"

enum fsdp_status checkpoint_tensor_rows(const struct checkpoint_tensor *tensor, int W, int rank,
                                        struct checkpoint_rows *rows, struct fsdp_err *err)
{
    uint64_t row_bytes, bytes;
    struct layout_rows own;

    if (tensor->name == NULL || tensor->n_dims < 1 || tensor->n_dims > MANIFEST_MAX_DIMS ||
        (unsigned)tensor->dtype >= FSDP_DTYPE_COUNT)
        return fsdp_fail(err, FSDP_ERR_ARG, "tensor %.200s has %zu dimensions",
                         tensor->name == NULL ? "(no name)" : tensor->name, tensor->n_dims);
    row_bytes = fsdp_dtype_size(tensor->dtype);
    for (size_t d = 1; d < tensor->n_dims; d++)
        if (__builtin_mul_overflow(row_bytes, tensor->shape[d], &row_bytes))
            return fsdp_fail(err, FSDP_ERR_ARG, "the size of %.200s does not fit", tensor->name);
    if (__builtin_mul_overflow(row_bytes, tensor->shape[0], &bytes) || bytes > SIZE_MAX / 2)
        return fsdp_fail(err, FSDP_ERR_ARG, "the size of %.200s does not fit", tensor->name);
    own = tensor->cut_W > 0 ? layout_shard((size_t)tensor->shape[0], tensor->cut_W, tensor->cut_rank)
                            : layout_shard((size_t)tensor->shape[0], W, rank);
    *rows = (struct checkpoint_rows){ own.first, own.n_rows, row_bytes };
    if (own.n_rows > 0 && row_bytes > 0 && tensor->rows == NULL && tensor->store == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "%.200s has %zu rows here but no memory", tensor->name,
                         own.n_rows);
    return FSDP_OK;
}
