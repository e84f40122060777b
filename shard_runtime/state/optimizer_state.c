/*
 * The optimizer state as users of the library see it: the list of its tensors, access to any part of them,
 * and their sizes.
 */
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/optimizer.h"

size_t fsdp_optimizer_state_count(const struct fsdp_optimizer *optimizer)
{
    return optimizer != NULL ? (size_t)optimizer->n_tensors * (size_t)optimizer->n_states : 0;
}

size_t fsdp_optimizer_bytes(const struct fsdp_optimizer *optimizer)
{
    size_t total = 0;

    if (optimizer == NULL)
        return 0;
    for (int p = 0; p < N_PLACES; p++)
        total += optimizer->state_bytes[p];
    return optimizer->offload != NULL ? offload_memory_bytes(optimizer->offload) : total;
}

uint64_t fsdp_optimizer_offloaded_bytes(const struct fsdp_optimizer *optimizer)
{
    return optimizer != NULL && optimizer->offload != NULL ? offload_file_bytes(optimizer->offload) : 0;
}

const struct rows_store *optimizer_store(const struct fsdp_optimizer *optimizer)
{
    return optimizer->offload != NULL ? offload_store(optimizer->offload) : NULL;
}

static enum fsdp_status check_range(const struct fsdp_optimizer *optimizer, size_t index, size_t first,
                                    size_t n_elems, struct fsdp_err *err)
{
    if (index >= fsdp_optimizer_state_count(optimizer) ||
        first > optimizer->tensors[index / (size_t)optimizer->n_states].n_elems ||
        n_elems > optimizer->tensors[index / (size_t)optimizer->n_states].n_elems - first)
        return fsdp_fail(err, FSDP_ERR_ARG, "%zu elements from %zu of optimizer state %zu are not there",
                         n_elems, first, index);
    return FSDP_OK;
}

static enum shard_place place_of(const struct fsdp_optimizer *optimizer, size_t index)
{
    const int param = optimizer->params[index / (size_t)optimizer->n_states];

    return model_place(optimizer->model, optimizer->model->layout.params[param].group);
}

static float *state_rows(const struct fsdp_optimizer *optimizer, size_t index)
{
    return optimizer->tensors[index / (size_t)optimizer->n_states].state[index % (size_t)optimizer->n_states];
}

/* Copies elements of one state tensor to `out`, or from `values`. Exactly one of the two is NULL. */
static enum fsdp_status move_state(struct fsdp_optimizer *optimizer, size_t index, size_t first,
                                   size_t n_elems, float *out, const float *values, struct fsdp_err *err)
{
    const struct rows_store *store = optimizer_store(optimizer);
    struct fsdp_context *context = optimizer->model->context;
    const enum fsdp_status status = check_range(optimizer, index, first, n_elems, err);
    const size_t at = first * sizeof(float), size_bytes = n_elems * sizeof(float);

    if (status != FSDP_OK || n_elems == 0)
        return status;
    if (store != NULL)
        return out != NULL ? store->read(store->user, index, at, out, size_bytes, err)
                           : store->write(store->user, index, at, values, size_bytes, err);
    if (out != NULL)
        place_read(context, place_of(optimizer, index), out, state_rows(optimizer, index) + first,
                   size_bytes);
    else
        place_write(context, place_of(optimizer, index), state_rows(optimizer, index) + first, values,
                    size_bytes);
    return context->device.ops->synchronize(context->streams[PLAN_COMPUTE], err);
}

enum fsdp_status fsdp_optimizer_read_state(struct fsdp_optimizer *optimizer, size_t index, size_t first,
                                           size_t n_elems, float *out, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);
    REQUIRE(out, err);
    return move_state(optimizer, index, first, n_elems, out, NULL, err);
}

enum fsdp_status fsdp_optimizer_write_state(struct fsdp_optimizer *optimizer, size_t index, size_t first,
                                            size_t n_elems, const float *values, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);
    REQUIRE(values, err);
    return move_state(optimizer, index, first, n_elems, NULL, values, err);
}

void fsdp_optimizer_state(struct fsdp_optimizer *optimizer, struct fsdp_tensor_shard *out)
{
    if (optimizer == NULL || out == NULL)
        return;

    struct fsdp_model *model = optimizer->model;

    for (int i = 0; i < optimizer->n_tensors; i++)
        for (int s = 0; s < optimizer->n_states; s++) {
            struct fsdp_tensor_shard *shard = &out[i * optimizer->n_states + s];

            model_tensor_shard(model, optimizer->params[i], shard);
            shard->name = optimizer->names[i * optimizer->n_states + s];
            shard->data = optimizer->tensors[i].state[s];
        }
}
