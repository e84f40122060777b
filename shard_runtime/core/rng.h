/*
 * Random numbers as a pure function of (key, index). There is no state to save, and the value does not depend
 * on the rank, the world size or the order of calls. The generator is Philox4x32-10 (Salmon, Moraes, Dror and
 * Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 */
#ifndef CORE_RNG_H
#define CORE_RNG_H

#include <stddef.h>
#include <stdint.h>

/** Computes the four 32-bit words of block number (counter_hi, counter_lo) under `key`. */
void rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]);

/**
 * Returns a key for one purpose. `seed` is the job's seed; `name` identifies the purpose
 * ("init:norm.weight").
 */
uint64_t rng_key(uint64_t seed, const char *name);

/**
 * Writes elements first .. first + n_elems - 1 of the normal sequence of `key` to `out`. The mean is 0, the
 * standard deviation `std`. Element i depends only on (key, i), so each shard of a tensor can be filled on
 * its own.
 */
void rng_fill_normal(uint64_t key, uint64_t first, float *out, size_t n_elems, float std);

/**
 * Returns a whole number in [0, bound): element `index` of the sequence of `key`. The bias is negligible for
 * bound < 2^53.
 */
uint64_t rng_below(uint64_t key, uint64_t index, uint64_t bound);

#endif
