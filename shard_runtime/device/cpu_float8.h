/*
 * Tensors in float8 e4m3 in host memory: what the cpu device's amax(), encode() and decode() do (device.h).
 */
#ifndef DEVICE_CPU_FLOAT8_H
#define DEVICE_CPU_FLOAT8_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

/** Raises *amax to the largest |from[i]|. Numbers that are not finite count as infinity. */
void cpu_float8_amax(float *amax, const float *from, size_t n_elems);
/** Codes float32 or bfloat16 (n_elems) by the scale that *amax gives, to nearest even and clamped. */
void cpu_float8_encode(uint8_t *to, const void *from, enum fsdp_dtype from_dtype, size_t n_elems,
                       const float *amax);
/** Decodes to float32 or bfloat16 (n_elems). All results are NaN if *amax is not finite. */
void cpu_float8_decode(void *to, enum fsdp_dtype to_dtype, const uint8_t *from, size_t n_elems,
                       const float *amax);

#endif
