#include "agent/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <paths.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/os/clock.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
/*
 * A child that shares our memory until it execs costs no page tables, whatever our size. The sanitizers keep
 * shadow state of every stack frame in that memory and would be left with the child's: there it is a copy.
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

int64_t os_epoch_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void os_raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* --- between clone and exec: async-signal-safe calls only, and no memory but the child's own stack ------------ */

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
        if (i == SIGKILL || i == SIGSTOP || i == 32 || i == 33) /* 32 and 33 are the C library's */
            continue;
        action.sa_handler =
            sigismember(&spawn->baseline->ignored, i) == 1 || (i < 64 && (spawn->ignored >> i & 1) != 0)
                ? SIG_IGN
                : SIG_DFL;
        sigaction(i, &action, NULL);
    }
}

/* Put the three descriptors in place; any of them may stand on another's number. */
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

static int child_main(void *arg)
{
    const struct child_job *job = arg;
    const struct os_spawn *spawn = job->spawn;

    /* The request is remembered only from here on: a parent that died before it has left us another one. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        give_up(job->report_fd, STAGE_PARENT);
    if (getppid() != job->parent)
        _exit(127);
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
    /* Whatever a library left open without the flag is closed too. */
    syscall(SYS_close_range, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
    for (int i = 0; i < 2; i++)
        if (spawn->keep_fds[i] >= 0 && fcntl(spawn->keep_fds[i], F_SETFD, 0) < 0)
            give_up(job->report_fd, STAGE_STDIO);
    restore_signals(spawn);
    sigprocmask(SIG_SETMASK, &spawn->baseline->mask, NULL);
    execve(spawn->path, spawn->argv, spawn->envp);
    give_up(job->report_fd, STAGE_EXEC);
}

/* --------------------------------------------------------------------------------------------------------------- */

static pid_t start_child(struct child_job *job, int *pidfd)
{
    pid_t pid;

#if SHARE_MEMORY
    /* The stack is the child's alone: clone() returns on ours. CLONE_VFORK holds us until it has execed. */
    char *stack =
        mmap(NULL, CHILD_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

    if (stack == MAP_FAILED)
        return -1;
    pid = clone(child_main, stack + CHILD_STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, job,
                pidfd);
    int error = errno;
    munmap(stack, CHILD_STACK_BYTES);
    errno = error;
#else
    struct clone_args args = { .flags = CLONE_PIDFD, .pidfd = (uintptr_t)pidfd, .exit_signal = SIGCHLD };

    pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(child_main(job));
#endif
    return pid;
}

static bool refuse(struct os_spawn_failure *failure, const char *call, int error)
{
    *failure = (struct os_spawn_failure){ .call = call, .error = error };
    return false;
}

static bool linux_spawn(void *arg, const struct os_spawn *spawn, struct os_child *child,
                        struct os_spawn_failure *failure)
{
    struct child_job job = { .spawn = spawn, .parent = getpid() };
    struct child_report report = { 0, 0 };
    sigset_t all, before;
    int ends[2], pidfd = -1, error;
    siginfo_t info;
    ssize_t n;
    pid_t pid;

    (void)arg;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return refuse(failure, "pipe2", errno);
    job.report_fd = ends[1];
    /* No handler of ours may run in the child, where it would act on our memory. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = start_child(&job, &pidfd);
    error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return refuse(failure, "clone", error);
    }
    do
        n = read(ends[0], &report, sizeof report);
    while (n < 0 && errno == EINTR);
    close(ends[0]);
    if (n == (ssize_t)sizeof report) {
        while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED) < 0 && errno == EINTR)
            ;
        close(pidfd);
        *failure = (struct os_spawn_failure){ .call = stage_calls[report.stage],
                                              .error = report.error,
                                              .exec = report.stage == STAGE_EXEC };
        return false;
    }
    *child = (struct os_child){ .pid = pid, .pidfd = pidfd };
    return true;
}

static int linux_kill_group(void *arg, const struct os_child *child, int signal)
{
    (void)arg;
    /* Not reaped, so the number is still its own; it leads its session, so its group has the same one. */
    return kill(-child->pid, signal) == 0 ? 0 : errno;
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
    .kill_group = linux_kill_group,
    .reap = linux_reap,
    .now_ns = linux_now_ns,
};

enum { JOINED_BYTES = 8192 };

/* `name` as seen from `directory`; `joined` holds the path where one has to be made. NULL: it is too long. */
static const char *seen_from(const char *directory, const char *name, char joined[JOINED_BYTES])
{
    if (name[0] == '/' || directory == NULL)
        return name;
    return snprintf(joined, JOINED_BYTES, "%s/%s", directory, name) < JOINED_BYTES ? joined : NULL;
}

/* A directory has execute permission and is no program. */
static int check_program(const char *directory, const char *name)
{
    char joined[JOINED_BYTES];
    const char *path = seen_from(directory, name, joined);
    struct stat info;

    if (path == NULL)
        return ENAMETOOLONG;
    if (stat(path, &info) < 0)
        return errno;
    if (!S_ISREG(info.st_mode))
        return EACCES;
    return access(path, X_OK) == 0 ? 0 : errno;
}

int os_find_program(const char *name, const char *path, const char *directory, char *out, size_t size)
{
    int error, worst = ENOENT;

    if (name[0] == '\0')
        return ENOENT;
    if (strchr(name, '/') != NULL) {
        if ((size_t)snprintf(out, size, "%s", name) >= size)
            return ENAMETOOLONG;
        return check_program(directory, name);
    }
    if (path == NULL)
        path = _PATH_DEFPATH;
    for (;;) {
        size_t length = strcspn(path, ":");
        /* An empty entry means the working directory. */
        int n = snprintf(out, size, "%.*s%s%s", (int)length, path, length > 0 ? "/" : "./", name);

        error = n < 0 || (size_t)n >= size ? ENAMETOOLONG : check_program(directory, out);
        if (error == 0)
            return 0;
        if (error == EACCES)
            worst = EACCES;
        if (path[length] == '\0')
            return worst;
        path += length + 1;
    }
}

/* Python runs a directory that holds a program. */
static int check_package(const char *path)
{
    static const char *const mains[] = { "__main__.py", "__main__.pyc" };
    char main_file[JOINED_BYTES + 16];

    for (size_t i = 0; i < sizeof mains / sizeof *mains; i++) {
        snprintf(main_file, sizeof main_file, "%s/%s", path, mains[i]);
        if (access(main_file, R_OK) == 0)
            return 0;
    }
    return EISDIR;
}

int os_check_script(const char *name, const char *directory)
{
    char joined[JOINED_BYTES];
    const char *path = seen_from(directory, name, joined);
    struct stat info;

    if (path == NULL)
        return ENAMETOOLONG;
    if (stat(path, &info) < 0 || access(path, R_OK) < 0)
        return errno;
    return S_ISDIR(info.st_mode) ? check_package(path) : 0;
}
