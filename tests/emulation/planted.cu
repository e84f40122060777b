/*
 * Kernels with a fault each, and one without, for the test of the emulation itself.
 */
#include "shard_runtime/cuda/kernels/launch.h"
#include "tests/emulation/planted.h"

/* out[i] = the sum of the block's numbers up to i's neighbour; without the barrier a thread reads what is not there. */
static __global__ void rotate(const float *in, float *out, bool barrier)
{
    float *room = block_shared<float>();

    room[threadIdx.x] = in[threadIdx.x];
    if (barrier)
        block_barrier();
    out[threadIdx.x] = room[(threadIdx.x + 1) % blockDim.x] + room[(threadIdx.x + blockDim.x - 1) % blockDim.x];
}

static __global__ void diverge(float *out, enum planted_fault fault)
{
    const int lane = threadIdx.x % 32;
    float value = static_cast<float>(lane);

    if (fault == PLANTED_TWO_BARRIERS) {
        if (threadIdx.x == 5)
            block_barrier();
        else
            block_barrier();
    }
    if (fault == PLANTED_SKIPPED_BARRIER && threadIdx.x != 40)
        block_barrier();
    if (fault == PLANTED_SKIPPED_SHUFFLE && lane < 16)
        value = warp_xor(value, 1);
    if (fault == PLANTED_BARRIER_AND_SHUFFLE) {
        if (lane == 3)
            block_barrier();
        else
            value = warp_xor(value, 1);
    }
    if (fault == PLANTED_BEYOND_SHARED)
        block_shared<float>()[64 + lane] = value;
    out[threadIdx.x] = value;
}

int planted_rotate(const float *in, float *out, bool barrier)
{
    return LAUNCH(rotate, 1, 64, 64 * sizeof(float), nullptr, in, out, barrier);
}

int planted_fault(float *out, enum planted_fault fault)
{
    return LAUNCH(diverge, 1, 64, 64 * sizeof(float), nullptr, out, fault);
}

int planted_size(float *out, unsigned grid, unsigned block, size_t shared_bytes)
{
    return LAUNCH(diverge, grid, block, shared_bytes, nullptr, out, PLANTED_NONE);
}
