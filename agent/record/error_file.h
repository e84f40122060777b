/*
 * What a worker wrote about its own failure: the JSON file at TORCHELASTIC_ERROR_FILE, as programs under PyTorch's
 * `@record` leave it, in both of its forms:
 *   {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}
 *   {"message": "x", "timestamp": 1700000000}
 * Anything may stand in the file, and nothing that does is an error of ours: what cannot be read says nothing.
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
 * Take message, traceback and raised_us of `detail` from `n_bytes` of `text`; the rest of it is left alone. The end
 * of a long traceback is kept, from the beginning of a line. Pure. False, and nothing is changed, where the text is
 * no such object.
 */
bool error_file_parse(struct errors_detail *detail, const char *text, size_t n_bytes);

/** The same of the file at `path`; error_file is set to it. Never waits: what is no regular file is not read. */
bool error_file_read(struct errors_detail *detail, const char *path);

/**
 * How long before `now_us` (the clock of its host, when it was seen dead) it raised, in ns. 0 where that cannot be
 * told or believed: no time, one in the future, or more than a minute ago. A time in whole seconds, as `@record`
 * writes it, counts as the end of its second: then it can have been no later.
 */
int64_t error_file_age_ns(const struct errors_detail *detail, int64_t now_us);

/**
 * For who started us with a TORCHELASTIC_ERROR_FILE of our own, `to`: the file of the root cause with its status as
 * message.errorCode (only where message is an object, as torchrun does). `from` NULL, or unreadable (it stands on
 * another host): the file is made from `detail`.
 *   code  exit code, or minus a signal's number
 */
enum fsdp_status error_file_pass_on(const char *from, const char *to, const struct errors_detail *detail,
                                    int code, struct fsdp_err *err);

#endif
