/*
 * Tensors in float8 e4m3 on the host: what the cpu device's amax(), encode() and decode() are (device.h).
 */
#ifndef DEVICE_CPU_FLOAT8_H
#define DEVICE_CPU_FLOAT8_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

void cpu_float8_amax(float *amax, const float *from, size_t n_elems);
void cpu_float8_encode(uint8_t *to, const void *from, enum fsdp_dtype from_dtype, size_t n_elems,
                       const float *amax);
void cpu_float8_decode(void *to, enum fsdp_dtype to_dtype, const uint8_t *from, size_t n_elems,
                       const float *amax);

#endif
