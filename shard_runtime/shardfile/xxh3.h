/*
 * XXH3 with the widest instructions of the CPU. libxxhash's usual functions use SSE2. Its shared library also
 * has functions that choose among SSE2, AVX2 and AVX-512 at run time. Its static library, and its builds for
 * other architectures, do not have these; then the usual functions are called. The checksums are the same.
 */
#ifndef SHARDFILE_XXH3_H
#define SHARDFILE_XXH3_H

#include <stddef.h>
#include <xxhash.h>

#if defined(__x86_64__)
XXH64_hash_t XXH3_64bits_dispatch(const void *bytes, size_t size_bytes) __attribute__((weak));
XXH_errorcode XXH3_128bits_update_dispatch(XXH3_state_t *state, const void *bytes, size_t size_bytes)
    __attribute__((weak));
#endif

/** Returns the XXH3-64 of the bytes. */
static inline uint64_t xxh3_64(const void *bytes, size_t size_bytes)
{
#if defined(__x86_64__)
    if (XXH3_64bits_dispatch != NULL)
        return XXH3_64bits_dispatch(bytes, size_bytes);
#endif
    return XXH3_64bits(bytes, size_bytes);
}

/** Adds bytes to the state of an XXH3-128. */
static inline void xxh3_128_update(XXH3_state_t *state, const void *bytes, size_t size_bytes)
{
#if defined(__x86_64__)
    if (XXH3_128bits_update_dispatch != NULL) {
        XXH3_128bits_update_dispatch(state, bytes, size_bytes);
        return;
    }
#endif
    XXH3_128bits_update(state, bytes, size_bytes);
}

#endif
