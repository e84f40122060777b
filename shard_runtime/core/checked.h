/*
 * Arithmetic on sizes. Code that combines sizes from outside uses checked_mul() and checked_add(). They
 * return false, and leave *out unchanged, if the result does not fit a size_t.
 */
#ifndef CORE_CHECKED_H
#define CORE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>

static inline bool checked_mul(size_t a, size_t b, size_t *out)
{
    size_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

static inline bool checked_add(size_t a, size_t b, size_t *out)
{
    size_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

/**
 * Returns `n` rounded up to a multiple of `to`, which is not 0. The caller ensures that the result fits a
 * size_t.
 */
static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

#endif
