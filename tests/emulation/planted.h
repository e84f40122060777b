/* A kernel with faults, in planted.cu. */
#ifndef EMULATION_PLANTED_H
#define EMULATION_PLANTED_H

#ifdef __cplusplus
extern "C" {
#endif

enum planted_fault {
    PLANTED_NONE,
    PLANTED_NO_BARRIER,
    PLANTED_TWO_BARRIERS,        /* thread 5 at another line than the others */
    PLANTED_SKIPPED_BARRIER,     /* thread 40 ends without it */
    PLANTED_SKIPPED_SHUFFLE,     /* half a warp */
    PLANTED_BARRIER_AND_SHUFFLE, /* one lane at a barrier, its warp at a shuffle */
    PLANTED_BEYOND_SHARED,       /* writes behind the 64 floats it asked for */
    PLANTED_NO_GRID,             /* is launched on no block */
    PLANTED_MUCH_SHARED,         /* asks for one byte more shared memory than a block may have */
};

/** One block of `n_threads` that hand a number to their neighbours through shared memory. in, out: (64). */
int planted_rotate(const float *in, float *out, unsigned n_threads, enum planted_fault fault);

#ifdef __cplusplus
}
#endif

#endif
