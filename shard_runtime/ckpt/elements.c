#include "shard_runtime/ckpt/elements.h"

#include <stdint.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/f16.h"

double element_read(const unsigned char *from, enum fsdp_dtype dtype)
{
    uint16_t half;
    float single;
    double wide;
    int64_t whole;
    int32_t small;

    switch (dtype) {
    case FSDP_F32:
        memcpy(&single, from, sizeof single);
        return (double)single;
    case FSDP_F64:
        memcpy(&wide, from, sizeof wide);
        return wide;
    case FSDP_I64:
        memcpy(&whole, from, sizeof whole);
        return (double)whole;
    case FSDP_I32:
        memcpy(&small, from, sizeof small);
        return (double)small;
    case FSDP_U8:
        return (double)*from;
    case FSDP_BF16:
    case FSDP_F16:
        memcpy(&half, from, sizeof half);
        return (double)(dtype == FSDP_BF16 ? bf16_to_f32(half) : f16_to_f32(half));
    case FSDP_DTYPE_COUNT:
        break;
    }
    return 0;
}

void elements_to_f32(float *to, const unsigned char *from, enum fsdp_dtype dtype, size_t n)
{
    const size_t size = fsdp_dtype_size(dtype);

    for (size_t i = 0; i < n; i++, from += size)
        to[i] = (float)element_read(from, dtype);
}
