/*
 * Device memory that collectives move. If the device has collectives of its own (NCCL), the memory comes from
 * their allocator. Each group registers the memory at its first call that uses it. So a group knows only the
 * memory that it moves, and no caller has to say which. With staging, and on the cpu, it is plain device
 * memory.
 */
#ifndef COMM_DEVICE_MEMORY_H
#define COMM_DEVICE_MEMORY_H

#include <stddef.h>

#include <fsdp/status.h>

struct device_comms;
struct device_group;

/** As device_ops.alloc(), with the same errors; to be freed with device_memory_free(). */
enum fsdp_status device_memory_alloc(struct device_comms *comms, size_t size_bytes, void **out,
                                     struct fsdp_err *err);
/** Unregisters the memory with every group that knows it, and frees it. NULL is a no-op. */
void device_memory_free(struct device_comms *comms, void *memory, size_t size_bytes);

/**
 * Announces that `group` will move memory at `address`: registers the memory, unless the group knows it.
 * Memory that device_memory_alloc() did not allocate is left alone. After an error the memory is not
 * registered.
 */
enum fsdp_status device_memory_use(struct device_comms *comms, struct device_group *group,
                                   const void *address, struct fsdp_err *err);
/** Announces that `group` will be closed: withdraws all of its registrations. */
void device_memory_leave(struct device_comms *comms, struct device_group *group);

#endif
