#include "agent/os/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
/*
 * A child that shares our memory until exec costs no page tables, whatever our size. Sanitizers keep shadow
 * state of every stack frame in that memory, which the child would change. So with a sanitizer the child gets
 * a copy.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||     \
    __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SHARE_MEMORY 0
#else
#define SHARE_MEMORY 1
#endif

enum { CHILD_STACK_BYTES = 64 * 1024, LAST_SIGNAL = 64 };

void os_baseline_capture(struct os_baseline *baseline)
{
    struct sigaction action;

    memset(baseline, 0, sizeof *baseline);
    sigprocmask(SIG_SETMASK, NULL, &baseline->mask);
    sigemptyset(&baseline->ignored);
    for (int i = 1; i <= LAST_SIGNAL; i++)
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(&baseline->ignored, i);
    getrlimit(RLIMIT_NOFILE, &baseline->nofile);
}

void os_signals_to_take(sigset_t *out, uint64_t wanted, const struct os_baseline *baseline)
{
    sigemptyset(out);
    for (int i = 1; i < 64; i++)
        if ((wanted >> i & 1) != 0 && sigismember(&baseline->ignored, i) != 1)
            sigaddset(out, i);
}

void os_raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Between clone and exec: async-signal-safe calls only, and no memory but the child's own stack */

enum stage {
    STAGE_PARENT,
    STAGE_SESSION,
    STAGE_LIMITS,
    STAGE_CPUS,
    STAGE_STDIO,
    STAGE_DIRECTORY,
    STAGE_EXEC
};

static const char *const stage_calls[] = {
    [STAGE_PARENT] = "prctl",     [STAGE_SESSION] = "setsid",
    [STAGE_LIMITS] = "setrlimit", [STAGE_CPUS] = "sched_setaffinity",
    [STAGE_STDIO] = "dup2",       [STAGE_DIRECTORY] = "chdir",
    [STAGE_EXEC] = "execve",
};

struct child_report {
    int stage, error;
};

struct child_job {
    const struct os_spawn *spawn;
    pid_t parent;
    int report_fd;
};

static _Noreturn void give_up(int report_fd, int stage)
{
    struct child_report report = { stage, errno };
    ssize_t n;

    do
        n = write(report_fd, &report, sizeof report);
    while (n < 0 && errno == EINTR);
    _exit(127);
}

static void restore_signals(const struct os_spawn *spawn)
{
    struct sigaction action = { 0 };

    for (int i = 1; i <= LAST_SIGNAL; i++) {
        if (i == SIGKILL || i == SIGSTOP || i == 32 || i == 33) /* the C library uses 32 and 33 */
            continue;
        action.sa_handler =
            sigismember(&spawn->baseline->ignored, i) == 1 || (i < 64 && (spawn->ignored >> i & 1) != 0)
                ? SIG_IGN
                : SIG_DFL;
        sigaction(i, &action, NULL);
    }
}

/* Move the three descriptors to 0, 1 and 2. Any of them may have the number of another. */
static bool place_stdio(const int stdio[3])
{
    int copies[3];

    for (int i = 0; i < 3; i++) {
        copies[i] = stdio[i];
        if (stdio[i] != i && stdio[i] < 3 && (copies[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 3)) < 0)
            return false;
    }
    for (int i = 0; i < 3; i++)
        if (copies[i] == i ? fcntl(i, F_SETFD, 0) < 0 : dup2(copies[i], i) < 0)
            return false;
    return true;
}

static bool is_one_of(int fd, const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] == fd)
            return true;
    return false;
}

static bool is_socket(int fd)
{
    int type;
    socklen_t size = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0; /* asks no file system */
}

/*
 * Close every socket from descriptor 3 on, except those in `keep`. A child that waits before its exec would
 * otherwise keep the agent's connections and port open: other nodes would not notice that the agent has
 * closed them, or has ended.
 */
static void close_sockets_but(const int *keep, int n)
{
    _Alignas(struct dirent64) char entries[2048];
    const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct dirent64 *entry;
    ssize_t size;

    while ((size = getdents64(folder, entries, sizeof entries)) > 0)
        for (ssize_t at = 0; at < size; at += entry->d_reclen) {
            int fd = 0;

            entry = (const void *)(entries + at);
            for (const char *digit = entry->d_name; *digit >= '0' && *digit <= '9'; digit++)
                fd = fd * 10 + *digit - '0';
            if (fd >= 3 && !is_one_of(fd, keep, n) && is_socket(fd))
                close(fd);
        }
    close(folder);
}

/*
 * Close every descriptor from 3 on, except those in `keep`. This may take long if one is a file on a disk
 * that does not answer.
 */
static void close_all_but(const int *keep, int n)
{
    unsigned first = 3, next;

    do {
        next = ~0U;
        for (int i = 0; i < n; i++)
            if (keep[i] >= (int)first && (unsigned)keep[i] < next)
                next = (unsigned)keep[i];
        if (next > first)
            syscall(SYS_close_range, first, next == ~0U ? ~0U : next - 1, 0);
        first = next + 1;
    } while (next != ~0U);
}

static int child_main(void *arg)
{
    const struct child_job *job = arg;
    const struct os_spawn *spawn = job->spawn;
    int keep[3 + OS_KEEP_FDS + 1] = { [3 + OS_KEEP_FDS] = job->report_fd };

    /*
     * The kernel only acts on a parent that dies after this call. If the parent had died before, getppid() is
     * another process.
     */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        give_up(job->report_fd, STAGE_PARENT);
    if (getppid() != job->parent)
        _exit(127);
    memcpy(keep, spawn->stdio, sizeof spawn->stdio);
    memcpy(keep + 3, spawn->keep_fds, sizeof spawn->keep_fds);
    if (spawn->exec_fd != NULL) { /* before everything that may wait for a file system */
        close_sockets_but(keep, 3 + OS_KEEP_FDS + 1);
        if (spawn->lock_fd > 0)
            close(spawn->lock_fd);
    }
    if (setsid() < 0)
        give_up(job->report_fd, STAGE_SESSION);
    if (setrlimit(RLIMIT_NOFILE, &spawn->baseline->nofile) < 0)
        give_up(job->report_fd, STAGE_LIMITS);
    if (spawn->cpus != NULL &&
        sched_setaffinity(0, sizeof *spawn->cpus, (const cpu_set_t *)spawn->cpus->words) < 0)
        give_up(job->report_fd, STAGE_CPUS);
    if (!place_stdio(spawn->stdio))
        give_up(job->report_fd, STAGE_STDIO);
    if (spawn->directory != NULL && chdir(spawn->directory) < 0)
        give_up(job->report_fd, STAGE_DIRECTORY);
    /* This also closes what a library opened without the close-on-exec flag. */
    syscall(SYS_close_range, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
    if (spawn->exec_fd != NULL)
        close_all_but(keep + 3, OS_KEEP_FDS + 1); /* the first three are in their places */
    for (int i = 0; i < OS_KEEP_FDS; i++)
        if (spawn->keep_fds[i] >= 0 && fcntl(spawn->keep_fds[i], F_SETFD, 0) < 0)
            give_up(job->report_fd, STAGE_STDIO);
    restore_signals(spawn);
    sigprocmask(SIG_SETMASK, &spawn->baseline->mask, NULL);
    /* The agent may have been stopped since it decided to start this worker. */
    if (spawn->lease != NULL && lease_is_over(spawn->lease))
        _exit(127);
    execve(spawn->path, spawn->argv, spawn->envp);
    give_up(job->report_fd, STAGE_EXEC);
}

/* Starts a child with a copy of our memory. Both run on at the same time. */
static pid_t start_copy(struct child_job *job, int *pidfd)
{
    /* Not clone3: some filters of system calls refuse it, because they cannot look into its argument. */
    const pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, pidfd, NULL, NULL);

    if (pid == 0)
        _exit(child_main(job));
    return pid;
}

#if SHARE_MEMORY
/* Starts a child in our own memory. CLONE_VFORK suspends us until the child has called exec. */
static pid_t start_sharing(struct child_job *job, int *pidfd)
{
    /* Only the child uses this stack. */
    char *stack =
        mmap(NULL, CHILD_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    pid_t pid;
    int error;

    if (stack == MAP_FAILED)
        return -1;
    pid = clone(child_main, stack + CHILD_STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, job,
                pidfd);
    error = errno;
    munmap(stack, CHILD_STACK_BYTES);
    errno = error;
    return pid;
}
#else
#define start_sharing start_copy
#endif

static bool refuse(struct os_spawn_failure *failure, const char *call, int error)
{
    *failure = (struct os_spawn_failure){ .call = call, .error = error };
    return false;
}

/* Read the report of a child. False: it has executed its program, or was ended before. */
static bool read_report(int fd, struct os_spawn_failure *failure)
{
    struct child_report report = { 0, 0 };
    ssize_t n;

    do
        n = read(fd, &report, sizeof report);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof report)
        return false;
    *failure = (struct os_spawn_failure){ .call = stage_calls[report.stage],
                                          .error = report.error,
                                          .exec = report.stage == STAGE_EXEC };
    return true;
}

static bool linux_spawn(void *arg, const struct os_spawn *spawn, struct os_child *child,
                        struct os_spawn_failure *failure)
{
    struct child_job job = { .spawn = spawn, .parent = getpid() };
    sigset_t all, before;
    int ends[2], pidfd = -1, error;
    siginfo_t info;
    bool failed;
    pid_t pid;

    (void)arg;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return refuse(failure, "pipe2", errno);
    job.report_fd = ends[1];
    /* No signal handler of ours may run in the child: it would change our memory. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = spawn->exec_fd != NULL ? start_copy(&job, &pidfd) : start_sharing(&job, &pidfd);
    error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return refuse(failure, "clone", error);
    }
    if (spawn->exec_fd != NULL) {
        *spawn->exec_fd = ends[0];
        *child = (struct os_child){ .pid = pid, .pidfd = pidfd };
        return true;
    }
    failed = read_report(ends[0], failure);
    close(ends[0]);
    if (failed) {
        while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED) < 0 && errno == EINTR)
            ;
        close(pidfd);
        return false;
    }
    *child = (struct os_child){ .pid = pid, .pidfd = pidfd };
    return true;
}

static enum os_exec linux_executed(void *arg, int exec_fd, struct os_spawn_failure *failure)
{
    struct pollfd ready = { .fd = exec_fd, .events = POLLIN };

    (void)arg;
    if (poll(&ready, 1, 0) <= 0)
        return OS_EXEC_PENDING;
    return read_report(exec_fd, failure) ? OS_EXEC_FAILED : OS_EXEC_DONE;
}

static int linux_kill_group(void *arg, const struct os_child *child, int signal)
{
    (void)arg;
    /*
     * The child is not reaped, so its pid is still its own. It leads its session, so its process group has
     * the same number. A child for whose exec we do not wait may have no session yet, but then it has no
     * children either.
     */
    if (kill(-child->pid, signal) == 0 || (errno == ESRCH && kill(child->pid, signal) == 0))
        return 0;
    return errno;
}

static bool linux_reap(void *arg, const struct os_child *child, siginfo_t *info)
{
    (void)arg;
    memset(info, 0, sizeof *info);
    return waitid(P_PIDFD, (id_t)child->pidfd, info, WEXITED | WNOHANG) == 0 && info->si_pid != 0;
}

static int64_t linux_now_ns(void *arg)
{
    (void)arg;
    return clock_now_ns();
}

const struct agent_os agent_os_linux = {
    .spawn = linux_spawn,
    .executed = linux_executed,
    .kill_group = linux_kill_group,
    .reap = linux_reap,
    .now_ns = linux_now_ns,
};

/* A directory may have execute permission but is no program. */
static int check_program(const char *path)
{
    struct stat info;

    if (stat(path, &info) < 0)
        return errno;
    if (!S_ISREG(info.st_mode))
        return EACCES;
    return access(path, X_OK) == 0 ? 0 : errno;
}

int os_find_program(const char *name, const char *path, char *out, size_t size)
{
    int error, worst = ENOENT;

    if (name[0] == '\0')
        return ENOENT;
    if (strchr(name, '/') != NULL) {
        if ((size_t)snprintf(out, size, "%s", name) >= size)
            return ENAMETOOLONG;
        return check_program(name);
    }
    if (path == NULL)
        path = _PATH_DEFPATH;
    for (;;) {
        size_t length = strcspn(path, ":");
        /* An empty entry of PATH means the working directory. */
        int n = snprintf(out, size, "%.*s%s%s", (int)length, path, length > 0 ? "/" : "./", name);

        error = n < 0 || (size_t)n >= size ? ENAMETOOLONG : check_program(out);
        if (error == 0)
            return 0;
        if (error == EACCES)
            worst = EACCES;
        if (path[length] == '\0')
            return worst;
        path += length + 1;
    }
}

/* Python can run a directory that has a __main__ module. */
static int check_package(const char *path)
{
    static const char *const mains[] = { "__main__.py", "__main__.pyc" };
    char main_file[8192];

    for (size_t i = 0; i < sizeof mains / sizeof *mains; i++) {
        snprintf(main_file, sizeof main_file, "%s/%s", path, mains[i]);
        if (access(main_file, R_OK) == 0)
            return 0;
    }
    return EISDIR;
}

int os_check_script(const char *name)
{
    struct stat info;

    if (stat(name, &info) < 0 || access(name, R_OK) < 0)
        return errno;
    return S_ISDIR(info.st_mode) ? check_package(name) : 0;
}
