/*
 * The error file of a worker: what it wrote about its own failure, as JSON at TORCHELASTIC_ERROR_FILE.
 * Programs under PyTorch's `@record` write it. It has two forms:
 *   {"message": {"message": "ValueError: x",
 *                "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}
 *   {"message": "x", "timestamp": 1700000000}
 * The file may contain anything. A file that cannot be read or understood is not an error; it is ignored.
 */
#ifndef AGENT_ERROR_FILE_H
#define AGENT_ERROR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "agent/record/errors.h"

enum { ERROR_FILE_MAX_BYTES = 1024 * 1024 /* a longer file is not read at all */ };

/**
 * Fill message, traceback and raised_us of `detail` from the JSON text[0..n_bytes). Other fields are not
 * touched. Of a long traceback the end is kept, from the beginning of a line. Pure. Returns false, and
 * changes nothing, if the text is no such object.
 */
bool error_file_parse(struct errors_detail *detail, const char *text, size_t n_bytes);

/**
 * Does the same for the file at `path`. If the file could be read, detail->error_file receives the path. Only
 * a regular file of at most ERROR_FILE_MAX_BYTES is read, so nothing is waited for.
 */
bool error_file_read(struct errors_detail *detail, const char *path);

/**
 * Returns how long before `now_us` the worker raised, in ns. `now_us` is when the worker was seen dead, by
 * the clock of its own host. Returns 0 if that is unknown or cannot be right: no time, a time in the future,
 * or more than a minute ago. `@record` writes whole seconds. Such a time counts as the end of its second, the
 * latest that it can have been.
 */
int64_t error_file_age_ns(const struct errors_detail *detail, int64_t now_us);

/**
 * If fsdprun itself was started with a TORCHELASTIC_ERROR_FILE, write that file. The content is the root
 * cause's error file, with the exit status added as message.errorCode. As with torchrun, the status is only
 * added if `message` is an object.
 *   from    the root cause's error file. NULL or unreadable (it is on another host): `detail` is written
 *           instead
 *   to      fsdprun's own error file
 *   code    exit code, or minus the number of a signal
 * Never waits for a FIFO or a terminal.
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status error_file_pass_on(const char *from, const char *to, const struct errors_detail *detail,
                                    int code, struct fsdp_err *err);

#endif
