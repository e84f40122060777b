/*
 * To be preloaded: a disk that is slow, full or stuck, for the files whose path contains $SLOW_DISK.
 *   SLOW_MS     each write to such a file takes so much longer
 *   SLOW_FULL   if it is set, each write then fails with ENOSPC
 *   SLOW_RANK   only in the worker of this rank
 *   SLOW_UNTIL  the first write to such a file waits until the process has written these words anywhere. Who
 *               writes the words then waits until the disk has answered.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 10, ANSWER_MS = 200 }; /* ANSWER_MS: until the answer is on its way to the loop */

static atomic_bool waits, said, answered;

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static bool is_slow(int fd)
{
    const char *slow = getenv("SLOW_DISK"), *only = getenv("SLOW_RANK"), *rank = getenv("RANK");
    char link[64], path[4096];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (only != NULL && (rank == NULL || strcmp(only, rank) != 0))
        return false;
    n = slow == NULL ? -1 : readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return n > 0 && strstr(path, slow) != NULL;
}

/* Returns whether the write fails. */
static bool delay(void)
{
    const char *ms = getenv("SLOW_MS");

    if (getenv("SLOW_UNTIL") != NULL && !atomic_exchange(&waits, true))
        while (!said)
            pause_ms(POLL_MS);
    if (ms != NULL)
        pause_ms(atol(ms));
    if (getenv("SLOW_FULL") == NULL)
        return false;
    errno = ENOSPC;
    return true;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t), done;
    const bool slow = is_slow(fd);

    if (slow && delay())
        return -1;
    *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    done = real(fd, bytes, n, offset);
    answered = answered || slow;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    ssize_t (*real)(int, const void *, size_t), done;
    const char *until = getenv("SLOW_UNTIL");

    if (is_slow(fd) && delay())
        return -1;
    *(void **)&real = dlsym(RTLD_NEXT, "write");
    done = real(fd, bytes, n);
    if (until == NULL || !waits || said || memmem(bytes, n, until, strlen(until)) == NULL)
        return done;
    said = true;
    while (!answered)
        pause_ms(POLL_MS);
    pause_ms(ANSWER_MS);
    return done;
}
