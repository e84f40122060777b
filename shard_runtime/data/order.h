/*
 * Which sample when. A run counts the samples it has consumed in one number, the cursor; everything else
 * about the order is a function of that number, the number of samples and the seed. No rank and no world size
 * is in it, so that a run may go on with another world size and see each sample once all the same.
 *
 * Position p of the run (the p-th sample consumed, from 0) is index p mod N of epoch p / N. Batches cross
 * epochs. A shuffled epoch is a permutation of 0 .. N-1 computed element by element in constant memory.
 *
 * Pure: no file, no clock, no allocation.
 */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order {
    uint64_t n_samples; /* N of one epoch; at least 1 */
    uint64_t seed;      /* of the job */
    bool shuffled;      /* false: every epoch is 0, 1, ... N-1 */
};

/** The sample, in [0, N), at position `position` of the run. */
uint64_t order_sample(const struct order *order, uint64_t position);

/** The sample at `index` (below N) of pass `epoch` over the data; order_sample() in two coordinates. */
uint64_t order_in_epoch(const struct order *order, uint64_t epoch, uint64_t index);

/**
 * A micro-step that begins at `cursor` gives rank `rank` of a world the positions first .. first + batch - 1:
 * this is `first`.
 */
uint64_t order_first(uint64_t cursor, int rank, uint64_t batch);

/** The cursor after a micro-step of W ranks with `batch` samples each. */
uint64_t order_advance(uint64_t cursor, int W, uint64_t batch);

#endif
