/*
 * What shard_runtime/cuda/kernels/launch.h is without nvcc: CUDA's words over emulate.h, for C++17.
 */
#ifndef EMULATION_LAUNCH_HOST_H
#define EMULATION_LAUNCH_HOST_H

#include <math.h>
#include <string.h>

#include <tuple>

#include "tests/emulation/emulate.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define threadIdx (emulate_place->thread)
#define blockIdx  (emulate_place->block)
#define blockDim  (emulate_place->block_size)
#define gridDim   (emulate_place->grid_size)

template <class T> T *block_shared()
{
    return static_cast<T *>(emulate_shared());
}

/* The caller's place in the source tells two barriers apart. */
inline void block_barrier(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    emulate_barrier(file, line);
}

template <class T>
T warp_from(T value, int lane, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    const unsigned char *slots = emulate_warp(&value, sizeof value, file, line);
    T other;

    memcpy(&other, slots + lane % EMULATE_WARP * EMULATE_SLOT_BYTES, sizeof other);
    return other;
}

template <class T>
T warp_xor(T value, int mask, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return warp_from(value, static_cast<int>(threadIdx.x % EMULATE_WARP) ^ mask, file, line);
}

inline void atomic_max(unsigned *to, unsigned value)
{
    *to = *to > value ? *to : value;
}

inline float quick_exp2(float x)
{
    return exp2f(x);
}

/* One launch: where, and the kernel with its arguments; a thread's body is a call with them. */
template <class... P> struct emulated_call {
    void (*kernel)(P...);
    std::tuple<std::decay_t<P>...> arguments;
    const char *name;
    struct emulate_size grid, block;
    size_t shared_bytes;

    static void run(const void *self)
    {
        const emulated_call *call = static_cast<const emulated_call *>(self);

        std::apply(call->kernel, call->arguments);
    }

    static int launch(const void *self)
    {
        const emulated_call *call = static_cast<const emulated_call *>(self);

        return emulate_launch(call->name, call->grid, call->block, call->shared_bytes, sizeof call->arguments,
                              run, call);
    }
};

template <class... P, class... A>
MUST_CHECK int launch_kernel(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                             size_t shared_bytes, struct CUstream_st *stream, const A &...arguments)
{
    const emulated_call<P...> call = { kernel,
                                       std::tuple<std::decay_t<P>...>(static_cast<P>(arguments)...),
                                       name,
                                       { grid.x, grid.y, grid.z },
                                       { block.x, block.y, block.z },
                                       shared_bytes };

    return emulate_queue != nullptr
               ? emulate_queue(name, stream, emulated_call<P...>::launch, &call, sizeof call)
               : emulated_call<P...>::launch(&call);
}

#endif
