#include "shard_runtime/numerics/isa/drop.h"
#include "shard_runtime/numerics/isa/kernels.h"

void ROW(dropout)(const float *x, float *out, size_t rows, size_t cols, const struct dropout *dropout,
                  uint64_t first_row, bool accumulate)
{
    for (size_t i = 0; i < rows; i++)
        drop_row(x + i * cols, out + i * cols, cols, dropout, first_row + i, accumulate);
}
