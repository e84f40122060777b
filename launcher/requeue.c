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

#include "launcher/slurm.h"
#include "shard_runtime/core/clock.h"

extern char **environ;

enum { WORDS_BYTES = 16384 };

/* Starts scontrol with both of its streams at `out`. Returns 0, or an errno. */
static int start(pid_t *pid, char *const argv[], int out)
{
    posix_spawn_file_actions_t actions;
    int error;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    error = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Reads what scontrol writes, until it ends. Returns false if it has not by the deadline. */
static bool read_words(int fd, char words[WORDS_BYTES], int64_t deadline_ms)
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
        got = n < WORDS_BYTES - 1 ? read(fd, words + n, WORDS_BYTES - 1 - n) : read(fd, rest, sizeof rest);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += n < WORDS_BYTES - 1 ? (size_t)got : 0;
    }
    words[n] = '\0';
    return true;
}

/*
 * Runs `scontrol VERB... JOB`. Slurm may stop the job before scontrol has its answer, and neither of the two
 * may end by that: so all signals are blocked, in scontrol too.
 */
static enum fsdp_status run(const char *first, const char *second, const char *job, int64_t timeout_ms,
                            char words[WORDS_BYTES], struct fsdp_err *err)
{
    char *argv[] = { (char *)(uintptr_t) "scontrol", (char *)(uintptr_t)first, NULL, NULL, NULL };
    int ends[2], n = 2, status = 0, error;
    bool in_time = true;
    sigset_t all, before;
    pid_t pid;

    words[0] = '\0';
    if (second != NULL)
        argv[n++] = (char *)(uintptr_t)second;
    argv[n] = (char *)(uintptr_t)job;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "pipe: %s", strerror(errno));
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    error = start(&pid, argv, ends[1]);
    close(ends[1]);
    if (error == 0) {
        in_time = read_words(ends[0], words, clock_now_ms() + timeout_ms);
        if (!in_time)
            (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (error == 0 && in_time && status == 0)
        return FSDP_OK;
    if (in_time)
        words[strcspn(words, "\n")] = '\0';
    else
        snprintf(words, WORDS_BYTES, "no answer for %.0f s", (double)timeout_ms / 1000.0);
    return fsdp_fail(err, FSDP_ERR_IO, "scontrol %s %s: %.200s", first, job,
                     error != 0         ? strerror(error)
                     : words[0] == '\0' ? "it failed"
                                        : words);
}

enum fsdp_status requeue(const char *job, int64_t timeout_ms, struct fsdp_err *err)
{
    char words[WORDS_BYTES];

    return run("requeue", NULL, job, timeout_ms, words, err);
}

bool requeue_is_preempted(const char *job, int64_t timeout_ms)
{
    char words[WORDS_BYTES];

    return run("show", "job", job, timeout_ms, words, NULL) == FSDP_OK && slurm_is_preempted(words);
}
