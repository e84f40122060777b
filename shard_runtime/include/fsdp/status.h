/*
 * How every function of this tree reports failure: a status to act on, and words in a caller-owned
 * `struct fsdp_err`. The lowest frame says what failed; callers put what they were doing in front.
 * There is no last-error global, and no library function prints or exits.
 */
#ifndef FSDP_STATUS_H
#define FSDP_STATUS_H

#include <fsdp/export.h>

FSDP_BEGIN_DECLS

enum fsdp_status {
    FSDP_OK = 0,
    FSDP_ERR_ARG,         /* the caller broke the function's contract; nothing was done */
    FSDP_ERR_NOMEM,       /* memory or address space ran out */
    FSDP_ERR_IO,          /* the system refused an operation on a file, pipe or socket (disk full included) */
    FSDP_ERR_NOT_FOUND,   /* a file, key or checkpoint that must exist does not */
    FSDP_ERR_FORMAT,      /* data that is damaged, cut short, or not what its kind must be */
    FSDP_ERR_MISMATCH,    /* sound data that belongs to another model, job or generation */
    FSDP_ERR_CONFIG,      /* a job file or setting that cannot be used */
    FSDP_ERR_UNSUPPORTED, /* a feature this build or machine does not have */
    FSDP_ERR_PEER,        /* another rank, node or the agent died or broke its connection */
    FSDP_ERR_BUSY,        /* held by another live job */
    FSDP_ERR_DEVICE, /* a GPU, its driver or a library of its failed in what it should do: a new process may do better */
    FSDP_ERR_NOT_FINITE, /* a loss, a gradient or its norm is NaN or infinite: training diverged, or hardware is faulty */
    FSDP_STATUS_COUNT
};

enum { FSDP_ERR_MESSAGE_BYTES = 512 };

/** A failure in words. Zero-initialise it, or call fsdp_err_clear(); NULL is accepted everywhere. */
struct fsdp_err {
    enum fsdp_status status;
    char message[FSDP_ERR_MESSAGE_BYTES]; /* one line, no newline at its end; cut when too long */
};

/** Name of `status` as it stands in logs and JSON: "ok", "arg", "io", ...; "unknown" out of range. */
FSDP_API const char *fsdp_status_name(enum fsdp_status status);

/** Forget what `err` says. */
FSDP_API void fsdp_err_clear(struct fsdp_err *err);

/** Record `status` and the formatted words, replacing what was there; returns `status` for `return fsdp_fail(...)`. */
FSDP_API enum fsdp_status fsdp_fail(struct fsdp_err *err, enum fsdp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Put "<words>: " in front of the message already there. The status stays. */
FSDP_API void fsdp_wrap(struct fsdp_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

FSDP_END_DECLS

#endif
