#include "shard_runtime/state/full_state.h"

#include <string.h>

#include "shard_runtime/core/alloc.h"

bool full_state_is_first(const struct fsdp_model *model)
{
    const struct model_mesh *mesh = &model->meshes[0];

    return mesh->shard_rank == 0 && mesh->replica_rank == 0 && model->tensor_rank == 0;
}

const struct fsdp_full_tensor *full_state_find(const struct fsdp_full_state_dict *state, const char *name)
{
    for (size_t i = 0; i < state->n_tensors; i++)
        if (strcmp(state->tensors[i].name, name) == 0)
            return &state->tensors[i];
    return NULL;
}

enum fsdp_status full_state_check(const struct fsdp_model *model, const struct fsdp_full_state_dict *state,
                                  struct fsdp_err *err)
{
    if (state == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "rank %d gives no state to load", model->context->rank);
    for (size_t i = 0; i < state->n_tensors; i++)
        if (state->tensors == NULL || state->tensors[i].name == NULL || state->tensors[i].data == NULL)
            return fsdp_fail(err, FSDP_ERR_ARG, "tensor %zu of a state has no name or no data", i);
    return FSDP_OK;
}

enum fsdp_status full_state_check_tensor(const struct fsdp_full_state_dict *state, const char *name,
                                         const struct fsdp_parameter *parameter, struct fsdp_err *err)
{
    const struct fsdp_full_tensor *tensor = full_state_find(state, name);

    if (tensor == NULL)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "\"%s\" is missing", name);
    if (tensor->n_dims != parameter->n_dims || tensor->n_elems != parameter->whole_elems ||
        memcmp(tensor->shape, parameter->whole_shape, (size_t)parameter->n_dims * sizeof *tensor->shape) != 0)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "\"%s\" has another shape", name);
    return FSDP_OK;
}

enum fsdp_status full_state_add(struct fsdp_full_state_dict *out, const char *name,
                                const struct fsdp_parameter *parameter, struct fsdp_err *err)
{
    struct fsdp_full_tensor *tensor = &out->tensors[out->n_tensors];

    *tensor = (struct fsdp_full_tensor){ .name = name,
                                         .n_dims = parameter->n_dims,
                                         .n_elems = parameter->whole_elems,
                                         .data = alloc_array(parameter->whole_elems, sizeof(float)) };
    memcpy(tensor->shape, parameter->whole_shape, sizeof tensor->shape);
    out->n_tensors++;
    return tensor->data != NULL ? FSDP_OK
                                : fsdp_fail(err, FSDP_ERR_NOMEM, "the whole of \"%s\": out of memory", name);
}
