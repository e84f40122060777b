/*
 * One log that grows, in one file or, with a limit, in a row of them: what is appended, what could not be, and where
 * the bytes of the row stand. Knows neither pipes nor the console.
 *
 * Offsets are the log's: they count on when the file is rotated, so that a reader goes by them and never sees a file
 * change under it. Rotation: at the end of the line that takes the file to `limit_bytes` (a line that would take it
 * LOG_FILE_LINE_BYTES further is parted there), PATH.1 becomes PATH.2 and so on up to PATH.<n_rotated>, PATH becomes
 * PATH.1, and a new PATH begins; with n_rotated 0 what PATH had is let go. The row, oldest first, is what was
 * appended, byte for byte. Where a file cannot be made or renamed the log goes on in the file it has, and tries again
 * one limit later.
 *
 * A file that was rotated stays open ("held") until log_file_release() says that nobody needs it: its bytes can be
 * looked at though it has no name any more. The newest rotated one is always held, for the last words of a rank.
 *
 * Where the file takes no bytes (disk full) they are lost and counted; when it takes bytes again a line in it says
 * how many are missing there.
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
    int fd;               /* open for reading and appending; the log's from a successful create on */
    const char *path;     /* copied; NULL: a file without a name, which is never rotated */
    uint64_t limit_bytes; /* 0: never rotated */
    int n_rotated;
    struct fsdp_io *io; /* borrowed */
};

enum fsdp_status log_file_create(struct log_file **out, const struct log_file_spec *spec,
                                 struct fsdp_err *err);
void log_file_destroy(struct log_file *file); /* NULL is a no-op */

/** What became of an append. */
struct log_file_result {
    uint64_t lost;  /* bytes of it that no file took */
    int error;      /* why; or, with nothing lost, why the file could not be rotated; 0: all went well */
    bool gap_ended; /* the first bytes taken since some were lost */
    bool rotated;
};

/** Append. `bytes` may be looked at in place until log_file_settle(). */
struct log_file_result log_file_append(struct log_file *file, const char *bytes, size_t n);
/** `bytes` of the last append are the caller's again. */
void log_file_settle(struct log_file *file);

uint64_t log_file_begin(const struct log_file *file); /* of this run's bytes that can be looked at */
uint64_t log_file_end(const struct log_file *file);

/** console_source_spec.look: bytes at `offset` in place or read into `room`; *n 0 where they are not held any more. */
const char *log_file_look(struct log_file *file, uint64_t offset, char *room, size_t want, size_t *n);

/** Nobody needs what lies before `offset`. */
void log_file_release(struct log_file *file, uint64_t offset);
/** Files that are held, the one in use not counted, and where the oldest of them ends (log_file_begin() for none). */
size_t log_file_n_held(const struct log_file *file);
uint64_t log_file_oldest_end(const struct log_file *file);

#endif
