/*
 * The run directory RUN: which process holds it, and where the files of a run are in it. There are three
 * kinds:
 *   - A job's is <dir>/<name>. It contains job.json, events.jsonl, errors.json, lock, and the logs of a rank
 *     in logs/g<generation>/rank<rank>/{stdout,stderr}.log.
 *   - A program's is torchrun's <dir>/<run id>_<random>/, with attempt_<attempt>/<local
 *     rank>/{stdout,stderr}.log. Without a log directory it is in a new temporary directory.
 *   - A program's directory that the user names is shared by all nodes and used by later runs. The folder of
 *     a rank is attempt_<attempt>/<global rank>. The attempts of a run follow those that are there already.
 * Files of a whole generation (the index, filtered lines) are in logs/g<generation> or attempt_<attempt>.
 *
 * The coordinator counts the attempts: generation g is attempt rundir_first_attempt() + g.
 *
 * Only one live job may use the directory. Its coordinator holds an flock on RUN/lock as long as the struct
 * exists. A coordinator that takes the place of a lost one has the term of an arbiter instead, until the lock
 * is free. The lost one may be stopped, and still hold it. The lock file itself has no meaning: a crash
 * releases the lock. The words in the file (pid, host, time) are for the error message. The descriptor is
 * close-on-exec, so workers never hold the lock.
 *
 * The directory may belong to another user (core/beneath.h). Its symbolic links are followed only if this
 * user or root owns them. It is refused if it belongs to another user and everyone may write to it.
 *
 * A later run never truncates or deletes anything in it. Generations count from 0 in every run. A run that
 * finds the logs of an earlier one appends to them, after a line "--- fsdprun: run of TIME, pid N ---".
 */
#ifndef AGENT_RUNDIR_H
#define AGENT_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

struct rundir;

/* The three kinds, in this order. */
enum rundir_kind { RUNDIR_JOB, RUNDIR_PROGRAM, RUNDIR_NAMED };
enum rundir_stream { RUNDIR_STDOUT, RUNDIR_STDERR };

struct rundir_spec {
    enum rundir_kind kind;
    const char *path; /* RUN itself, absolute (rundir_job_path, rundir_program_path) */
    bool lock;        /* take the lock, because this process is the job's coordinator */
    bool temporary;   /* rundir_close() may remove the directory if nothing was kept in it */
};

enum { RUNDIR_PATH_BYTES = 4096 };

/**
 * Set `path` (RUNDIR_PATH_BYTES) to the run directory of a job, "<dir>/<name>", as an absolute path. Creates
 * nothing.
 *   FSDP_ERR_CONFIG  `name` is not one path component (it is empty, ".", ".." or contains a '/'), or the path
 *                    is too long
 */
enum fsdp_status rundir_job_path(char *path, const char *dir, const char *name, struct fsdp_err *err);

/**
 * Does the same for a run directory that the user names: sets `path` to `dir` as an absolute path.
 * FSDP_ERR_CONFIG: it is "/".
 */
enum fsdp_status rundir_named_path(char *path, const char *dir, struct fsdp_err *err);

/**
 * Returns TMPDIR if it is the absolute path of a folder that can be written to, else "/tmp". A job may have
 * the TMPDIR of another node, which does not exist here. A relative path means another folder in each
 * process.
 */
const char *rundir_temporary(void);

/** Does the same for the TMPDIR of another process of this user. NULL or "": it is not set. */
const char *rundir_temporary_of(const char *named);

/**
 * Create the folder `path` and those that lead to it, where they are missing (0777 & ~umask).
 *   FSDP_ERR_CONFIG  a file is in the way
 *   FSDP_ERR_IO      a folder cannot be created
 */
enum fsdp_status rundir_make_folders(const char *path, struct fsdp_err *err);

/**
 * Create the run directory of a program, "<dir>/<run id>_<random>" (mode 0777 & ~umask), and its parents.
 * `path` (RUNDIR_PATH_BYTES) receives it. A '/' in `run_id` becomes '_'.
 *   dir              NULL: a new "<rundir_temporary()>/fsdprun_<random>" of mode 0700
 *   FSDP_ERR_CONFIG  `dir` is a file, or the path is too long
 *   FSDP_ERR_IO      it cannot be created
 */
enum fsdp_status rundir_program_path(char *path, const char *dir, const char *run_id, struct fsdp_err *err);

/**
 * Open the directory in *out. Create it and its parents if they are missing (0777 & ~umask), and lock it if
 * spec->lock is set. After an error *out is NULL.
 *   FSDP_ERR_BUSY    another live job holds it (the message names its pid, host and start): exit status 78
 *   FSDP_ERR_CONFIG  a file is in the way, or another user could lead us elsewhere: exit status 78
 *   FSDP_ERR_IO      it cannot be created or written: exit status 74
 */
enum fsdp_status rundir_open(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err);

/**
 * rundir_open() in two steps, for a caller that must not wait for the disk. spec->lock is not used.
 * rundir_create() touches no file. Until rundir_begin() has succeeded, only rundir_path(),
 * rundir_set_first_attempt() and rundir_close() may be called. rundir_begin() opens the directory. It has no
 * effect if the directory is open, and may be called again after a failure. Its errors are those of
 * rundir_open(). Thread: any, one at a time.
 */
enum fsdp_status rundir_create(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err);
enum fsdp_status rundir_begin(struct rundir *rundir, struct fsdp_err *err);

/**
 * Take the lock of a directory that was opened without it, because this node becomes the coordinator. No
 * effect if the lock is held already.
 *   begins  a new run begins: its attempts are counted on from those that are there
 * Errors as those of rundir_open(). Thread: any, one at a time.
 */
enum fsdp_status rundir_lock(struct rundir *rundir, bool begins, struct fsdp_err *err);

/** Release the lock, because another node becomes the coordinator. */
void rundir_unlock(struct rundir *rundir);
/**
 * Release the lock and free `rundir`. NULL is a no-op.
 *   discard  remove a temporary directory that contains only files of this module's names, so that no log was
 *            kept. Any other directory stays as it is.
 */
void rundir_close(struct rundir *rundir, bool discard);

/** Returns the absolute path, without a slash at its end; owned by `rundir`. */
const char *rundir_path(const struct rundir *rundir);

/**
 * Writes the path of the run's checkpoints to `out`: `apart`, or, if that is NULL, "checkpoints" in the run
 * directory.
 */
void rundir_checkpoints(const struct rundir *rundir, const char *apart, char out[RUNDIR_PATH_BYTES]);

/** Returns the descriptor of the directory, for openat(); owned by `rundir`. */
int rundir_fd(const struct rundir *rundir);
/** Returns the descriptor that holds the lock; 0: this agent has none. Owned by `rundir`. */
int rundir_lock_fd(const struct rundir *rundir);

/**
 * Returns the attempt of generation 0. On the coordinator it follows all attempts that are there; on other
 * nodes it is what rundir_set_first_attempt() has set.
 */
int rundir_first_attempt(const struct rundir *rundir);

/**
 * Sets the attempt of generation 0, on nodes that are not the coordinator. Call it before any file of a
 * generation is opened.
 */
void rundir_set_first_attempt(struct rundir *rundir, int first_attempt);

/**
 * Check that the nodes of a run really share the directory. For each generation the coordinator creates a
 * mark, an empty file whose name is a hash of the generation's `token`, and removes the one before. A node
 * that joins looks for the mark.
 *   FSDP_ERR_IO      the mark cannot be created
 *   FSDP_ERR_CONFIG  there is no mark: on this node the path is another directory
 */
enum fsdp_status rundir_mark(struct rundir *rundir, const unsigned char token[32], struct fsdp_err *err);
enum fsdp_status rundir_find_mark(const struct rundir *rundir, const unsigned char token[32],
                                  struct fsdp_err *err);

/**
 * Returns whether the directory is no longer at its path. Someone may have removed, renamed or emptied it:
 * then the file of the lock is not there. A path that cannot be looked at counts as there. May wait for the
 * disk. Thread: any.
 */
bool rundir_is_gone(const struct rundir *rundir);

/** Returns file operations for paths below it (shard_runtime/shardfile/io_beneath.h); owned by `rundir`. */
struct fsdp_io *rundir_io(const struct rundir *rundir);

/**
 * Replace the file RUN/<name> by text[0..length) in one step: write a temporary file, sync it, rename it,
 * sync the directory. On failure the old file is unchanged, and no temporary file is left.
 */
enum fsdp_status rundir_write(struct rundir *rundir, const char *name, const char *text, size_t length,
                              struct fsdp_err *err);

/**
 * Open the log of one stream of one rank for appending; create it and its folders if they are missing.
 *   *fd   receives the descriptor: read-write, append, close-on-exec, owned by the caller; -1 after an error
 *   path  (RUNDIR_PATH_BYTES) receives the file's path
 */
enum fsdp_status rundir_open_log(struct rundir *rundir, int generation, int rank, int local_rank,
                                 enum rundir_stream stream, int *fd, char *path, struct fsdp_err *err);

/**
 * Open a file of a whole generation for appending, "logs/g<generation>/<name>" of a job or
 * "attempt_<attempt>/<name>" of a program. Otherwise as rundir_open_log(), but write-only, and without a line
 * between two runs.
 */
enum fsdp_status rundir_open_shared(struct rundir *rundir, int generation, const char *name, int *fd,
                                    char *path, struct fsdp_err *err);

/**
 * Set `path` (RUNDIR_PATH_BYTES) to the folder of a rank's files, where torchrun also puts error.json.
 * Touches no file.
 */
enum fsdp_status rundir_rank_path(const struct rundir *rundir, int generation, int rank, int local_rank,
                                  char *path, struct fsdp_err *err);

/** The same, and create the folder. */
enum fsdp_status rundir_rank_folder(struct rundir *rundir, int generation, int rank, int local_rank,
                                    char *path, struct fsdp_err *err);

#endif
