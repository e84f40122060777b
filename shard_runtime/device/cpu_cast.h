/*
 * Conversion on the host: what the cpu device's cast() is.
 */
#ifndef DEVICE_CPU_CAST_H
#define DEVICE_CPU_CAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

/** to[i] = (accumulate ? to[i] : 0) + scale * from[i], in float32, rounded once; see device.h. */
void cpu_cast_elems(void *to, enum fsdp_dtype to_dtype, const void *from, enum fsdp_dtype from_dtype,
                    size_t n_elems, float scale, bool accumulate);

/** to[i] = from[i], rounded by the draws that device.h gives element first + i of `key` in `step`. */
void cpu_round_elems(uint16_t *to, const float *from, size_t n_elems, uint64_t key, uint64_t step,
                     uint64_t first);

#endif
