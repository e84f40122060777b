#include "shard_runtime/state/state_tensors.h"

#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/optimizer.h"

static enum fsdp_status move(const struct state_tensors *tensors, void *to, const void *from,
                             size_t size_bytes, enum device_copy kind, struct fsdp_err *err)
{
    struct device_stream *stream = tensors->context->streams[PLAN_COMPUTE];

    tensors->context->device.ops->copy(stream, to, from, size_bytes, kind);
    return tensors->context->device.ops->synchronize(stream, err);
}

static enum fsdp_status read_rows(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                                  struct fsdp_err *err)
{
    const struct state_tensors *tensors = user;

    return move(tensors, bytes, (const char *)tensors->rows[index] + offset, size_bytes, DEVICE_COPY_FROM,
                err);
}

static enum fsdp_status write_rows(void *user, size_t index, uint64_t offset, const void *bytes,
                                   size_t size_bytes, struct fsdp_err *err)
{
    const struct state_tensors *tensors = user;

    return move(tensors, (char *)tensors->rows[index] + offset, bytes, size_bytes, DEVICE_COPY_TO, err);
}

static void describe(const struct fsdp_tensor_shard *shard, struct checkpoint_tensor *tensor)
{
    *tensor = (struct checkpoint_tensor){ .name = shard->name,
                                          .dtype = shard->dtype,
                                          .n_dims = (size_t)shard->n_dims,
                                          .placed = true,
                                          .saved_elsewhere = shard->elsewhere,
                                          .rows = shard->data };
    for (int d = 0; d < shard->n_dims; d++) {
        tensor->shape[d] = shard->shape[d];
        tensor->offsets[d] = shard->offsets[d];
        tensor->sizes[d] = shard->sizes[d];
    }
}

/*
 * Makes the store read and write rows that are in device memory. Rows in a file or in host memory stay
 * unchanged.
 */
static void use_store(struct state_tensors *tensors)
{
    struct device *device = &tensors->context->device;

    tensors->store = (struct rows_store){ tensors, read_rows, write_rows };
    for (size_t i = 0; i < tensors->n; i++) {
        struct checkpoint_tensor *tensor = &tensors->list[i];

        if (tensor->store != NULL || !device->ops->owns(device, tensor->rows))
            continue;
        tensors->rows[i] = tensor->rows;
        tensor->rows = NULL;
        tensor->store = &tensors->store;
        tensor->in_store = i;
    }
}

enum fsdp_status state_tensors_make(struct state_tensors *tensors, struct fsdp_model *model,
                                    struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    const size_t n_model = fsdp_model_parameter_count(model);
    const size_t n = n_model + fsdp_optimizer_state_count(optimizer);
    const bool separate = device_is_separate(&model->context->device);
    struct fsdp_tensor_shard *shards = alloc_array(n, sizeof *shards);

    *tensors = (struct state_tensors){ .list = alloc_array(n, sizeof *tensors->list),
                                       .n = n,
                                       .context = model->context,
                                       .rows = separate ? alloc_array(n, sizeof *tensors->rows) : NULL };
    if (shards == NULL || tensors->list == NULL || (separate && tensors->rows == NULL)) {
        free(shards);
        state_tensors_free(tensors);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a list of %zu tensors: out of memory", n);
    }
    model_list_state(model, shards);
    fsdp_optimizer_state(optimizer, shards + n_model);
    for (size_t i = 0; i < n; i++) {
        describe(&shards[i], &tensors->list[i]);
        tensors->list[i].store = i < n_model ? NULL : optimizer_store(optimizer);
        tensors->list[i].in_store = i < n_model ? 0 : i - n_model;
    }
    if (separate)
        use_store(tensors);
    free(shards);
    return FSDP_OK;
}

void state_tensors_free(struct state_tensors *tensors)
{
    free(tensors->list);
    free(tensors->rows);
    *tensors = (struct state_tensors){ 0 };
}
