#include "agent/record/error_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"

enum { BELIEVED_S = 60 };

/*
 * Copy as much of the end of `text` as fits. If the copied part contains the beginning of a line, start
 * there.
 */
static void keep_end(char *out, size_t size, const char *text)
{
    const size_t length = strlen(text);
    const char *newline;

    if (length < size) {
        memcpy(out, text, length + 1);
        return;
    }
    text += length - (size - 1);
    newline = strchr(text, '\n');
    if (newline != NULL && newline[1] != '\0')
        text = newline + 1;
    else
        while (((unsigned char)*text & 0xc0) == 0x80)
            text++; /* not from within a character */
    memcpy(out, text, strlen(text) + 1);
}

/* Returns a time in microseconds, given in seconds as a number or a text; 0 if there is none. */
static int64_t read_time(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    double seconds = cJSON_IsNumber(item) ? item->valuedouble : 0;
    char *end;

    if (text != NULL) {
        seconds = strtod(text, &end);
        if (end == text || *end != '\0')
            return 0;
    }
    return seconds > 0 && seconds < 1e11 ? (int64_t)llround(seconds * 1e6) : 0;
}

static bool take(struct errors_detail *detail, const cJSON *root)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message"), *info, *item;
    const char *text = cJSON_GetStringValue(message);

    if (text == NULL && !cJSON_IsObject(message))
        return false;
    detail->message[0] = detail->traceback[0] = '\0';
    item = cJSON_GetObjectItemCaseSensitive(root, "timestamp");
    if (text == NULL) {
        text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "message"));
        info = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
        if (cJSON_GetObjectItemCaseSensitive(info, "timestamp") != NULL)
            item = cJSON_GetObjectItemCaseSensitive(info, "timestamp");
        info = cJSON_GetObjectItemCaseSensitive(info, "py_callstack");
        if (cJSON_IsString(info))
            keep_end(detail->traceback, sizeof detail->traceback, cJSON_GetStringValue(info));
    }
    if (text != NULL)
        errors_copy_text(detail->message, sizeof detail->message, text, strlen(text));
    detail->raised_us = read_time(item);
    return true;
}

bool error_file_parse(struct errors_detail *detail, const char *text, size_t n_bytes)
{
    cJSON *root = cJSON_ParseWithLength(text, n_bytes);
    const bool taken = cJSON_IsObject(root) && take(detail, root);

    cJSON_Delete(root);
    return taken;
}

/*
 * Returns the whole content of a regular file; the caller frees it. NULL: it cannot be read, or is too long.
 */
static char *read_whole(const char *path, size_t *n_bytes)
{
    char *text = NULL;
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* it may be a FIFO, and wait */

    if (fd < 0)
        return NULL;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        info.st_size <= ERROR_FILE_MAX_BYTES)
        (void)file_read(fd, ERROR_FILE_MAX_BYTES, &text, n_bytes);
    close(fd);
    return text;
}

bool error_file_read(struct errors_detail *detail, const char *path)
{
    size_t n_bytes;
    char *text = read_whole(path, &n_bytes);
    const bool taken = text != NULL && error_file_parse(detail, text, n_bytes);

    free(text);
    if (taken)
        snprintf(detail->error_file, sizeof detail->error_file, "%s", path);
    return taken;
}

int64_t error_file_age_ns(const struct errors_detail *detail, int64_t now_us)
{
    const bool whole = detail->raised_us % 1000000 == 0;
    int64_t age_us;

    if (detail->raised_us <= 0 || detail->raised_us > now_us ||
        now_us - detail->raised_us > BELIEVED_S * INT64_C(1000000))
        return 0;
    age_us = now_us - detail->raised_us - (whole ? 1000000 : 0);
    return age_us > 0 ? age_us * 1000 : 0;
}

static cJSON *make(const struct errors_detail *detail)
{
    cJSON *root = cJSON_CreateObject(), *message = cJSON_AddObjectToObject(root, "message"), *info;
    char seconds[32];

    snprintf(seconds, sizeof seconds, "%lld", (long long)(detail->raised_us / 1000000));
    cJSON_AddStringToObject(message, "message", detail->message);
    info = cJSON_AddObjectToObject(message, "extraInfo");
    cJSON_AddStringToObject(info, "py_callstack", detail->traceback);
    cJSON_AddStringToObject(info, "timestamp", seconds);
    return root;
}

static enum fsdp_status write_whole(const char *path, const char *text, struct fsdp_err *err)
{
    /* The path may be that of a FIFO or a terminal. Then nothing is written, and nothing is waited for. */
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    int error;

    if (fd < 0)
        return file_fail(err, "open", path);
    error = file_write(fd, text, strlen(text)) ? 0 : errno;
    if (close(fd) != 0 && error == 0)
        error = errno;
    return error == 0 ? FSDP_OK : fsdp_fail(err, FSDP_ERR_IO, "write %s: %s", path, strerror(error));
}

enum fsdp_status error_file_pass_on(const char *from, const char *to, const struct errors_detail *detail,
                                    int code, struct fsdp_err *err)
{
    size_t n_bytes = 0;
    char *text = from != NULL ? read_whole(from, &n_bytes) : NULL;
    cJSON *root = text != NULL ? cJSON_ParseWithLength(text, n_bytes) : NULL, *message;
    enum fsdp_status status;

    free(text);
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        root = make(detail);
    }
    message = cJSON_GetObjectItemCaseSensitive(root, "message");
    if (cJSON_IsObject(message)) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "errorCode");
        cJSON_AddNumberToObject(message, "errorCode", code);
    }
    text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    status =
        text == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %s", to) : write_whole(to, text, err);
    free(text);
    return status;
}
