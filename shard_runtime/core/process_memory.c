#include "shard_runtime/core/process_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_BYTES = 8192 };

/*
 * Returns the bytes in the line that begins with `name`, such as "RssAnon:\t    1234 kB", or 0 without such a
 * line.
 */
static uint64_t line_bytes(const char *text, const char *name)
{
    const size_t length = strlen(name);

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, name, length) == 0)
            return strtoull(line + length, NULL, 10) * 1024;
    }
    return 0;
}

uint64_t process_memory_of_status(const char *text)
{
    return line_bytes(text, "RssAnon:") + line_bytes(text, "RssShmem:");
}

uint64_t process_memory_now(void)
{
    char text[STATUS_BYTES];
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    return process_memory_of_status(text);
}
