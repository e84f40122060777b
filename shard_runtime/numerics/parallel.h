/*
 * The one door to OpenMP: a range cut into one piece a thread. The cut depends on the size and the number of
 * threads alone, so that what a thread computes never depends on scheduling. Without OpenMP the pieces run
 * one after the other, with the same results.
 *
 * Thread: the compute thread; never from inside a piece.
 */
#ifndef NUMERICS_PARALLEL_H
#define NUMERICS_PARALLEL_H

#include <stddef.h>

/** Work on elements begin .. end - 1. */
typedef void parallel_piece(void *context, size_t begin, size_t end);

/**
 * Call `piece` on at most `threads` ranges that cover 0 .. n - 1, each (but the last) a multiple of `grain`
 * long. What is smaller than one grain runs on the caller alone. Returns when all are done.
 */
void parallel_for(int threads, size_t n, size_t grain, parallel_piece *piece, void *context);

/** How many threads libraries that ask OpenMP will use. */
void parallel_set_threads(int threads);

#endif
