/*
 * One rank's training run: its parts and its operations. All ranks call the same functions in the same order.
 * Everything that must survive a restart is in `step`, `cursor`, the model and the optimizer.
 *
 *   trainer_open()     opens job, run directory, data, model and optimizer
 *   trainer_resume()   loads step and weights of the checkpoint to resume from
 *   trainer_run()      computes steps, writes metrics and checkpoints, until the end or a notice
 *   trainer_close()    closes everything
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

struct saver;

struct trainer {
    struct fsdp_context *context; /* borrowed */
    const struct job *job;        /* borrowed */
    const char *job_json;         /* borrowed; `job` in the form that job_to_json() writes */
    int rank, W;
    int data_rank,
        /* number of ranks with samples of their own: the ranks of a tensor group have the same samples */
        data_ranks;

    char run_dir[TRAINER_PATH_BYTES];
    /* for files below the run directory (shardfile/io_beneath.h); the context uses it too */
    struct fsdp_io *io;
    int lock_fd; /* lock on the run directory, if there is no agent that holds it; else -1 */

    struct tokens *tokens;
    struct order order;
    /* the record of the data in checkpoints; `bytes` is set on local rank 0 only */
    struct data_record data;
    char data_json[DATA_RECORD_BYTES]; /* that record as text */
    uint64_t batch, n_micro;           /* samples of this rank per micro-step; micro-steps per step */

    struct sharding_meshes meshes;
    struct fsdp_module *tree;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    struct saver *saver; /* NULL: saves wait for the disk, and there are no snapshots */

    int speaker;  /* after TRAINER_DIVERGED: the rank that reports it */
    bool resumed; /* training resumed from a checkpoint of step `step` */
    /* the checkpoint from which training resumed is in memory only, and newer than any on the disk */
    bool unsaved;
    uint64_t step;   /* steps done so far */
    uint64_t cursor; /* samples consumed so far, by all ranks */
};

enum trainer_end {
    TRAINER_COMPLETE, /* all job->train.steps are done, and saved unless checkpoint.every is 0 */
    TRAINER_STOPPED,  /* a notice came: the step was finished and saved; another run can resume */
    TRAINER_DIVERGED, /* loss or gradient is not finite; the step was not applied and nothing was saved */
};

/**
 * Prepares everything for training, with initial weights. Collective: if one rank fails, the others return
 * FSDP_ERR_PEER. The function zeroes `trainer` first. The caller must call trainer_close(), whatever the
 * result.
 */
enum fsdp_status trainer_open(struct trainer *trainer, struct fsdp_context *context, const struct job *job,
                              const char *job_json, struct fsdp_err *err);
void trainer_close(struct trainer *trainer);

/** The job's settings for the model and the optimizer. A forecast needs them too. */
enum fsdp_matmul_precision trainer_matmul_precision(const struct job *job);
struct fsdp_model_options trainer_model_options(const struct job *job, uint64_t batch, uint64_t n_micro);
struct fsdp_optimizer_options trainer_optimizer_options(const struct job *job);

/**
 * For optimizer.in_backward: hooks the optimizer into the tree's groups, which changes the plan. `trainer`
 * must have its optimizer when a step runs; NULL: for planning. Must be called before the model is created.
 */
void trainer_hook_optimizer(struct fsdp_module *tree, const struct job *job, struct trainer *trainer);

/** Opens the data file, and the run directory if the process has no agent. Part of trainer_open(). */
enum fsdp_status trainer_open_files(struct trainer *trainer, struct fsdp_err *err);
void trainer_close_files(struct trainer *trainer);

/**
 * Fills in trainer->data, and makes every checkpoint include it. Collective. Part of trainer_open().
 *   FSDP_ERR_MISMATCH  two nodes have different data
 */
enum fsdp_status trainer_identify_data(struct trainer *trainer, struct fsdp_err *err);

/**
 * Rank 0 compares the checkpoint in `step_directory`, which was loaded as `state`, with this job and its
 * data. It prints one line for each difference: world, data, job.
 *   FSDP_ERR_MISMATCH  it was trained on other data, and checkpoint.data is check
 *   FSDP_ERR_CONFIG    it has all steps of the job, and another job made it
 */
enum fsdp_status trainer_check_saved(const struct trainer *trainer, const char *step_directory,
                                     const struct fsdp_checkpoint_state *state, struct fsdp_err *err);

/**
 * Each rank compares its machine, threads and instruction set with those of the same rank when the checkpoint
 * was saved. If they differ on any, rank 0 prints one line about the lowest such rank. Another number of
 * ranks is trainer_check_saved()'s. Collective. FSDP_ERR_PEER: a rank is gone.
 */
enum fsdp_status trainer_compare_machines(const struct trainer *trainer,
                                          const struct fsdp_checkpoint_state *state, struct fsdp_err *err);

/**
 * Loads the checkpoint that the agent names or, without an agent, the newest one that verifies. If there is
 * none, training starts from initial weights.
 *   FSDP_ERR_MISMATCH  its model (the message names the first tensor that differs), seed or data is another
 *   FSDP_ERR_CONFIG    checkpoint.resume is never, and there are checkpoints; or as trainer_check_saved()
 */
enum fsdp_status trainer_resume(struct trainer *trainer, struct fsdp_err *err);

/**
 * Returns whether this process continues a run: from a checkpoint, or after ranks were lost. A directory of
 * checkpoints that cannot be read counts as empty. Must be called before trainer_resume(), which loads.
 */
bool trainer_goes_on(const struct trainer *trainer);

/**
 * Opens trainer->saver, if the job wants it and memory suffices; rank 0 says so if it does not. Collective.
 * Part of trainer_resume().
 */
enum fsdp_status trainer_open_saver(struct trainer *trainer, struct fsdp_err *err);

/** Saves the state after `step`. Collective. The checkpoint is durable when the call returns. */
enum fsdp_status trainer_save(struct trainer *trainer, struct fsdp_err *err);

/**
 * Copies the state after `step` into memory, to be written to the disk or to stay there. Collective. Needs
 * trainer->saver. Errors are those of saver_save().
 */
enum fsdp_status trainer_snapshot(struct trainer *trainer, bool to_disk, struct fsdp_err *err);

/**
 * Trains from `step` to job->train.steps. Rank 0 writes metrics, and prints one line on stdout for every
 * log_every steps.
 */
enum fsdp_status trainer_run(struct trainer *trainer, enum trainer_end *end, struct fsdp_err *err);

/**
 * Compares the statuses of all ranks. If all are FSDP_OK, every rank returns FSDP_OK. Otherwise the lowest
 * failing rank returns its own status, and the others return FSDP_ERR_PEER with an empty message. So one
 * failure of many ranks is reported as one line instead of W lines.
 */
enum fsdp_status trainer_agree(struct trainer *trainer, enum fsdp_status status, struct fsdp_err *err);

#endif
