/*
 * The functions of the row `ref`: plain loops in the order of the papers, on one thread, with sums in double.
 * They are slow, and every other row is measured against them. Each has the contract of its slot in struct
 * numerics_ops.
 */
#ifndef NUMERICS_REF_H
#define NUMERICS_REF_H

#include "shard_runtime/numerics/numerics.h"

#define REF_DECLARE(name) NUMERICS_FUNCTION(ref_##name, name);
NUMERICS_OPERATIONS(REF_DECLARE)

enum fsdp_status ref_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                   struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err);
void ref_matmul_destroy(struct matmul *matmul);
enum fsdp_status ref_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                const void *b, const void *bias, void *c, void *scratch,
                                struct fsdp_err *err);

enum fsdp_status ref_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                      struct fused_attention **out, size_t *forward_scratch,
                                      size_t *backward_scratch, struct fsdp_err *err);
void ref_attention_destroy(struct fused_attention *attention);
enum fsdp_status ref_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                       const struct fused_attention_forward *run, struct fsdp_err *err);
enum fsdp_status ref_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_backward *run, struct fsdp_err *err);

#endif
