#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/files.h"

enum { BYTES = 40000 };

/* Any number of bytes, in which no two pieces of a power of two are the same. */
static const char *pattern(void)
{
    static char bytes[BYTES];

    for (int i = 0; i < BYTES; i++)
        bytes[i] = (char)(i * 31 % 251);
    return bytes;
}

/* A file with a position that must not count, or a pipe that another process fills. */
static int open_with(bool pipe_instead)
{
    int fds[2];

    if (!pipe_instead) {
        const int fd = memfd_create("file_read", MFD_CLOEXEC);

        cr_assert(write(fd, pattern(), BYTES) == BYTES);
        return fd;
    }
    cr_assert(pipe(fds) == 0);
    if (fork() == 0)
        _exit(write(fds[1], pattern(), BYTES) == BYTES ? 0 : 1);
    close(fds[1]);
    return fds[0];
}

Test(files, a_file_or_pipe_is_read_to_its_end_or_to_the_limit, .timeout = 60)
{
    static const size_t limits[] = { 0, 1, 16384, BYTES - 1, BYTES, BYTES + 1 };

    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            const int fd = open_with(kind == 1);
            size_t length = 7, want = limits[i] < BYTES ? limits[i] : BYTES;
            char *text;

            cr_assert(file_read(fd, limits[i], &text, &length) == FSDP_OK);
            cr_expect(length == want && memcmp(text, pattern(), want) == 0 && text[want] == '\0', "limit %zu",
                      limits[i]);
            free(text);
            close(fd);
        }
}

Test(files, a_failure_leaves_no_text_and_says_why)
{
    const int folder = open("/", O_RDONLY | O_CLOEXEC), fd = open_with(false);
    size_t length;
    char *text;

    cr_assert(file_read(folder, 10, &text, &length) == FSDP_ERR_IO && errno == EISDIR && text == NULL);
    alloc_fail_nth(2);
    cr_assert(file_read(fd, BYTES, &text, &length) == FSDP_ERR_NOMEM && text == NULL && length == 0);
    alloc_fail_nth(0);
    close(folder);
    close(fd);
}

Test(files, only_a_regular_file_is_opened_and_nothing_is_waited_for, .timeout = 60)
{
    char folder[] = "/tmp/fsdp_files_XXXXXX", path[64];
    int fd;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x", folder);

    cr_assert(file_open_regular(path) == -1 && errno == ENOENT);
    cr_assert(mkfifo(path, 0600) == 0);
    cr_assert(file_open_regular(path) == -1 && errno == EINVAL);
    cr_assert(unlink(path) == 0);
    cr_assert(file_open_regular(folder) == -1 && errno == EINVAL);
    cr_assert(file_open_regular("/dev/zero") == -1 && errno == EINVAL);
    cr_assert(close(open(path, O_WRONLY | O_CREAT, 0600)) == 0);
    fd = file_open_regular(path);
    cr_assert(fd >= 0);
    close(fd);
    cr_assert(unlink(path) == 0 && rmdir(folder) == 0);
}
