/*
 * What the agent asks of the operating system: start a process, signal it, reap it, tell the time. The agent
 * takes these through a struct, so that a test can put its own in; agent_os_linux is the real one.
 *
 * A child is known by its pidfd from the instant it exists, so that no number is ever reused under us.
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

/* How this process was started: what the workers get back unchanged, whatever the agent did to itself since. */
struct os_baseline {
    sigset_t mask;
    sigset_t ignored; /* signals that were ignored */
    struct rlimit nofile;
};

/** Look at this process; the first thing a program does. */
void os_baseline_capture(struct os_baseline *baseline);

/** Microseconds of the epoch clock (CLOCK_REALTIME): for what workers write, never for durations. */
int64_t os_epoch_us(void);

/** Raise the soft limit of open files to the hard one (the baseline keeps what it was). */
void os_raise_nofile(void);

/**
 * Has the kernel the calls without which no run can be supervised: pidfd_open, pidfd_send_signal, waitid on a pidfd?
 * FSDP_ERR_UNSUPPORTED names the one that is missing.
 */
enum fsdp_status os_check_kernel(struct fsdp_err *err);

/** Has it close_range() with CLOSE_RANGE_CLOEXEC? Without it workers keep descriptors that were open before the run. */
bool os_has_close_range(void);

struct os_spawn {
    const char *path; /* what is executed; no lookup */
    char *const *argv;
    char *const *envp;
    const char *directory; /* working directory; NULL: ours */
    int stdio[3];
    int keep_fds[2]; /* further descriptors that the child keeps, under their own numbers; -1: none */
    const struct cpu_mask *cpus; /* where it may run; NULL: where we may */
    const struct os_baseline *baseline;
    uint64_t ignored; /* bit s: the child ignores signal s, in addition to those of the baseline */
};

struct os_child {
    pid_t pid;
    int pidfd; /* close-on-exec, the caller's */
};

/* Where a start failed, with `error` an errno. Exec failures are the user's business, the others the system's. */
struct os_spawn_failure {
    const char *call;
    int error;
    bool exec; /* execve itself said no */
};

struct agent_os {
    void *arg;

    /*
     * Start `spawn` in a session of its own; it is killed when the calling thread ends. On failure *child is
     * untouched, nothing runs, and *failure says which call refused. Returns false then.
     */
    bool (*spawn)(void *arg, const struct os_spawn *spawn, struct os_child *child,
                  struct os_spawn_failure *failure);

    /* Signal the child's process group (it leads one) while it is not reaped. 0, or an errno. */
    int (*kill_group)(void *arg, const struct os_child *child, int signal);

    /* Reap the child if it ended; false while it runs. Never waits. */
    bool (*reap)(void *arg, const struct os_child *child, siginfo_t *info);

    /* CLOCK_MONOTONIC. */
    int64_t (*now_ns)(void *arg);
};

extern const struct agent_os agent_os_linux;

/**
 * Find the program `name`: as it stands when it has a slash, else on `path` (the PATH of the workers; NULL:
 * the system's default). Returns 0 and a path in `out`, or the errno execvp() would report (ENOENT, EACCES).
 */
int os_find_program(const char *name, const char *path, const char *directory, char *out, size_t size);

/**
 * Check that an interpreter can run the script `name`, which is relative to `directory` (NULL: ours). Returns 0,
 * or an errno: ENOENT where nothing is there, EACCES where it may not be read, EISDIR for a directory without a
 * __main__.py or __main__.pyc.
 */
int os_check_script(const char *name, const char *directory);

#endif
