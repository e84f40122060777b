#include "shard_runtime/shard/param_group.h"

#include <stdint.h>

#include "shard_runtime/shard/layout.h"

static const struct plan_group *layout_of(const struct param_group *group)
{
    return &group->layout->groups[group->index];
}

static const struct plan_param *param_of(const struct param_group *group, int i)
{
    return &group->layout->params[layout_of(group)->params[i]];
}

static struct layout_cut cut_of(const struct plan_param *param)
{
    const struct fsdp_parameter *p = param->parameter;

    return layout_cut_of(p->shape, p->n_dims, p->shard_dim);
}

/* Element `index` of an array of `dtype`. */
static void *elem(const void *array, enum fsdp_dtype dtype, size_t index)
{
    return (char *)(uintptr_t)array + index * fsdp_dtype_size(dtype);
}

/* The unit's own way to gather, or the group's. */
static enum fsdp_status all_gather(const struct plan_group *layout, struct fsdp_comm *comm, const void *send,
                                   void *recv, size_t n_elems, struct device_stream *stream,
                                   struct fsdp_err *err)
{
    const struct unit_policy *policy = &layout->unit->policy;

    return policy->all_gather != NULL
               ? policy->all_gather(comm, send, recv, n_elems, layout->param_dtype, stream,
                                    policy->all_gather_user, err)
               : fsdp_all_gather(comm, send, recv, n_elems, layout->param_dtype, stream, err);
}

void *param_group_gathered_row(const struct param_group *group, const struct fsdp_comm *comm, void *gathered)
{
    const struct plan_group *layout = layout_of(group);

    return elem(gathered, layout->param_dtype, layout->row_elems * (size_t)fsdp_comm_rank(comm));
}

enum fsdp_status param_group_gather(const struct param_group *group, struct device *device,
                                    struct fsdp_comm *comm, const float *row, void *gathered,
                                    struct device_stream *stream, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);
    const void *send = row;

    if (layout->param_dtype != FSDP_F32) {
        void *own = param_group_gathered_row(group, comm, gathered);

        device->ops->cast(stream, own, layout->param_dtype, row, FSDP_F32, layout->row_elems, 1.0f, false);
        send = own;
    }
    return all_gather(layout, comm, send, gathered, layout->row_elems, stream, err);
}

enum fsdp_status param_group_gather_slices(const struct param_group *group, struct fsdp_comm *part,
                                           const void *slice, void *gathered, struct device_stream *stream,
                                           struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);

    return all_gather(layout, part, slice, gathered, layout->slice_row_elems, stream, err);
}

/* Copies on their way to the device, as many at once as it takes in one piece of work. */
enum { MAX_COPIES = 512 };

struct copies {
    struct device *device;
    struct device_stream *stream;
    float scale;
    size_t n;
    struct device_cast at[MAX_COPIES];
};

static void begin_copies(struct copies *copies, struct device *device, struct device_stream *stream,
                         float scale)
{
    copies->device = device;
    copies->stream = stream;
    copies->scale = scale;
    copies->n = 0;
}

static void make_copies(struct copies *copies)
{
    if (copies->n > 0)
        device_cast_list(copies->device, copies->stream, copies->at, copies->n, copies->scale, false);
    copies->n = 0;
}

/* from NULL: zeros */
static void add_copy(struct copies *copies, void *to, enum fsdp_dtype to_dtype, const void *from,
                     enum fsdp_dtype from_dtype, size_t n_elems)
{
    if (n_elems == 0)
        return;
    if (copies->n == MAX_COPIES)
        make_copies(copies);
    copies->at[copies->n++] = (struct device_cast){
        .to = to, .from = from, .n_elems = n_elems, .to_dtype = to_dtype, .from_dtype = from_dtype
    };
}

/* Rank `rank`'s part of a parameter, cut over n_ranks, between `part` and the whole tensor. */
static void move_part(const struct plan_param *param, int n_ranks, int rank, char *part,
                      enum fsdp_dtype part_dtype, char *whole, enum fsdp_dtype whole_dtype, bool to_whole,
                      struct copies *copies)
{
    const struct layout_cut cut = cut_of(param);

    for (size_t i = 0; i < cut.outer; i++) {
        const struct layout_piece piece = layout_piece_of(&cut, n_ranks, rank, i);
        char *in_part = part + piece.shard_at * fsdp_dtype_size(part_dtype);
        char *in_whole = whole + piece.whole_at * fsdp_dtype_size(whole_dtype);

        if (to_whole)
            add_copy(copies, in_whole, whole_dtype, in_part, part_dtype, piece.n_elems);
        else
            add_copy(copies, in_part, part_dtype, in_whole, whole_dtype, piece.n_elems);
    }
}

void param_group_slice(const struct param_group *group, struct device *device,
                       void *const whole[PLAN_N_PARTS], int rank, void *slice, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    const enum fsdp_dtype dtype = layout->param_dtype;
    struct copies copies;

    begin_copies(&copies, device, stream, 1.0f);
    device->ops->fill_zero(stream, slice, layout->slice_row_elems * fsdp_dtype_size(dtype));
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        move_part(param, layout->k, rank, elem(slice, dtype, param->slice_offset), dtype,
                  elem(whole[param->part], dtype, param->whole_offset), dtype, false, &copies);
    }
    make_copies(&copies);
}

void param_group_unpack(const struct param_group *group, struct device *device, const void *gathered,
                        int n_rows, const float *row, void *const whole[PLAN_N_PARTS],
                        struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    const enum fsdp_dtype from = gathered != NULL ? layout->param_dtype : FSDP_F32;
    const void *rows = gathered != NULL ? gathered : row;
    const bool slices = n_rows != layout->W;
    const size_t row_elems = slices ? layout->slice_row_elems : layout->row_elems;
    struct copies copies;

    begin_copies(&copies, device, stream, 1.0f);
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        for (int rank = 0; rank < n_rows; rank++)
            move_part(param, n_rows, rank,
                      elem(rows, from,
                           row_elems * (size_t)rank + (slices ? param->slice_offset : param->row_offset)),
                      from, elem(whole[param->part], layout->param_dtype, param->whole_offset),
                      layout->param_dtype, true, &copies);
    }
    make_copies(&copies);
}

/* One rank's part of a gradient into its row: the pieces, then zeros up to the chunk. NULL: zeros alone. */
static void pack_part(const struct plan_group *layout, const struct plan_param *param, const void *grad,
                      int rank, char *to, struct copies *copies)
{
    const struct layout_cut cut = cut_of(param);
    const size_t size = fsdp_dtype_size(layout->reduce_dtype);
    size_t filled = 0;

    for (size_t k = 0; grad != NULL && k < cut.outer; k++) {
        const struct layout_piece piece = layout_piece_of(&cut, layout->W, rank, k);

        add_copy(copies, to + piece.shard_at * size, layout->reduce_dtype,
                 elem(grad, layout->grad_dtype, piece.whole_at), layout->grad_dtype, piece.n_elems);
        filled += piece.n_elems;
    }
    add_copy(copies, to + filled * size, layout->reduce_dtype, NULL, layout->reduce_dtype,
             param->chunk_elems - filled);
}

void param_group_pack(const struct param_group *group, struct device *device, const void *const *grads,
                      void *packed, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    struct copies copies;

    begin_copies(&copies, device, stream, layout->division.before);
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        for (int rank = 0; param->trains && rank < layout->W; rank++)
            pack_part(layout, param, grads[i], rank,
                      elem(packed, layout->reduce_dtype,
                           layout->grad_row_elems * (size_t)rank + param->grad_offset),
                      &copies);
    }
    make_copies(&copies);
}

void *param_group_own_row(const struct param_group *group, const struct fsdp_comm *comm, void *packed)
{
    const struct plan_group *layout = layout_of(group);

    return elem(packed, layout->reduce_dtype, layout->grad_row_elems * (size_t)fsdp_comm_rank(comm));
}

enum fsdp_status param_group_reduce(const struct param_group *group, struct fsdp_comm *comm, void *packed,
                                    bool into_shards, struct device_stream *stream, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);
    const struct unit_policy *policy = &layout->unit->policy;
    void *recv = into_shards ? group->grads : param_group_own_row(group, comm, packed);

    return policy->reduce_scatter != NULL
               ? policy->reduce_scatter(comm, packed, recv, layout->grad_row_elems, layout->reduce_dtype,
                                        layout->division.reduce, stream, policy->reduce_scatter_user, err)
               : fsdp_reduce_scatter(comm, packed, recv, layout->grad_row_elems, layout->reduce_dtype,
                                     layout->division.reduce, stream, err);
}

enum fsdp_status param_group_all_reduce(const struct param_group *group, struct fsdp_comm *replicas,
                                        void *row, enum fsdp_dtype dtype, struct device_stream *stream,
                                        struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);

    return fsdp_all_reduce(replicas, row, layout->grad_row_elems, dtype, layout->division.all_reduce, stream,
                           err);
}

void param_group_store(const struct param_group *group, struct device *device, const void *row, float *sum,
                       bool add, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);

    device->ops->cast(stream, sum, FSDP_F32, row, layout->reduce_dtype, layout->grad_row_elems,
                      layout->division.after, add);
}
