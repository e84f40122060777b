#include "launcher/requeue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

extern char **environ;

/* Starts scontrol with both of its streams at `out`. Returns 0, or an errno. */
static int start(pid_t *pid, const char *job, int out)
{
    char *const argv[] = { (char *)(uintptr_t) "scontrol", (char *)(uintptr_t) "requeue",
                           (char *)(uintptr_t)job, NULL };
    posix_spawn_file_actions_t actions;
    int error;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    error = posix_spawnp(pid, "scontrol", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Reads the first line that scontrol writes, until it ends. Returns false if it has not by the deadline. */
static bool read_words(int fd, char *words, size_t size, int64_t deadline_ms)
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
        got = n < size - 1 ? read(fd, words + n, size - 1 - n) : read(fd, rest, sizeof rest);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += n < size - 1 ? (size_t)got : 0;
    }
    words[n] = '\0';
    words[strcspn(words, "\n")] = '\0';
    return true;
}

enum fsdp_status requeue(const char *job, int64_t timeout_ms, struct fsdp_err *err)
{
    char words[256] = "";
    int ends[2], status = 0, error;
    sigset_t all, before;
    bool in_time;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "pipe: %s", strerror(errno));
    /* Slurm stops the job before scontrol has its answer: neither of the two may end by that. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    error = start(&pid, job, ends[1]);
    close(ends[1]);
    if (error == 0) {
        in_time = read_words(ends[0], words, sizeof words, clock_now_ms() + timeout_ms);
        if (!in_time)
            (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (!in_time)
            snprintf(words, sizeof words, "no answer for %.0f s", (double)timeout_ms / 1000.0);
    }
    close(ends[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return fsdp_fail(err, FSDP_ERR_IO, "scontrol requeue %s: %s", job, strerror(error));
    if (status != 0)
        return fsdp_fail(err, FSDP_ERR_IO, "scontrol requeue %s: %s", job,
                         words[0] != '\0' ? words : "it failed");
    return FSDP_OK;
}
