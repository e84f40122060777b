/*
 * What the files of the oneDNN row share: its state, its products, and how a oneDNN status becomes ours.
 * Debian 12's oneDNN 2.6.3, C API. Left out of the build with ONEDNN=0.
 */
#ifndef NUMERICS_ONEDNN_H
#define NUMERICS_ONEDNN_H

#include <dnnl.h>

#include "shard_runtime/numerics/rows.h"

struct onednn {
    struct rows rows; /* first: the functions of rows.h look here */
    dnnl_engine_t engine;
    dnnl_stream_t stream; /* executes in order, on the calling thread and OpenMP's */
};

/** FSDP_OK, or a failure that says `doing`. */
enum fsdp_status onednn_status(dnnl_status_t status, const char *doing, struct fsdp_err *err);

enum fsdp_status onednn_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                      struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err);
void onednn_matmul_destroy(struct matmul *matmul);
enum fsdp_status onednn_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                   const void *b, const void *bias, void *c, void *scratch,
                                   struct fsdp_err *err);

#endif
