/*
 * A list of tensors in one launch: entries travel by value in the kernel's arguments, so nothing is copied to
 * the device first. A short list takes little of them. A longer one takes up to the 32764 bytes that CUDA
 * 12.1 and later give a kernel on sm_70 and later. The rest goes in further launches. Every entry is cut into
 * chunks of one size, one for each block, and no block works on two entries. So a tensor's bits do not depend
 * on its neighbours in the list.
 */
#ifndef CUDA_KERNELS_BATCH_H
#define CUDA_KERNELS_BATCH_H

#include <type_traits>

#include "shard_runtime/cuda/kernels/walk.h"

enum { BATCH_THREADS = 256, BATCH_FEW_BYTES = 3584, BATCH_MANY_BYTES = 28672 };

template <class Entry, int BYTES> struct batch {
    static constexpr size_t MAX =
        (BYTES - 2 * sizeof(unsigned) - alignof(Entry)) / (sizeof(Entry) + sizeof(unsigned));
    Entry at[MAX];
    /* the first block of each entry; the last element is the end of all blocks */
    unsigned first_block[MAX + 1];
    unsigned n;
};

/** The type of the list that is given to a launch; there are two, for short and for long lists. */
template <class T> using list_type = std::remove_cv_t<std::remove_reference_t<T>>;

/** Where a launch stands in its list: the blocks and entries of the launches before it. */
struct batch_place {
    unsigned blocks;
    size_t entries;
};

/**
 * Returns the entry that the calling block works on: the last one whose first block is not after it. Empty
 * entries have no block.
 */
template <class List> __device__ __forceinline__ unsigned entry_of_block(const List &list)
{
    unsigned low = 0, high = list.n;

    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;

        if (list.first_block[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/** Sets [*first, *end) to the elements of that entry on which the calling block works. */
template <class List>
__device__ __forceinline__ void chunk_of_block(const List &list, unsigned entry, size_t chunk, size_t *first,
                                               size_t *end)
{
    *first = static_cast<size_t>(blockIdx.x - list.first_block[entry]) * chunk;
    *end = *first + chunk < list.at[entry].n_elems ? *first + chunk : list.at[entry].n_elems;
}

/* Makes one launch, with as many of the entries from `place` on as its arguments hold. */
template <class List, class EntryAt, class Launch>
int launch_batch(size_t n, size_t chunk, EntryAt entry_at, Launch launch, struct batch_place *place)
{
    const size_t left = n - place->entries;
    List list;
    int status;

    list.n = static_cast<unsigned>(left < List::MAX ? left : List::MAX);
    list.first_block[0] = 0;
    for (unsigned i = 0; i < list.n; i++) {
        list.at[i] = entry_at(place->entries + i);
        list.first_block[i + 1] = list.first_block[i] + blocks_of(list.at[i].n_elems, chunk);
    }
    status = launch(list, list.first_block[list.n], *place);
    place->blocks += list.first_block[list.n];
    place->entries += list.n;
    return status;
}

/**
 * Calls launch(list, blocks, place) until all `n` entries have been launched; entry_at(i) gives entry i. One
 * call suffices if the entries fit. `blocks` is 0 if all entries are empty. Returns the first status that is
 * not 0.
 */
template <class Entry, class EntryAt, class Launch>
int each_batch(size_t n, size_t chunk, EntryAt entry_at, Launch launch)
{
    typedef batch<Entry, BATCH_FEW_BYTES> few;
    typedef batch<Entry, BATCH_MANY_BYTES> many;
    struct batch_place place = { 0, 0 };
    int status = KERNEL_OK;

    while (place.entries < n && status == KERNEL_OK)
        status = n - place.entries <= few::MAX ? launch_batch<few>(n, chunk, entry_at, launch, &place)
                                               : launch_batch<many>(n, chunk, entry_at, launch, &place);
    return status;
}

/** Can elements 0, N, 2 N, ... of `data` be read N at a time? NULL: they are not read. */
template <int N, class T> __device__ __forceinline__ bool in_groups(const T *data)
{
    return (reinterpret_cast<uintptr_t>(data) & (N * sizeof(T) - 1)) == 0;
}

/**
 * All threads of the block call this. If `grouped`, f(width<N>(), i) is called for each group of N elements
 * of [first, end), i being the first of them. f(width<1>(), i) is called for each element that is left.
 */
template <int N, class F>
__device__ __forceinline__ void chunk_each(size_t first, size_t end, bool grouped, F f)
{
    const size_t split = grouped ? end - (end - first) % N : first;

    for (size_t i = first + threadIdx.x * N; i < split; i += BATCH_THREADS * N)
        f(width<N>(), i);
    for (size_t i = split + threadIdx.x; i < end; i += BATCH_THREADS)
        f(width<1>(), i);
}

/** Returns elements i .. i + N - 1 of a tensor of either dtype, widened to float32. */
template <int N>
__device__ __forceinline__ group<float, N> read_group(const void *data, enum fsdp_dtype dtype, size_t i)
{
    group<bf16, N> narrow_ones;
    group<float, N> to;

    if (dtype != FSDP_BF16)
        return load_group<N>(static_cast<const float *>(data) + i);
    narrow_ones = load_group<N>(static_cast<const bf16 *>(data) + i);
    for (int k = 0; k < N; k++)
        to.at[k] = widen(narrow_ones.at[k]);
    return to;
}

/** Returns element i of a tensor of either dtype, widened to float32. */
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
