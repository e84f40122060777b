/*
 * Attention by cuDNN: a handle for a row, two plans for each shape of attention that is asked for, kept until the row is closed, and
 * their runs. Layers of one shape share their plans: an engine compiles for a second or two.
 */
#ifndef CUDA_ATTENTION_CUDNN_H
#define CUDA_ATTENTION_CUDNN_H

#include <stdbool.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"

struct cudnn_row;
struct cudnn_pair; /* plans of forward and backward; the row's */

enum fsdp_status cudnn_row_open(struct cudnn_row **out, struct fsdp_err *err);
/** Pairs and all. NULL is nothing. */
void cudnn_row_close(struct cudnn_row *row);
/** 91900 for 9.19.0; 0: nothing was asked of it that it took, or the row is NULL. */
size_t cudnn_row_serves(const struct cudnn_row *row);

/** FSDP_ERR_UNSUPPORTED, with the reason: cuda_cudnn_refuses() it, or no engine takes it within what is planned. */
enum fsdp_status cudnn_row_pair(struct cudnn_row *row, const struct fused_attention_desc *desc,
                                struct cudnn_pair **out, struct fsdp_err *err);

/** Pointers that a plan does not take: not aligned to 16 bytes, or of a gradient that is not wanted. */
bool cudnn_pair_takes_forward(const struct fused_attention_forward *run);
bool cudnn_pair_takes_backward(const struct fused_attention_backward *run);

enum fsdp_status cudnn_pair_forward(struct cudnn_row *row, struct cudnn_pair *pair,
                                    struct device_stream *stream, const struct fused_attention_forward *run,
                                    struct fsdp_err *err);
enum fsdp_status cudnn_pair_backward(struct cudnn_row *row, struct cudnn_pair *pair,
                                     struct device_stream *stream, const struct fused_attention_backward *run,
                                     struct fsdp_err *err);

#endif
