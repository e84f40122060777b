/*
 * A list of tensors in one launch: entries travel by value in the kernel's arguments, so nothing is copied to the
 * device first, and a list that is longer than the arguments hold is launched in parts. Every entry is cut into chunks
 * of one size, a block each.
 */
#ifndef CUDA_KERNELS_BATCH_H
#define CUDA_KERNELS_BATCH_H

#include "shard_runtime/cuda/kernels/number.h"

enum { BATCH_THREADS = 256, BATCH_ARGUMENT_BYTES = 3584 };

template <class Entry> struct batch {
    static constexpr int MAX = BATCH_ARGUMENT_BYTES / (sizeof(Entry) + sizeof(unsigned));
    Entry at[MAX];
    unsigned first_block[MAX + 1]; /* of each entry; the last is their end */
    int n;
};

/** Which entry the calling block works on: the last whose first block is not behind it. */
template <class Entry> __device__ __forceinline__ int entry_of_block(const batch<Entry> &list)
{
    int low = 0, high = list.n;

    while (high - low > 1) {
        const int middle = (low + high) / 2;

        if (list.first_block[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/** The calling block's elements of that entry: [*first, *end). */
template <class Entry>
__device__ __forceinline__ void chunk_of_block(const batch<Entry> &list, int entry, size_t chunk,
                                               size_t *first, size_t *end)
{
    *first = static_cast<size_t>(blockIdx.x - list.first_block[entry]) * chunk;
    *end = *first + chunk < list.at[entry].n_elems ? *first + chunk : list.at[entry].n_elems;
}

/**
 * Call launch(batch, blocks, blocks before it) until all `n` entries are through; empty ones are left out. Returns the
 * first status that is not 0.
 */
template <class Entry, class Launch>
int each_batch(const Entry *entries, size_t n, size_t chunk, Launch launch)
{
    batch<Entry> list;
    unsigned before = 0;
    int status = KERNEL_OK;

    list.n = 0;
    list.first_block[0] = 0;
    for (size_t i = 0; i < n && status == KERNEL_OK; i++) {
        if (entries[i].n_elems > 0) {
            list.at[list.n] = entries[i];
            list.first_block[list.n + 1] = list.first_block[list.n] + blocks_of(entries[i].n_elems, chunk);
            list.n++;
        }
        if (list.n > 0 && (list.n == batch<Entry>::MAX || i + 1 == n)) {
            const unsigned blocks = list.first_block[list.n];

            status = launch(list, blocks, before);
            before += blocks;
            list.n = 0;
        }
    }
    return status;
}

/** Element i of a tensor of either dtype, widened. */
__device__ __forceinline__ float read_elem(const void *data, enum fsdp_dtype dtype, size_t i)
{
    return dtype == FSDP_BF16 ? widen(static_cast<const bf16 *>(data)[i])
                              : static_cast<const float *>(data)[i];
}

static inline bool is_float_dtype(enum fsdp_dtype dtype)
{
    return dtype == FSDP_F32 || dtype == FSDP_BF16;
}

#endif
