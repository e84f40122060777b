/*
 * Random numbers that are a pure function of (key, index): no state to save, and the same value whatever
 * rank, world size or order asks for it. Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef CORE_RNG_H
#define CORE_RNG_H

#include <stddef.h>
#include <stdint.h>

/** The four 32-bit words of block `counter` = (hi, lo) under `key`. */
void rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]);

/** A key for one purpose: `seed` is the job's, `name` tells what it is for ("init:norm.weight"). */
uint64_t rng_key(uint64_t seed, const char *name);

/**
 * Elements first .. first + n - 1 of the normal sequence of `key`: mean 0, standard deviation `std`.
 * Element i depends on (key, i) alone, so that any shard of a tensor can be filled by itself.
 */
void rng_fill_normal(uint64_t key, uint64_t first, float *out, size_t n_elems, float std);

/** A whole number in [0, bound), unbiased enough for bound < 2^53; element `index` of the sequence of `key`. */
uint64_t rng_below(uint64_t key, uint64_t index, uint64_t bound);

#endif
