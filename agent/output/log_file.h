/*
 * One log that grows: what is appended, what could not be written, and where the bytes are. The log is one
 * file, or with a limit a row of files. This module knows neither pipes nor the console. Pure but for its
 * files.
 *
 * Offsets are those of the log. They go on when the file is rotated, so a reader never sees a file change
 * under it.
 *
 * Rotation, at the end of the line that makes the file reach `limit_bytes`:
 *   1. PATH.1 becomes PATH.2, and so on up to PATH.<n_rotated>. The oldest file loses its name.
 *   2. PATH becomes PATH.1, and a new PATH begins. With n_rotated 0, the old PATH loses its name instead.
 * A line that would exceed the limit by more than LOG_FILE_LINE_BYTES is split there. The row, oldest file
 * first, is byte for byte what was appended. If a file cannot be created or renamed, the log goes on in the
 * file that it has, and tries again after another `limit_bytes`.
 *
 * A rotated file stays open ("held") until log_file_release() allows closing it, so its bytes can be read
 * even when it has no name.
 *
 * If the file takes no bytes (disk full), they are lost and counted. When it takes bytes again, a line in it
 * says how many are missing.
 *
 * Two threads may use a log: one that writes, and one that reads. log_file_write() and log_file_place() are
 * the writer's. All other functions are the reader's, and see only what log_file_show() has shown.
 * log_file_show(), log_file_release() and log_file_destroy() must not be called while a write is under way;
 * the others may.
 */
#ifndef AGENT_LOG_FILE_H
#define AGENT_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/io.h"

enum { LOG_FILE_LINE_BYTES = 65536 };

struct log_file;

struct log_file_spec {
    /*
     * the file, open for reading and appending. After a successful log_file_create() the log owns the
     * descriptor.
     */
    int fd;
    const char *path;     /* copied; NULL: a file without a name, which is never rotated */
    uint64_t limit_bytes; /* size at which the file is rotated; 0: never */
    int n_rotated;        /* rotated files that keep a name */
    struct fsdp_io *io;   /* of `fd` and `path`; borrowed */
};

/**
 * Make a log of an open file in *out. What the file already contains belongs to an earlier run and cannot be
 * looked at.
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  *out is NULL, and spec->fd is still the caller's
 */
enum fsdp_status log_file_create(struct log_file **out, const struct log_file_spec *spec,
                                 struct fsdp_err *err);

/** Close all files of the log and free it. NULL is a no-op. */
void log_file_destroy(struct log_file *file);

/** The result of an append. */
struct log_file_result {
    uint64_t lost;  /* bytes of it that no file took */
    int error;      /* errno of a loss; if nothing was lost, errno of a failed rotation; else 0 */
    bool gap_ended; /* these bytes are the first that the file has taken after a loss */
    bool rotated;
};

/** Append bytes[0..n). The caller must leave them in place until log_file_show() and log_file_settle(). */
struct log_file_result log_file_write(struct log_file *file, const char *bytes, size_t n);

/* Where the next bytes will be: in the file of that inode, from `offset` on. */
struct log_file_place {
    const char *path;   /* path of the log; NULL: it has no name */
    struct fsdp_io *io; /* of `path` */
    uint64_t inode, offset;
};

/** Fill in *out. Returns false if the log is no regular file, or cannot be looked at. The writer's. */
bool log_file_place(const struct log_file *file, struct log_file_place *out);

/**
 * Show what was written to the reader. Until log_file_settle(), the bytes of the last write are read in
 * memory.
 */
void log_file_show(struct log_file *file);

/** The bytes of the last write are the caller's again: from now on they are read from the file. */
void log_file_settle(struct log_file *file);

/** Returns the offset after the last byte. */
uint64_t log_file_end(const struct log_file *file);

/** Returns the bytes at `offset`, in place or read into `room`, as console_source_spec.look says. */
const char *log_file_look(struct log_file *file, uint64_t offset, char *room, size_t want, size_t *n);

/** Close held files that end at or before `offset`: no reader needs them. */
void log_file_release(struct log_file *file, uint64_t offset);

/** Returns the number of held files; the file in use does not count. */
size_t log_file_n_held(const struct log_file *file);

/** Returns the offset at which the oldest held file ends; if no file is held, that at which the log began. */
uint64_t log_file_oldest_end(const struct log_file *file);

#endif
