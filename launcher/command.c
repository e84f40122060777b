#include "launcher/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

extern char **environ;

/*
 * Starts the program argv[0]. `in` becomes its stdin, and `out` its stdout and stderr. Returns 0 or an errno.
 */
static int start(pid_t *pid, const char *const argv[], int in, int out)
{
    posix_spawn_file_actions_t actions;
    int error;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    error = posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/*
 * Reads what the program writes, until it closes its end of the pipe. Only the first bytes are kept. Returns
 * false if it has not closed the pipe by the deadline.
 */
static bool read_out(int fd, char out[COMMAND_OUT_BYTES], int64_t deadline_ms)
{
    size_t n = 0;

    for (;;) {
        const int64_t left_ms = deadline_ms - clock_now_ms();
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        char rest[256];
        ssize_t got;

        if (left_ms <= 0)
            return false;
        if (poll(&polled, 1, (int)left_ms) <= 0)
            continue;
        got = n < COMMAND_OUT_BYTES - 1 ? read(fd, out + n, COMMAND_OUT_BYTES - 1 - n)
                                        : read(fd, rest, sizeof rest);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += n < COMMAND_OUT_BYTES - 1 ? (size_t)got : 0;
    }
    out[n] = '\0';
    return true;
}

/* Makes the standard input of the program: a pipe that holds all of `input`. Returns its read end, or -1. */
static int open_input(const char *input)
{
    const size_t n_bytes = input == NULL ? 0 : strlen(input);
    int ends[2];

    if (n_bytes > COMMAND_INPUT_BYTES || pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    if (write(ends[1], input, n_bytes) != (ssize_t)n_bytes) {
        close(ends[0]);
        ends[0] = -1;
    }
    close(ends[1]);
    return ends[0];
}

enum fsdp_status command_run(const char *const argv[], const char *input, int64_t timeout_ms,
                             char out[COMMAND_OUT_BYTES], int *status, struct fsdp_err *err)
{
    const int in = open_input(input == NULL ? "" : input);
    int ends[2], ended = 0, error;
    bool in_time = true;
    sigset_t all, before;
    pid_t pid;

    out[0] = '\0';
    if (in < 0 || pipe2(ends, O_CLOEXEC) < 0) {
        fsdp_fail(err, FSDP_ERR_IO, "pipe for %s: %s", argv[0], strerror(errno));
        if (in >= 0)
            close(in);
        return FSDP_ERR_IO;
    }
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    error = start(&pid, argv, in, ends[1]);
    close(in);
    close(ends[1]);
    if (error == 0) {
        in_time = read_out(ends[0], out, clock_now_ms() + timeout_ms);
        if (!in_time)
            (void)kill(pid, SIGKILL);
        while (waitpid(pid, &ended, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
    if (error != 0)
        return fsdp_fail(err, error == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", argv[0],
                         strerror(error));
    if (!in_time)
        return fsdp_fail(err, FSDP_ERR_IO, "%s: no answer for %.0f s", argv[0], (double)timeout_ms / 1000.0);
    return FSDP_OK;
}
