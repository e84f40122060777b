/*
 * What the agent needs from the operating system: start a process, signal it, reap it, read the clock. The
 * agent calls these through a struct, which tests replace; agent_os_linux is the real one.
 *
 * A child has a pidfd from the moment it exists, so a signal never goes to another process that got the same
 * pid later.
 */
#ifndef AGENT_OS_H
#define AGENT_OS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <fsdp/status.h>

#include "agent/os/cpu_mask.h"
#include "agent/os/lease.h"

/*
 * The state in which this process was started. Workers are started with the same, whatever the agent has
 * changed for itself since.
 */
struct os_baseline {
    sigset_t mask;
    sigset_t ignored; /* signals that were ignored at the start */
    struct rlimit nofile;
};

/** Fill in the baseline. A program calls this first of all. */
void os_baseline_capture(struct os_baseline *baseline);

/**
 * Set *out to the signals of `wanted` (bit s: signal s), without those that were ignored at the start: they
 * stay ignored, as under nohup.
 */
void os_signals_to_take(sigset_t *out, uint64_t wanted, const struct os_baseline *baseline);

/** Raise the soft limit of open files to the hard limit. The baseline keeps the old one. */
void os_raise_nofile(void);

/**
 * Check that the kernel has the calls that supervision needs: pidfd_open, pidfd_send_signal, and waitid on a
 * pidfd. FSDP_ERR_UNSUPPORTED: the message names the one that is missing.
 */
enum fsdp_status os_check_kernel(struct fsdp_err *err);

/**
 * Does the kernel have close_range() with CLOSE_RANGE_CLOEXEC? Without it, workers inherit descriptors that
 * were open before the run.
 */
bool os_has_close_range(void);

enum { OS_KEEP_FDS = 4 };

struct os_spawn {
    const char *path; /* the file to execute; PATH is not searched */
    char *const *argv;
    char *const *envp;
    const char *directory; /* working directory; NULL: ours */
    int stdio[3];
    int keep_fds[OS_KEEP_FDS]; /* more descriptors that the child keeps, with the same numbers; -1: none */
    /*
     * A file on which this process holds a lock (flock); 0: none. A child would hold the lock too until its
     * exec. So the child closes this file before anything that may wait for a file system.
     */
    int lock_fd;
    const struct cpu_mask *cpus; /* the CPUs of the child; NULL: ours */
    const struct os_baseline *baseline;
    uint64_t ignored; /* bit s: the child ignores signal s, in addition to those of the baseline */
    /*
     * NULL: spawn() returns after the exec, so it waits for the file system of the program. Otherwise it
     * returns before the exec, and *exec_fd receives a descriptor for agent_os.executed(): close-on-exec,
     * owned by the caller. Such a child is a copy of this process until its exec, which costs more.
     */
    int *exec_fd;
    /*
     * if this lease has ended before the exec, the child exits with 127 and executes nothing; NULL: no lease
     */
    const struct lease *lease;
};

struct os_child {
    pid_t pid;
    int pidfd; /* close-on-exec; owned by the caller */
};

/** What became of a start that did not wait for its exec. */
enum os_exec {
    OS_EXEC_PENDING,
    OS_EXEC_DONE,   /* the program runs, or the child was killed by a signal before */
    OS_EXEC_FAILED, /* the child ends by itself; its exit status means nothing */
};

/*
 * Which call of a start failed, with its errno in `error`. A failed exec is a mistake of the user; any other
 * failure is the system's.
 */
struct os_spawn_failure {
    const char *call;
    int error;
    bool exec; /* execve failed */
};

struct agent_os {
    void *arg;

    /*
     * Start `spawn` in a session of its own. The kernel kills the child when the calling thread ends. On
     * failure this returns false, nothing runs, *child is unchanged, and *failure says which call failed.
     * With spawn->exec_fd, calls of the child fail later.
     */
    bool (*spawn)(void *arg, const struct os_spawn *spawn, struct os_child *child,
                  struct os_spawn_failure *failure);

    /*
     * Look at the descriptor of a start that did not wait for its exec. The descriptor is readable when the
     * result is no longer OS_EXEC_PENDING. Any other result is returned once. *failure is filled in if a call
     * of the child has failed.
     */
    enum os_exec (*executed)(void *arg, int exec_fd, struct os_spawn_failure *failure);

    /*
     * Signal the process group that the child leads. The child must not have been reaped. Returns 0 or an
     * errno.
     */
    int (*kill_group)(void *arg, const struct os_child *child, int signal);

    /* Reap the child if it has ended. False: it still runs. Never blocks. */
    bool (*reap)(void *arg, const struct os_child *child, siginfo_t *info);

    /* CLOCK_MONOTONIC. */
    int64_t (*now_ns)(void *arg);
};

extern const struct agent_os agent_os_linux;

/**
 * Find the program `name`. If it has a slash, it is a path; otherwise it is searched on `path` (the PATH of
 * the workers; NULL: the system's default). Returns 0 with a path in `out`, or the errno that execvp() would
 * report (ENOENT, EACCES).
 */
int os_find_program(const char *name, const char *path, char *out, size_t size);

/**
 * Check that Python can run the script `name`. Returns 0 or an errno:
 *   ENOENT  there is no such file
 *   EACCES  it may not be read
 *   EISDIR  it is a directory without a __main__.py or __main__.pyc
 */
int os_check_script(const char *name);

#endif
