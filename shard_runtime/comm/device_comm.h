/*
 * Groups of ranks whose tensors are in device memory. Such a group wraps a group over host memory, which
 * still serves buffers in host memory (counts, sums, verdicts). Buffers in device memory take one of two
 * ways:
 *   the device's own collectives (NCCL)  queued on the caller's stream
 *   staging (staging.h)                  through page-locked host memory, for ranks that share a GPU
 *
 * The address of a buffer tells where it is. All other code sees a plain group.
 *
 * Thread: as the group over host memory.
 */
#ifndef COMM_DEVICE_COMM_H
#define COMM_DEVICE_COMM_H

#include <stdbool.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/device/device.h"

/* Which calls ranks compare before they queue them. */
enum device_calls {
    DEVICE_CALLS_FIRST, /* the first few thousand of each group */
    DEVICE_CALLS_ALL,   /* all: a training step whose plan is not known to be equal on all ranks */
    /* no calls: this is a later step of a plan that is equal on all ranks, and one step of it was compared */
    DEVICE_CALLS_NONE
};

/*
 * What the groups of a context share. The context's storage, zero-initialised except for the first four
 * fields.
 */
struct device_comms {
    struct device *device;
    const struct device_collectives *collectives; /* NULL: staging */
    struct link *link;
    struct device_stream *stream;   /* for calls without one */
    enum device_calls compares;     /* for the running call */
    struct device_comm *open;       /* all groups, for the watch */
    struct device_memory *memories; /* comm/device_memory.h */
    struct device_pending *pending; /* comm/device_pending.h */
};

/** Frees what is left once all groups are closed. */
void device_comms_fini(struct device_comms *comms);

/**
 * Wraps `host` in a group for device memory; collective over its members. The new group owns `host` from now
 * on. After an error `host` is destroyed and *out is NULL.
 *   FSDP_ERR_NOMEM
 *   any error of opening the device's own collectives
 */
enum fsdp_status device_comm_wrap(struct fsdp_comm **out, struct fsdp_comm *host, struct device_comms *comms,
                                  struct fsdp_err *err);

/**
 * For device_ops.set_watch(); `comms` is the struct device_comms. Never blocks. Returns FSDP_OK as long as
 * waiting for the device makes sense. Otherwise aborts all groups, and returns what failed: the link to the
 * agent, or a group.
 */
enum fsdp_status device_comms_watch(void *comms, struct fsdp_err *err);

/**
 * Sets *alone to whether every rank of each host has a GPU of its own. Collective over `world`, a group over
 * host memory, with the errors of its all-gather.
 */
enum fsdp_status device_comms_are_alone(struct fsdp_comm *world, const struct link *link,
                                        const struct device *device, bool *alone, struct fsdp_err *err);

#endif
