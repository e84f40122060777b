#include "shard_runtime/shard/param_group.h"

static const struct plan_group *layout_of(const struct param_group *group)
{
    return &group->layout->groups[group->index];
}

static const struct plan_param *param_of(const struct param_group *group, int i)
{
    return &group->layout->params[layout_of(group)->params[i]];
}

enum fsdp_status param_group_gather(const struct param_group *group, struct fsdp_comm *comm, float *gathered,
                                    struct device_stream *stream, struct fsdp_err *err)
{
    return fsdp_all_gather(comm, group->shards, gathered, layout_of(group)->row_elems, FSDP_F32, stream, err);
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

void param_group_unpack(const struct param_group *group, struct device *device, const float *gathered,
                        float *whole, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);

    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        for (int rank = 0; rank < group->layout->options.W; rank++) {
            const float *row = gathered + layout->row_elems * (size_t)rank;
            size_t first, n = rank_elems(param, rank, &first);

            if (n > 0)
                device->ops->copy(stream, whole + param->whole_offset + first, row + param->row_offset,
                                  n * sizeof(float), DEVICE_COPY_WITHIN);
        }
    }
}

void param_group_pack(const struct param_group *group, struct device *device, const float *const *grads,
                      float *packed, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);

    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        for (int rank = 0; rank < group->layout->options.W; rank++) {
            float *to = packed + layout->row_elems * (size_t)rank + param->row_offset;
            size_t first, n = grads[i] != NULL ? rank_elems(param, rank, &first) : 0;

            if (n > 0)
                device->ops->copy(stream, to, grads[i] + first, n * sizeof(float), DEVICE_COPY_WITHIN);
            if (n < param->chunk_elems)
                device->ops->fill_zero(stream, to + n, (param->chunk_elems - n) * sizeof(float));
        }
    }
}

enum fsdp_status param_group_reduce(const struct param_group *group, struct fsdp_comm *comm, float *packed,
                                    bool into_shards, struct device_stream *stream, struct fsdp_err *err)
{
    const size_t row_elems = layout_of(group)->row_elems;
    float *own = packed + row_elems * (size_t)fsdp_comm_rank(comm);

    return fsdp_reduce_scatter(comm, packed, into_shards ? group->grads : own, row_elems, FSDP_F32, FSDP_MEAN,
                               stream, err);
}
