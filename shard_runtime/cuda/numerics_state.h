/*
 * What the files of the row `cuda` of numerics share:
 *   numerics.c   the table, and the operations that are kernels; owns scratch, losses and updates
 *   matmul.c     products by cuBLASLt; owns the workspace and the handle
 *   attention.c  fused attention; owns the row of cuDNN
 */
#ifndef CUDA_NUMERICS_STATE_H
#define CUDA_NUMERICS_STATE_H

#include <cublasLt.h>

#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/cuda/state.h"
#include "shard_runtime/numerics/cuda_plan_attention.h"

enum { CUDA_MAX_SUMS = 512 }; /* sums that one wait can bring */

/* Numbers that come back from the device, in page-locked memory. */
struct cuda_results {
    double loss_sum;
    uint64_t n_targets;
    double sums[CUDA_MAX_SUMS];
};
_Static_assert(sizeof(struct cuda_results) <= CUDA_RESULTS_BYTES, "plans say so");

struct loss_target;

struct cuda_numerics {
    struct device *device;
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t preference;
    bool tf32;      /* FSDP_CUDA_TF32=1: products of float32 in TF32 */
    bool bias_only; /* FSDP_CUDA_EPILOGUES=bias: a product computes nothing but its result and the bias */
    bool all_sums;  /* FSDP_CUDA_EPILOGUES=all: products also write sums where that is slower */
    enum cuda_attention attention;
    struct cudnn_row *cudnn; /* NULL: attention runs on our kernels */
    /* the first reason why some attention runs on our kernels although cuDNN was asked for */
    char without_cudnn[128];
    void *workspace; /* for products, CUDA_WORKSPACE_BYTES */
    struct cuda_results *on_device, *on_host;
    /*
     * Scratch for operations whose callers pass none. It grows when they are first used, and not in any step
     * after the first.
     */
    void *scratch;
    size_t scratch_bytes;
    /* list of the places to which losses are added; made as calls need them, and freed with this struct */
    struct loss_target *losses;
};

static inline struct cuda_numerics *cuda_numerics_of(const struct numerics *numerics)
{
    return numerics->state;
}

static inline struct cuda_device *cuda_device_of(const struct numerics *numerics)
{
    return cuda_state(cuda_numerics_of(numerics)->device);
}

/* Slots of numerics_ops in matmul.c and attention.c: see numerics/numerics.h. */
enum fsdp_status cuda_matmul_open(struct cuda_numerics *state, struct fsdp_err *err);
void cuda_matmul_close(struct cuda_numerics *state);
enum fsdp_status cuda_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                    struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err);
void cuda_matmul_destroy(struct matmul *matmul);
enum fsdp_status cuda_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                 const void *b, const void *bias, void *c, void *scratch,
                                 struct fsdp_err *err);
enum fsdp_status cuda_matmul_run_beside(struct matmul *matmul, struct device_stream *stream, const void *a,
                                        const void *b, const void *bias, void *beside, void *c, void *scratch,
                                        struct fsdp_err *err);

enum fsdp_status cuda_attention_open(struct cuda_numerics *state, struct fsdp_err *err);
void cuda_attention_close(struct cuda_numerics *state);
/** Write which attention runs, if a choice was made; else "". */
void cuda_attention_describe(const struct cuda_numerics *state, char *buffer, size_t size);
enum fsdp_status cuda_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                       struct fused_attention **out, size_t *forward_scratch,
                                       size_t *backward_scratch, struct fsdp_err *err);
void cuda_attention_destroy(struct fused_attention *attention);
enum fsdp_status cuda_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_forward *run, struct fsdp_err *err);
enum fsdp_status cuda_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                         const struct fused_attention_backward *run, struct fsdp_err *err);

#endif
