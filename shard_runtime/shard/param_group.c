#include "shard_runtime/shard/param_group.h"

#include <stdint.h>

static const struct plan_group *layout_of(const struct param_group *group)
{
    return &group->layout->groups[group->index];
}

static const struct plan_param *param_of(const struct param_group *group, int i)
{
    return &group->layout->params[layout_of(group)->params[i]];
}

/* Element `index` of an array of `dtype`. */
static void *elem(const void *array, enum fsdp_dtype dtype, size_t index)
{
    return (char *)(uintptr_t)array + index * fsdp_dtype_size(dtype);
}

enum fsdp_status param_group_gather(const struct param_group *group, struct device *device,
                                    struct fsdp_comm *comm, void *gathered, struct device_stream *stream,
                                    struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);
    const void *send = group->shards;

    if (layout->param_dtype != FSDP_F32) {
        void *own = elem(gathered, layout->param_dtype, layout->row_elems * (size_t)fsdp_comm_rank(comm));

        device->ops->cast(stream, own, layout->param_dtype, group->shards, FSDP_F32, layout->row_elems, 1.0f,
                          false);
        send = own;
    }
    return fsdp_all_gather(comm, send, gathered, layout->row_elems, layout->param_dtype, stream, err);
}

/* Of a whole parameter, the elements that rank `rank` holds: from *first on. */
static size_t rank_elems(const struct plan_param *param, int rank, size_t *first)
{
    const size_t n = param->parameter->n_elems;

    *first = param->chunk_elems * (size_t)rank;
    if (*first >= n)
        return 0;
    return n - *first < param->chunk_elems ? n - *first : param->chunk_elems;
}

void param_group_unpack(const struct param_group *group, struct device *device, const void *gathered,
                        void *whole, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    const enum fsdp_dtype from = gathered != NULL ? layout->param_dtype : FSDP_F32;
    const void *rows = gathered != NULL ? gathered : group->shards;

    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        for (int rank = 0; rank < group->layout->options.W; rank++) {
            size_t first, n = rank_elems(param, rank, &first);

            if (n > 0)
                device->ops->cast(stream, elem(whole, layout->param_dtype, param->whole_offset + first),
                                  layout->param_dtype,
                                  elem(rows, from, layout->row_elems * (size_t)rank + param->row_offset),
                                  from, n, 1.0f, false);
        }
    }
}

void param_group_pack(const struct param_group *group, struct device *device, const void *const *grads,
                      void *packed, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    const enum fsdp_dtype dtype = layout->reduce_dtype;

    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        for (int rank = 0; rank < group->layout->options.W; rank++) {
            const size_t to = layout->row_elems * (size_t)rank + param->row_offset;
            size_t first, n = grads[i] != NULL ? rank_elems(param, rank, &first) : 0;

            if (n > 0)
                device->ops->cast(stream, elem(packed, dtype, to), dtype,
                                  elem(grads[i], layout->grad_dtype, first), layout->grad_dtype, n,
                                  layout->division.before, false);
            if (n < param->chunk_elems)
                device->ops->fill_zero(stream, elem(packed, dtype, to + n),
                                       (param->chunk_elems - n) * fsdp_dtype_size(dtype));
        }
    }
}

void *param_group_own_row(const struct param_group *group, const struct fsdp_comm *comm, void *packed)
{
    const struct plan_group *layout = layout_of(group);

    return elem(packed, layout->reduce_dtype, layout->row_elems * (size_t)fsdp_comm_rank(comm));
}

enum fsdp_status param_group_reduce(const struct param_group *group, struct fsdp_comm *comm, void *packed,
                                    bool into_shards, struct device_stream *stream, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);

    return fsdp_reduce_scatter(comm, packed,
                               into_shards ? group->grads : param_group_own_row(group, comm, packed),
                               layout->row_elems, layout->reduce_dtype, layout->division.reduce, stream, err);
}

enum fsdp_status param_group_all_reduce(const struct param_group *group, struct fsdp_comm *replicas,
                                        void *row, struct device_stream *stream, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);

    return fsdp_all_reduce(replicas, row != NULL ? row : group->grads, layout->row_elems,
                           row != NULL ? layout->reduce_dtype : FSDP_F32, layout->division.all_reduce, stream,
                           err);
}

void param_group_store(const struct param_group *group, struct device *device, const void *row, bool add,
                       struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);

    device->ops->cast(stream, group->grads, FSDP_F32, row, layout->reduce_dtype, layout->row_elems,
                      layout->division.after, add);
}
