/*
 * The device's collectives in a group of one, where each is a copy, of bits that are known, times a factor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "tests/support/oracles/cuda_row/row.h"

enum { N_MOVED = 1003, NO_BYTE = 0x5a }; /* an odd number; what is in memory before a call */

static const struct device_collectives *by;
static struct device_group *group;

/* Elements of a dtype, random, and times `factor` as one rounding makes them. */
static size_t fill(void *out, enum fsdp_dtype dtype, float factor)
{
    float *wide = malloc(N_MOVED * sizeof *wide);
    const size_t size_bytes = dtype == FSDP_BF16 ? N_MOVED * sizeof(uint16_t) : N_MOVED * sizeof(float);

    rng_fill_normal(key, 0, wide, N_MOVED, 1.0f);
    for (size_t i = 0; i < N_MOVED && dtype == FSDP_BF16; i++)
        ((uint16_t *)out)[i] = bf16_of_f32(bf16_to_f32(bf16_of_f32(wide[i])) * factor);
    for (size_t i = 0; i < N_MOVED && dtype == FSDP_F32; i++)
        ((float *)out)[i] = wide[i] * factor;
    free(wide);
    return size_bytes;
}

struct moved {
    const char *name;
    enum { GATHER, GATHER_IN_PLACE, REDUCE_SCATTER, ALL_REDUCE, BROADCAST } kind;
    enum fsdp_reduce_op op;
    float factor;
};

static enum fsdp_status move(const struct moved *m, enum fsdp_dtype dtype, void *from, void *to,
                             size_t size_bytes)
{
    switch (m->kind) {
    case GATHER:
        return by->all_gather(group, from, to, N_MOVED, dtype, stream, &err);
    case GATHER_IN_PLACE:
        return by->all_gather(group, to, to, N_MOVED, dtype, stream, &err);
    case REDUCE_SCATTER:
        return by->reduce_scatter(group, from, to, N_MOVED, dtype, m->op, m->factor, stream, &err);
    case ALL_REDUCE:
        return by->all_reduce(group, to, N_MOVED, dtype, m->op, stream, &err);
    case BROADCAST:
        break;
    }
    return by->broadcast(group, to, size_bytes, 0, stream, &err);
}

/* `to` is one that the collective works in or, of those with two buffers, holds other bytes before. */
static void check_moved(const struct moved *m, enum fsdp_dtype dtype, void *from, void *to)
{
    const bool two = m->kind == GATHER || m->kind == REDUCE_SCATTER;
    float given[N_MOVED], other[N_MOVED], expected[N_MOVED], got[N_MOVED];
    const size_t size_bytes = fill(given, dtype, 1.0f);
    char name[100];
    size_t n_wrong = 0;

    fill(expected, dtype, m->factor);
    key++;
    memset(other, NO_BYTE, sizeof other);
    device.ops->copy(stream, from, given, size_bytes, DEVICE_COPY_TO);
    device.ops->copy(stream, to, two ? other : given, size_bytes, DEVICE_COPY_TO);
    require(move(m, dtype, from, to, size_bytes));
    device.ops->copy(stream, got, to, size_bytes, DEVICE_COPY_FROM);
    require(device.ops->synchronize(stream, &err));
    require(by->poll(group, &err));
    for (size_t i = 0; i < size_bytes; i++)
        n_wrong += ((unsigned char *)got)[i] != ((unsigned char *)expected)[i];
    snprintf(name, sizeof name, "%s of %s by %s, a group of one, to the bit (bytes that differ)", m->name,
             dtype == FSDP_BF16 ? "bfloat16" : "float32", by->name);
    say(name, (double)n_wrong, 0);
}

void check_collectives(const struct device_collectives *collectives)
{
    static const struct moved all[] = {
        { "all-gather", GATHER, FSDP_SUM, 1.0f },
        { "all-gather in place", GATHER_IN_PLACE, FSDP_SUM, 1.0f },
        { "reduce-scatter, mean", REDUCE_SCATTER, FSDP_MEAN, 1.0f },
        { "reduce-scatter, sum", REDUCE_SCATTER, FSDP_SUM, 1.0f },
        { "reduce-scatter, sum of products", REDUCE_SCATTER, FSDP_SUM, 0.375f },
        { "all-reduce, mean", ALL_REDUCE, FSDP_MEAN, 1.0f },
        { "all-reduce, sum", ALL_REDUCE, FSDP_SUM, 1.0f },
        { "all-reduce, largest", ALL_REDUCE, FSDP_MAX, 1.0f },
        { "broadcast", BROADCAST, FSDP_SUM, 1.0f },
    };
    struct device_group_config config = { .name = "one", .device = &device, .size = 1 };
    void *memory[2], *handles[2];
    char words[100];

    by = collectives;
    if (by->make_id(&device, config.id, &err) != FSDP_OK) {
        printf("skip - cuda row: collectives of a group of one: %s\n", err.message);
        fsdp_err_clear(&err);
        return;
    }
    by->describe(words, sizeof words);
    require(by->open(&group, &config, &err));
    for (int i = 0; i < 2; i++) {
        require(by->alloc_memory(&device, N_MOVED * sizeof(float), &memory[i], &err));
        require(by->register_memory(group, memory[i], N_MOVED * sizeof(float), &handles[i], &err));
    }
    printf("# %s, memory %s\n", words,
           handles[0] != NULL ? "registered" : "not registered: it does not here");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_moved(&all[i], FSDP_F32, memory[0], memory[1]);
        check_moved(&all[i], FSDP_BF16, memory[0], memory[1]);
    }
    for (int i = 0; i < 2; i++) {
        by->unregister_memory(group, handles[i]);
        device.ops->free(&device, memory[i], N_MOVED * sizeof(float));
    }
    require(by->poll(group, &err));
    by->close(group);
}
