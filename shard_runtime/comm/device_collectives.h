/*
 * Collectives that a device runs by itself, ordered by its streams: the table that a plug-in brings (NCCL).
 * One group of these is opened for each group of ranks (device_comm.h). Calls are queued and return before
 * they are done. All buffers are in device memory.
 *
 * Thread: the one that opened the group.
 */
#ifndef COMM_DEVICE_COLLECTIVES_H
#define COMM_DEVICE_COLLECTIVES_H

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
    /*
     * Called every few milliseconds while the group waits; a failure that it returns ends the wait. May be
     * NULL.
     */
    enum fsdp_status (*watch)(void *user, struct fsdp_err *err);
    void *watch_user;
};

struct device_collectives {
    const char *name; /* as in a job file: "nccl" */
    /** Makes an identity for a new group. One rank calls this and gives the identity to the others. */
    enum fsdp_status (*make_id)(const struct device *device, char id[DEVICE_GROUP_ID_BYTES],
                                struct fsdp_err *err);
    /** Opens a group; collective over its ranks. FSDP_ERR_PEER: the watch failed, or another rank broke its
     * connection. */
    enum fsdp_status (*open)(struct device_group **out, const struct device_group_config *config,
                             struct fsdp_err *err);
    /** Closes a group once everything queued is done; at once if it is broken or aborted. NULL is a no-op. */
    void (*close)(struct device_group *group);
    /** Returns what has failed since the group was opened, or FSDP_OK. Never blocks; sticky. */
    enum fsdp_status (*poll)(struct device_group *group, struct fsdp_err *err);
    /**
     * Gives up the collectives that are under way, so that their streams continue. Every later call except
     * close() fails with FSDP_ERR_PEER.
     */
    void (*abort)(struct device_group *group);

    /**
     * The collectives, as in <fsdp/comm.h>. If `factor` is not 1, each rank's contribution is multiplied by
     * it before the sum (FSDP_SUM only).
     */
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

    /**
     * Allocates zeroed device memory of the kind that collectives move fastest. It is freed as any other
     * memory of the device.
     */
    enum fsdp_status (*alloc_memory)(struct device *device, size_t size_bytes, void **out,
                                     struct fsdp_err *err);
    /**
     * Registers [memory, memory + size_bytes), which collectives of the group will use often. *handle is for
     * unregister_memory(); NULL if the library does not need to know the memory.
     */
    enum fsdp_status (*register_memory)(struct device_group *group, void *memory, size_t size_bytes,
                                        void **handle, struct fsdp_err *err);
    void (*unregister_memory)(struct device_group *group, void *handle);
    void (*describe)(char *buffer, size_t size);
};

#endif
