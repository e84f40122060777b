#include "agent/os/descendants.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/small_file.h"
#include "shard_runtime/core/clock.h"

struct pids {
    pid_t *items;
    size_t n, capacity;
};

struct process {
    pid_t parent;
    char state;                 /* of its first thread */
    unsigned long long threads; /* how many are left, the first one included even if it has ended */
    unsigned long long started; /* start time in ticks since boot; with the pid it identifies the process */
};

static bool add(struct pids *pids, pid_t pid)
{
    if (pids->n == pids->capacity) {
        size_t capacity = pids->capacity == 0 ? 64 : pids->capacity * 2;
        pid_t *items = realloc(pids->items, capacity * sizeof *items);

        if (items == NULL)
            return false;
        pids->items = items;
        pids->capacity = capacity;
    }
    pids->items[pids->n++] = pid;
    return true;
}

static void drop(struct pids *pids, const pid_t *except, size_t n_except)
{
    size_t kept = 0;

    for (size_t i = 0; i < pids->n; i++) {
        bool dropped = false;

        for (size_t j = 0; j < n_except; j++)
            dropped = dropped || pids->items[i] == except[j];
        if (!dropped)
            pids->items[kept++] = pids->items[i];
    }
    pids->n = kept;
}

/* Returns the pid that the text represents, or 0 if the text is not a pid. */
static pid_t pid_of(const char *text)
{
    char *end;
    const long pid = strtol(text, &end, 10);

    return end == text || pid <= 0 || pid > INT_MAX ? 0 : (pid_t)pid;
}

/* " STATE PPID ... STARTTIME ...": fields 3 to 22 of /proc/PID/stat, proc(5). */
static bool parse_stat(const char *text, struct process *out)
{
    if (text[0] != ' ' || text[1] == '\0')
        return false;
    out->state = text[1];
    text += 2;
    for (int field = 4; field <= 22; field++) {
        char *end;
        const unsigned long long value = strtoull(text, &end, 10); /* some fields are -1 */

        if (end == text)
            return false;
        if (field == 4)
            out->parent = (pid_t)value;
        else if (field == 20)
            out->threads = value;
        else if (field == 22)
            out->started = value;
        text = end;
    }
    return true;
}

static bool read_process(pid_t pid, struct process *out)
{
    char text[1024], *end;

    if (!small_file_read(text, sizeof text, "/proc/%d/stat", (int)pid))
        return false;
    end = strrchr(text, ')'); /* the process name may contain anything, also parentheses */
    return end != NULL && parse_stat(end + 1, out);
}

/*
 * Read the kernel's list of children of a process, which is a file for each thread. Returns false if this
 * kernel has no such files.
 */
static bool add_children(pid_t pid, struct pids *pids)
{
    char path[400], text[4096], *number = NULL;
    struct dirent *entry;
    size_t number_bytes = 0;
    bool offered = false;
    DIR *tasks;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    if (tasks == NULL)
        return errno == ENOENT; /* the process is gone, and its children have another parent */
    while ((entry = readdir(tasks)) != NULL) {
        FILE *file;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)pid, entry->d_name);
        file = fopen(path, "re");
        if (file == NULL) {
            offered = offered || errno == ESRCH;
            continue;
        }
        setvbuf(file, text, _IOFBF, sizeof text);
        offered = true;
        while (getdelim(&number, &number_bytes, ' ', file) > 0)
            if (pid_of(number) > 0)
                add(pids, pid_of(number));
        fclose(file);
    }
    free(number);
    closedir(tasks);
    return offered;
}

/*
 * For kernels without those files: look at the parent of every process, again and again, until a pass finds
 * no new descendant.
 */
static void add_by_parent(struct pids *pids, pid_t root, const pid_t *except, size_t n_except)
{
    struct pids all = { 0 };
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    bool grown = true;

    if (proc == NULL)
        return;
    while ((entry = readdir(proc)) != NULL)
        if (pid_of(entry->d_name) > 0)
            add(&all, pid_of(entry->d_name));
    closedir(proc);
    drop(&all, except, n_except);
    while (grown) {
        grown = false;
        for (size_t i = 0; i < all.n; i++) {
            struct process process;
            bool ours;

            if (all.items[i] == 0 || !read_process(all.items[i], &process))
                continue;
            ours = process.parent == root;
            for (size_t j = 0; j < pids->n && !ours; j++)
                ours = pids->items[j] == process.parent;
            if (!ours)
                continue;
            add(pids, all.items[i]);
            all.items[i] = 0;
            grown = true;
        }
    }
    free(all.items);
}

/* Collect the descendants of a process, except the children in `except` and their descendants. */
static void collect_below(struct pids *pids, pid_t root, const pid_t *except, size_t n_except)
{
    if (!add_children(root, pids)) {
        add_by_parent(pids, root, except, n_except);
        return;
    }
    drop(pids, except, n_except);
    for (size_t i = 0; i < pids->n; i++)
        add_children(pids->items[i], pids);
}

static void collect(struct pids *pids, const pid_t *except, size_t n_except)
{
    collect_below(pids, getpid(), except, n_except);
}

/*
 * A process is a zombie to the kernel as soon as its first thread has ended. Other threads may go on, or may
 * be in a system call that SIGKILL does not interrupt: they still write files.
 */
static bool is_dead(const struct process *process)
{
    return strchr("ZX", process->state) != NULL && process->threads <= 1;
}

bool descendants_can_be_found(void)
{
    struct process process;

    return read_process(getpid(), &process);
}

/*
 * The pidfd is opened before the process is examined. So a process that got the same pid meanwhile is not
 * signalled.
 */
static bool signal_one(pid_t pid, int signal)
{
    struct process process;
    bool alive = false;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (pidfd < 0)
        return false;
    if (read_process(pid, &process) && !is_dead(&process)) {
        struct process again;

        alive = syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0;
        alive = alive && read_process(pid, &again) && !is_dead(&again) && again.started == process.started;
    }
    close(pidfd);
    return alive;
}

/* Signals the processes and frees the list. Returns how many of them were alive. */
static size_t signal_all(struct pids *pids, int signal)
{
    size_t n = 0;

    for (size_t i = 0; i < pids->n; i++)
        n += signal_one(pids->items[i], signal);
    free(pids->items);
    return n;
}

size_t descendants_signal(int signal, const pid_t *except, size_t n_except)
{
    struct pids pids = { 0 };

    collect(&pids, except, n_except);
    return signal_all(&pids, signal);
}

size_t descendants_signal_below(pid_t root, int signal)
{
    struct pids pids = { 0 };

    collect_below(&pids, root, NULL, 0);
    return signal_all(&pids, signal);
}

size_t descendants_running_below(pid_t root)
{
    struct pids pids = { 0 };
    struct process process;
    size_t n = 0;

    collect_below(&pids, root, NULL, 0);
    for (size_t i = 0; i < pids.n; i++)
        n += read_process(pids.items[i], &process) && strchr("Tt", process.state) == NULL &&
             !is_dead(&process);
    free(pids.items);
    return n;
}

/* Writes the pids of living processes to `out`, and frees the list. Returns how many they are. */
static size_t list_living(struct pids *pids, pid_t *out, size_t capacity)
{
    size_t n = 0;

    for (size_t i = 0; i < pids->n; i++) {
        struct process process;

        if (!read_process(pids->items[i], &process) || is_dead(&process))
            continue;
        if (n < capacity)
            out[n] = pids->items[i];
        n++;
    }
    free(pids->items);
    return n;
}

size_t descendants_living(pid_t *out, size_t capacity, const pid_t *except, size_t n_except)
{
    struct pids pids = { 0 };

    collect(&pids, except, n_except);
    return list_living(&pids, out, capacity);
}

size_t descendants_living_below(pid_t root, pid_t *out, size_t capacity)
{
    struct pids pids = { 0 };
    size_t n;

    collect_below(&pids, root, NULL, 0);
    out[0] = root;
    n = 1 + list_living(&pids, out + 1, capacity - 1);
    return n < capacity ? n : capacity;
}

pid_t descendants_top(pid_t pid)
{
    struct process process;

    /*
     * A pid that is reused during this walk can only end it early, because every step goes from a process to
     * its living parent.
     */
    for (int depth = 0; depth < 4096 && pid > 1 && pid != getpid() && read_process(pid, &process); depth++) {
        if (process.parent == getpid())
            return pid;
        pid = process.parent;
    }
    return 0;
}

static void visit_sockets(pid_t pid, void (*visit)(void *arg, unsigned long inode, pid_t child), void *arg)
{
    static const char prefix[] = "socket:[";
    char path[64], target[64];
    const struct dirent *entry;
    pid_t child = 0;
    DIR *fds;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    fds = opendir(path);
    if (fds == NULL)
        return;
    while ((entry = readdir(fds)) != NULL) {
        const ssize_t n = readlinkat(dirfd(fds), entry->d_name, target, sizeof target - 1);

        target[n < 0 ? 0 : n] = '\0';
        if (strncmp(target, prefix, sizeof prefix - 1) != 0)
            continue;
        if (child == 0 && (child = descendants_top(pid)) == 0)
            break; /* it is gone */
        visit(arg, strtoul(target + sizeof prefix - 1, NULL, 10), child);
    }
    closedir(fds);
}

void descendants_sockets(void (*visit)(void *arg, unsigned long inode, pid_t child), void *arg)
{
    struct pids pids = { 0 };

    collect(&pids, NULL, 0);
    for (size_t i = 0; i < pids.n; i++)
        visit_sockets(pids.items[i], visit, arg);
    free(pids.items);
}

/* Returns a thread of the process that has not ended, if its first one has; else 0. */
static pid_t thread_that_lives(pid_t pid)
{
    char path[64];
    const struct dirent *entry;
    struct process thread;
    pid_t found = 0;
    DIR *tasks;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    if (tasks == NULL)
        return 0;
    while (found == 0 && (entry = readdir(tasks)) != NULL) {
        const pid_t id = pid_of(entry->d_name);

        if (id > 0 && id != pid && read_process(id, &thread) && strchr("ZX", thread.state) == NULL)
            found = id;
    }
    closedir(tasks);
    return found;
}

char descendants_state(pid_t pid, char *place, size_t size)
{
    struct process process;
    const pid_t other = read_process(pid, &process) && !is_dead(&process) && process.state == 'Z'
                            ? thread_that_lives(pid)
                            : 0;

    if (other > 0)
        pid = other;
    if (!small_file_read(place, size, "/proc/%d/wchan", (int)pid) || strcmp(place, "0") == 0)
        snprintf(place, size, "?"); /* the process does not wait, or its wait channel may not be read */
    return read_process(pid, &process) ? process.state : '?';
}

size_t descendants_children(pid_t *out, size_t capacity)
{
    struct pids pids = { 0 };
    size_t n = 0;

    if (!add_children(getpid(), &pids))
        add_by_parent(&pids, getpid(), NULL, 0);
    for (size_t i = 0; i < pids.n && n < capacity; i++)
        out[n++] = pids.items[i];
    free(pids.items);
    return n;
}

/* Reap all zombies. False: there is no child left. */
static bool reap(void)
{
    siginfo_t info;

    for (;;) {
        memset(&info, 0, sizeof info);
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        if (info.si_pid == 0)
            return true;
    }
}

size_t descendants_end(int64_t limit_ms, const pid_t *except, size_t n_except)
{
    const int64_t deadline = clock_now_ms() + limit_ms;
    int pause_ms = 1;

    for (;;) {
        struct pids left = { 0 };
        size_t n;

        descendants_signal(SIGKILL, except, n_except);
        if (!reap())
            return 0;
        collect(&left, except, n_except);
        n = left.n;
        free(left.items);
        if (n == 0 || clock_now_ms() >= deadline)
            return n;
        poll(NULL, 0, pause_ms);
        pause_ms = pause_ms < 20 ? pause_ms * 2 : 20;
    }
}
