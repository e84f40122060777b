/*
 * Conversion between types in host memory: what the cpu device's cast() and round_list() do.
 */
#ifndef DEVICE_CPU_CAST_H
#define DEVICE_CPU_CAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

/**
 * Computes to[i] = (accumulate ? to[i] : 0) + scale * from[i] in float32, rounded once to nearest even. Both
 * arrays are (n_elems) of float32 or bfloat16. `to` may be `from` if both have one type.
 */
void cpu_cast_elems(void *to, enum fsdp_dtype to_dtype, const void *from, enum fsdp_dtype from_dtype,
                    size_t n_elems, float scale, bool accumulate);

/**
 * Rounds from[i] to bfloat16 in to[i], by the draw that struct device_rounding gives element first + i of
 * `key` in `step`.
 */
void cpu_round_elems(uint16_t *to, const float *from, size_t n_elems, uint64_t key, uint64_t step,
                     uint64_t first);

#endif
