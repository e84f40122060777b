#include "shard_runtime/core/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "shard_runtime/core/alloc.h"

enum { PIECE_BYTES = 16384 };

/*
 * pread() does not move the file position, which matters for a memfd shared with other processes. A pipe has
 * no position and is read with read().
 */
static ssize_t read_at(int fd, char *to, size_t size, size_t at)
{
    const ssize_t n = pread(fd, to, size, (off_t)at);

    return n < 0 && errno == ESPIPE ? read(fd, to, size) : n;
}

enum fsdp_status file_read(int fd, size_t limit, char **text, size_t *length)
{
    enum fsdp_status status = FSDP_ERR_NOMEM;
    size_t capacity = 0, n = 0;
    char *bytes = NULL;
    ssize_t got = 0;

    *text = NULL;
    *length = 0;
    do {
        const size_t more = limit - n < PIECE_BYTES ? limit - n : PIECE_BYTES;

        if (!alloc_room(&bytes, &capacity, n + more, 1))
            goto done;
        got = read_at(fd, bytes + n, more, n);
        n += got > 0 ? (size_t)got : 0;
    } while ((got > 0 && n < limit) || (got < 0 && errno == EINTR));
    status = got < 0 ? FSDP_ERR_IO : FSDP_OK;
    if (status == FSDP_OK) {
        bytes[n] = '\0';
        *text = bytes;
        *length = n;
        bytes = NULL;
    }
done:
    free(bytes); /* free() preserves errno */
    return status;
}

int file_open_regular(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat at;

    if (fd < 0 || (fstat(fd, &at) == 0 && S_ISREG(at.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

bool file_write(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        const ssize_t n = write(fd, at, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static _Thread_local char remote_words[FILE_REMOTE_WORDS_BYTES];

void file_remote_failed(const char *words)
{
    size_t n = strlen(words);

    n = n < sizeof remote_words ? n : sizeof remote_words - 1;
    memcpy(remote_words, words, n);
    remote_words[n] = '\0';
    errno = EREMOTEIO;
}

const char *file_error_words(int error)
{
    return error == EREMOTEIO && remote_words[0] != '\0' ? remote_words : strerror(error);
}

enum fsdp_status file_fail(struct fsdp_err *err, const char *what, const char *path)
{
    return fsdp_fail(err, FSDP_ERR_IO, "%s %s: %s", what, path, file_error_words(errno));
}
