#include "shard_runtime/numerics/isa/kernels.h"

#define ISA_TEXT(isa)                         #isa
#define ISA_STRING(isa)                       ISA_TEXT(isa)
#define ROW_KERNEL(result, kernel, arguments) .kernel = ROW(kernel),

const struct row_kernels
    ROW(kernels) = { .isa = ISA_STRING(ISA), .activations = ROW(activations), ROW_KERNELS(ROW_KERNEL) };
