/*
 * The run directory: who holds it, and where things stand in it.
 *
 * Of a job it is <dir>/<name>: job.json, events.jsonl, errors.json, lock and logs/g<generation>/rank<rank>/
 * {stdout,stderr}.log. Of a program it is torchrun's <dir>/<run id>_<random>/ with attempt_<attempt>/
 * <local rank>/{stdout,stderr}.log; without a log directory it lies in a fresh temporary one. Files of a whole
 * generation (the index, filtered lines) lie in logs/g<generation> or attempt_<attempt>.
 *
 * A directory that the user names for a program is shared by all nodes and used by later runs: the folder of a rank is
 * attempt_<attempt>/<global rank>, and the attempts of a run follow those that are there. Attempt numbers are the
 * coordinator's: generation g is attempt rundir_first_attempt() + g.
 *
 * One live job at a time: the coordinator holds an flock on RUN/lock for as long as the struct lives, so that
 * a crash frees it, and a file left behind means nothing. The words in it (pid, host, time) are for the message.
 * The descriptor is close-on-exec: workers never hold the lock.
 *
 * Another user may own the directory (core/beneath.h): its symbolic links are followed only if this user or root owns
 * them, and it is refused where it is another user's and everyone may write to it.
 *
 * Nothing here is ever truncated or deleted by a later run. Generations count from 0 in every run; a run that
 * finds logs/g0 of an earlier one appends to its files, after a line "--- fsdprun: run of TIME, pid N ---".
 */
#ifndef AGENT_RUNDIR_H
#define AGENT_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

struct rundir;

/* RUNDIR_NAMED: a program's that the user names. */
enum rundir_kind { RUNDIR_JOB, RUNDIR_PROGRAM, RUNDIR_NAMED };
enum rundir_stream { RUNDIR_STDOUT, RUNDIR_STDERR };

struct rundir_spec {
    enum rundir_kind kind;
    const char *path; /* RUN itself, absolute (rundir_job_path, rundir_program_path) */
    bool lock;        /* this process is the job's coordinator: hold the lock */
    bool temporary;   /* rundir_close() may remove it when nothing was kept in it */
};

enum { RUNDIR_PATH_BYTES = 4096 };

/**
 * RUN of a job, "<dir>/<name>" made absolute against the working directory, into `path` (RUNDIR_PATH_BYTES);
 * nothing is created. FSDP_ERR_CONFIG: `name` is no single path component (empty, ".", "..", or with a '/').
 */
enum fsdp_status rundir_job_path(char *path, const char *dir, const char *name, struct fsdp_err *err);

/** RUN itself as the user names it, made absolute against the working directory; nothing is created. */
enum fsdp_status rundir_named_path(char *path, const char *dir, struct fsdp_err *err);

/** TMPDIR where it names a folder that can be written; else, as where a job's TMPDIR is of another node, "/tmp". */
const char *rundir_temporary(void);

/**
 * RUN of a program, "<dir>/<run id>_<random>", created (0777 & ~umask) with its parents; `dir` NULL: in a fresh
 * "<rundir_temporary()>/fsdprun_<random>" of mode 0700. A '/' in `run_id` becomes '_'. FSDP_ERR_CONFIG: `dir` is a file.
 */
enum fsdp_status rundir_program_path(char *path, const char *dir, const char *run_id, struct fsdp_err *err);

/**
 * Create the directory where it is not there yet, with its parents (0777 & ~umask), and lock it where asked.
 *   FSDP_ERR_BUSY    another live job holds it (the message names its pid, host and start): exit status 78
 *   FSDP_ERR_CONFIG  a file stands in the way, or another user could lead us elsewhere: exit status 78
 *   FSDP_ERR_IO      it cannot be created or written: exit status 74
 */
enum fsdp_status rundir_open(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err);

/**
 * Release the lock and free. `discard`: a *temporary* directory in which only files of this module's names stand
 * (no log was captured) is removed; any other is left as it is. NULL is a no-op.
 */
void rundir_close(struct rundir *rundir, bool discard);

/** Absolute path, no slash at its end; owned by `rundir`. */
const char *rundir_path(const struct rundir *rundir);

/** Descriptor of the directory, for openat(); owned by `rundir`. */
int rundir_fd(const struct rundir *rundir);

/** The attempt of generation 0: of the coordinator's one above all that are there, else as rundir_set_first_attempt() says. */
int rundir_first_attempt(const struct rundir *rundir);
/** On the other nodes, before anything of a generation is opened. */
void rundir_set_first_attempt(struct rundir *rundir, int first_attempt);

/**
 * Do the nodes of a run really share the directory? The coordinator marks it for each generation with what is made of
 * the generation's `token`, and a node that joins looks for the mark. The mark before it is removed.
 *   FSDP_ERR_IO      the mark cannot be made
 *   FSDP_ERR_CONFIG  it is not there: the path is another directory on this node
 */
enum fsdp_status rundir_mark(struct rundir *rundir, const unsigned char token[32], struct fsdp_err *err);
enum fsdp_status rundir_find_mark(const struct rundir *rundir, const unsigned char token[32],
                                  struct fsdp_err *err);

/** File operations for paths below it (shard_runtime/shardfile/io_beneath.h); owned by `rundir`. */
struct fsdp_io *rundir_io(const struct rundir *rundir);

/**
 * Put `length` bytes of `text` at RUN/<name> as one step: temporary file, fsync, rename, fsync of the directory.
 * On failure the file that stood there still does, and no temporary file is left.
 */
enum fsdp_status rundir_write(struct rundir *rundir, const char *name, const char *text, size_t length,
                              struct fsdp_err *err);

/**
 * Open (create, append) the log of one stream of one rank, its folders included. *fd is read-write, append,
 * close-on-exec, the caller's. `path` (RUNDIR_PATH_BYTES) receives its path for messages.
 */
enum fsdp_status rundir_open_log(struct rundir *rundir, int generation, int rank, int local_rank,
                                 enum rundir_stream stream, int *fd, char *path, struct fsdp_err *err);

/**
 * Open (create, append) a file of a whole generation, "attempt_<attempt>/<name>" of a program. As above; what an
 * earlier run wrote into it is gone on with.
 */
enum fsdp_status rundir_open_shared(struct rundir *rundir, int generation, const char *name, int *fd,
                                    char *path, struct fsdp_err *err);

/** Folder of a program's rank, "<RUN>/attempt_<attempt>/<local rank>" (where torchrun puts error.json); made. */
enum fsdp_status rundir_rank_folder(struct rundir *rundir, int generation, int rank, int local_rank,
                                    char *path, struct fsdp_err *err);

#endif
