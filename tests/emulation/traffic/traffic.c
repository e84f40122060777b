#include "tests/emulation/traffic/traffic.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/emulation/emulate.h"

enum { SECTOR_BYTES = 32, SLOTS = 1 << 21 };

/* A set of what one block did: an entry of an earlier block has another epoch and counts as empty. */
struct slot {
    uint64_t key;
    uint32_t epoch, n;
};

static struct {
    uintptr_t first, end;
    struct traffic moved;
    uint64_t launch;
    unsigned block;
    uint32_t epoch;
    size_t n_used;
    struct slot slots[SLOTS];
} counter;

void traffic_begin(const void *memory, size_t size_bytes)
{
    counter.first = (uintptr_t)memory;
    counter.end = counter.first + size_bytes;
    counter.moved = (struct traffic){ 0 };
}

struct traffic traffic_take(void)
{
    const struct traffic moved = counter.moved;

    counter.moved = (struct traffic){ 0 };
    return moved;
}

/* The mixing step of splitmix64. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/*
 * Returns how often `key` came before in this block, and counts it. A key is a hash of 64 bits: none collide
 * in practice.
 */
static uint32_t times_seen(uint64_t key)
{
    size_t at = key % SLOTS;

    while (counter.slots[at].epoch == counter.epoch && counter.slots[at].key != key)
        at = (at + 1) % SLOTS;
    if (counter.slots[at].epoch != counter.epoch) {
        counter.slots[at] = (struct slot){ key, counter.epoch, 0 };
        if (++counter.n_used > SLOTS / 4 * 3) {
            fputs("traffic: a block makes more accesses than the counter has room for\n", stderr);
            abort();
        }
    }
    return counter.slots[at].n++;
}

static void enter_block(void)
{
    const struct emulate_size *at = &emulate_place->block, *size = &emulate_place->grid_size;
    const unsigned block = (at->z * size->y + at->y) * size->x + at->x;

    if (counter.epoch > 0 && counter.launch == emulate_launches() && counter.block == block)
        return;
    counter.launch = emulate_launches();
    counter.block = block;
    counter.epoch++;
    counter.n_used = 0;
}

static void count(const void *address, size_t size, bool stores, const void *instruction)
{
    const uintptr_t first = (uintptr_t)address;
    uint64_t turn;

    if (emulate_place == NULL || first < counter.first || first >= counter.end)
        return;
    enter_block();
    turn = times_seen(mix((uintptr_t)instruction, emulate_place->thread.x));
    turn = mix(mix((uintptr_t)instruction, turn), ~(uint64_t)(emulate_place->thread.x / EMULATE_WARP));
    counter.moved.accesses += times_seen(turn) == 0;
    for (uintptr_t sector = first / SECTOR_BYTES; sector <= (first + size - 1) / SECTOR_BYTES; sector++)
        if (times_seen(mix(turn, sector)) == 0)
            *(stores ? &counter.moved.stored_bytes : &counter.moved.loaded_bytes) += SECTOR_BYTES;
}

/* What g++ calls, by the names that it gives. */
#define ON_ACCESS(name, size, stores)                                                                        \
    void __tsan_##name(void *address);                                                                       \
    void __tsan_##name(void *address)                                                                        \
    {                                                                                                        \
        count(address, size, stores, __builtin_return_address(0));                                           \
    }
#define ON_ACCESSES(size)                                                                                    \
    ON_ACCESS(read##size, size, false)                                                                       \
    ON_ACCESS(unaligned_read##size, size, false)                                                             \
    ON_ACCESS(write##size, size, true)                                                                       \
    ON_ACCESS(unaligned_write##size, size, true)
ON_ACCESSES(1)
ON_ACCESSES(2)
ON_ACCESSES(4)
ON_ACCESSES(8)
ON_ACCESSES(16)

void __tsan_init(void);
void __tsan_read_range(void *address, unsigned long size);
void __tsan_write_range(void *address, unsigned long size);

void __tsan_init(void)
{
}

void __tsan_read_range(void *address, unsigned long size)
{
    count(address, size, false, __builtin_return_address(0));
}

void __tsan_write_range(void *address, unsigned long size)
{
    count(address, size, true, __builtin_return_address(0));
}
