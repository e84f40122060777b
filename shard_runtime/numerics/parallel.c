#include "shard_runtime/numerics/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/*
 * Runs piece `index` of `n_pieces`. A piece consists of whole grains, and differs from the others by at most
 * one grain.
 */
static void run_piece(size_t n, size_t grain, size_t index, size_t n_pieces, parallel_piece *piece,
                      void *context)
{
    const size_t grains = n / grain + (n % grain != 0);
    const size_t begin = grains / n_pieces * index + grains % n_pieces * index / n_pieces;
    const size_t end = grains / n_pieces * (index + 1) + grains % n_pieces * (index + 1) / n_pieces;

    if (begin < end)
        piece(context, begin * grain, end < grains ? end * grain : n);
}

void parallel_for(int threads, size_t n, size_t grain, parallel_piece *piece, void *context)
{
    const size_t n_pieces = (size_t)threads;

    if (n == 0)
        return;
    if (n_pieces <= 1 || n <= grain) {
        piece(context, 0, n);
        return;
    }
    /*
     * Always the same number of threads, even if some have no work: libgomp ends and starts threads when the
     * number changes.
     */
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(threads)
#endif
    for (size_t index = 0; index < n_pieces; index++)
        run_piece(n, grain, index, n_pieces, piece, context);
}

void parallel_set_threads(int threads)
{
#ifdef _OPENMP
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
}
