/*
 * To be preloaded: a rank of a job stops itself by SIGSTOP at one place of its life, or is slow there.
 * STOP_AT is a list of PLACE:RANK:RESTART, parted by commas; PLACE is
 *   start  before main(), so before it has opened its link
 *   load   when it opens the first file of a checkpoint to read it
 *   save   when it opens the first file of a checkpoint to write it
 *   end    after main()
 *   slow   does not stop: each pread() takes $SLOW_MS longer
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is_at(const char *place)
{
    const char *wanted = getenv("STOP_AT"), *rank = getenv("RANK"),
               *restart = getenv("TORCHELASTIC_RESTART_COUNT");
    char here[64];

    if (wanted == NULL || rank == NULL || restart == NULL)
        return false;
    snprintf(here, sizeof here, "%s:%s:%s", place, rank, restart);
    for (const char *at = wanted; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, here, strlen(here)) == 0 && strchr(",", at[strlen(here)]) != NULL)
            return true;
    }
    return false;
}

static void stop_if(const char *place)
{
    if (is_at(place))
        raise(SIGSTOP);
}

__attribute__((constructor)) static void at_start(void)
{
    stop_if("start");
}

__attribute__((destructor)) static void at_end(void)
{
    stop_if("end");
}

static void stop_if_checkpoint(const char *path, int flags)
{
    if (strstr(path, ".safetensors") != NULL)
        stop_if((flags & O_ACCMODE) == O_RDONLY ? "load" : "save");
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...);
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    *(void **)&real = dlsym(RTLD_NEXT, "open");
    stop_if_checkpoint(path, flags);
    return real(path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    int (*real)(int, const char *, int, ...);
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    *(void **)&real = dlsym(RTLD_NEXT, "openat");
    stop_if_checkpoint(path, flags);
    return real(directory, path, flags, mode);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t);

    *(void **)&real = dlsym(RTLD_NEXT, "pread");
    if (is_at("slow")) {
        const char *slow_ms = getenv("SLOW_MS");
        const long ms = slow_ms == NULL ? 0 : atol(slow_ms);

        nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
    }
    return real(fd, bytes, n, offset);
}
