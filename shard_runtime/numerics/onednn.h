/*
 * Shared by the files of the back end `onednn`: its state, its matrix products, and the conversion of a
 * oneDNN status to one of ours. The code uses the C API of oneDNN 2.6.3 in Debian 12. ONEDNN=0 leaves these
 * files out of the build.
 */
#ifndef NUMERICS_ONEDNN_H
#define NUMERICS_ONEDNN_H

#include <dnnl.h>

#include "shard_runtime/numerics/rows.h"

/** The back end's numerics->state. */
struct onednn {
    struct rows rows; /* first member: the functions of rows.h find their kernels here */
    dnnl_engine_t engine;
    dnnl_stream_t stream; /* runs work in order, on the calling thread and OpenMP's threads */
};

/**
 * Returns FSDP_OK for dnnl_success. Otherwise returns a failure whose message contains `doing` and oneDNN's
 * error.
 */
enum fsdp_status onednn_status(dnnl_status_t status, const char *doing, struct fsdp_err *err);

/** The functions of the slots matmul_create, matmul_destroy and matmul_run (numerics.h). */
enum fsdp_status onednn_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                      struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err);
void onednn_matmul_destroy(struct matmul *matmul);
enum fsdp_status onednn_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                   const void *b, const void *bias, void *c, void *scratch,
                                   struct fsdp_err *err);

#endif
