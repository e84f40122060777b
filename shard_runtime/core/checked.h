/*
 * Sizes that come from outside are multiplied and added through these: true when the result fits, and only
 * then is *out written.
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

#endif
