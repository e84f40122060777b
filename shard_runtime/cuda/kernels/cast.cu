/*
 * Copies of a list of tensors, with conversion, scale and accumulation: the staging of gathers and reductions.
 */
#include "shard_runtime/cuda/kernels/batch.h"

namespace
{

constexpr size_t CAST_CHUNK = 4096;

template <class To, class From>
__device__ void cast_chunk(To *to, const From *from, size_t first, size_t end, float scale, bool accumulate)
{
    for (size_t i = first + threadIdx.x; i < end; i += BATCH_THREADS) {
        const float value = scale == 1.0f ? widen(from[i]) : times(widen(from[i]), scale);

        narrow(accumulate ? plus(widen(to[i]), value) : value, &to[i]);
    }
}

/* Bits that only move keep even a NaN's. */
template <class T>
__device__ void move_chunk(T *to, const T *from, size_t first, size_t end)
{
    for (size_t i = first + threadIdx.x; i < end; i += BATCH_THREADS)
        to[i] = from[i];
}

__global__ void __launch_bounds__(BATCH_THREADS) cast_chunks(batch<struct kernel_cast_entry> list, float scale,
                                                             bool accumulate)
{
    const int entry = entry_of_block(list);
    const struct kernel_cast_entry &cast = list.at[entry];
    const bool moves = cast.to_dtype == cast.from_dtype && scale == 1.0f && !accumulate;
    float *to_f32 = static_cast<float *>(cast.to);
    bf16 *to_bf16 = static_cast<bf16 *>(cast.to);
    const float *from_f32 = static_cast<const float *>(cast.from);
    const bf16 *from_bf16 = static_cast<const bf16 *>(cast.from);
    size_t first, end;

    chunk_of_block(list, entry, CAST_CHUNK, &first, &end);
    if (moves && cast.to_dtype == FSDP_F32)
        move_chunk(to_f32, from_f32, first, end);
    else if (moves)
        move_chunk(to_bf16, from_bf16, first, end);
    else if (cast.to_dtype == FSDP_F32 && cast.from_dtype == FSDP_F32)
        cast_chunk(to_f32, from_f32, first, end, scale, accumulate);
    else if (cast.to_dtype == FSDP_F32)
        cast_chunk(to_f32, from_bf16, first, end, scale, accumulate);
    else if (cast.from_dtype == FSDP_F32)
        cast_chunk(to_bf16, from_f32, first, end, scale, accumulate);
    else
        cast_chunk(to_bf16, from_bf16, first, end, scale, accumulate);
}

} // namespace

int kernel_cast(struct CUstream_st *stream, const struct kernel_cast_entry *casts, size_t n_casts, float scale,
                bool accumulate)
{
    for (size_t i = 0; i < n_casts; i++)
        if (!is_float_dtype(casts[i].to_dtype) || !is_float_dtype(casts[i].from_dtype))
            return KERNEL_INVALID;
    return each_batch(casts, n_casts, CAST_CHUNK,
                      [&](const batch<struct kernel_cast_entry> &list, unsigned blocks, unsigned) {
                          return LAUNCH(cast_chunks, blocks, BATCH_THREADS, 0, stream, list, scale, accumulate);
                      });
}
