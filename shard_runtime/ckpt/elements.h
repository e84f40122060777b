/*
 * Single elements of any dtype as numbers, and blocks of them converted to float32. Pure.
 */
#ifndef CKPT_ELEMENTS_H
#define CKPT_ELEMENTS_H

#include <stddef.h>

#include <fsdp/dtype.h>

/** Returns the element of a known dtype at `from`. Whole numbers above 2^53 are rounded. */
double element_read(const unsigned char *from, enum fsdp_dtype dtype);

/** Converts `n` elements of a floating-point dtype to float32. All but float64 are exact. */
void elements_to_f32(float *to, const unsigned char *from, enum fsdp_dtype dtype, size_t n);

#endif
