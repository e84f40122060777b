/*
 * Collectives that a device does by itself, ordered by its streams: what a plug-in brings (NCCL) and the engine opens one of for
 * each group of ranks. Calls are queued, not waited for. All buffers are device memory.
 *
 * Thread: the one that opened it.
 */
#ifndef COMM_DEVICE_COLLECTIVES_H
#define COMM_DEVICE_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/comm.h>

struct device;
struct device_stream;
struct device_group; /* one rank's end of one group */

enum { DEVICE_GROUP_ID_BYTES = 128 };

struct device_group_config {
    const char *name; /* for messages */
    struct device *device;
    char id[DEVICE_GROUP_ID_BYTES]; /* make_id() of rank 0, the same on all */
    int rank, size;
    /* Asked while waiting; what it fails with ends the wait. May be NULL. */
    enum fsdp_status (*watch)(void *user, struct fsdp_err *err);
    void *watch_user;
};

struct device_collectives {
    const char *name; /* as in a job file: "nccl" */
    /** An identity for a new group; one rank makes it, and gives it to the others. */
    enum fsdp_status (*make_id)(const struct device *device, char id[DEVICE_GROUP_ID_BYTES],
                                struct fsdp_err *err);
    /** Collective over the group. FSDP_ERR_PEER: the watch said so, or a peer broke its connection. */
    enum fsdp_status (*open)(struct device_group **out, const struct device_group_config *config,
                             struct fsdp_err *err);
    /** After everything queued is done; of a group that is broken or aborted at once. NULL is a no-op. */
    void (*close)(struct device_group *group);
    /** Did anything fail since? Never blocks; sticky. */
    enum fsdp_status (*poll)(struct device_group *group, struct fsdp_err *err);
    /** Give up what is under way, so that streams get free. Every later call but close() is FSDP_ERR_PEER. */
    void (*abort)(struct device_group *group);

    /** As <fsdp/comm.h>; `factor` other than 1 multiplies what each rank gives, before the sum (FSDP_SUM only). */
    enum fsdp_status (*all_gather)(struct device_group *group, const void *send, void *recv, size_t n_elems,
                                   enum fsdp_dtype dtype, struct device_stream *stream, struct fsdp_err *err);
    enum fsdp_status (*reduce_scatter)(struct device_group *group, const void *send, void *recv,
                                       size_t n_elems, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                       float factor, struct device_stream *stream, struct fsdp_err *err);
    enum fsdp_status (*all_reduce)(struct device_group *group, void *buffer, size_t n_elems,
                                   enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                   struct device_stream *stream, struct fsdp_err *err);
    enum fsdp_status (*broadcast)(struct device_group *group, void *buffer, size_t size_bytes, int root,
                                  struct device_stream *stream, struct fsdp_err *err);

    /** Memory of the device that the group's collectives move best, zeroed; freed as any of the device. */
    enum fsdp_status (*alloc_memory)(struct device *device, size_t size_bytes, void **out,
                                     struct fsdp_err *err);
    /** Tell that collectives will use [memory, memory + size_bytes) often; *handle is for unregister(), NULL where
     * registering does nothing here. */
    enum fsdp_status (*register_memory)(struct device_group *group, void *memory, size_t size_bytes,
                                        void **handle, struct fsdp_err *err);
    void (*unregister_memory)(struct device_group *group, void *handle);
    void (*describe)(char *buffer, size_t size);
};

#endif
