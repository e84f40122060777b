/*
 * Reads a whole file into memory, up to a limit, and writes a whole buffer. Two kinds of files have their own
 * readers. Checkpoint files use shardfile/io.h, because tests replace the disk there. Kernel files in /proc
 * and /sys use agent/os/small_file.h.
 */
#ifndef CORE_FILES_H
#define CORE_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

/**
 * Reads at most `limit` bytes: a file from its beginning, or a pipe from its current position. A caller that
 * must refuse longer files passes a limit of one byte more than it accepts, and then checks *length.
 *
 *   fd       open for reading; remains the caller's; the position of a regular file does not change
 *   *text    receives the bytes and a final zero, which the caller frees; NULL after an error
 *   *length  receives the number of bytes without the zero
 *
 *   FSDP_ERR_IO     reading failed; errno holds the reason
 *   FSDP_ERR_NOMEM  there is not enough memory for the file
 * Any thread may call it.
 */
enum fsdp_status file_read(int fd, size_t limit, char **text, size_t *length);

/**
 * Opens the regular file at `path` for reading; symbolic links are followed. It never waits: a FIFO, a device
 * or a directory in its place is refused. Returns the descriptor, which is the caller's, or -1 with errno
 * (EINVAL: it is no regular file). Any thread may call it.
 */
int file_open_regular(const char *path);

enum { FILE_REMOTE_WORDS_BYTES = 512 };

/**
 * Sets errno to EREMOTEIO, for a failure on another host that no errno describes. file_error_words() on this
 * thread then returns `words`.
 */
void file_remote_failed(const char *words);

/**
 * Returns the text of an errno, as strerror(). For EREMOTEIO it is the text of the last file_remote_failed()
 * on this thread.
 */
const char *file_error_words(int error);

/** Fails with FSDP_ERR_IO and the reason that errno holds: "WHAT PATH: REASON". */
enum fsdp_status file_fail(struct fsdp_err *err, const char *what, const char *path);

/**
 * Writes bytes[0..size) to `fd`, a file or a pipe, in as many write() calls as necessary. Returns false with
 * errno if it could not write all of them. Any thread may call it.
 */
bool file_write(int fd, const void *bytes, size_t size);

#endif
