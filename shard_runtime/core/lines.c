#include "shard_runtime/core/lines.h"

#include <errno.h>
#include <unistd.h>

bool lines_drop_half(int fd, size_t longest)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    off_t end = size; /* end of the last whole line, once found */

    while (end > 0 && (size_t)(size - end) < longest) {
        char byte;

        if (pread(fd, &byte, 1, end - 1) != 1)
            return false;
        if (byte == '\n')
            break;
        end--;
    }
    if (size <= 0 || end == size)
        return true;
    return (size_t)(size - end) < longest ? ftruncate(fd, end) == 0 : write(fd, "\n", 1) == 1;
}

int lines_write(int fd, const char *line, size_t length, size_t longest, bool *torn)
{
    int error = ENOSPC;
    ssize_t n = -1;

    if (*torn)
        *torn = !lines_drop_half(fd, longest);
    if (fd >= 0 && !*torn) {
        do
            n = write(fd, line, length);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            error = errno;
    }
    if (n == (ssize_t)length)
        return 0;
    if (n > 0)
        *torn = !lines_drop_half(fd, longest);
    return error;
}
