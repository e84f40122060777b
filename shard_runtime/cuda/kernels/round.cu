/*
 * Stochastic rounding of a list of tensors to bfloat16. A thread draws one block of Philox: eight halves of
 * words, for the eight elements of the whole parameter that share it. At the ends of a chunk some of these
 * belong to another thread block.
 */
#include "shard_runtime/cuda/kernels/batch.h"
#include "shard_runtime/cuda/kernels/philox.h"

namespace
{

constexpr size_t ROUND_CHUNK = 4096; /* elements a block */
constexpr int DRAWS = 8;             /* of a block of Philox */

/* core/bf16.h's bf16_of_f32_drawn(). */
__device__ __forceinline__ uint16_t round_drawn(float value, uint32_t draw)
{
    const unsigned bits = bits_of(value), size = bits & 0x7fffffffu;

    if (size > 0x7f800000u)
        return static_cast<uint16_t>(bits >> 16 | 0x40u);
    if (size > 0x7f7f0000u)
        return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    return static_cast<uint16_t>((bits + draw) >> 16);
}

__device__ __forceinline__ uint32_t draw_of(const philox_words &words, int half)
{
    return words.at[half / 2] >> 16 * (half % 2) & 0xffffu;
}

/* Rounds all elements of a block of draws, 16 bytes at a time. */
__device__ __forceinline__ void round_block(uint16_t *to, const float *from, const philox_words &words)
{
    pack<uint16_t> rounded;

    UNROLL
    for (int side = 0; side < DRAWS; side += 4) {
        const pack<float> values = load_pack(from + side);

        UNROLL
        for (int k = 0; k < 4; k++)
            rounded.at[side + k] = round_drawn(values.at[k], draw_of(words, side + k));
    }
    store_pack(to, rounded);
}

template <class List>
__global__ void __launch_bounds__(BATCH_THREADS) round_chunks(READ_ONLY(List) list, uint64_t step)
{
    const unsigned entry = entry_of_block(list);
    const struct device_rounding &tensor = list.at[entry];
    size_t begin, end;

    chunk_of_block(list, entry, ROUND_CHUNK, &begin, &end);
    for (uint64_t block = (tensor.first + begin) / DRAWS + threadIdx.x; block * DRAWS < tensor.first + end;
         block += BATCH_THREADS) {
        const philox_words words = philox(tensor.key, step, block);

        const uint64_t first = block * DRAWS;

        if (first >= tensor.first + begin && first + DRAWS <= tensor.first + end) {
            uint16_t *to = tensor.to + (first - tensor.first);
            const float *from = tensor.from + (first - tensor.first);

            if (in_groups<4>(from) && in_groups<DRAWS>(to)) {
                round_block(to, from, words);
                continue;
            }
        }
        for (int half = 0; half < DRAWS; half++) {
            const uint64_t at = first + static_cast<uint64_t>(half);
            const size_t i = static_cast<size_t>(at - tensor.first);

            if (at >= tensor.first + begin && at < tensor.first + end)
                tensor.to[i] = round_drawn(tensor.from[i], draw_of(words, half));
        }
    }
}

} // namespace

int kernel_round(struct CUstream_st *stream, const struct device_rounding *roundings, size_t n_roundings,
                 uint64_t step)
{
    return each_batch<struct device_rounding>(
        n_roundings, ROUND_CHUNK, [&](size_t i) { return roundings[i]; },
        [&](const auto &list, unsigned blocks, struct batch_place) {
            typedef list_type<decltype(list)> List;

            return blocks == 0 ? KERNEL_OK
                               : LAUNCH(round_chunks<List>, blocks, BATCH_THREADS, 0, stream, list, step);
        });
}
