/*
 * The execution model, for every .cu file: what a kernel may ask of its grid, and how one is launched. Under
 * nvcc it is CUDA's; without it, the emulation of tests/emulation, where a block is a set of fibers. Kernels
 * say __global__, __device__, __launch_bounds__, threadIdx, blockIdx, blockDim and gridDim as CUDA does, and
 * for the rest:
 *
 *   LAUNCH(kernel, grid, block, shared_bytes, stream, ...)  queue `kernel`; a cudaError_t. Threads of a block
 *     are a
 *                                    multiple of 32, in x alone. A template's name with a comma stands in
 *                                      parentheses.
 *   block_shared<T>()                the block's dynamic shared memory, aligned to 16, holding garbage at the
 *                                    start
 *   block_barrier()                  all threads of the block
 *   warp_xor(v, m), warp_from(v, l)  v of lane (own ^ m); v of lane l; all 32 lanes together
 *   atomic_max(p, v)                 of unsigned integers alone: their order shows in no bit
 *   quick_exp2(x)                    2^x by one instruction, off by 2^-22 of itself at most; 0 where that is
 *   less
 *                                    than the least normal number. The host's is exp2f()
 *   UNROLL                           before a loop over an array that is to stay in registers
 *   READ_ONLY(type)                  of a kernel's argument that is large: no thread has a copy of its own
 *
 * Nothing else of CUDA is used outside this file and tile.h: no <<<>>>, no extern __shared__, no PTX, no
 * cooperative groups, no CUB. A kernel never spins on another block: the emulation runs blocks one after the
 * other.
 */
#ifndef CUDA_KERNELS_LAUNCH_H
#define CUDA_KERNELS_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/cuda/kernels/kernels.h"

enum { WARP = 32, KERNEL_OK = 0, KERNEL_INVALID = 1 /* cudaErrorInvalidValue */ };

#ifdef __CUDACC__
#define UNROLL          _Pragma("unroll")
#define READ_ONLY(type) const __grid_constant__ type
#else
#define UNROLL
#define READ_ONLY(type) const type &
#endif

#ifdef __CUDACC__

#include <cuda_runtime.h>

template <class T> __device__ __forceinline__ T *block_shared()
{
    extern __shared__ __align__(16) unsigned char block_shared_bytes[];

    return reinterpret_cast<T *>(block_shared_bytes);
}

__device__ __forceinline__ void block_barrier()
{
    __syncthreads();
}

template <class T> __device__ __forceinline__ T warp_xor(T value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

template <class T> __device__ __forceinline__ T warp_from(T value, int lane)
{
    return __shfl_sync(0xffffffffu, value, lane);
}

__device__ __forceinline__ void atomic_max(unsigned *to, unsigned value)
{
    atomicMax(to, value);
}

__device__ __forceinline__ float quick_exp2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <class... P, class... A>
MUST_CHECK int launch_kernel(const char *, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                             struct CUstream_st *stream, const A &...arguments)
{
    cudaLaunchConfig_t config = {};

    if (shared_bytes > 48 * 1024) { /* a kernel must ask for more than 48 KiB */
        const cudaError_t refused =
            cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
        if (refused != cudaSuccess)
            return static_cast<int>(refused);
    }
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return static_cast<int>(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...));
}

#else

#include <emulation/launch_host.h>

#endif

#define LAUNCH(kernel, ...) launch_kernel(#kernel, kernel, __VA_ARGS__)

/** Blocks of `each` that hold `n`. */
static inline unsigned blocks_of(size_t n, size_t each)
{
    return static_cast<unsigned>(n / each + (n % each != 0));
}

#endif
