/*
 * A hash of bytes: FNV-1a with 64 bits, by Fowler, Noll and Vo. It tells plans and policies apart; it is no
 * defence against anyone who chooses the bytes.
 */
#ifndef PLAN_HASH_H
#define PLAN_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_BASIS UINT64_C(0xcbf29ce484222325) /* the hash of no bytes */

/** Returns the hash of the bytes hashed so far (`hash`), followed by `size` more bytes. */
static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/** The same of one number. */
static inline uint64_t hash_word(uint64_t hash, uint64_t word)
{
    return hash_bytes(hash, &word, sizeof word);
}

#endif
