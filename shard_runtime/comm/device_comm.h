/*
 * Groups of ranks whose tensors are in device memory. Such a group is made of a group over host memory, which goes on
 * serving buffers of the host (counts, sums, verdicts), and for device memory of one of two:
 *   the device's own collectives (NCCL), queued on the caller's stream;
 *   staging: down to page-locked memory, the host's collective, and up again. For ranks that share a GPU.
 * Which a buffer is, its address tells. Everything else of the tree sees a plain group.
 */
#ifndef COMM_DEVICE_COMM_H
#define COMM_DEVICE_COMM_H

#include <stdbool.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/device/device.h"

/* Which calls ranks compare before they queue them. */
enum device_calls {
    DEVICE_CALLS_FIRST, /* those that are among the first few thousand of their group */
    DEVICE_CALLS_ALL,   /* of a step of training whose plan is not known to be the same on all ranks */
    DEVICE_CALLS_NONE   /* of one whose plan is, after a step of it was compared */
};

/* What the groups of a context share. The storage is the context's; zero-initialised but for the first three. */
struct device_comms {
    struct device *device;
    const struct device_collectives *collectives; /* NULL: staging */
    struct link *link;
    struct device_stream *stream;   /* what calls without one use */
    enum device_calls compares; /* of what the running call belongs to */
    struct device_comm *open;       /* all of them, for the watch */
    struct device_memory *memories; /* comm/device_memory.h */
    struct device_pending *pending; /* comm/device_pending.h */
};

/** What is left when all groups are closed. */
void device_comms_fini(struct device_comms *comms);

/**
 * Put a group for device memory around `host`, which it owns from now on, also after a failure. Collective over its
 * members.
 */
enum fsdp_status device_comm_wrap(struct fsdp_comm **out, struct fsdp_comm *host, struct device_comms *comms,
                                  struct fsdp_err *err);

/** For device_ops.set_watch(): FSDP_ERR_PEER when waiting for a device is in vain. All groups are aborted then. */
enum fsdp_status device_comms_watch(void *comms, struct fsdp_err *err);

/** Does every rank of each host have a GPU of its own? Collective over `world`, a group over host memory. */
enum fsdp_status device_comms_are_alone(struct fsdp_comm *world, const struct link *link,
                                        const struct device *device, bool *alone, struct fsdp_err *err);

#endif
