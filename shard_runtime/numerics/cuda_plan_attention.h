/*
 * Which attention the row `cuda` is to run, and the scratch that follows from it. The plug-in and the plan
 * both ask here. So what is planned is what is carved, whatever an engine of cuDNN then uses of it.
 */
#ifndef NUMERICS_CUDA_PLAN_ATTENTION_H
#define NUMERICS_CUDA_PLAN_ATTENTION_H

#include "shard_runtime/numerics/numerics.h"

enum cuda_attention {
    CUDA_ATTENTION_OURS,
    CUDA_ATTENTION_AUTO,  /* cuDNN's where it serves, else ours */
    CUDA_ATTENTION_CUDNN, /* cuDNN's, or an error */
};

/** FSDP_CUDA_ATTENTION: ours (as without it), auto or cudnn. FSDP_ERR_CONFIG: another word. */
enum fsdp_status cuda_attention_choice(enum cuda_attention *out, struct fsdp_err *err);

/** NULL: cuDNN is asked for attention of this kind; else why not. */
const char *cuda_cudnn_refuses(const struct fused_attention_desc *desc);

/** Scratch of attention under `choice`. Ours always fits in it. */
void cuda_plan_attention_scratch(enum cuda_attention choice, const struct fused_attention_desc *desc,
                                 size_t *forward, size_t *backward);

#endif
