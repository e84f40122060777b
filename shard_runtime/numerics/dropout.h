/*
 * What every row must agree on about dropout, so that their masks are the same to the last element.
 */
#ifndef NUMERICS_DROPOUT_H
#define NUMERICS_DROPOUT_H

#include "shard_runtime/numerics/numerics.h"

/** Does `dropout` drop anything? NULL means that there is no dropout. */
static inline bool dropout_is_on(const struct dropout *dropout)
{
    return dropout != NULL && dropout->p > 0;
}

/**
 * Returns the threshold: an element is kept if its random word is below it. Since p > 0, at least one word
 * drops an element.
 */
static inline uint32_t dropout_keep_below(const struct dropout *dropout)
{
    const double threshold = (1.0 - (double)dropout->p) * 0x1p32;

    return threshold < 0x1p32 ? (uint32_t)threshold : UINT32_MAX;
}

/** Returns the factor for kept elements: 1 / (1 - p). It is 0 if p is 1, where no element is kept. */
static inline float dropout_scale(const struct dropout *dropout)
{
    return dropout->p < 1 ? (float)(1.0 / (1.0 - (double)dropout->p)) : 0.0f;
}

#endif
