/*
 * What the commands of `fsdprun ckpt` share. Each command gets the user's words, prints to `out`, and returns
 * the exit status of fsdprun. After a failure `err` has the line for the user.
 */
#ifndef LAUNCHER_CKPT_IMPL_H
#define LAUNCHER_CKPT_IMPL_H

#include <stdio.h>

#include "launcher/ckpt_words.h"
#include "shard_runtime/shardfile/contents.h"

/** The exit status of a command that found damage (verify) or differences (diff). */
enum { CKPT_EXIT_FOUND = 1 };

/**
 * Returns the exit status for a command that failed with `status`. What the user named is an input file, so a
 * file of an unsupported form gives FSDP_EXIT_INPUT, not the status for a wrong setting.
 */
int ckpt_exit_status(enum fsdp_status status);

/**
 * Finds the directory of checkpoints that `path` means: RUN/checkpoints, or `path` itself.
 *   FSDP_ERR_NOT_FOUND  `path` is no directory
 *   FSDP_ERR_FORMAT     it is one checkpoint
 */
enum fsdp_status ckpt_find_directory(const char *path, char out[IO_PATH_BYTES], struct fsdp_err *err);

/**
 * Finds the checkpoint that `path` means: `path` itself, or the newest complete one if it is a RUN.
 *   FSDP_ERR_NOT_FOUND  there is none
 */
enum fsdp_status ckpt_find_one(const char *path, char out[IO_PATH_BYTES], struct fsdp_err *err);

/**
 * Lists the tensors at `path`, which is a checkpoint, a run (its newest complete checkpoint), or weights of
 * another program. For `directory` and errors see weights_list().
 */
enum fsdp_status ckpt_list(const char *path, struct contents *out, char directory[IO_PATH_BYTES],
                           struct fsdp_err *err);

/** Does the directory `path` have a manifest? */
bool ckpt_has_manifest(const char *path);

struct cJSON;

/**
 * Verifies the checkpoint in `path`. Prints the result to `out`, or adds it to `list` if `list` is not NULL.
 *   step   the step in the checkpoint's name; -1: the name has none
 *   sound  receives true if no damage was found
 */
enum fsdp_status ckpt_verify_one(const char *path, int64_t step, bool *sound, FILE *out, struct cJSON *list,
                                 struct fsdp_err *err);

struct rundir;
struct directory_lock;

/* The locks of a run. A job that is running holds at least one of them. */
struct ckpt_lock {
    struct rundir *rundir;
    struct directory_lock *locks;
};

/**
 * Takes the locks of the run whose checkpoints are in `directory`. After a failure, too, the caller must call
 * ckpt_unlock_run().
 *   FSDP_ERR_BUSY  a job that is running holds one of the locks
 */
enum fsdp_status ckpt_lock_run(struct ckpt_lock *lock, const char *directory, struct fsdp_err *err);
void ckpt_unlock_run(struct ckpt_lock *lock);

int ckpt_ls(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_show(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
/** The command `verify --watch`. It ends when the run is removed, or by a signal. */
int ckpt_watch(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_verify(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_diff(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_export(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_import(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_prune(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);

#endif
