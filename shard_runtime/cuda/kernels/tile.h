/*
 * Products of small bfloat16 matrices by a warp, and copies that run during the arithmetic. All PTX of the
 * kernels is here, and each operation has a host version. Kernels built from these are "emulated at tile
 * level" without a GPU. The host version moves every fragment between lanes as the PTX manual (ISA 7.0,
 * mma.m16n8k16 and ldmatrix) lays them out. So layouts and barriers are tested, but not how the hardware
 * rounds inside a product.
 *
 * In a fragment, lane l holds, with g = l / 4 and c = 2 * (l % 4):
 *   tile_a  (16 x 16) rows g, g + 8 of columns c, c + 1 and of c + 8, c + 9: at[0] (g, c), at[1] (g + 8, c),
 *           at[2] (g, c + 8), at[3] (g + 8, c + 8), two bfloat16 each
 *   tile_b  (16 x 8)  rows c, c + 1 and c + 8, c + 9 of column g
 *   tile_c  (16 x 8)  float32 (g, c), (g, c + 1), (g + 8, c), (g + 8, c + 1)
 * All 32 lanes call together. Shared addresses are multiples of 16 bytes. A row stride of 8 elements more
 * than a multiple of 64 keeps the eight rows of a load in different banks.
 */
#ifndef CUDA_KERNELS_TILE_H
#define CUDA_KERNELS_TILE_H

#include "shard_runtime/cuda/kernels/number.h"

struct tile_a {
    uint32_t at[4];
};

struct tile_b {
    uint32_t at[2];
};

struct tile_c {
    float at[4];
};

#ifdef __CUDACC__

__device__ __forceinline__ uint32_t tile_pair(float low, float high)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);

    return static_cast<uint32_t>(__bfloat16_as_ushort(both.y)) << 16 | __bfloat16_as_ushort(both.x);
}

/** c += a b, sums in float32. */
__device__ __forceinline__ void tile_mma(tile_c &c, const tile_a &a, const tile_b &b)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

/* Loads four 8 x 8 matrices. Lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void tile_load_rows(uint32_t out[4], const bf16 *row)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void tile_load_rows_transposed(uint32_t out[4], const bf16 *row)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

/**
 * Begin to copy 16 bytes from global to shared memory, or zeros where not `valid` (`from` is then not read).
 */
__device__ __forceinline__ void tile_copy(void *to, const void *from, bool valid)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int size = valid ? 16 : 0;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(from), "r"(size)
                 : "memory");
}

/** The same for one float. */
__device__ __forceinline__ void tile_copy_float(float *to, const float *from, bool valid)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int size = valid ? 4 : 0;

    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(address), "l"(from), "r"(size)
                 : "memory");
}

/** Closes a set: the copies that the calling thread has begun since the last call. */
__device__ __forceinline__ void tile_copies_close()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/**
 * Waits for the calling thread's sets, except the latest N. A barrier then makes them visible to the block.
 */
template <int N> __device__ __forceinline__ void tile_copies_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

#else

#include <vector>

inline uint32_t tile_pair(float low, float high)
{
    return static_cast<uint32_t>(bf16_of_f32(high)) << 16 | bf16_of_f32(low);
}

inline float tile_half(uint32_t pair, int high)
{
    return bf16_to_f32(static_cast<uint16_t>(high ? pair >> 16 : pair));
}

inline void tile_mma(tile_c &c, const tile_a &a, const tile_b &b, const char *file = __builtin_FILE(),
                     int line = __builtin_LINE())
{
    struct {
        tile_a a;
        tile_b b;
    } own = { a, b }, row[2], column;
    const unsigned char *slots = emulate_warp(&own, sizeof own, file, line);
    const int lane = static_cast<int>(threadIdx.x) % WARP;

    for (int k = 0; k < 16; k++) {
        for (int n = 0; n < 2; n++) {
            /*
             * element (k, n) of b is in lane 4 n + k % 8 / 2; element (m, k) of a is in lane 4 (m % 8) + k %
             * 8 / 2
             */
            memcpy(&column, slots + ((lane % 4 * 2 + n) * 4 + k % 8 / 2) * EMULATE_SLOT_BYTES, sizeof column);
            memcpy(&row[0], slots + (lane / 4 * 4 + k % 8 / 2) * EMULATE_SLOT_BYTES, sizeof row[0]);
            for (int m = 0; m < 2; m++)
                c.at[m * 2 + n] +=
                    tile_half(row[0].a.at[m + k / 8 * 2], k % 2) * tile_half(column.b.at[k / 8], k % 2);
        }
    }
}

inline void tile_load_rows(uint32_t out[4], const bf16 *row, const char *file = __builtin_FILE(),
                           int line = __builtin_LINE())
{
    const unsigned char *slots = emulate_warp(row, 16, file, line);
    const int lane = static_cast<int>(threadIdx.x) % WARP;

    assert(reinterpret_cast<uintptr_t>(row) % 16 == 0);
    for (int i = 0; i < 4; i++)
        memcpy(&out[i], slots + (i * 8 + lane / 4) * EMULATE_SLOT_BYTES + lane % 4 * 4, 4);
}

inline void tile_load_rows_transposed(uint32_t out[4], const bf16 *row, const char *file = __builtin_FILE(),
                                      int line = __builtin_LINE())
{
    const unsigned char *slots = emulate_warp(row, 16, file, line);
    const int lane = static_cast<int>(threadIdx.x) % WARP;

    assert(reinterpret_cast<uintptr_t>(row) % 16 == 0);
    for (int i = 0; i < 4; i++) {
        uint16_t half[2];

        for (int k = 0; k < 2; k++)
            memcpy(&half[k], slots + (i * 8 + lane % 4 * 2 + k) * EMULATE_SLOT_BYTES + lane / 4 * 2, 2);
        out[i] = static_cast<uint32_t>(half[1]) << 16 | half[0];
    }
}

/*
 * Copies that are carried out when they are waited for. Under half of the schedules that tests run, they are
 * carried out at once.
 */
struct tile_pending {
    struct copy {
        void *to;
        const void *from;
        size_t size;
        bool valid;
        int set;
    };
    std::vector<copy> copies;
    int set = 0;
};
inline tile_pending tile_pending_of[EMULATE_MAX_THREADS];

/* Copies 4 or 16 bytes; nvcc and g++ each use one instruction for that. */
inline void tile_carry_out(const tile_pending::copy &copy)
{
    if (!copy.valid)
        memset(copy.to, 0, copy.size);
    else if (copy.size == 16)
        memcpy(copy.to, copy.from, 16);
    else
        memcpy(copy.to, copy.from, 4);
}

inline void tile_copy_bytes(void *to, const void *from, size_t size, bool valid)
{
    tile_pending &pending = tile_pending_of[threadIdx.x];
    const tile_pending::copy copy = { to, from, size, valid, pending.set };

    assert(reinterpret_cast<uintptr_t>(to) % size == 0 && reinterpret_cast<uintptr_t>(from) % size == 0);
    if (emulate_copies_at_once())
        tile_carry_out(copy);
    else
        pending.copies.push_back(copy);
}

inline void tile_copy(void *to, const void *from, bool valid)
{
    tile_copy_bytes(to, from, 16, valid);
}

inline void tile_copy_float(float *to, const float *from, bool valid)
{
    tile_copy_bytes(to, from, sizeof *to, valid);
}

inline void tile_copies_close()
{
    tile_pending_of[threadIdx.x].set++;
}

template <int N> void tile_copies_wait()
{
    tile_pending &pending = tile_pending_of[threadIdx.x];
    size_t done = 0;

    while (done < pending.copies.size() && pending.copies[done].set < pending.set - N)
        tile_carry_out(pending.copies[done++]);
    pending.copies.erase(pending.copies.begin(), pending.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

#endif

/** Loads the 16 x 16 matrix at `from` in shared memory, whose rows are `stride` elements apart. */
__device__ __forceinline__ tile_a tile_load_a(const bf16 *from, int stride)
{
    const int lane = threadIdx.x % WARP;
    tile_a a;

    tile_load_rows(a.at, from + lane % 16 * stride + lane / 16 * 8);
    return a;
}

/** b[0] and b[1]: columns 0-7 and 8-15 of a 16 x 16 (k, n) matrix that is stored as (n, k). */
__device__ __forceinline__ void tile_load_b(tile_b b[2], const bf16 *from, int stride)
{
    const int lane = threadIdx.x % WARP;
    uint32_t out[4];

    tile_load_rows(out, from + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
    b[0] = { { out[0], out[1] } };
    b[1] = { { out[2], out[3] } };
}

/** Does the same for a matrix that is stored as (k, n). */
__device__ __forceinline__ void tile_load_b_transposed(tile_b b[2], const bf16 *from, int stride)
{
    const int lane = threadIdx.x % WARP;
    uint32_t out[4];

    tile_load_rows_transposed(out, from + lane % 16 * stride + lane / 16 * 8);
    b[0] = { { out[0], out[1] } };
    b[1] = { { out[2], out[3] } };
}

/** Stores two neighbouring elements; `to` must be a multiple of 4 bytes. */
__device__ __forceinline__ void tile_store_pair(bf16 *to, float first, float second)
{
    const uint32_t pair = tile_pair(first, second);

#ifdef __CUDACC__
    *reinterpret_cast<uint32_t *>(to) = pair;
#else
    assert(reinterpret_cast<uintptr_t>(to) % 4 == 0);
    memcpy(to, &pair, sizeof pair);
#endif
}

/**
 * Rounds two neighbouring tiles of sums to bfloat16, and returns them as the left factor of the next product.
 */
__device__ __forceinline__ tile_a tile_a_of(const tile_c &left, const tile_c &right)
{
    return { { tile_pair(left.at[0], left.at[1]), tile_pair(left.at[2], left.at[3]),
               tile_pair(right.at[0], right.at[1]), tile_pair(right.at[2], right.at[3]) } };
}

#endif
