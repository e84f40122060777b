/*
 * One rank's training run: what it is made of, and what is done with it. All ranks call the same functions in
 * the same order. Everything that must survive a restart is in `step`, `cursor`, the model and the optimizer.
 *
 *   trainer_open()     job, run directory, data, model, optimizer
 *   trainer_resume()   step and weights of the checkpoint to go on from
 *   trainer_run()      steps, metrics, checkpoints, to the end or to a notice
 *   trainer_close()
 */
#ifndef TRAINER_TRAINER_H
#define TRAINER_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/fsdp.h>

#include "shard_runtime/data/order.h"
#include "shard_runtime/data/tokens.h"
#include "shard_runtime/job/job.h"
#include "shard_runtime/shardfile/data_record.h"
#include "shard_runtime/trainer/sharding.h"

enum { TRAINER_PATH_BYTES = 4096 };

struct trainer {
    struct fsdp_context *context; /* borrowed */
    const struct job *job;        /* borrowed */
    const char *job_json;         /* borrowed; `job` as job_to_json() writes it */
    int rank, W;
    int data_rank,
        data_ranks; /* of ranks with samples of their own: the others of a tensor group have the same */

    char run_dir[TRAINER_PATH_BYTES];
    struct fsdp_io *io; /* for what stands below it (shardfile/io_beneath.h); the context's uses it too */
    int lock_fd; /* of a run without an agent, which holds the directory itself; else -1 */

    struct tokens *tokens;
    struct order order;
    struct data_record data;           /* what the checkpoints say about it; `bytes` on local rank 0 only */
    char data_json[DATA_RECORD_BYTES]; /* the same as text */
    uint64_t batch, n_micro; /* samples of this rank and micro-step; micro-steps a step */

    struct sharding_meshes meshes;
    struct fsdp_module *tree;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;

    int speaker;     /* after TRAINER_DIVERGED: the rank that says so */
    bool resumed;    /* from a checkpoint, of step `step` */
    uint64_t step;   /* done so far */
    uint64_t cursor; /* samples consumed so far, by all ranks */
};

enum trainer_end {
    TRAINER_COMPLETE, /* job->train.steps are done, and saved unless checkpoint.every is 0 */
    TRAINER_STOPPED,  /* a notice came: the step was finished and saved; run again to go on */
    TRAINER_DIVERGED, /* loss or gradient is not finite; the update was not made, nothing was saved */
};

/**
 * Make everything ready, with initial weights. Collective: where one rank fails the others return
 * FSDP_ERR_PEER. `trainer` is zeroed first; trainer_close() is to be called whatever comes back.
 */
enum fsdp_status trainer_open(struct trainer *trainer, struct fsdp_context *context, const struct job *job,
                              const char *job_json, struct fsdp_err *err);
void trainer_close(struct trainer *trainer);

/** What the job says of the model and of the optimizer; a forecast needs no more. */
enum fsdp_matmul_precision trainer_matmul_precision(const struct job *job);
struct fsdp_model_options trainer_model_options(const struct job *job, uint64_t batch, uint64_t n_micro);
struct fsdp_optimizer_options trainer_optimizer_options(const struct job *job);

/** optimizer.in_backward: hook the optimizer into the tree's groups, which changes the plan. `trainer` has the optimizer
 * when a step runs; NULL: for planning. Before the model. */
void trainer_hook_optimizer(struct fsdp_module *tree, const struct job *job, struct trainer *trainer);

/** The files: open the data; the run directory of a process without an agent. Part of trainer_open(). */
enum fsdp_status trainer_open_files(struct trainer *trainer, struct fsdp_err *err);
void trainer_close_files(struct trainer *trainer);

/**
 * Fill in trainer->data, and have it written into every checkpoint. Collective. Part of trainer_open().
 *   FSDP_ERR_MISMATCH  two nodes have different data
 */
enum fsdp_status trainer_identify_data(struct trainer *trainer, struct fsdp_err *err);

/**
 * Rank 0: hold the checkpoint in `step_directory` (loaded: `state`) against this job and its data, and say what
 * has changed, in one line for each of: world or numerics, data, job.
 *   FSDP_ERR_MISMATCH  it was trained on other data, and checkpoint.data is check
 *   FSDP_ERR_CONFIG    it has all steps of the job, and another job made it
 */
enum fsdp_status trainer_check_saved(const struct trainer *trainer, const char *step_directory,
                                     const struct fsdp_checkpoint_state *state, struct fsdp_err *err);

/**
 * Load the checkpoint that the agent names; without an agent the newest one that verifies; none: initial
 * weights.
 *   FSDP_ERR_MISMATCH  it is of another model (the message names the first tensor that differs), seed or data
 *   FSDP_ERR_CONFIG    checkpoint.resume is never, and there are checkpoints; or as trainer_check_saved()
 */
enum fsdp_status trainer_resume(struct trainer *trainer, struct fsdp_err *err);

/** Does this process go on with a run: from a checkpoint, or after ranks were lost? An unreadable directory of checkpoints
 * counts as none. Before trainer_resume(), which loads. */
bool trainer_goes_on(const struct trainer *trainer);

/** Save the state after `step`; collective, durable on return. */
enum fsdp_status trainer_save(struct trainer *trainer, struct fsdp_err *err);

/** Train from `step` to job->train.steps. Rank 0 writes metrics and one line per log_every steps on stdout.
 */
enum fsdp_status trainer_run(struct trainer *trainer, enum trainer_end *end, struct fsdp_err *err);

/**
 * All ranks give what they have come to; all return FSDP_OK, or the lowest failing rank its own status and
 * the others FSDP_ERR_PEER without a word. One failure of many ranks is then one line, not W.
 */
enum fsdp_status trainer_agree(struct trainer *trainer, enum fsdp_status status, struct fsdp_err *err);

#endif
