/*
 * What a context is inside. The trainer and tests may use this header; users have <fsdp/context.h>.
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

/* Files as io_anywhere has them. Each read, write or sync tells the agent that this process is alive. */
struct context_io {
    struct fsdp_io base;
    const struct link *link;
};

struct fsdp_context {
    struct link *link;
    struct fsdp_comm *comm;
    struct fsdp_model *models; /* the list of those that exist */
    /* a model whose second thread gathers by hand, and uses the groups until it is waited for; NULL: none */
    struct fsdp_model *gathering;
    struct device device;
    const struct plugin *plugin; /* the plug-in from which the device comes; NULL: the device is the cpu */
    struct fsdp_err refusal;     /* why "auto" took the cpu although there may be a GPU; "" otherwise */
    struct device_comms comms;   /* what all groups of ranks that move device memory have in common */
    struct device_stream *streams[PLAN_N_STREAMS];
    struct numerics numerics;
    /*
     * The cpu, opened in addition to a device with memory of its own, as soon as something offloads: it
     * computes on host memory.
     */
    struct device host;
    struct numerics host_numerics;
    struct fsdp_progress *progress; /* the link's */
    int rank, W, threads;
    /*
     * how many groups were made after the world's; names of groups have such a number, which is equal on all
     * ranks
     */
    unsigned n_groups;
    fsdp_phase_fn on_phase; /* NULL: not called */
    void *on_phase_user;
    struct fsdp_opening opening;
    struct context_io io;
    /* directories to which this process has saved, locked until the context is destroyed */
    struct directory_lock *saves_to;
    const char *checkpoint_extra; /* borrowed; NULL: none */
    /* this process has saved or loaded since the agent looked for the step to resume from */
    bool resume_is_stale;
};

/**
 * Make a context on a link and a process group that exist already. It owns both from now on, also after a
 * failure.
 */
enum fsdp_status context_create_on(struct fsdp_context **out, const struct fsdp_context_options *options,
                                   struct link *link, struct fsdp_comm *comm, struct fsdp_err *err);

/**
 * Choose and open device, streams, collectives and numerics. Collective over context->comm, which is wrapped
 * if tensors are not in host memory. context_close_device() must be called after a failure as well; it
 * destroys context->comm.
 */
enum fsdp_status context_open_device(struct fsdp_context *context, const struct fsdp_context_options *options,
                                     struct fsdp_err *err);
/** Close all of that; what was not opened is skipped. */
void context_close_device(struct fsdp_context *context);

/**
 * agree.c: whether an entry point failed on some rank. Collective over the world; `own` is this rank's
 * status, with its words in `err`. Every rank gets the status of the lowest rank that failed. The failed rank
 * keeps its words; every other one gets "rank R: " and those words. FSDP_OK if no rank failed. A rank whose
 * device failed does not take part: it ends.
 */
enum fsdp_status context_agree(const struct fsdp_context *context, enum fsdp_status own,
                               struct fsdp_err *err);

/**
 * Sets a JSON object that every fsdp_checkpoint_save() writes into the manifest as `extra`. Borrowed; NULL:
 * none.
 */
void context_set_checkpoint_extra(struct fsdp_context *context, const char *json_object);

/** This process's end of the link to the agent, for saving and for notices. Borrowed. */
struct link *context_link(const struct fsdp_context *context);

/**
 * Is a second thread for collectives worth having? True if a network is between ranks, as the thread mostly
 * sleeps then, or if this host's ranks leave a CPU free for it.
 */
bool context_has_idle_time(const struct fsdp_context *context);
/**
 * The rule of context_has_idle_time() as a pure function. `n_ranks` ranks run on this host with `threads`
 * threads each, on n_cpus CPUs; 0: the number is not known, so none counts as free.
 */
bool context_leaves_idle_time(unsigned n_nodes, int n_ranks, int threads, int n_cpus);

/** Shows the agent that this process is alive, by a plain store to the progress page. */
void context_alive(const struct fsdp_context *context);
/**
 * Show what thread `thread` (as on the progress page) does next: the layer or unit with the number `place` of
 * flight_add_place(); 0: none. Like context_alive(), this is a plain store.
 */
void context_place(const struct fsdp_context *context, int thread, uint32_t place);

/** Make *io files that report to the agent over `link`, which is borrowed. */
void context_io_init(struct context_io *io, const struct link *link);
/**
 * Returns the file operations for checkpoints and weights. They tell the agent during a large file that this
 * process is alive, because the file may take longer than a rank may be silent.
 */
struct fsdp_io *context_files(struct fsdp_context *context);

#endif
