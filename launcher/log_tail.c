#include "launcher/log_tail.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"

enum { READ_BYTES = 65536 };

/* The search, which goes from the end of the log to its beginning. */
struct search {
    size_t n_wanted, n_lines; /* newlines at which the search is over, and lines that were found */
    bool any;                 /* a byte was read */
};

/* Looks at a file's bytes from `begin` to `end`. Returns where the first line begins; -1: before them. */
static off_t look_back(struct search *search, int fd, off_t begin, off_t end)
{
    char bytes[READ_BYTES];

    while (end > begin) {
        const off_t from = end - begin > READ_BYTES ? end - READ_BYTES : begin;
        const ssize_t n = pread(fd, bytes, (size_t)(end - from), from);

        if (n != end - from)
            return end; /* it was cut meanwhile */
        for (ssize_t i = n - 1; i >= 0; i--) {
            const bool is_last = !search->any;

            search->any = true;
            if (is_last || bytes[i] == '\n') {
                if (search->n_lines == search->n_wanted)
                    return from + i + 1;
                search->n_lines++;
            }
        }
        end = from;
    }
    return -1;
}

size_t log_tail_find(const char *path, size_t n_lines, ino_t *inode, off_t *offset)
{
    struct search search = { .n_wanted = n_lines };
    char name[PATH_MAX + 16];
    bool is_over = false;

    for (int number = 0; !is_over; number++) {
        struct stat at = { 0 };
        off_t found = -1;
        int fd;

        snprintf(name, sizeof name, number == 0 ? "%s" : "%s.%d", path, number);
        fd = file_open_regular(name);
        if (fd < 0)
            break;
        if (fstat(fd, &at) == 0) {
            is_over = *inode != 0 && at.st_ino == *inode;
            found = look_back(&search, fd, is_over ? *offset : 0, at.st_size);
        }
        close(fd);
        if (found >= 0) {
            *inode = at.st_ino;
            *offset = found;
            is_over = true;
        }
    }
    return search.n_lines;
}
