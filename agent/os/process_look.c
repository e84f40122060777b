#include "agent/os/process_look.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/os/small_file.h"

/* The system calls in which programs wait. In some of them the first argument is a descriptor. */
static const struct {
    long number;
    const char *name;
    bool has_descriptor;
} calls[] = {
    { SYS_read, "read", true },
    { SYS_write, "write", true },
    { SYS_readv, "readv", true },
    { SYS_writev, "writev", true },
    { SYS_pread64, "pread64", true },
    { SYS_pwrite64, "pwrite64", true },
    { SYS_openat, "openat", false },
    { SYS_close, "close", true },
    { SYS_fsync, "fsync", true },
    { SYS_fdatasync, "fdatasync", true },
    { SYS_fallocate, "fallocate", true },
    { SYS_ftruncate, "ftruncate", true },
    { SYS_getdents64, "getdents64", true },
    { SYS_ioctl, "ioctl", true },
    { SYS_flock, "flock", true },
    { SYS_fcntl, "fcntl", true },
    { SYS_sendto, "sendto", true },
    { SYS_sendmsg, "sendmsg", true },
    { SYS_recvfrom, "recvfrom", true },
    { SYS_recvmsg, "recvmsg", true },
    { SYS_connect, "connect", true },
    { SYS_accept4, "accept4", true },
    { SYS_epoll_pwait, "epoll_pwait", true },
    { SYS_ppoll, "ppoll", false },
    { SYS_pselect6, "pselect6", false },
    { SYS_futex, "futex", false },
    { SYS_nanosleep, "nanosleep", false },
    { SYS_clock_nanosleep, "clock_nanosleep", false },
    { SYS_wait4, "wait4", false },
    { SYS_waitid, "waitid", false },
    { SYS_rt_sigtimedwait, "rt_sigtimedwait", false },
    { SYS_rt_sigsuspend, "rt_sigsuspend", false },
    { SYS_sched_yield, "sched_yield", false },
    { SYS_mmap, "mmap", false },
    { SYS_munmap, "munmap", false },
    { SYS_tgkill, "tgkill", false },
    { SYS_execve, "execve", false },
    { SYS_exit_group, "exit_group", false },
    { SYS_newfstatat, "newfstatat", false },
    { SYS_unlinkat, "unlinkat", false },
    { SYS_renameat2, "renameat2", false },
#ifdef SYS_poll /* older calls that newer architectures do not have */
    { SYS_poll, "poll", false },
    { SYS_select, "select", false },
    { SYS_epoll_wait, "epoll_wait", true },
    { SYS_open, "open", false },
    { SYS_stat, "stat", false },
    { SYS_pause, "pause", false },
    { SYS_accept, "accept", true },
#endif
};
enum { N_CALLS = sizeof calls / sizeof *calls };
/*
 * A process that waits for a disk may wake many times a second for an instant. Up to so much time counts as
 * not running.
 */
static const uint64_t HARDLY_NS = 50000000;

/* The letter after the name in a `stat` file of /proc; '?' if there is none. */
static char read_state(const char *directory)
{
    char text[512];
    const char *end;

    if (!small_file_read(text, sizeof text, "%s/stat", directory))
        return '?';
    end = strrchr(text, ')'); /* the name may contain anything, also parentheses */
    return end != NULL && end[1] == ' ' && isalpha((unsigned char)end[2]) ? end[2] : '?';
}

static void read_wchan(const char *directory, char out[PROCESS_LOOK_NAME_BYTES])
{
    if (!small_file_read(out, PROCESS_LOOK_NAME_BYTES, "%s/wchan", directory) || strcmp(out, "0") == 0)
        out[0] = '\0'; /* the process does not wait, or we may not read where */
}

/* Lines such as "[<0>] futex_wait_queue+0x64/0x90 [module]"; the name is kept. */
static void read_frames(const char *directory, struct process_look *look)
{
    char text[4096];

    errno = 0;
    if (!small_file_read(text, sizeof text, "%s/stack", directory)) {
        look->frames_refused = errno == EACCES || errno == EPERM;
        return;
    }
    for (const char *line = text; *line != '\0' && look->n_frames < PROCESS_LOOK_FRAMES;) {
        const char *end = line + strcspn(line, "\n"), *name = strstr(line, "] ");

        if (name != NULL && name < end) {
            const size_t n = strcspn(name + 2, "+ \n");

            snprintf(look->frames[look->n_frames++], PROCESS_LOOK_NAME_BYTES, "%.*s",
                     n < PROCESS_LOOK_NAME_BYTES ? (int)n : PROCESS_LOOK_NAME_BYTES - 1, name + 2);
        }
        line = *end == '\0' ? end : end + 1;
    }
}

/* What the descriptor is open on: a path, "socket:[1234]", "pipe:[1234]". */
static void read_descriptor(const char *directory, unsigned long long fd, struct process_look *look)
{
    char path[SMALL_FILE_PATH_BYTES];
    ssize_t n;

    if (fd > INT_MAX || (size_t)snprintf(path, sizeof path, "%s/fd/%llu", directory, fd) >= sizeof path)
        return;
    n = readlink(path, look->file, sizeof look->file - 1);
    look->file[n < 0 ? 0 : n] = '\0';
}

/* "running", or "NUMBER ARGUMENT ..."; the number is -1 in a fault, outside of every system call. */
static void read_call(const char *directory, struct process_look *look)
{
    char text[256], *end;
    long number;

    if (!small_file_read(text, sizeof text, "%s/syscall", directory))
        return;
    number = strtol(text, &end, 10);
    if (end == text || number < 0) {
        snprintf(look->syscall, sizeof look->syscall, "running");
        return;
    }
    snprintf(look->syscall, sizeof look->syscall, "#%ld", number);
    for (int i = 0; i < N_CALLS; i++) {
        if (calls[i].number != number)
            continue;
        snprintf(look->syscall, sizeof look->syscall, "%s", calls[i].name);
        if (calls[i].has_descriptor)
            read_descriptor(directory, strtoull(end, NULL, 16), look);
        return;
    }
}

static void add_thread(struct process_look *look, char state, const char *wchan)
{
    for (int i = 0; i < look->n_others; i++) {
        if (look->others[i].state != state || strcmp(look->others[i].wchan, wchan) != 0)
            continue;
        look->others[i].count++;
        return;
    }
    if (look->n_others == PROCESS_LOOK_KINDS)
        return;
    look->others[look->n_others] = (struct process_look_threads){ .count = 1, .state = state };
    snprintf(look->others[look->n_others++].wchan, PROCESS_LOOK_NAME_BYTES, "%s", wchan);
}

static void read_threads(const char *directory, pid_t pid, struct process_look *look)
{
    char path[SMALL_FILE_PATH_BYTES], wchan[PROCESS_LOOK_NAME_BYTES];
    const struct dirent *entry;
    DIR *tasks;

    if ((size_t)snprintf(path, sizeof path, "%s/task", directory) >= sizeof path)
        return;
    tasks = opendir(path);
    if (tasks == NULL)
        return;
    while ((entry = readdir(tasks)) != NULL) {
        const long thread = strtol(entry->d_name, NULL, 10);

        if (thread <= 0)
            continue;
        look->n_threads++;
        if (thread == pid || look->n_threads > PROCESS_LOOK_THREADS ||
            (size_t)snprintf(path, sizeof path, "%s/task/%ld", directory, thread) >= sizeof path)
            continue;
        read_wchan(path, wchan);
        add_thread(look, read_state(path), wchan);
    }
    closedir(tasks);
}

void process_look(struct process_look *look, const char *proc, pid_t pid)
{
    char directory[256];

    *look = (struct process_look){ .state = '?' };
    if ((size_t)snprintf(directory, sizeof directory, "%s/%d", proc, (int)pid) >= sizeof directory)
        return;
    look->state = read_state(directory);
    if (look->state == '?')
        return;
    read_wchan(directory, look->wchan);
    read_call(directory, look);
    read_frames(directory, look);
    read_threads(directory, pid, look);
}

/* The number after `key` in a text of lines "key: value"; 0 if there is none. */
static uint64_t value_of(const char *text, const char *key, int base)
{
    const char *at = strstr(text, key);

    return at == NULL ? 0 : strtoull(at + strlen(key), NULL, base);
}

pid_t process_tracer(const char *proc, pid_t pid)
{
    char text[4096];

    if (!small_file_read(text, sizeof text, "%s/%d/status", proc, (int)pid))
        return 0;
    return (pid_t)value_of(text, "\nTracerPid:", 10);
}

bool process_catches(const char *proc, pid_t pid, int signal)
{
    char text[4096];

    return small_file_read(text, sizeof text, "%s/%d/status", proc, (int)pid) &&
           (value_of(text, "\nSigCgt:", 16) >> (signal - 1) & 1) != 0;
}

bool process_state_is_held(char state)
{
    return state == 'T' || state == 't' || state == 'D';
}

static struct process_held *add_held(struct process_toll *toll, pid_t pid, char state)
{
    if (!process_state_is_held(state) || toll->n_held == PROCESS_LOOK_HELD)
        return NULL;
    toll->held[toll->n_held] = (struct process_held){ .pid = pid, .state = state };
    return &toll->held[toll->n_held++];
}

void process_toll_add(struct process_toll *toll, const char *proc, pid_t pid)
{
    char directory[256], path[300], text[128], state;
    struct process_held *held;
    const struct dirent *entry;
    DIR *tasks;

    if ((size_t)snprintf(directory, sizeof directory, "%s/%d", proc, (int)pid) >= sizeof directory)
        return;
    state = read_state(directory);
    toll->blocked = toll->blocked || state == 'D';
    held = add_held(toll, pid, state);
    snprintf(path, sizeof path, "%s/task", directory);
    tasks = opendir(path);
    while (tasks != NULL && toll->n_threads < PROCESS_LOOK_THREADS && (entry = readdir(tasks)) != NULL) {
        const pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        unsigned long long run_ns, delay_ns;

        if (thread <= 0 || !small_file_read(text, sizeof text, "%s/%s/schedstat", path, entry->d_name) ||
            sscanf(text, "%llu %llu", &run_ns, &delay_ns) != 2)
            continue;
        toll->threads[toll->n_threads++] = (struct process_toll_thread){ thread, delay_ns };
        toll->used_ns += run_ns + delay_ns;
        if (thread == pid)
            toll->run_ns += run_ns;
        if (thread == pid && held != NULL)
            held->run_ns = run_ns;
    }
    if (toll->n_threads == PROCESS_LOOK_THREADS)
        toll->used_ns = 0; /* there may be more */
    if (tasks != NULL)
        closedir(tasks);
}

uint64_t process_toll_delay(const struct process_toll *before, const struct process_toll *now)
{
    uint64_t most_ns = 0;

    for (int i = 0; i < now->n_threads; i++)
        for (int j = 0; j < before->n_threads; j++) {
            const uint64_t now_ns = now->threads[i].delay_ns, before_ns = before->threads[j].delay_ns;

            if (now->threads[i].thread == before->threads[j].thread && now_ns > before_ns &&
                now_ns - before_ns > most_ns)
                most_ns = now_ns - before_ns;
        }
    return most_ns;
}

/* Was the process that `now` describes in the same held state at `before`, and has it hardly run since? */
static bool lasts(const struct process_toll *before, const struct process_held *now)
{
    for (int i = 0; i < before->n_held; i++) {
        const struct process_held *then = &before->held[i];

        if (then->pid == now->pid && then->state == now->state && now->run_ns - then->run_ns < HARDLY_NS)
            return true;
    }
    return false;
}

const struct process_held *process_toll_held(const struct process_toll *before,
                                             const struct process_toll *now)
{
    const struct process_held *found = NULL;

    for (int i = 0; i < now->n_held; i++)
        if (lasts(before, &now->held[i]) &&
            (found == NULL || (found->state == 'D' && now->held[i].state != 'D')))
            found = &now->held[i];
    return found;
}

void process_usage_add(struct process_usage *usage, const char *proc, pid_t pid)
{
    unsigned long long faults[4], ticks[4];
    char text[1024], state;
    const char *end;

    if (!small_file_read(text, sizeof text, "%s/%d/stat", proc, (int)pid))
        return;
    end = strrchr(text, ')');
    if (end == NULL || sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %llu %llu %llu %llu %llu %llu %llu %llu",
                              &state, &faults[0], &faults[1], &faults[2], &faults[3], &ticks[0], &ticks[1],
                              &ticks[2], &ticks[3]) != 9)
        return;
    for (int i = 0; i < 4; i++) {
        usage->work += faults[i];
        usage->cpu_ns += ticks[i] * (1000000000 / (uint64_t)sysconf(_SC_CLK_TCK));
    }
    /*
     * Reading `io` takes a lock that a process holds while it executes a program, which lasts for ever if the
     * disk is stuck. So it is not read in state D.
     */
    if (state == 'D' || !small_file_read(text, sizeof text, "%s/%d/io", proc, (int)pid))
        return;
    usage->work += value_of(text, "syscr: ", 10) + value_of(text, "syscw: ", 10);
    usage->written_bytes += value_of(text, "wchar: ", 10);
}
