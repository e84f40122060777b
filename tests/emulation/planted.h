/* Kernels with a fault each, in planted.cu. */
#ifndef EMULATION_PLANTED_H
#define EMULATION_PLANTED_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum planted_fault {
    PLANTED_NONE,
    PLANTED_TWO_BARRIERS,        /* thread 5 at another line than the others */
    PLANTED_SKIPPED_BARRIER,     /* thread 40 ends without it */
    PLANTED_SKIPPED_SHUFFLE,     /* half a warp */
    PLANTED_BARRIER_AND_SHUFFLE, /* one lane at a barrier, its warp at a shuffle */
    PLANTED_BEYOND_SHARED,       /* writes behind the 64 floats it asked for */
};

/** One block of 64 threads that hand a number to their neighbours through shared memory, with a barrier or without. */
int planted_rotate(const float *in, float *out, bool barrier);
/** One block of 64 threads; out: (64). */
int planted_fault(float *out, enum planted_fault fault);
int planted_size(float *out, unsigned grid, unsigned block, size_t shared_bytes);

#ifdef __cplusplus
}
#endif

#endif
