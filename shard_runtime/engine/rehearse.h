/*
 * What a process can do before it knows its job, so that its first generation waits less: oneDNN generates
 * the code of all its float32 gemm kernels at their first use (numerics/onednn_rehearse.h).
 */
#ifndef ENGINE_REHEARSE_H
#define ENGINE_REHEARSE_H

/**
 * Creates and destroys a small product of the kind that attention has. The generated code stays (3.7 MiB with
 * AVX-512). Starts no thread. A failure is ignored, because a step that needs such a product meets it again.
 */
void engine_rehearse(void);

#endif
