/*
 * The parameters of one unit of sharding on this rank: its rows of all of them, side by side in one row of
 * `row_elems` elements, and the same for gradients. Moving them is one collective for the whole group.
 *
 * In a gathered or packed buffer, of W rows, row r is rank r's. Within it parameter i stands at
 * gather_at with C rows; behind a rank's own rows of it come zeros. All ranks' parts of a parameter, one
 * after the other, begin with the whole parameter: padding is only at the end. (A parameter cut along another dimension
 * than 0 has no padding, and as many pieces in a rank's part as lie apart in the whole.) Rows of gradients have the
 * same form, with the parameters that train alone: grad_offset, grad_row_elems.
 *
 * A group that offloads has its shards in host memory. `row` below is what the device works on: this rank's shards where they
 * lie, or the copy of them that was made on the device.
 *
 * Shards are float32; gathered and whole parameters are the group's param_dtype, whole gradients its grad_dtype,
 * packed ones its reduce_dtype. The copies convert. Coded parameters are float8 in gathered rows, with the largest size of
 * each in `amax`, (n_coded); that is NULL where the group has none, and in device memory.
 */
#ifndef SHARD_PARAM_GROUP_H
#define SHARD_PARAM_GROUP_H

#include <stddef.h>

#include <fsdp/comm.h>
#include <fsdp/status.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/plan/plan.h"
#include "shard_runtime/shard/rounding.h"

struct param_group {
    const struct plan *layout; /* where each parameter stands; borrowed */
    int index;                 /* of the group in the layout */
    /* (row_elems) and (grad_row_elems), in device memory unless the group offloads; grads NULL where nothing is trained.
     * Borrowed. */
    float *shards, *grads;
    const struct rounding_draws *draws; /* by which a group rounds that does so stochastically; borrowed */
};

/** Find the largest sizes in the coded parameters over the ranks that shard, `comm`, and those of the tensor group where a
 * parameter is split (`tensor`; else it may be NULL). */
enum fsdp_status param_group_find_amax(const struct param_group *group, struct device *device,
                                       struct fsdp_comm *comm, struct fsdp_comm *tensor, const float *row,
                                       float *amax, struct device_stream *stream, struct fsdp_err *err);

/** Gather the shards of all ranks into `gathered`, W rows. `row` may be this rank's row of it. */
enum fsdp_status param_group_gather(const struct param_group *group, struct device *device,
                                    struct fsdp_comm *comm, const float *row, const float *amax,
                                    void *gathered, struct device_stream *stream, struct fsdp_err *err);
/** This rank's row of `gathered`, of a group without coded parameters. */
void *param_group_gathered_row(const struct param_group *group, const struct fsdp_comm *comm, void *gathered);

/** The same from slices of whole parameters, over the group's k ranks: `gathered` has k rows. */
enum fsdp_status param_group_gather_slices(const struct param_group *group, struct fsdp_comm *part,
                                           const void *slice, void *gathered, struct device_stream *stream,
                                           struct fsdp_err *err);

/** Copy the slice of `whole` that is number `rank` of the group's k into `slice`, one row. Codes come
 * out as they went in. */
void param_group_slice(const struct param_group *group, struct device *device,
                       void *const whole[PLAN_N_PARTS], int rank, const float *amax, void *slice,
                       struct device_stream *stream);

/** Copy `gathered`, of n_rows rows (W, or k where it is of slices), into `whole`, in whose part parameter i is contiguous at
 * its whole_offset, with the zeros that belong behind it. NULL: `row` is all of the group (a world of one), and is converted. */
void param_group_unpack(const struct param_group *group, struct device *device, const void *gathered,
                        int n_rows, const float *row, const float *amax, void *const whole[PLAN_N_PARTS],
                        struct device_stream *stream);

/** Copy whole gradients into `packed`, (W, grad_row_elems); grads[i] belongs to the group's i-th parameter, NULL:
 * zeros. What the division multiplies before the sum is multiplied here, unless `comm`, which will sum, does it. */
void param_group_pack(const struct param_group *group, struct device *device, const struct fsdp_comm *comm,
                      const void *const *grads, void *packed, struct device_stream *stream);

/**
 * Leave the mean, or sum, over all ranks of `comm` of this rank's row: in the gradient shards when `into_shards`, else in that
 * row of `packed`, for param_group_store(). The rest of `packed` is undefined afterwards.
 */
enum fsdp_status param_group_reduce(const struct param_group *group, struct fsdp_comm *comm, void *packed,
                                    bool into_shards, struct device_stream *stream, struct fsdp_err *err);

/** This rank's row of `packed`, (grad_row_elems) of the group's reduce_dtype. */
void *param_group_own_row(const struct param_group *group, const struct fsdp_comm *comm, void *packed);

/** The same over the replicas: of a row, or of what gradient shards are to be, of `dtype`. */
enum fsdp_status param_group_all_reduce(const struct param_group *group, struct fsdp_comm *replicas,
                                        void *row, enum fsdp_dtype dtype, struct device_stream *stream,
                                        struct fsdp_err *err);

/** A row, reduced, into `sum`, the gradient shards or what they are to be, or added to it; scaled by what is left of the
 * division. */
void param_group_store(const struct param_group *group, struct device *device, const void *row, float *sum,
                       bool add, struct device_stream *stream);

#endif
