/*
 * A kernel that is right, or has a fault, for the test of the emulation itself.
 */
#include "shard_runtime/cuda/kernels/launch.h"
#include "tests/emulation/planted.h"

/* out[i] = the sum of the numbers of i's neighbours; without the barrier a thread reads what is not there. */
static __global__ void rotate(const float *in, float *out, enum planted_fault fault)
{
    float *room = block_shared<float>();
    const int lane = threadIdx.x % 32;

    room[threadIdx.x] = in[threadIdx.x];
    if (fault == PLANTED_TWO_BARRIERS && threadIdx.x == 5)
        block_barrier();
    else if (fault == PLANTED_NONE || fault == PLANTED_TWO_BARRIERS ||
             (fault == PLANTED_SKIPPED_BARRIER && threadIdx.x != 40))
        block_barrier();
    if (fault == PLANTED_SKIPPED_SHUFFLE && lane < 16)
        (void)warp_xor(lane, 1);
    if (fault == PLANTED_BARRIER_AND_SHUFFLE) {
        if (lane == 3)
            block_barrier();
        else
            (void)warp_xor(lane, 1);
    }
    if (fault == PLANTED_BEYOND_SHARED)
        room[64 + lane] = 1;
    out[threadIdx.x] =
        room[(threadIdx.x + 1) % blockDim.x] + room[(threadIdx.x + blockDim.x - 1) % blockDim.x];
}

int planted_rotate(const float *in, float *out, unsigned n_threads, enum planted_fault fault)
{
    return LAUNCH(rotate, fault == PLANTED_NO_GRID ? 0 : 1, n_threads,
                  fault == PLANTED_MUCH_SHARED ? 163 * 1024 + 1 : 64 * sizeof(float), nullptr, in, out,
                  fault);
}
