/*
 * Device memory that collectives move: from the allocator of the device's own collectives (NCCL) where they have one, and told to
 * each group once, at the first call of it that uses it. So only groups that move a buffer know it, and nobody has to say which.
 * With staging, or on the cpu, it is the device's memory and nothing more.
 */
#ifndef COMM_DEVICE_MEMORY_H
#define COMM_DEVICE_MEMORY_H

#include <stddef.h>

#include <fsdp/status.h>

struct device_comms;
struct device_group;

/** As device_ops.alloc(); to be freed below. */
enum fsdp_status device_memory_alloc(struct device_comms *comms, size_t size_bytes, void **out,
                                     struct fsdp_err *err);
/** NULL is a no-op. */
void device_memory_free(struct device_comms *comms, void *memory, size_t size_bytes);

/** `group` is about to move what is at `address`. Memory that is not of the above is nobody's business. */
enum fsdp_status device_memory_use(struct device_comms *comms, struct device_group *group,
                                   const void *address, struct fsdp_err *err);
/** `group` is about to be closed. */
void device_memory_leave(struct device_comms *comms, struct device_group *group);

#endif
