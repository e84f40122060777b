/*
 * Makes oneDNN take the memory that a product needs as soon as the product is created, and not at its first
 * use.
 *
 * oneDNN's gemm products take memory that no query reports:
 *   - At the first use of a data type the library generates the code of all its kernels (3.7 MiB for float32
 *     with AVX-512).
 *   - In every call each thread packs blocks of the operands into memory from malloc. malloc keeps that
 *     memory.
 *
 * A rehearsal runs the product on zeros, so the library takes this memory at once. It has two effects. A
 * process that only plans holds as much memory as a worker. And a worker's first step generates no code.
 * Before a rehearsal every thread settles malloc, so that it keeps about as much memory as its largest packed
 * block needs.
 */
#ifndef NUMERICS_ONEDNN_REHEARSE_H
#define NUMERICS_ONEDNN_REHEARSE_H

#include <stdbool.h>

#include "shard_runtime/numerics/onednn.h"

/**
 * Returns true if the implementation `chosen` needs a rehearsal. All others generate their code when they are
 * created, and pack operands into the scratch.
 */
bool onednn_needs_rehearsal(const dnnl_primitive_desc_t chosen);

/**
 * Runs a product like `desc` on zeros: `desc` itself if it is small, otherwise a smaller one of the same
 * kind.
 *   matmul          the product of `desc`
 *   scratch_bytes   the size of the scratch of `matmul`; scratch and operands are mapped for this call only
 *   FSDP_ERR_NOMEM  no memory for the operands
 */
enum fsdp_status onednn_rehearse(struct numerics *numerics, const struct matmul_desc *desc,
                                 struct matmul *matmul, size_t scratch_bytes, struct fsdp_err *err);

#endif
