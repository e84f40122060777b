#include "agent/os/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

bool small_file_read(char *out, size_t size, const char *format, ...)
{
    char path[SMALL_FILE_PATH_BYTES];
    size_t n = 0;
    va_list args;
    int length, fd;

    out[0] = '\0';
    va_start(args, format);
    length = vsnprintf(path, sizeof path, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (n < size - 1) { /* a read of a file in /proc may return only part of it */
        const ssize_t some = read(fd, out + n, size - 1 - n);

        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            break;
        n += (size_t)some;
    }
    close(fd);
    out[n] = '\0';
    return n > 0;
}
