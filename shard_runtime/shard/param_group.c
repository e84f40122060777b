#include "shard_runtime/shard/param_group.h"

#include <stdint.h>

#include "shard_runtime/comm/comm.h"
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

/* Returns the address of element `index` of an array of `dtype`. */
static void *elem(const void *array, enum fsdp_dtype dtype, size_t index)
{
    return (char *)(uintptr_t)array + index * fsdp_dtype_size(dtype);
}

/*
 * Gathers by the unit's own all-gather function if it has one, else by fsdp_all_gather(). Rows with coded
 * parameters are sent as bytes.
 */
static enum fsdp_status all_gather(const struct plan_group *layout, struct fsdp_comm *comm, const void *send,
                                   void *recv, size_t row_bytes, struct device_stream *stream,
                                   struct fsdp_err *err)
{
    const struct unit_policy *policy = &layout->unit->policy;
    const enum fsdp_dtype dtype = layout->n_coded > 0 ? FSDP_U8 : layout->param_dtype;
    const size_t n_elems = row_bytes / fsdp_dtype_size(dtype);

    return policy->all_gather != NULL
               ? policy->all_gather(comm, send, recv, n_elems, dtype, stream, policy->all_gather_user, err)
               : fsdp_all_gather(comm, send, recv, n_elems, dtype, stream, err);
}

void *param_group_gathered_row(const struct param_group *group, const struct fsdp_comm *comm, void *gathered)
{
    const struct plan_group *layout = layout_of(group);

    return elem(gathered, layout->param_dtype, layout->row_elems * (size_t)fsdp_comm_rank(comm));
}

enum fsdp_status param_group_find_amax(const struct param_group *group, struct device *device,
                                       struct fsdp_comm *comm, struct fsdp_comm *tensor, const float *row,
                                       float *amax, struct device_stream *stream, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);
    const size_t n = (size_t)layout->n_coded;
    enum fsdp_status status = FSDP_OK;

    device->ops->fill_zero(stream, amax, n * sizeof *amax);
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        if (param->coded >= 0)
            device->ops->amax(stream, &amax[param->coded], row + param->row_offset, param->chunk_elems);
    }
    if (layout->W > 1)
        status = fsdp_all_reduce(comm, amax, n, FSDP_F32, FSDP_MAX, stream, err);
    return status == FSDP_OK && layout->amax_parts > 1
               ? fsdp_all_reduce(tensor, amax, n, FSDP_F32, FSDP_MAX, stream, err)
               : status;
}

/* Copies that are collected and handed to the device as one piece of work, MAX_COPIES at a time. */
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

/* Adds a copy of n_elems with conversion; `from` NULL means zeros. */
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

/*
 * Writes this rank's row in the form that the other ranks read: each parameter in param_dtype or as codes,
 * then zeros to the end of the row.
 */
static void write_row(const struct param_group *group, struct device *device, const float *shards,
                      const float *amax, char *row, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    struct copies copies;
    size_t end = 0;

    begin_copies(&copies, device, stream, 1.0f);
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);
        const float *shard = shards + param->row_offset;
        const size_t n = param->chunk_elems,
                     bytes = n * (param->coded >= 0 ? 1 : fsdp_dtype_size(layout->param_dtype));

        if (param->coded >= 0)
            device->ops->encode(stream, (uint8_t *)row + param->gather_at, shard, FSDP_F32, n,
                                &amax[param->coded]);
        else
            add_copy(&copies, row + param->gather_at, layout->param_dtype, shard, FSDP_F32, n);
        end = param->gather_at + bytes > end ? param->gather_at + bytes : end;
    }
    make_copies(&copies);
    device->ops->fill_zero(stream, row + end, layout->gather_row_bytes - end);
}

/*
 * Rounds this rank's shards stochastically to bfloat16. They go to `own`, this rank's row of the gathered
 * buffer. `own` NULL (a world of one): they go to `whole`.
 */
static void round_shards(const struct param_group *group, struct device *device, int rank, const float *row,
                         char *own, void *const whole[PLAN_N_PARTS], struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    struct rounding rounding;

    rounding_begin(&rounding, group->draws, device, stream);
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        rounding_add(&rounding, param, layout->W, rank, row + param->row_offset,
                     own != NULL ? (uint16_t *)(void *)(own + param->gather_at)
                                 : (uint16_t *)whole[param->part] + param->whole_offset);
    }
    rounding_end(&rounding);
}

enum fsdp_status param_group_gather(const struct param_group *group, struct device *device,
                                    struct fsdp_comm *comm, const float *row, const float *amax,
                                    void *gathered, struct device_stream *stream, struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);
    const int rank = layout->W > 1 ? fsdp_comm_rank(comm) : 0;
    char *own = (char *)gathered + layout->gather_row_bytes * (size_t)rank;
    const void *send = own;

    if (layout->n_coded > 0)
        write_row(group, device, row, amax, own, stream);
    else if (rounding_is_on(layout))
        round_shards(group, device, rank, row, own, NULL, stream);
    else if (layout->param_dtype != FSDP_F32)
        device->ops->cast(stream, own, layout->param_dtype, row, FSDP_F32, layout->row_elems, 1.0f, false);
    else
        send = row;
    return layout->W > 1 ? all_gather(layout, comm, send, gathered, layout->gather_row_bytes, stream, err)
                         : FSDP_OK;
}

enum fsdp_status param_group_gather_slices(const struct param_group *group, struct fsdp_comm *part,
                                           const void *slice, void *gathered, struct device_stream *stream,
                                           struct fsdp_err *err)
{
    const struct plan_group *layout = layout_of(group);

    return all_gather(layout, part, slice, gathered, layout->slice_row_bytes, stream, err);
}

/* A rank's part of a parameter in a row: codes if `amax` is not NULL, otherwise elements of `dtype`. */
struct part {
    char *at;
    enum fsdp_dtype dtype;
    const float *amax;
};

static struct part part_at(const struct plan_param *param, char *at, enum fsdp_dtype dtype, const float *amax)
{
    return (struct part){ .at = at, .dtype = dtype, .amax = param->coded >= 0 ? &amax[param->coded] : NULL };
}

static size_t part_size(const struct part *part)
{
    return part->amax != NULL ? 1 : fsdp_dtype_size(part->dtype);
}

/* Copies rank `rank`'s part of a parameter that is cut over n_ranks into the whole tensor, decoding codes. */
static void part_to_whole(const struct plan_param *param, int n_ranks, int rank, struct part part,
                          char *whole, enum fsdp_dtype dtype, struct copies *copies)
{
    const struct layout_cut cut = cut_of(param);

    for (size_t i = 0; i < cut.outer; i++) {
        const struct layout_piece piece = layout_piece_of(&cut, n_ranks, rank, i);
        const char *from = part.at + piece.shard_at * part_size(&part);
        char *to = whole + piece.whole_at * fsdp_dtype_size(dtype);

        if (piece.n_elems > 0 && part.amax != NULL)
            copies->device->ops->decode(copies->stream, to, dtype, (const uint8_t *)from, piece.n_elems,
                                        part.amax);
        else
            add_copy(copies, to, dtype, from, part.dtype, piece.n_elems);
    }
}

/* Copies rank `rank`'s part out of the whole tensor, encoding it if the parameter is coded. */
static void part_of_whole(const struct plan_param *param, int n_ranks, int rank, struct part part,
                          const char *whole, struct copies *copies)
{
    const struct layout_cut cut = cut_of(param);

    for (size_t i = 0; i < cut.outer; i++) {
        const struct layout_piece piece = layout_piece_of(&cut, n_ranks, rank, i);
        const char *from = whole + piece.whole_at * fsdp_dtype_size(part.dtype);
        char *to = part.at + piece.shard_at * part_size(&part);

        if (piece.n_elems > 0 && part.amax != NULL)
            copies->device->ops->encode(copies->stream, (uint8_t *)to, from, part.dtype, piece.n_elems,
                                        part.amax);
        else
            add_copy(copies, to, part.dtype, from, part.dtype, piece.n_elems);
    }
}

void param_group_slice(const struct param_group *group, struct device *device,
                       void *const whole[PLAN_N_PARTS], int rank, const float *amax, void *slice,
                       struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    const enum fsdp_dtype dtype = layout->param_dtype;
    struct copies copies;

    begin_copies(&copies, device, stream, 1.0f);
    device->ops->fill_zero(stream, slice, layout->slice_row_bytes);
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);

        part_of_whole(param, layout->k, rank, part_at(param, (char *)slice + param->slice_at, dtype, amax),
                      elem(whole[param->part], dtype, param->whole_offset), &copies);
    }
    make_copies(&copies);
}

/*
 * Returns `rank`'s part of a parameter in `gathered`; in `row`, the float32 shards, if nothing was gathered.
 */
static struct part gathered_part(const struct param_group *group, const struct plan_param *param,
                                 const void *gathered, int n_rows, int rank, const float *row,
                                 const float *amax)
{
    const struct plan_group *layout = layout_of(group);
    const bool slices = n_rows != layout->W;
    const size_t row_bytes = slices ? layout->slice_row_bytes : layout->gather_row_bytes;
    char *rows = (char *)(uintptr_t)gathered; /* read only */

    if (gathered == NULL)
        return (struct part){ .at = (char *)(uintptr_t)(row + param->row_offset), .dtype = FSDP_F32 };
    return part_at(param, rows + row_bytes * (size_t)rank + (slices ? param->slice_at : param->gather_at),
                   layout->param_dtype, amax);
}

void param_group_unpack(const struct param_group *group, struct device *device, const void *gathered,
                        int n_rows, const float *row, const float *amax, void *const whole[PLAN_N_PARTS],
                        struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    const bool rounds = gathered == NULL && rounding_is_on(layout);
    struct copies copies;

    if (rounds)
        round_shards(group, device, 0, row, NULL, whole, stream);
    begin_copies(&copies, device, stream, 1.0f);
    for (int i = 0; i < layout->n_params; i++) {
        const struct plan_param *param = param_of(group, i);
        void *to = elem(whole[param->part], layout->param_dtype, param->whole_offset);

        for (int rank = 0; rank < n_rows && !rounds; rank++)
            part_to_whole(param, n_rows, rank, gathered_part(group, param, gathered, n_rows, rank, row, amax),
                          to, layout->param_dtype, &copies);
        add_copy(&copies, elem(to, layout->param_dtype, param->parameter->n_elems), layout->param_dtype, NULL,
                 layout->param_dtype, param->zero_elems);
    }
    make_copies(&copies);
}

/*
 * Returns whether the reduction itself multiplies by division.before. A reduction function of the user's
 * never does.
 */
static bool reduction_scales(const struct plan_group *layout, const struct fsdp_comm *comm)
{
    return layout->division.before != 1.0f && layout->W > 1 && layout->unit->policy.reduce_scatter == NULL &&
           comm_scales(comm);
}

/*
 * Adds copies of one rank's part of a gradient into its row, and zeros up to the chunk; `grad` NULL: all
 * zeros.
 */
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

void param_group_pack(const struct param_group *group, struct device *device, const struct fsdp_comm *comm,
                      const void *const *grads, void *packed, struct device_stream *stream)
{
    const struct plan_group *layout = layout_of(group);
    struct copies copies;

    begin_copies(&copies, device, stream, reduction_scales(layout, comm) ? 1.0f : layout->division.before);
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

    if (reduction_scales(layout, comm))
        return comm_reduce_scatter_scaled(comm, packed, recv, layout->grad_row_elems, layout->reduce_dtype,
                                          layout->division.before, stream, err);
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
