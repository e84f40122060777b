#include "shard_runtime/core/self_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The child gets default signal handlers, because the parent's are for its loop. All signals are blocked in
 * it: a scheduler may signal every process of a run, and only the agent decides what such a signal means.
 */
static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t all;
    int error;

    sigfillset(&all);
    error = posix_spawnattr_setsigmask(attributes, &all);
    if (error == 0)
        error = posix_spawnattr_setsigdefault(attributes, &all);
    return error != 0 ? error
                      : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int set_file(posix_spawn_file_actions_t *files, int from, int to)
{
    return from >= 0
               ? posix_spawn_file_actions_adddup2(files, from, to)
               : posix_spawn_file_actions_addopen(files, to, "/dev/null", to == 0 ? O_RDONLY : O_WRONLY, 0);
}

/* The child must not keep our own output open, because a reader may wait for the end of that output. */
static int set_files(posix_spawn_file_actions_t *files, int input, int output)
{
    const int from[] = { input, output, -1 };
    int error = 0;

    for (int to = 0; to < 3 && error == 0; to++)
        error = set_file(files, from[to], to);
    return error != 0 ? error : posix_spawn_file_actions_addclosefrom_np(files, 3);
}

static int spawn(const char *const *arguments, int input, int output, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&files);

    if (error != 0)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (error == 0) {
        error = set_files(&files, input, output);
        if (error == 0)
            error = set_signals(&attributes);
        if (error == 0)
            error = posix_spawn(pid, "/proc/self/exe", &files, &attributes,
                                (char *const *)(uintptr_t)arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return error;
}

enum fsdp_status self_process_start(const char *role, const char *argument, int input, int output, pid_t *pid,
                                    struct fsdp_err *err)
{
    char own_pid[16];
    const char *const arguments[] = { role, argument, own_pid, NULL };
    int error;

    snprintf(own_pid, sizeof own_pid, "%d", (int)getpid());
    error = spawn(arguments, input, output, pid);
    if (error == 0)
        return FSDP_OK;
    *pid = -1;
    return fsdp_fail(err, FSDP_ERR_IO, "%s", strerror(error));
}

enum fsdp_status self_process_talk(const char *role, pid_t *pid, int *socket, struct fsdp_err *err)
{
    enum fsdp_status status;
    int ends[2];

    *pid = -1;
    *socket = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "socketpair: %s", strerror(errno));
    status = self_process_start(role, "", ends[1], -1, pid, err);
    close(ends[1]);
    if (status == FSDP_OK && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0) {
        *socket = ends[0];
        return FSDP_OK;
    }
    close(ends[0]);
    return status == FSDP_OK ? fsdp_fail(err, FSDP_ERR_IO, "fcntl: %s", strerror(errno)) : status;
}

void self_process_kill(pid_t pid)
{
    siginfo_t info;

    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        kill(pid, SIGKILL);
}

void self_process_begin(const char *role, const char *parent)
{
    prctl(PR_SET_NAME, role);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)strtol(parent, NULL, 10))
        _exit(1); /* the parent died before PDEATHSIG was set */
    signal(SIGPIPE, SIG_IGN);
}
