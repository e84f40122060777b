/*
 * To be preloaded: a disk that refuses one call of one process.
 *   BAD_PROCESS  the process's name, as in /proc/PID/comm
 *   BAD_CALL     pwrite, fsync or rename: of a file whose path, or old name, matches the pattern $BAD_PATH
 *   BAD_NTH      which of these calls it is, counted in each process
 *   BAD_ERROR    EIO or ENOSPC
 *   BAD_NOTE     this file is created by it. Once the file is there, no other call fails
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is(const char *name, const char *value)
{
    const char *wanted = getenv(name);

    return wanted != NULL && strcmp(wanted, value) == 0;
}

/* The name of the first thread: others may have names of their own. */
static bool is_in_process(void)
{
    char name[32] = "";
    const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, name, sizeof name - 1) < 0)
        return false;
    close(fd);
    name[strcspn(name, "\n")] = '\0';
    return is("BAD_PROCESS", name);
}

/* Returns whether this call fails; errno then says why. */
static bool fails(const char *call, const char *path)
{
    static atomic_long n;
    const char *pattern = getenv("BAD_PATH"), *nth = getenv("BAD_NTH"), *note = getenv("BAD_NOTE");
    int fd;

    if (pattern == NULL || nth == NULL || note == NULL || !is("BAD_CALL", call) ||
        fnmatch(pattern, path, 0) != 0 || !is_in_process() || atomic_fetch_add(&n, 1) + 1 != atol(nth))
        return false;
    fd = open(note, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    close(fd);
    errno = is("BAD_ERROR", "ENOSPC") ? ENOSPC : EIO;
    return true;
}

static bool fails_on(const char *call, int fd)
{
    char link[64], path[4096];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return fails(call, path);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t);

    *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    return fails_on("pwrite", fd) ? -1 : real(fd, bytes, n, offset);
}

int fsync(int fd)
{
    int (*real)(int);

    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return fails_on("fsync", fd) ? -1 : real(fd);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    int (*real)(int, const char *, int, const char *);

    *(void **)&real = dlsym(RTLD_NEXT, "renameat");
    return fails("rename", from) ? -1 : real(from_folder, from, to_folder, to);
}
