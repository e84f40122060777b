#include "shard_runtime/core/rng.h"

#include <math.h>

enum { PHILOX_ROUNDS = 10 };

static void philox_round(uint32_t c[4], const uint32_t k[2])
{
    const uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    const uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    const uint32_t c1 = c[1];
    const uint32_t c3 = c[3];

    c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k[0];
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k[1];
    c[3] = (uint32_t)p0;
}

void rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4])
{
    uint32_t k[2] = { (uint32_t)key, (uint32_t)(key >> 32) };

    out[0] = (uint32_t)counter_lo;
    out[1] = (uint32_t)(counter_lo >> 32);
    out[2] = (uint32_t)counter_hi;
    out[3] = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        philox_round(out, k);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
}

uint64_t rng_key(uint64_t seed, const char *name)
{
    /*
     * FNV-1a over the name, then one Philox block that mixes the hash with the seed. So names that differ in
     * one character do not give related streams.
     */
    uint64_t hash = 0xCBF29CE484222325u;
    uint32_t words[4];

    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++)
        hash = (hash ^ *p) * 0x100000001B3u;
    rng_philox(seed, hash, 0, words);
    return ((uint64_t)words[1] << 32) | words[0];
}

/* Returns a uniform number in (0, 1). The number is never 0, so its logarithm exists. */
static double open_unit(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

void rng_fill_normal(uint64_t key, uint64_t first, float *out, size_t n_elems, float std)
{
    /* Box-Muller transform (1958). One Philox block gives four elements: two pairs. */
    size_t done = 0;

    while (done < n_elems) {
        const uint64_t index = first + done;
        uint32_t words[4];
        double normal[4];

        rng_philox(key, 0, index / 4, words);
        for (int pair = 0; pair < 2; pair++) {
            const double radius = sqrt(-2.0 * log(open_unit(words[2 * pair])));
            const double angle = 2.0 * M_PI * open_unit(words[2 * pair + 1]);

            normal[2 * pair] = radius * cos(angle);
            normal[2 * pair + 1] = radius * sin(angle);
        }
        for (uint64_t lane = index % 4; lane < 4 && done < n_elems; lane++, done++)
            out[done] = (float)(normal[lane] * (double)std);
    }
}

uint64_t rng_below(uint64_t key, uint64_t index, uint64_t bound)
{
    uint32_t words[4];
    uint64_t wide;

    rng_philox(key, 0, index, words);
    wide = ((uint64_t)words[1] << 32) | words[0];
    return (uint64_t)(((unsigned __int128)wide * bound) >> 64);
}
