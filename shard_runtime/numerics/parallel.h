/*
 * The only place that uses OpenMP: a range is cut into one piece for each thread. The cut depends only on the
 * size and the number of threads, so what a thread computes never depends on scheduling. Without OpenMP the
 * pieces run one after the other, with the same results.
 *
 * Thread: the compute thread; never from inside a piece.
 */
#ifndef NUMERICS_PARALLEL_H
#define NUMERICS_PARALLEL_H

#include <stddef.h>

/** Work on the elements `begin` to end - 1. `context` is what parallel_for() was given. */
typedef void parallel_piece(void *context, size_t begin, size_t end);

/**
 * Call `piece` on at most `threads` ranges that cover the elements 0 to n - 1. Each range is a multiple of
 * `grain` long, except the last one. If all is at most one grain, only the caller's thread works. Returns
 * when every range is done.
 */
void parallel_for(int threads, size_t n, size_t grain, parallel_piece *piece, void *context);

/** Sets how many threads OpenMP uses, for the whole process: libraries that use OpenMP follow it. */
void parallel_set_threads(int threads);

#endif
