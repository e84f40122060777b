#include "agent/placement/nvml_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/placement/nvml_impl.h"

/*
 * The process recognises its role by its argv[0]. A user would not start our program by one of these names.
 */
static const char *const names[] = { [NVML_ASK] = "fsdp-gpu-ask", [NVML_WATCH] = "fsdp-gpu-watch" };

/* Runs in the parent */

/* The child has default signals, and none is blocked: the parent's settings are for its loop. */
static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    int error;

    sigemptyset(&none);
    sigfillset(&all);
    error = posix_spawnattr_setsigmask(attributes, &none);
    if (error == 0)
        error = posix_spawnattr_setsigdefault(attributes, &all);
    return error != 0 ? error
                      : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/*
 * Sets the child's descriptors: its input and output are the socket. The child must not keep our own output
 * open, because a reader may wait for the end of that output.
 */
static int set_files(posix_spawn_file_actions_t *files, int socket)
{
    int error = posix_spawn_file_actions_adddup2(files, socket, 1);

    if (error == 0)
        error = posix_spawn_file_actions_adddup2(files, socket, 0);
    if (error == 0)
        error = posix_spawn_file_actions_addopen(files, 2, "/dev/null", O_WRONLY, 0);
    return error != 0 ? error : posix_spawn_file_actions_addclosefrom_np(files, 3);
}

static int spawn(enum nvml_role role, const char *library, int socket, pid_t *pid)
{
    char own_pid[16];
    const char *const arguments[] = { names[role], library != NULL ? library : "libnvidia-ml.so.1", own_pid,
                                      NULL };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int error;

    snprintf(own_pid, sizeof own_pid, "%d", (int)getpid());
    error = posix_spawn_file_actions_init(&files);
    if (error != 0)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (error == 0) {
        error = set_files(&files, socket);
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

enum fsdp_status nvml_process_start(enum nvml_role role, const char *library, pid_t *pid, int *fd,
                                    struct fsdp_err *err)
{
    int ends[2], error;

    *pid = -1;
    *fd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "socketpair: %s", strerror(errno));
    error = spawn(role, library, ends[1], pid);
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
        *pid = -1;
        return fsdp_fail(err, FSDP_ERR_IO, "no process to ask NVML in: %s", strerror(error));
    }
    *fd = ends[0];
    return FSDP_OK;
}

/* Runs in the child */

/*
 * Does the child's work. It ends by _exit(), because the library's exit handlers may block like all of its
 * calls.
 */
void nvml_process_main(int argc, char **argv)
{
    const bool asks = argc == 3 && strcmp(argv[0], names[NVML_ASK]) == 0;
    const bool watches = argc == 3 && strcmp(argv[0], names[NVML_WATCH]) == 0;

    if (!asks && !watches)
        return;
    prctl(PR_SET_NAME, argv[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)strtol(argv[2], NULL, 10))
        _exit(1); /* the parent died before PDEATHSIG was set */
    signal(SIGPIPE, SIG_IGN);
    _exit(asks ? nvml_ask_here(argv[1]) : nvml_watch_here(argv[1]));
}
