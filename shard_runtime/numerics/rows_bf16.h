/* numerics_ops.bf16 of the rows `plain` and `onednn`. */
#ifndef NUMERICS_ROWS_BF16_H
#define NUMERICS_ROWS_BF16_H

#include "shard_runtime/numerics/numerics.h"

extern const struct numerics_bf16 rows_bf16;

#endif
