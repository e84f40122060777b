/*
 * The parameters of one unit of sharding on this rank, and the collectives that move them. The rank's rows of
 * all parameters stand next to each other in one row of `row_elems` elements, and so do their gradients. One
 * collective moves the whole group.
 *
 * A gathered buffer has W rows; row r is rank r's. Within a row, parameter i begins at gather_at and takes C
 * rows of the parameter; a rank's own rows come first, then zeros. So all ranks' parts of a parameter, one
 * after the other, begin with the whole parameter, and padding is only at its end. A parameter that is cut
 * along another dimension than 0 has no padding. Its part of a row consists of pieces, one for each run of
 * elements that is adjacent in the whole parameter. Packed buffers, for gradients, have the same form with
 * the parameters that train alone: grad_offset, grad_row_elems.
 *
 * A group that offloads has its shards in host memory. `row` below is what the device works on: this rank's
 * shards themselves, or the copy of them on the device.
 *
 * Types: shards are float32. Gathered and whole parameters have the group's param_dtype, whole gradients its
 * grad_dtype, packed gradients its reduce_dtype. Copies convert. Coded parameters are float8 in gathered
 * rows. The largest size of each of them is in `amax`, (n_coded) in device memory; it is NULL if the group
 * has none.
 *
 * All work is queued on `stream`. Only collectives can fail.
 */
#ifndef SHARD_PARAM_GROUP_H
#define SHARD_PARAM_GROUP_H

#include <fsdp/comm.h>
#include <fsdp/status.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/plan/plan.h"
#include "shard_runtime/shard/rounding.h"

struct param_group {
    const struct plan *layout; /* where each parameter stands; borrowed */
    int index;                 /* of the group in the layout */
    /*
     * (row_elems) and (grad_row_elems), borrowed; in device memory unless the group offloads. grads is NULL
     * if nothing is trained.
     */
    float *shards, *grads;
    const struct rounding_draws *draws; /* for a group that rounds stochastically; borrowed */
};

/**
 * Finds the largest size in each coded parameter, over all ranks that hold parts of it.
 *
 *   comm    the ranks that shard the group
 *   tensor  the tensor group, if a parameter is split over it; otherwise it may be NULL
 *   amax    receives the sizes, (n_coded)
 */
enum fsdp_status param_group_find_amax(const struct param_group *group, struct device *device,
                                       struct fsdp_comm *comm, struct fsdp_comm *tensor, const float *row,
                                       float *amax, struct device_stream *stream, struct fsdp_err *err);

/** Gathers the shards of all ranks into `gathered`, (W) rows. `row` may be this rank's row of it. */
enum fsdp_status param_group_gather(const struct param_group *group, struct device *device,
                                    struct fsdp_comm *comm, const float *row, const float *amax,
                                    void *gathered, struct device_stream *stream, struct fsdp_err *err);
/** Returns this rank's row of `gathered`, for a group without coded parameters. */
void *param_group_gathered_row(const struct param_group *group, const struct fsdp_comm *comm, void *gathered);

/**
 * Gathers slices of whole parameters over the k ranks of `part` into `gathered`, (k) rows. `slice` is this
 * rank's row, as param_group_slice() made it.
 */
enum fsdp_status param_group_gather_slices(const struct param_group *group, struct fsdp_comm *part,
                                           const void *slice, void *gathered, struct device_stream *stream,
                                           struct fsdp_err *err);

/**
 * Copies slice number `rank` of the group's k slices of `whole` into `slice`, one row. Coded parameters are
 * coded again, which gives the codes that they were decoded from.
 */
void param_group_slice(const struct param_group *group, struct device *device,
                       void *const whole[PLAN_N_PARTS], int rank, const float *amax, void *slice,
                       struct device_stream *stream);

/**
 * Copies gathered rows into `whole`. Parameter i becomes contiguous at its whole_offset in its part, with the
 * zeros that belong after it.
 *
 *   gathered  n_rows rows: W of shards, or k of slices. NULL: `row` is all of the group (a world of one), and
 *             is converted
 */
void param_group_unpack(const struct param_group *group, struct device *device, const void *gathered,
                        int n_rows, const float *row, const float *amax, void *const whole[PLAN_N_PARTS],
                        struct device_stream *stream);

/**
 * Copies whole gradients into `packed`, (W, grad_row_elems).
 *
 *   comm   the group that will reduce them
 *   grads  one for each parameter of the group; NULL: zeros
 *
 * Multiplies by the part of the division that comes before the sum, unless the reduction over `comm`
 * multiplies.
 */
void param_group_pack(const struct param_group *group, struct device *device, const struct fsdp_comm *comm,
                      const void *const *grads, void *packed, struct device_stream *stream);

/**
 * Reduces `packed` over the ranks of `comm` to the mean or sum of this rank's row. The result goes to the
 * gradient shards if `into_shards`, otherwise to this rank's row of `packed`, for param_group_store(). The
 * rest of `packed` is undefined afterwards.
 */
enum fsdp_status param_group_reduce(const struct param_group *group, struct fsdp_comm *comm, void *packed,
                                    bool into_shards, struct device_stream *stream, struct fsdp_err *err);

/** Returns this rank's row of `packed`, (grad_row_elems) of the group's reduce_dtype. */
void *param_group_own_row(const struct param_group *group, const struct fsdp_comm *comm, void *packed);

/**
 * Reduces `row`, (grad_row_elems) of `dtype`, over the replicas, in place: a reduced row, or gradients in
 * float32.
 */
enum fsdp_status param_group_all_reduce(const struct param_group *group, struct fsdp_comm *replicas,
                                        void *row, enum fsdp_dtype dtype, struct device_stream *stream,
                                        struct fsdp_err *err);

/**
 * Writes a reduced row to `sum`, (grad_row_elems) of float32, or adds it if `add`. Scales it by the part of
 * the division that comes after the sum.
 */
void param_group_store(const struct param_group *group, struct device *device, const void *row, float *sum,
                       bool add, struct device_stream *stream);

#endif
