/*
 * To be preloaded: a rank of a job stops at one place of its life, or is slow there. STOP_AT is a list of
 * PLACE:RANK:RESTART, parted by commas; PLACE is
 *   start       before main(), so before it has opened its link
 *   collective  inside its first collective
 *   load        when it opens the first file of a checkpoint to read it
 *   save        when it opens the first file of a checkpoint to write it
 *   loading     while its page says that it loads
 *   saving      while its page says that it saves
 *   forward     at a layer
 *   backward    likewise
 *   end         after main()
 *   slow        does not stop: each pread() takes $SLOW_MS longer
 * It stops when it gives its sign of life number $STOP_NTH (1) there. If $STOP_GO is given, it counts only
 * from when that file is there. STOP_BY says how:
 *   itself   by SIGSTOP
 *   outside  it pauses until somebody else stops it
 *   lock     it waits for a mutex that is never unlocked
 *   socket   it reads from a socket whose other end says nothing
 *   fifo     it reads from the FIFO $STOP_FIFO
 * Before that it writes a line to $STOP_NOTE: the time in seconds since 1970, its pid, and its layer or "-".
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <fsdp/link.h>

/* The progress page of this process; a mapping of its own, because the worker unmaps its own at the end. */
static struct fsdp_progress *page;

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

static void write_note(void)
{
    const char *path = getenv("STOP_NOTE"), *layer = "-";
    const uint32_t place = page != NULL ? atomic_load(&page->threads[0].place) : 0;
    struct timespec now;
    FILE *note = path != NULL ? fopen(path, "w") : NULL;

    if (note == NULL)
        return;
    if (place != 0)
        layer = fsdp_places(page) + (size_t)(place - 1) * FSDP_PLACE_BYTES;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    fprintf(note, "%lld.%06ld %d %s\n", (long long)now.tv_sec, now.tv_nsec / 1000, (int)getpid(), layer);
    (void)fclose(note);
}

static void stop(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const char *by = getenv("STOP_BY");
    int fds[2] = { -1, -1 };
    char byte;

    write_note();
    if (by == NULL || strcmp(by, "itself") == 0) {
        raise(SIGSTOP);
        return;
    }
    if (strcmp(by, "lock") == 0) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_lock(&mutex);
    }
    if (strcmp(by, "socket") == 0)
        (void)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);
    if (strcmp(by, "fifo") == 0)
        fds[0] = open(getenv("STOP_FIFO"), O_RDWR | O_CLOEXEC);
    while (fds[0] >= 0)
        (void)!read(fds[0], &byte, 1);
    for (;;)
        pause();
}

/* The rank gives a sign of life at this place. */
static void stop_if(const char *place)
{
    static atomic_long n;
    const char *go = getenv("STOP_GO"), *nth = getenv("STOP_NTH");

    if (is_at(place) && (go == NULL || access(go, F_OK) == 0) &&
        atomic_fetch_add(&n, 1) + 1 == (nth != NULL ? atol(nth) : 1))
        stop();
}

/*
 * A sign of life on the progress page: it begins by a look at the clock, and a new phase was stored before
 * that. So the first sign of a phase is passed: the agent would never see that phase.
 */
static void stop_where_page_says(void)
{
    static _Thread_local uint32_t before;
    const uint32_t phase = page != NULL ? atomic_load(&page->phase) : FSDP_PHASE_START,
                   pass = page != NULL ? atomic_load(&page->pass) : FSDP_PHASE_START;
    const bool is_first = phase != before;

    before = phase;
    if ((phase == FSDP_PHASE_LOAD || phase == FSDP_PHASE_SAVE) && !is_first)
        stop_if(phase == FSDP_PHASE_LOAD ? "loading" : "saving");
    else if (phase == FSDP_PHASE_COLLECTIVE && atomic_load(&page->n_collectives) == 1)
        stop_if("collective");
    else if ((pass == FSDP_PHASE_FORWARD || pass == FSDP_PHASE_BACKWARD) && getpid() == gettid() &&
             atomic_load(&page->threads[0].place) != 0 && atomic_load(&page->threads[0].group) == 0)
        stop_if(pass == FSDP_PHASE_FORWARD ? "forward" : "backward");
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

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *memory = (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);

    if (memory != MAP_FAILED && size == FSDP_PROGRESS_BYTES && (flags & MAP_SHARED) != 0 &&
        getenv("STOP_AT") != NULL && getenv("RANK") != NULL)
        page = (void *)syscall(SYS_mmap, NULL, size, PROT_READ, MAP_SHARED, fd, offset);
    return memory;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock == CLOCK_MONOTONIC)
        stop_where_page_says();
    return (int)syscall(SYS_clock_gettime, clock, now);
}

/* Of a collective between nodes. */
int poll(struct pollfd *fds, nfds_t n, int ms)
{
    int (*real)(struct pollfd *, nfds_t, int);

    *(void **)&real = dlsym(RTLD_NEXT, "poll");
    if (page != NULL && atomic_load(&page->phase) == FSDP_PHASE_COLLECTIVE)
        stop_where_page_says();
    return real(fds, n, ms);
}
