/*
 * Decides which attention the row `cuda` runs, and the scratch that it takes. The plug-in and the plan both
 * call these functions. So the scratch that is planned is what the plug-in carves, however much of it an
 * engine of cuDNN uses.
 */
#ifndef NUMERICS_CUDA_PLAN_ATTENTION_H
#define NUMERICS_CUDA_PLAN_ATTENTION_H

#include "shard_runtime/numerics/numerics.h"

enum cuda_attention {
    CUDA_ATTENTION_OURS,
    CUDA_ATTENTION_AUTO,  /* cuDNN's where it serves, else ours */
    CUDA_ATTENTION_CUDNN, /* cuDNN's, or an error */
};

/**
 * Reads the variable FSDP_CUDA_ATTENTION: ours (also if it is not set), auto or cudnn. FSDP_ERR_CONFIG:
 * another word.
 */
enum fsdp_status cuda_attention_choice(enum cuda_attention *out, struct fsdp_err *err);

/** Returns why cuDNN is not asked for attention of this kind; NULL: it is asked. */
const char *cuda_cudnn_refuses(const struct fused_attention_desc *desc);

/** Gives the scratch of attention under `choice`. It is always enough for our own attention too. */
void cuda_plan_attention_scratch(enum cuda_attention choice, const struct fused_attention_desc *desc,
                                 size_t *forward, size_t *backward);

#endif
