/*
 * oneDNN's gemm products take memory that no query reports: at its first use of a data type the library generates
 * the code of all its kernels (3.7 MiB for float32 with AVX-512), and in every call it packs blocks of the factors
 * into memory from malloc, per thread, that malloc then keeps. A rehearsal makes the library take that memory when
 * the product is made: a process that only plans then holds what a worker holds, and the first step of a worker
 * generates no code. Before it every thread settles malloc, so that a thread keeps about as much as its largest pack.
 */
#ifndef NUMERICS_ONEDNN_REHEARSE_H
#define NUMERICS_ONEDNN_REHEARSE_H

#include <stdbool.h>

#include "shard_runtime/numerics/onednn.h"

/** Does this implementation need a rehearsal? The other ones generate their code when they are made, and pack into scratch. */
bool onednn_needs_rehearsal(const dnnl_primitive_desc_t chosen);

/**
 * Run a product like `desc` once, on zeros: `desc` itself where it is small, else one cut down in every size. `matmul` is
 * the product of `desc`, with `scratch_bytes` of scratch. Its buffers are mapped for the call.
 *   FSDP_ERR_NOMEM  no memory for the buffers
 */
enum fsdp_status onednn_rehearse(struct numerics *numerics, const struct matmul_desc *desc,
                                 struct matmul *matmul, size_t scratch_bytes, struct fsdp_err *err);

#endif
