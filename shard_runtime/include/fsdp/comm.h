/*
 * Collectives between the ranks of one process group. All ranks of a group issue the same calls in the same
 * order with the same sizes. Sums run over the ranks in a fixed order, so that the same inputs give the same
 * bits on every run of the same world. `stream` orders the work with kernels (NULL: the device's default
 * stream); on the cpu a call is done when it returns.
 *
 * Failure: a peer that dies or breaks its connection makes the call return FSDP_ERR_PEER on every other rank,
 * within milliseconds; that is sticky: from then on only fsdp_comm_destroy() is legal.
 *
 * Thread: the one that created the context; hooks and custom collectives of a step may call them on whichever thread they are
 * called. Refused with FSDP_ERR_ARG, and nothing is sent: a call on any other thread, and a call of that thread in a group that a
 * model's second thread uses at the time, which is so
 *   - after an fsdp_module_unshard() with async_op, until it is waited for;
 *   - while a step or an evaluation of a model with a second thread runs (in a hook on final gradients).
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
 * Concatenate every rank's `send` into `recv`, rank 0's first.
 *
 *   send     (n_elems) of `dtype`; exactly block `rank` of `recv` (in place), or disjoint from it
 *   recv     (W, n_elems)
 *   n_elems  elements per rank, equal on every rank; 0 is legal and does nothing
 */
FSDP_API enum fsdp_status fsdp_all_gather(struct fsdp_comm *comm, const void *send, void *recv,
                                          size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                                          struct fsdp_err *err);

/**
 * Reduce `send` over all ranks; leave this rank its own block of the result in `recv`.
 *
 *   send     (W, n_elems) of `dtype` (FSDP_F32 or FSDP_BF16, summed in fp32)
 *   recv     (n_elems); exactly block `rank` of `send`, or disjoint from it
 */
FSDP_API enum fsdp_status fsdp_reduce_scatter(struct fsdp_comm *comm, const void *send, void *recv,
                                              size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                              struct device_stream *stream, struct fsdp_err *err);

/** Reduce `n_elems` of `dtype` (F32, BF16, F64, I64) in place, the same bits on every rank. BF16 is summed in float32,
 * and rounded once for each level of the way: inside a host, across hosts. */
FSDP_API enum fsdp_status fsdp_all_reduce(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                          enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                          struct device_stream *stream, struct fsdp_err *err);

/** Copy `size_bytes` at `buffer` of rank `root` to every rank's `buffer`. */
FSDP_API enum fsdp_status fsdp_broadcast(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                         struct device_stream *stream, struct fsdp_err *err);

/** Return once every rank has called it. */
FSDP_API enum fsdp_status fsdp_barrier(struct fsdp_comm *comm, struct fsdp_err *err);

FSDP_API void fsdp_comm_destroy(struct fsdp_comm *comm);

FSDP_END_DECLS

#endif
