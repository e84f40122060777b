/*
 * How every function of this project reports failure. It returns a status, on which callers act, and fills in
 * a message in a `struct fsdp_err` that the caller owns. The innermost function writes what failed; each
 * caller puts what it was doing in front. There is no global last error, and no library function prints or
 * exits.
 */
#ifndef FSDP_STATUS_H
#define FSDP_STATUS_H

#include <fsdp/export.h>

FSDP_BEGIN_DECLS

enum fsdp_status {
    FSDP_OK = 0,
    FSDP_ERR_ARG,   /* the caller broke the function's contract; the function did nothing */
    FSDP_ERR_NOMEM, /* memory or address space ran out */
    /* the system refused an operation on a file, pipe or socket, for example on a full disk */
    FSDP_ERR_IO,
    FSDP_ERR_NOT_FOUND,   /* a file, key or checkpoint that must exist does not */
    FSDP_ERR_FORMAT,      /* data is damaged, cut short, or not of the expected kind */
    FSDP_ERR_MISMATCH,    /* valid data that belongs to another model, job or generation */
    FSDP_ERR_CONFIG,      /* a job file or setting that cannot be used */
    FSDP_ERR_UNSUPPORTED, /* a feature this build or machine does not have */
    FSDP_ERR_PEER,        /* another rank, node or the agent died or broke its connection */
    FSDP_ERR_BUSY,        /* another live job holds the resource */
    /* a GPU, its driver or one of its libraries failed; a new process may succeed */
    FSDP_ERR_DEVICE,
    /* a loss, a gradient or its norm is NaN or infinite: training diverged, or hardware is faulty */
    FSDP_ERR_NOT_FINITE,
    FSDP_STATUS_COUNT
};

enum { FSDP_ERR_MESSAGE_BYTES = 512 };

/**
 * The description of a failure. Zero-initialise it, or call fsdp_err_clear(). Every function accepts NULL
 * instead of one.
 */
struct fsdp_err {
    enum fsdp_status status;
    char message[FSDP_ERR_MESSAGE_BYTES]; /* one line, no newline at its end; cut when too long */
};

/** Name of `status` as in logs and JSON: "ok", "arg", "io", ...; "unknown" if it is out of range. */
FSDP_API const char *fsdp_status_name(enum fsdp_status status);

/** Clears the status and the message of `err`. */
FSDP_API void fsdp_err_clear(struct fsdp_err *err);

/**
 * Stores `status` and the formatted message in `err`, replacing the old ones. Returns `status`, so that
 * callers can write `return fsdp_fail(...)`.
 */
FSDP_API enum fsdp_status fsdp_fail(struct fsdp_err *err, enum fsdp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Puts the formatted text and ": " in front of the message in `err`. The status does not change. */
FSDP_API void fsdp_wrap(struct fsdp_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

FSDP_END_DECLS

#endif
