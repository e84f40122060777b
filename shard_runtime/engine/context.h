/*
 * What a context holds. The trainer and tests may look; users have <fsdp/context.h>.
 */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include <fsdp/context.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/device_comm.h"
#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/numerics/numerics.h"
#include "shard_runtime/plan/plan.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "shard_runtime/shardfile/io.h"

/* Files, as io_posix has them. Every read, write and sync is a sign of life on the progress page. */
struct context_io {
    struct fsdp_io base;
    const struct link *link;
};

struct fsdp_context {
    struct link *link;
    struct fsdp_comm *comm;
    struct fsdp_model *models; /* that were made and not destroyed */
    struct fsdp_model
        *gathering; /* its second thread unshards by hand: it has the groups until it is waited for */
    struct device device;
    const struct plugin *plugin; /* that the device came from; NULL: the cpu */
    struct fsdp_err refusal;     /* why "auto" took the cpu where there may be a GPU; "" otherwise */
    struct device_comms comms;   /* what the groups for device memory share */
    struct device_stream *streams[PLAN_N_STREAMS];
    struct numerics numerics;
    struct device
        host; /* beside a device with memory of its own, once something offloads: the cpu's, and what computes on
                           what is in host memory */
    struct numerics host_numerics;
    struct fsdp_progress *progress; /* of the link */
    int rank, W, threads;
    unsigned
        n_groups; /* process groups made so far beside the world's: their names are numbered, alike on all ranks */
    fsdp_phase_fn on_phase; /* NULL: nobody wants to know */
    void *on_phase_user;
    struct fsdp_opening opening;
    struct context_io io;
    struct directory_lock
        *saves_to;                /* alone: directories it saved to, locked until the context is destroyed */
    const char *checkpoint_extra; /* borrowed; NULL: none */
    bool resume_is_stale;         /* saved or loaded since the agent verified the step to resume from */
};

/** A context on a link and a process group that are there already; it owns both from now on, also after a
 * failure. */
enum fsdp_status context_create_on(struct fsdp_context **out, const struct fsdp_context_options *options,
                                   struct link *link, struct fsdp_comm *comm, struct fsdp_err *err);

/** Choose and open device, streams, collectives and numerics; collective over context->comm, which is wrapped where tensors
 * are not in host memory. After a failure, too, context_close_device() is to be called; it destroys context->comm. */
enum fsdp_status context_open_device(struct fsdp_context *context, const struct fsdp_context_options *options,
                                     struct fsdp_err *err);
void context_close_device(struct fsdp_context *context);

/**
 * agree.c: whether an entry point failed on some rank. Collective over the world; `own` is this rank's status, with its words in
 * `err`. Every rank gets the status of the lowest rank that failed. The failed rank keeps its words; every other one gets
 * "rank R: " and those words. FSDP_OK if no rank failed. A rank whose device failed does not take part: it ends.
 */
enum fsdp_status context_agree(const struct fsdp_context *context, enum fsdp_status own,
                               struct fsdp_err *err);

/** A JSON object that every fsdp_checkpoint_save() writes into the manifest as `extra`. Borrowed; NULL: none. */
void context_set_checkpoint_extra(struct fsdp_context *context, const char *json_object);

/** The context's end of the link to the agent: for saving and for notices. Borrowed. */
struct link *context_link(const struct fsdp_context *context);

/**
 * Would a thread that waits for other ranks have a CPU to run on, or mostly sleep? True with a network between ranks, or
 * when this host's ranks leave a CPU free. The second is the rule alone: n_ranks of this host with so many threads each,
 * that may run on n_cpus; n_cpus 0: nobody knows, and none is free.
 */
bool context_has_idle_time(const struct fsdp_context *context);
bool context_leaves_idle_time(unsigned n_nodes, int n_ranks, int threads, int n_cpus);

/** Store that this process is alive. */
void context_alive(const struct fsdp_context *context);

void context_io_init(struct context_io *io, const struct link *link);
/** Where checkpoints and weights are read and written: a large one takes longer than a rank may be silent. */
struct fsdp_io *context_files(struct fsdp_context *context);

#endif
