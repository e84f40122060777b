#include "shard_runtime/comm/device_memory.h"

#include <stdlib.h>

#include "shard_runtime/comm/device_comm.h"
#include "shard_runtime/core/alloc.h"

/* One group that knows a memory. */
struct registration {
    struct device_group *group;
    void *handle; /* NULL: the library needs none */
    struct registration *next;
};

/* What device_memory_alloc() made, and the groups that know it. */
struct device_memory {
    char *begin;
    size_t size_bytes;
    struct registration *registrations;
    struct device_memory *next;
};

enum fsdp_status device_memory_alloc(struct device_comms *comms, size_t size_bytes, void **out,
                                     struct fsdp_err *err)
{
    struct device_memory *memory;
    enum fsdp_status status;

    *out = NULL;
    if (comms->collectives == NULL || size_bytes == 0)
        return comms->device->ops->alloc(comms->device, size_bytes, out, err);
    memory = alloc_array(1, sizeof *memory);
    if (memory == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for collectives: out of memory");
    status = comms->collectives->alloc_memory(comms->device, size_bytes, out, err);
    if (status != FSDP_OK) {
        free(memory);
        return status;
    }
    memory->begin = *out;
    memory->size_bytes = size_bytes;
    memory->next = comms->memories;
    comms->memories = memory;
    return FSDP_OK;
}

/* Takes the registration at *at out of its list, and back from the library. */
static void forget(struct device_comms *comms, struct registration **at)
{
    struct registration *known = *at;

    *at = known->next;
    comms->collectives->unregister_memory(known->group, known->handle);
    free(known);
}

void device_memory_free(struct device_comms *comms, void *memory, size_t size_bytes)
{
    struct device_memory **at = &comms->memories, *found;

    if (memory == NULL)
        return;
    while (*at != NULL && (*at)->begin != memory)
        at = &(*at)->next;
    found = *at;
    if (found != NULL) {
        while (found->registrations != NULL)
            forget(comms, &found->registrations);
        *at = found->next;
        free(found);
    }
    comms->device->ops->free(comms->device, memory, size_bytes);
}

enum fsdp_status device_memory_use(struct device_comms *comms, struct device_group *group,
                                   const void *address, struct fsdp_err *err)
{
    struct device_memory *memory = comms->memories;
    struct registration *known;
    enum fsdp_status status;

    while (memory != NULL && ((const char *)address < memory->begin ||
                              (const char *)address >= memory->begin + memory->size_bytes))
        memory = memory->next;
    if (memory == NULL)
        return FSDP_OK;
    for (known = memory->registrations; known != NULL; known = known->next)
        if (known->group == group)
            return FSDP_OK;
    known = alloc_array(1, sizeof *known);
    if (known == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "registering memory: out of memory");
    status =
        comms->collectives->register_memory(group, memory->begin, memory->size_bytes, &known->handle, err);
    if (status != FSDP_OK) {
        free(known);
        return status;
    }
    known->group = group;
    known->next = memory->registrations;
    memory->registrations = known;
    return FSDP_OK;
}

void device_memory_leave(struct device_comms *comms, struct device_group *group)
{
    for (struct device_memory *memory = comms->memories; memory != NULL; memory = memory->next)
        for (struct registration **at = &memory->registrations; *at != NULL;)
            if ((*at)->group == group)
                forget(comms, at);
            else
                at = &(*at)->next;
}
