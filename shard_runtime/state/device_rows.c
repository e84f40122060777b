#include "shard_runtime/state/device_rows.h"

#include <stdlib.h>

#include "shard_runtime/core/alloc.h"

static enum fsdp_status move(const struct device_rows *rows, void *to, const void *from, size_t size_bytes,
                             enum device_copy kind, struct fsdp_err *err)
{
    struct device_stream *stream = rows->context->streams[PLAN_COMPUTE];

    rows->context->device.ops->copy(stream, to, from, size_bytes, kind);
    return rows->context->device.ops->synchronize(stream, err);
}

static enum fsdp_status read_rows(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                                  struct fsdp_err *err)
{
    const struct device_rows *rows = user;

    return move(rows, bytes, (const char *)rows->rows[index] + offset, size_bytes, DEVICE_COPY_FROM, err);
}

static enum fsdp_status write_rows(void *user, size_t index, uint64_t offset, const void *bytes,
                                   size_t size_bytes, struct fsdp_err *err)
{
    const struct device_rows *rows = user;

    return move(rows, (char *)rows->rows[index] + offset, bytes, size_bytes, DEVICE_COPY_TO, err);
}

enum fsdp_status device_rows_use(struct device_rows *rows, struct fsdp_context *context,
                                 struct checkpoint_tensor *tensors, size_t n_tensors, struct fsdp_err *err)
{
    *rows = (struct device_rows){ .store = { rows, read_rows, write_rows }, .context = context };
    if (!device_is_separate(&context->device))
        return FSDP_OK;
    rows->rows = alloc_array(n_tensors, sizeof *rows->rows);
    if (rows->rows == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a list of tensors: out of memory");
    for (size_t i = 0; i < n_tensors; i++) {
        if (tensors[i].store != NULL || !context->device.ops->owns(&context->device, tensors[i].rows))
            continue; /* in a file, or in host memory: used where it is */
        rows->rows[i] = tensors[i].rows;
        tensors[i].rows = NULL;
        tensors[i].store = &rows->store;
        tensors[i].in_store = i;
    }
    return FSDP_OK;
}

void device_rows_fini(struct device_rows *rows)
{
    free(rows->rows);
    rows->rows = NULL;
}
