/*
 * A process's place in the world: its rank, the link to the agent that started it, the device it computes on,
 * the numerics library and the process group of all ranks. Exactly one is open at a time in a process.
 *
 * Started by fsdprun, the context takes rank, world size and all else from the agent. Started by hand it is a
 * world of one, and the same program runs unchanged.
 */
#ifndef FSDP_CONTEXT_H
#define FSDP_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/comm.h>
#include <fsdp/dtype.h>
#include <fsdp/link.h>
#include <fsdp/status.h>

FSDP_BEGIN_DECLS

struct fsdp_context;

struct fsdp_context_options {
    const char *device;      /* "auto" (NULL: cuda where there is one, else cpu), "cpu" or "cuda" */
    const char *collectives; /* "auto" (NULL: nccl where every rank has a GPU of its own), "cpu" or "nccl" */
    const char *numerics;    /* "auto" (NULL), "onednn", "ref"; FSDP_NUMERICS overrides "auto" */
    enum fsdp_matmul_precision matmul_precision;
    int threads; /* compute threads of this rank, at most 4096; 0: the agent's figure, else OMP_NUM_THREADS, else
                    the CPUs */
    /* Called with the agent's job (NULL without one), before a device is opened: may change what stands above. */
    void (*configure)(struct fsdp_context_options *options, const char *job, size_t length, void *user);
    void *configure_user;
};

/**
 * Join the world; collective over all ranks. `options` may be NULL. A rank without its device or numerics row ends the call on all.
 *   FSDP_ERR_PEER         the agent or another rank went away meanwhile
 *   FSDP_ERR_UNSUPPORTED  a device or numerics row this build does not have
 *   FSDP_ERR_CONFIG       the name of no device, collectives or numerics
 *   FSDP_ERR_ARG          threads or matmul_precision out of range
 */
FSDP_API enum fsdp_status fsdp_context_create(struct fsdp_context **out,
                                              const struct fsdp_context_options *options,
                                              struct fsdp_err *err);
/** Leave the world. Models and optimizers made with the context are destroyed before it. NULL is a no-op. */
FSDP_API void fsdp_context_destroy(struct fsdp_context *context);

FSDP_API int fsdp_context_rank(const struct fsdp_context *context);
FSDP_API int fsdp_context_world_size(const struct fsdp_context *context);
FSDP_API int fsdp_context_local_rank(const struct fsdp_context *context);
FSDP_API int fsdp_context_local_world_size(const struct fsdp_context *context);
/** Which forming of the world this is; 0 is the first. */
FSDP_API int fsdp_context_generation(const struct fsdp_context *context);
/** The checkpoint step that every rank is to load, or -1 for none. */
FSDP_API int64_t fsdp_context_resume_step(const struct fsdp_context *context);
/** Absolute path of the run directory; "" when the run has none. Owned by the context. */
FSDP_API const char *fsdp_context_run_dir(const struct fsdp_context *context);
/** The resolved job as JSON (zero-terminated, *length without the zero), or NULL. Owned by the context. */
FSDP_API const char *fsdp_context_job(const struct fsdp_context *context, size_t *length);
/** True when no agent started this process. */
FSDP_API bool fsdp_context_alone(const struct fsdp_context *context);
FSDP_API int fsdp_context_threads(const struct fsdp_context *context);

/** The process group of all ranks, for collectives of your own between steps (<fsdp/comm.h> says from where). Owned by the
 * context. */
FSDP_API struct fsdp_comm *fsdp_context_comm(const struct fsdp_context *context);
/** "cpu" or "cuda". */
FSDP_API const char *fsdp_context_device(const struct fsdp_context *context);
/** Why "auto" took the cpu although there may be a GPU, in one line; "" where there is none, or it was taken. */
FSDP_API const char *fsdp_context_device_refusal(const struct fsdp_context *context);
/** The most bytes of device memory that this process has had allocated; 0 on the cpu. */
FSDP_API uint64_t fsdp_context_device_memory(const struct fsdp_context *context);

/** Seconds that this process has waited so far for a device that is not the cpu; 0 on the cpu. */
FSDP_API double fsdp_context_device_wait_s(const struct fsdp_context *context);
/** What opening the context took of this process, beside joining the world; part of what a restart costs. */
struct fsdp_opening {
    double device_s;      /* the device's back end, its context and streams, numerics */
    double collectives_s; /* what moves tensors between devices: NCCL and the world's communicator */
};
FSDP_API struct fsdp_opening fsdp_context_opening(const struct fsdp_context *context);
/** One line: device, numerics row, library version, instruction set, threads. Written to and returned as
 * `buffer`. */
FSDP_API const char *fsdp_context_describe(const struct fsdp_context *context, char *buffer, size_t size);

/* --- what the agent sees ---------------------------------------------------------------------------------
 */

/** Step, phase and figures of merit. The library stores phases itself while it computes. */
struct fsdp_beat {
    uint64_t step, total_steps;
    uint64_t tokens; /* consumed by all ranks so far */
    double loss, grad_norm, tokens_per_s;
    uint64_t memory_bytes;
};

/** Store `beat` into the progress page: plain stores, no system call but the clock's. Any thread. */
FSDP_API void fsdp_context_beat(struct fsdp_context *context, const struct fsdp_beat *beat);
FSDP_API void fsdp_context_phase(struct fsdp_context *context, enum fsdp_phase phase);
/** Called at the beginning of each phase, on the thread that computes: to measure, not to compute. */
typedef void (*fsdp_phase_fn)(enum fsdp_phase phase, void *user);
/** Have `fn` called from now on, in place of the one before; NULL: none. */
FSDP_API void fsdp_context_on_phase(struct fsdp_context *context, fsdp_phase_fn fn, void *user);
/** Append a JSON object to the run's events.jsonl; nothing happens in a process without an agent. Any thread. */
FSDP_API enum fsdp_status fsdp_context_event(struct fsdp_context *context, const char *json_object,
                                             struct fsdp_err *err);
/** True once for each notice that has arrived (save and stop, ...); never waits. Any thread, also while a collective runs. */
FSDP_API bool fsdp_context_poll_notice(struct fsdp_context *context, struct fsdp_link_notice *notice);

FSDP_END_DECLS

#endif
