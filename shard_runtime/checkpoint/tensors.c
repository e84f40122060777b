#include "shard_runtime/checkpoint/tensors.h"

#include <string.h>

#include "shard_runtime/core/require.h"
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
    own = layout_shard((size_t)tensor->shape[0], W, rank);
    *rows = (struct checkpoint_rows){ own.first, own.n_rows, row_bytes };
    return FSDP_OK;
}

enum fsdp_status checkpoint_tensor_box(const struct checkpoint_tensor *tensor, int W, int rank,
                                       struct box *box, struct fsdp_err *err)
{
    const struct box whole = box_whole(tensor->shape, tensor->n_dims);
    struct checkpoint_rows rows;

    OK_OR_RETURN(checkpoint_tensor_rows(tensor, W, rank, &rows, err));
    *box = whole;
    if (tensor->placed) {
        memcpy(box->offsets, tensor->offsets, sizeof box->offsets);
        memcpy(box->sizes, tensor->sizes, sizeof box->sizes);
    } else {
        box->offsets[0] = rows.first;
        box->sizes[0] = rows.n_rows;
    }
    if (!box_is_within(box, &whole))
        return fsdp_fail(err, FSDP_ERR_ARG, "what is here of %.200s is not within it", tensor->name);
    if (box_elems(box) > 0 && tensor->rows == NULL && tensor->store == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "%.200s has %llu elements here but no memory", tensor->name,
                         (unsigned long long)box_elems(box));
    return FSDP_OK;
}
