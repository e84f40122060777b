/*
 * Collectives between the ranks of one process group. All ranks of a group make the same calls in the same
 * order with the same sizes. Sums run over the ranks in a fixed order, so the same inputs give the same bits
 * in every run of the same world. `stream` orders the collective with kernels (NULL: the device's default
 * stream). On the cpu, a collective is complete when the call returns.
 *
 * Failure: if a rank dies or its connection breaks, the call returns FSDP_ERR_PEER on every other rank within
 * milliseconds. The failure is sticky: afterwards only fsdp_comm_destroy() may be called on the group.
 *
 * Threads: the thread that created the context makes these calls. Hooks and custom collectives of a step may
 * make them on whichever thread the library runs them. The following calls fail with FSDP_ERR_ARG, and
 * nothing is sent:
 *   - a call on any other thread;
 *   - a call of that thread in a group that a model's second thread uses at the time. It uses one from an
 *     fsdp_module_unshard() with async_op until the caller waits for it. It also uses one while a step or an
 *     evaluation of its model runs (for example in a hook on final gradients).
 */
#ifndef FSDP_COMM_H
#define FSDP_COMM_H

#include <stddef.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

FSDP_BEGIN_DECLS

struct fsdp_comm;
struct device_stream;

enum fsdp_reduce_op { FSDP_SUM, FSDP_MEAN, FSDP_MAX };

FSDP_API int fsdp_comm_rank(const struct fsdp_comm *comm);
FSDP_API int fsdp_comm_size(const struct fsdp_comm *comm);

/**
 * Concatenates the `send` buffers of all ranks into `recv`, in the order of ranks.
 *
 *   send     (n_elems) of `dtype`; exactly block `rank` of `recv` (in place), or disjoint from it
 *   recv     (W, n_elems)
 *   n_elems  elements per rank, equal on every rank; with 0 the call is legal and does nothing
 */
FSDP_API enum fsdp_status fsdp_all_gather(struct fsdp_comm *comm, const void *send, void *recv,
                                          size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                                          struct fsdp_err *err);

/**
 * Reduces `send` over all ranks, element-wise, and stores this rank's own block of the result in `recv`.
 *
 *   send     (W, n_elems) of `dtype` (FSDP_F32 or FSDP_BF16, summed in fp32)
 *   recv     (n_elems); exactly block `rank` of `send`, or disjoint from it
 */
FSDP_API enum fsdp_status fsdp_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                              size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                              struct device_stream *stream, struct fsdp_err *err);

/**
 * Reduces `n_elems` of `dtype` (F32, BF16, F64, I64) in place; every rank gets the same bits. BF16 is summed
 * in float32. The sum is rounded to bfloat16 once inside each host, and once more across hosts.
 */
FSDP_API enum fsdp_status fsdp_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                          enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                          struct device_stream *stream, struct fsdp_err *err);

/** Copies `size_bytes` from `buffer` of rank `root` to `buffer` of every other rank. */
FSDP_API enum fsdp_status fsdp_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                         struct device_stream *stream, struct fsdp_err *err);

/** Returns once every rank of the group has called it. */
FSDP_API enum fsdp_status fsdp_barrier(struct fsdp_comm *comm, struct fsdp_err *err);

FSDP_API void fsdp_comm_destroy(struct fsdp_comm *comm);

FSDP_END_DECLS

#endif
