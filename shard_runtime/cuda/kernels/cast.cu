/*
 * Copies of a list of tensors, with conversion, scale and accumulation, and zeros: the staging of gathers and
 * reductions.
 */
#include "shard_runtime/cuda/kernels/batch.h"

namespace
{

constexpr size_t CAST_CHUNK = 4096; /* elements for one block: whole packs of either dtype */

template <class To, class From>
__device__ void cast_chunk(To *to, const From *from, size_t first, size_t end, float scale, bool accumulate)
{
    /*
     * As many elements as fill 16 bytes in the wider of the two dtypes. So the bytes that a warp reads, and
     * those that it writes, are adjacent.
     */
    constexpr int N = pack<To>::N < pack<From>::N ? pack<To>::N : pack<From>::N;

    chunk_each<N>(first, end, in_groups<N>(to) && in_groups<N>(from), [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value;
        const group<From, M> values = load_group<M>(from + i);
        group<To, M> sum = {};

        if (accumulate)
            sum = load_group<M>(to + i);
        for (int k = 0; k < M; k++) {
            const float value = scale == 1.0f ? widen(values.at[k]) : times(widen(values.at[k]), scale);

            narrow(accumulate ? plus(widen(sum.at[k]), value) : value, &sum.at[k]);
        }
        store_group<M>(to + i, sum);
    });
}

/* Copies elements without computing, so even the bits of a NaN stay the same. `from` NULL: writes zeros. */
template <class T> __device__ void move_chunk(T *to, const T *from, size_t first, size_t end)
{
    constexpr int N = pack<T>::N;

    chunk_each<N>(first, end, in_groups<N>(to) && in_groups<N>(from), [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value;
        group<T, M> some = {};

        if (from != NULL)
            some = load_group<M>(from + i);
        store_group<M>(to + i, some);
    });
}

template <class List>
__global__ void __launch_bounds__(BATCH_THREADS)
    cast_chunks(READ_ONLY(List) list, float scale, bool accumulate)
{
    const unsigned entry = entry_of_block(list);
    const struct device_cast &cast = list.at[entry];
    const bool moves =
        cast.from == NULL || (cast.to_dtype == cast.from_dtype && scale == 1.0f && !accumulate);
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

int kernel_cast(struct CUstream_st *stream, const struct device_cast *casts, size_t n_casts, float scale,
                bool accumulate)
{
    for (size_t i = 0; i < n_casts; i++)
        if (!is_float_dtype(casts[i].to_dtype) ||
            (casts[i].from != NULL && !is_float_dtype(casts[i].from_dtype)) ||
            (casts[i].from == NULL && accumulate))
            return KERNEL_INVALID;
    return each_batch<struct device_cast>(
        n_casts, CAST_CHUNK, [&](size_t i) { return casts[i]; },
        [&](const auto &list, unsigned blocks, struct batch_place) {
            typedef list_type<decltype(list)> List;

            return blocks == 0
                       ? KERNEL_OK
                       : LAUNCH(cast_chunks<List>, blocks, BATCH_THREADS, 0, stream, list, scale, accumulate);
        });
}
