#include "agent/os/small_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

int small_file_list(const char *root, const char *directory, char (*names)[64], int room)
{
    char path[SMALL_FILE_PATH_BYTES];
    struct dirent *entry;
    DIR *dir;
    int n = 0;

    snprintf(path, sizeof path, "%s%s", root, directory);
    dir = opendir(path);
    if (dir == NULL)
        return 0;
    while (n < room && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < sizeof *names)
            strcpy(names[n++], entry->d_name);
    closedir(dir);
    qsort(names, (size_t)n, sizeof *names, by_name);
    return n;
}
