/*
 * Attention by cuDNN. A row has one handle, and two plans for each shape of attention that is asked for.
 * Plans are kept until the row is closed, because an engine compiles for a second or two. Layers of one shape
 * share them.
 */
#ifndef CUDA_ATTENTION_CUDNN_H
#define CUDA_ATTENTION_CUDNN_H

#include <stdbool.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"

struct cudnn_row;
struct cudnn_pair; /* the plans of forward and backward of one shape; they belong to the row */

enum fsdp_status cudnn_row_open(struct cudnn_row **out, struct fsdp_err *err);
/** Close the row with all its pairs. NULL is a no-op. */
void cudnn_row_close(struct cudnn_row *row);
/** Returns the version of the library, 91900 for 9.19.0. 0: it has made no plan, or the row is NULL. */
size_t cudnn_row_serves(const struct cudnn_row *row);

/**
 * Find or make the plans for this shape. FSDP_ERR_UNSUPPORTED, with the reason: cuda_cudnn_refuses() says no,
 * or no engine takes it within the planned bytes.
 */
enum fsdp_status cudnn_row_pair(struct cudnn_row *row, const struct fused_attention_desc *desc,
                                struct cudnn_pair **out, struct fsdp_err *err);

/**
 * Can the plan run with these pointers? It cannot if a pointer is not aligned to 16 bytes, or if a gradient
 * is not wanted.
 */
bool cudnn_pair_takes_forward(const struct fused_attention_forward *run);
bool cudnn_pair_takes_backward(const struct fused_attention_backward *run);

enum fsdp_status cudnn_pair_forward(struct cudnn_row *row, struct cudnn_pair *pair,
                                    struct device_stream *stream, const struct fused_attention_forward *run,
                                    struct fsdp_err *err);
enum fsdp_status cudnn_pair_backward(struct cudnn_row *row, struct cudnn_pair *pair,
                                     struct device_stream *stream, const struct fused_attention_backward *run,
                                     struct fsdp_err *err);

#endif
