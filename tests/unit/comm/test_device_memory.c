/*
 * Memory that collectives move: told once to each group that uses it, and taken back from each before either
 * is gone.
 */
#include "shard_runtime/comm/device_memory.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "shard_runtime/comm/device_comm.h"
#include "shard_runtime/core/alloc.h"

enum { MAX_HANDLES = 64 };

/* A library that counts; a handle is a place of `held`. */
struct device_group {
    int n_registered;
    bool refuses;
};

static struct {
    struct device_group *group;
    void *memory;
} held[MAX_HANDLES];
static int n_made, n_allocated, n_freed;

static enum fsdp_status alloc_device(struct device *device, size_t size_bytes, void **out,
                                     struct fsdp_err *err)
{
    (void)device;
    (void)err;
    *out = size_bytes > 0 ? malloc(size_bytes) : NULL;
    return FSDP_OK;
}

static void free_device(struct device *device, void *memory, size_t size_bytes)
{
    (void)device;
    (void)size_bytes;
    for (int i = 0; i < n_made; i++)
        cr_assert(held[i].memory != memory, "it is still registered");
    n_freed++;
    free(memory);
}

static enum fsdp_status alloc_memory(struct device *device, size_t size_bytes, void **out,
                                     struct fsdp_err *err)
{
    n_allocated++;
    return alloc_device(device, size_bytes, out, err);
}

static enum fsdp_status register_memory(struct device_group *group, void *memory, size_t size_bytes,
                                        void **handle, struct fsdp_err *err)
{
    (void)size_bytes;
    *handle = NULL;
    if (group->refuses)
        return fsdp_fail(err, FSDP_ERR_PEER, "the watch said so");
    group->n_registered++;
    held[n_made].group = group;
    held[n_made].memory = memory;
    *handle = &held[n_made++];
    return FSDP_OK;
}

static void unregister_memory(struct device_group *group, void *handle)
{
    for (int i = 0; i < n_made; i++)
        if (handle == &held[i]) {
            cr_assert(held[i].group == group && held[i].memory != NULL);
            held[i].memory = NULL;
            group->n_registered--;
        }
}

static const struct device_ops ops = { .alloc = alloc_device, .free = free_device };
static struct device device = { .ops = &ops };
static const struct device_collectives library = { .alloc_memory = alloc_memory,
                                                   .register_memory = register_memory,
                                                   .unregister_memory = unregister_memory };

Test(device_memory, is_told_once_to_each_group_that_uses_it)
{
    struct device_comms comms = { .device = &device, .collectives = &library };
    struct device_group gathers = { 0 }, reduces = { 0 };
    void *arena, *shards;
    char stranger;

    cr_assert(device_memory_alloc(&comms, 100, &arena, NULL) == FSDP_OK);
    cr_assert(device_memory_alloc(&comms, 50, &shards, NULL) == FSDP_OK);
    cr_expect(n_allocated == 2 && n_made == 0, "nobody moved it yet");
    for (int i = 0; i < 3; i++) {
        cr_assert(device_memory_use(&comms, &gathers, (char *)arena + i * 40, NULL) == FSDP_OK);
        cr_assert(device_memory_use(&comms, &gathers, shards, NULL) == FSDP_OK);
        cr_assert(device_memory_use(&comms, &reduces, (char *)arena + 99, NULL) == FSDP_OK);
        cr_assert(device_memory_use(&comms, &reduces, &stranger, NULL) == FSDP_OK);
    }
    cr_expect(gathers.n_registered == 2 && reduces.n_registered == 1 && n_made == 3);

    device_memory_free(&comms, arena, 100);
    cr_expect(gathers.n_registered == 1 && reduces.n_registered == 0);
    device_memory_leave(&comms, &gathers);
    device_memory_leave(&comms, &gathers);
    cr_expect(gathers.n_registered == 0);
    device_memory_free(&comms, shards, 50);
    device_memory_free(&comms, NULL, 7);
    cr_expect(comms.memories == NULL && n_freed == 2);
}

Test(device_memory, is_the_devices_own_where_nothing_registers)
{
    struct device_comms comms = { .device = &device };
    void *memory, *none;

    cr_assert(device_memory_alloc(&comms, 10, &memory, NULL) == FSDP_OK);
    cr_assert(device_memory_alloc(&comms, 0, &none, NULL) == FSDP_OK && none == NULL);
    cr_expect(n_allocated == 0 && comms.memories == NULL);
    device_memory_free(&comms, memory, 10);
    cr_expect(n_freed == 1);
}

Test(device_memory, failures_leave_nothing)
{
    struct device_comms comms = { .device = &device, .collectives = &library };
    struct device_group group = { .refuses = true };
    struct fsdp_err err = { 0 };
    void *memory;

    alloc_fail_nth(1);
    cr_assert(device_memory_alloc(&comms, 10, &memory, &err) == FSDP_ERR_NOMEM && memory == NULL);
    cr_assert(device_memory_alloc(&comms, 10, &memory, &err) == FSDP_OK);
    alloc_fail_nth(1);
    cr_expect(device_memory_use(&comms, &group, memory, &err) == FSDP_ERR_NOMEM);
    cr_expect(device_memory_use(&comms, &group, memory, &err) == FSDP_ERR_PEER);
    group.refuses = false;
    cr_expect(device_memory_use(&comms, &group, memory, &err) == FSDP_OK && group.n_registered == 1,
              "it may be used later");
    device_memory_free(&comms, memory, 10);
    cr_expect(group.n_registered == 0 && n_freed == 1);
}
