/*
 * The order in which a run consumes samples. A run counts the samples that it has consumed in one number, the
 * cursor. The order depends only on the cursor, the number of samples, the seed and `shuffled`, and not on
 * ranks or the world size. So a run may continue with another world size and still see each sample once per
 * epoch.
 *
 * Position p of the run (the p-th consumed sample, counted from 0) is index p mod N of epoch p / N. A batch
 * may span two epochs. A shuffled epoch is a permutation of 0 .. N-1, computed element by element in constant
 * memory.
 *
 * Pure functions: no file, no clock, no allocation.
 */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order {
    uint64_t n_samples; /* N, the number of samples in one epoch; at least 1 */
    uint64_t seed;      /* the job's seed */
    bool shuffled;      /* false: every epoch is 0, 1, ... N-1 */
};

/** Returns the sample, in [0, N), at position `position` of the run. */
uint64_t order_sample(const struct order *order, uint64_t position);

/**
 * Returns the sample, in [0, N), at `index` (below N) of epoch `epoch`. order_sample() calls it with its
 * position split into these two.
 */
uint64_t order_in_epoch(const struct order *order, uint64_t epoch, uint64_t index);

/**
 * Returns the first position that rank `rank` consumes in a micro-step that begins at `cursor`. The rank
 * consumes `batch` consecutive positions from there.
 */
uint64_t order_first(uint64_t cursor, int rank, uint64_t batch);

/** Returns the cursor after a micro-step in which W ranks consumed `batch` samples each. */
uint64_t order_advance(uint64_t cursor, int W, uint64_t batch);

#endif
