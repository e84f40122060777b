/* Numbers as bytes of a fixed order, least significant byte first. */
#ifndef AGENT_LITTLE_ENDIAN_H
#define AGENT_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void put_le(unsigned char *out, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t get_le(const unsigned char *in, int n_bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < n_bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

#endif
