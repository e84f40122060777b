/*
 * Checks the rules of struct matmul_desc, once, when a product is prepared. The rows of the table call this.
 */
#ifndef NUMERICS_MATMUL_DESC_H
#define NUMERICS_MATMUL_DESC_H

#include "shard_runtime/numerics/numerics.h"

/**
 * Checks `desc`. FSDP_ERR_ARG or FSDP_ERR_UNSUPPORTED, with the reason in the message, as documented for
 * matmul_create.
 */
enum fsdp_status matmul_desc_check(const struct matmul_desc *desc, struct fsdp_err *err);

/** Has the result c no elements? Then running the product reads and writes nothing. */
static inline bool matmul_is_empty(const struct matmul_desc *desc)
{
    return desc->m == 0 || desc->n == 0;
}

/** Returns the view of the transposed matrices. */
static inline struct matmul_view matmul_transposed(struct matmul_view view)
{
    const size_t row_stride = view.row_stride;

    view.row_stride = view.col_stride;
    view.col_stride = row_stride;
    return view;
}

#endif
