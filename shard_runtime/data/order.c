#include "shard_runtime/data/order.h"

#include <assert.h>

#include "shard_runtime/core/rng.h"

/*
 * Four rounds of a Feistel network with good round functions are a strong pseudorandom permutation (Luby and
 * Rackoff, 1988). The guarantee is weaker if half a value has few bits, which is the case for small data. So
 * we use twice as many rounds.
 */
enum { ROUNDS = 8 };

/*
 * Applies the permutation of [0, 4^half_bits) that `key` selects. Any round function gives a bijection; ours
 * is Philox.
 */
static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t value)
{
    const uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        uint64_t mixed;

        rng_philox(key, round, right, words);
        mixed = left ^ (words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits | right;
}

/* Returns the least h from 1 to 32 with 4^h >= n. */
static unsigned half_bits_for(uint64_t n)
{
    unsigned half_bits = 1;

    while (half_bits < 32 && (UINT64_C(1) << 2 * half_bits) < n)
        half_bits++;
    return half_bits;
}

uint64_t order_in_epoch(const struct order *order, uint64_t epoch, uint64_t index)
{
    uint64_t key, value = index;
    uint32_t words[4];
    unsigned half_bits;

    assert(index < order->n_samples);
    if (!order->shuffled)
        return index;
    rng_philox(rng_key(order->seed, "order"), 0, epoch, words);
    key = (uint64_t)words[1] << 32 | words[0];
    half_bits = half_bits_for(order->n_samples);

    /*
     * Cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002): a value outside [0,
     * N) is permuted again until it is inside. The walk follows a cycle that contains `index`, so it ends.
     * The domain is less than four times N (or N is 1 to 4), so the walk takes at most four permutations on
     * average.
     */
    do
        value = feistel(key, half_bits, value);
    while (value >= order->n_samples);
    return value;
}

uint64_t order_sample(const struct order *order, uint64_t position)
{
    return order_in_epoch(order, position / order->n_samples, position % order->n_samples);
}

uint64_t order_first(uint64_t cursor, int rank, uint64_t batch)
{
    return cursor + (uint64_t)rank * batch;
}

uint64_t order_advance(uint64_t cursor, int W, uint64_t batch)
{
    return cursor + (uint64_t)W * batch;
}
