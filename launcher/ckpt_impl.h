/*
 * What the commands of `fsdprun ckpt` share. Each command gets the words of the user, prints to `out`, and
 * returns the exit status. After a failure `err` has the line for the user.
 */
#ifndef LAUNCHER_CKPT_IMPL_H
#define LAUNCHER_CKPT_IMPL_H

#include <stdio.h>

#include "launcher/ckpt_words.h"
#include "shard_runtime/shardfile/contents.h"

/** The command found what it was to look for: damage, or differences. */
enum { CKPT_EXIT_FOUND = 1 };

/** The exit status of a failed command: what a user can name is an input, and never a setting. */
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

/** Lists the tensors at `path`, a checkpoint or weights, as weights_list() does. */
enum fsdp_status ckpt_list(const char *path, struct contents *out, char directory[IO_PATH_BYTES],
                           struct fsdp_err *err);

/** Does the directory `path` have a manifest? */
bool ckpt_has_manifest(const char *path);

struct cJSON;

/**
 * Verifies the checkpoint in `path`, and prints to `out` what was found, or adds it to `list` if that is not
 * NULL.
 *   step   the step of its name; -1: the name does not say
 *   sound  receives whether nothing was found
 */
enum fsdp_status ckpt_verify_one(const char *path, int64_t step, bool *sound, FILE *out, struct cJSON *list,
                                 struct fsdp_err *err);

struct rundir;
struct directory_lock;

/* The locks of a run, of which a live job has at least one. */
struct ckpt_lock {
    struct rundir *rundir;
    struct directory_lock *locks;
};

/**
 * Takes the locks of the run whose directory of checkpoints is `directory`.
 *   FSDP_ERR_BUSY  a live job holds one; the caller calls ckpt_unlock_run() all the same
 */
enum fsdp_status ckpt_lock_run(struct ckpt_lock *lock, const char *directory, struct fsdp_err *err);
void ckpt_unlock_run(struct ckpt_lock *lock);

int ckpt_ls(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_show(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
/** `verify` with --watch: ends when the run is removed, or by a signal. */
int ckpt_watch(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_verify(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_diff(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_export(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_import(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
int ckpt_prune(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);

#endif
