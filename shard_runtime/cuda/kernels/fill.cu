/*
 * Zeros: 16 bytes a thread from the first aligned address on, single bytes before and behind.
 */
#include "shard_runtime/cuda/kernels/number.h"

namespace
{

enum { FILL_THREADS = 256 };

__global__ void __launch_bounds__(FILL_THREADS) fill_bytes(unsigned char *to, size_t head, size_t n_packs, size_t tail)
{
    const size_t i = static_cast<size_t>(blockIdx.x) * FILL_THREADS + threadIdx.x;
    const pack<unsigned> zeros = {};

    if (i < n_packs)
        store_pack(reinterpret_cast<unsigned *>(to + head + 16 * i), zeros);
    if (i < head)
        to[i] = 0;
    if (i < tail)
        to[head + 16 * n_packs + i] = 0;
}

} // namespace

int kernel_fill_zero(struct CUstream_st *stream, void *to, size_t size_bytes)
{
    const size_t misplaced = -reinterpret_cast<uintptr_t>(to) & 15, head = misplaced < size_bytes ? misplaced : size_bytes;
    const size_t n_packs = (size_bytes - head) / 16, tail = (size_bytes - head) % 16;

    if (size_bytes == 0)
        return KERNEL_OK;
    return LAUNCH(fill_bytes, blocks_of(n_packs > 16 ? n_packs : 16, FILL_THREADS), FILL_THREADS, 0, stream,
                  static_cast<unsigned char *>(to), head, n_packs, tail);
}
