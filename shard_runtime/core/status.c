#include <fsdp/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[FSDP_STATUS_COUNT] = {
    [FSDP_OK] = "ok",
    [FSDP_ERR_ARG] = "arg",
    [FSDP_ERR_NOMEM] = "nomem",
    [FSDP_ERR_IO] = "io",
    [FSDP_ERR_NOT_FOUND] = "not_found",
    [FSDP_ERR_FORMAT] = "format",
    [FSDP_ERR_MISMATCH] = "mismatch",
    [FSDP_ERR_CONFIG] = "config",
    [FSDP_ERR_UNSUPPORTED] = "unsupported",
    [FSDP_ERR_PEER] = "peer",
    [FSDP_ERR_BUSY] = "busy",
    [FSDP_ERR_DEVICE] = "device",
    [FSDP_ERR_NOT_FINITE] = "not_finite",
};

const char *fsdp_status_name(enum fsdp_status status)
{
    if ((unsigned)status >= FSDP_STATUS_COUNT)
        return "unknown";
    return names[status];
}

void fsdp_err_clear(struct fsdp_err *err)
{
    if (err == NULL)
        return;
    err->status = FSDP_OK;
    err->message[0] = '\0';
}

enum fsdp_status fsdp_fail(struct fsdp_err *err, enum fsdp_status status, const char *format, ...)
{
    char message[FSDP_ERR_MESSAGE_BYTES]; /* separate buffer: the arguments may point into err->message */
    va_list args;

    if (err == NULL)
        return status;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    err->status = status;
    memcpy(err->message, message, strlen(message) + 1);
    return status;
}

void fsdp_wrap(struct fsdp_err *err, const char *format, ...)
{
    char tail[FSDP_ERR_MESSAGE_BYTES];
    va_list args;
    int length;

    if (err == NULL)
        return;
    memcpy(tail, err->message, sizeof tail);
    va_start(args, format);
    length = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof err->message)
        return;
    (void)snprintf(err->message + length, sizeof err->message - (size_t)length, ": %s", tail);
}
