/*
 * The place of a process in the world. It has the rank, the device, the numerics library, the link to the
 * agent, and the process group of all ranks. A process has exactly one context open at a time.
 *
 * If fsdprun started the process, the context takes the rank, the world size and everything else from the
 * agent. If a user started the program by hand, it is a world of one rank, and runs unchanged.
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
    const char *device;      /* "auto" (NULL: cuda if there is a GPU, else cpu), "cpu" or "cuda" */
    const char *collectives; /* "auto" (NULL: nccl if every rank has its own GPU), "cpu" or "nccl" */
    const char *numerics;    /* "auto" (NULL), "onednn", "ref"; FSDP_NUMERICS overrides "auto" */
    enum fsdp_matmul_precision matmul_precision;
    /*
     * compute threads of this rank, at most 4096; 0: the number from the agent. Without an agent it is
     * OMP_NUM_THREADS, else the number of CPUs that the process may use
     */
    int threads;
    /*
     * Called before a device is opened, with the agent's job (NULL if there is none). May change the options
     * above.
     */
    void (*configure)(struct fsdp_context_options *options, const char *job, size_t length, void *user);
    void *configure_user;
};

/**
 * Joins the world. Collective over all ranks. `options` may be NULL. If one rank cannot have its device or
 * numerics library, the call fails on all ranks.
 *   FSDP_ERR_PEER         the agent or another rank went away meanwhile
 *   FSDP_ERR_UNSUPPORTED  this build does not have the device or the numerics library
 *   FSDP_ERR_CONFIG       the options name an unknown device, collectives or numerics library
 *   FSDP_ERR_ARG          threads or matmul_precision is out of range
 */
FSDP_API enum fsdp_status fsdp_context_create(struct fsdp_context **out,
                                              const struct fsdp_context_options *options,
                                              struct fsdp_err *err);

/**
 * Leaves the world. The caller destroys the models and optimizers made with the context before. NULL does
 * nothing.
 */
FSDP_API void fsdp_context_destroy(struct fsdp_context *context);

FSDP_API int fsdp_context_rank(const struct fsdp_context *context);
FSDP_API int fsdp_context_world_size(const struct fsdp_context *context);
FSDP_API int fsdp_context_local_rank(const struct fsdp_context *context);
FSDP_API int fsdp_context_local_world_size(const struct fsdp_context *context);

/** Number of the current generation: how often the world was formed before. The first is 0. */
FSDP_API int fsdp_context_generation(const struct fsdp_context *context);

/**
 * The step of the newest checkpoint, which every rank must load; -1: there is none to load. If it turns out
 * to be damaged, fsdp_checkpoint_load() loads an older one.
 */
FSDP_API int64_t fsdp_context_resume_step(const struct fsdp_context *context);

/** Absolute path of the run directory; "" if the run has none. The context owns the string. */
FSDP_API const char *fsdp_context_run_dir(const struct fsdp_context *context);

/**
 * The resolved job as JSON (zero-terminated; *length excludes the zero); NULL if there is no job. The context
 * owns the string.
 */
FSDP_API const char *fsdp_context_job(const struct fsdp_context *context, size_t *length);

/** True if no agent started this process. */
FSDP_API bool fsdp_context_alone(const struct fsdp_context *context);
FSDP_API int fsdp_context_threads(const struct fsdp_context *context);

/**
 * The process group of all ranks, for the caller's own collectives between steps. <fsdp/comm.h> lists the
 * threads that may call them. The context owns the group.
 */
FSDP_API struct fsdp_comm *fsdp_context_comm(const struct fsdp_context *context);

/** "cpu" or "cuda". */
FSDP_API const char *fsdp_context_device(const struct fsdp_context *context);

/**
 * One line that explains why "auto" chose the cpu; "" if it chose a GPU, or if there is nothing to explain.
 */
FSDP_API const char *fsdp_context_device_refusal(const struct fsdp_context *context);

/** The most bytes of device memory that this process has had allocated at any one time; 0 on the cpu. */
FSDP_API uint64_t fsdp_context_device_memory(const struct fsdp_context *context);

/** Seconds that this process has spent so far waiting for its device; 0 on the cpu. */
FSDP_API double fsdp_context_device_wait_s(const struct fsdp_context *context);

/**
 * Time that this process needed to open the context, apart from joining the world. It is a part of what a
 * restart costs.
 */
struct fsdp_opening {
    /* to open the device's back end, its context, its streams and the numerics library */
    double device_s;
    double collectives_s; /* to open NCCL and the world's communicator */
};
FSDP_API struct fsdp_opening fsdp_context_opening(const struct fsdp_context *context);

/**
 * Writes one line to `buffer`: device and its model, numerics library and its version, instruction set,
 * threads. Returns `buffer`.
 */
FSDP_API const char *fsdp_context_describe(const struct fsdp_context *context, char *buffer, size_t size);

/* What the agent reads */

/** Progress of training, for the agent. The library stores the phases itself while it computes. */
struct fsdp_beat {
    uint64_t step, total_steps;
    uint64_t tokens; /* consumed by all ranks so far */
    double loss, grad_norm, tokens_per_s;
    uint64_t memory_bytes;
};

/**
 * Stores `beat` in the progress page by plain stores; the clock is the only system call. May be called on any
 * thread.
 */
FSDP_API void fsdp_context_beat(struct fsdp_context *context, const struct fsdp_beat *beat);
FSDP_API void fsdp_context_phase(struct fsdp_context *context, enum fsdp_phase phase);

/**
 * Called at the beginning of each phase, on the thread that computes. For measuring: it must not compute
 * anything.
 */
typedef void (*fsdp_phase_fn)(enum fsdp_phase phase, void *user);

/**
 * Sets the function that is called at each phase from now on; it replaces the earlier one. NULL: none is
 * called.
 */
FSDP_API void fsdp_context_on_phase(struct fsdp_context *context, fsdp_phase_fn fn, void *user);

/**
 * Appends a JSON object to the run's events.jsonl. In a process without an agent it does nothing. May be
 * called on any thread.
 */
FSDP_API enum fsdp_status fsdp_context_event(struct fsdp_context *context, const char *json_object,
                                             struct fsdp_err *err);

/**
 * Takes the next notice (save and stop, ...) that has arrived. Returns true once for each notice, and false
 * if there is none; never waits. May be called on any thread, also while a collective runs.
 */
FSDP_API bool fsdp_context_poll_notice(struct fsdp_context *context, struct fsdp_link_notice *notice);

FSDP_END_DECLS

#endif
