#include "agent/placement/placement_search.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"

/* The answer that the child writes. The masks of all workers follow it, if the workers are bound. */
struct answer {
    struct placement placement; /* its pointer only shows whether masks follow */
    struct fsdp_err err;
};

struct placement_search {
    const struct agent_config *config;
    int pidfd, pipe;
    uv_poll_t heard;
    uv_timer_t patience;
    int n_open;
    uint64_t within_ms;
    struct answer answer;
    struct cpu_mask *cpus;
    size_t n_read; /* bytes that were read so far, of the answer and of the masks after it */
    placement_found *done;
    void *arg;
};

static size_t cpus_bytes(const struct agent_config *config)
{
    return (size_t)config->n_workers * sizeof(struct cpu_mask);
}

/* The child process */

/*
 * Replace all descriptors except `pipe` by /dev/null. If a driver keeps this process alive, a process that
 * waits for the end of our output would wait for it. They are replaced, not closed: libuv's fork() handler
 * closes some descriptors by number, and by then those numbers must not belong to other files.
 */
static void let_go_of_all_but(int pipe)
{
    DIR *open_ones = opendir("/proc/self/fd");
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct dirent *entry;

    while (open_ones != NULL && null >= 0 && (entry = readdir(open_ones)) != NULL) {
        const int fd = (int)strtol(entry->d_name, NULL, 10); /* 0 for "." and ".." */

        if (fd != pipe && fd != null && fd != dirfd(open_ones))
            dup2(null, fd);
    }
    if (open_ones != NULL)
        closedir(open_ones);
}

static _Noreturn void look(int pipe, const struct agent_config *config)
{
    struct answer answer = { 0 };
    bool told;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    let_go_of_all_but(pipe);
    answer.err.status = placement_init(&answer.placement, config, &answer.err);
    told = file_write(pipe, &answer, sizeof answer);
    if (told && answer.err.status == FSDP_OK && answer.placement.cpus != NULL)
        told = file_write(pipe, answer.placement.cpus, cpus_bytes(config));
    _exit(told ? 0 : 1);
}

/*
 * All signals are blocked across the fork. The child inherits the signal handlers, which only the parent's
 * loop may run.
 */
static int start_child(struct placement_search *search)
{
    sigset_t all, before;
    int ends[2], error;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        look(ends[1], search->config);
    error = pid < 0 ? errno : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    search->pipe = ends[0];
    /* the pid is still the child's, because only the loop reaps it, and later */
    search->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

/* Runs on the loop */

static void on_closed(uv_handle_t *handle)
{
    struct placement_search *search = handle->data;

    if (--search->n_open > 0)
        return;
    free(search->cpus);
    free(search);
}

static void part(struct placement_search *search)
{
    if (search->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, search->pidfd, SIGKILL, NULL, 0);
        close(search->pidfd);
    }
    uv_close((uv_handle_t *)&search->heard, on_closed);
    uv_close((uv_handle_t *)&search->patience, on_closed);
    close(search->pipe);
}

static void fail(struct placement_search *search, enum fsdp_status status, struct fsdp_err *err)
{
    static const struct placement nothing = { 0 };

    part(search);
    search->done(search->arg, &nothing, status, err->message);
}

static void succeed(struct placement_search *search)
{
    struct placement found = search->answer.placement;

    part(search);
    found.cpus = search->cpus;
    search->cpus = NULL;
    search->done(search->arg, &found, FSDP_OK, NULL);
}

/*
 * Reads more bytes of the answer; returns as read() does. 0: the child ended before its answer was complete.
 */
static ssize_t read_on(struct placement_search *search)
{
    const size_t head = sizeof search->answer;

    if (search->n_read < head)
        return read(search->pipe, (char *)&search->answer + search->n_read, head - search->n_read);
    return read(search->pipe, (char *)search->cpus + (search->n_read - head),
                cpus_bytes(search->config) + head - search->n_read);
}

static void on_heard(uv_poll_t *poll, int poll_status, int events)
{
    struct placement_search *search = poll->data;
    struct answer *answer = &search->answer;
    const ssize_t n = read_on(search);
    struct fsdp_err err = { 0 };

    (void)poll_status;
    (void)events;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        fsdp_fail(&err, FSDP_ERR_IO, "--numa-binding %s: the process that looked at the machine ended",
                  placement_binding(search->config->numa));
        fail(search, FSDP_ERR_IO, &err);
        return;
    }
    search->n_read += (size_t)n;
    if (search->n_read < sizeof *answer)
        return;
    if (answer->err.status != FSDP_OK) {
        fail(search, answer->err.status, &answer->err);
        return;
    }
    if (answer->placement.cpus != NULL && search->cpus == NULL &&
        (search->cpus = malloc(cpus_bytes(search->config))) == NULL) {
        fsdp_fail(&err, FSDP_ERR_NOMEM, "out of memory");
        fail(search, FSDP_ERR_NOMEM, &err);
        return;
    }
    if (search->cpus == NULL || search->n_read == sizeof *answer + cpus_bytes(search->config))
        succeed(search);
}

static void on_late(uv_timer_t *timer)
{
    struct placement_search *search = timer->data;
    struct fsdp_err err = { 0 };

    fsdp_fail(&err, FSDP_ERR_UNSUPPORTED,
              "--numa-binding %s: the machine's drivers did not answer within %g s",
              placement_binding(search->config->numa), (double)search->within_ms / 1000.0);
    fail(search, FSDP_ERR_UNSUPPORTED, &err);
}

enum fsdp_status placement_search_begin(struct placement_search **out, uv_loop_t *loop,
                                        const struct agent_config *config, uint64_t within_ms,
                                        placement_found *done, void *arg, struct fsdp_err *err)
{
    struct placement_search *search = calloc(1, sizeof *search);
    int error;

    *out = NULL;
    if (search == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    search->config = config;
    search->within_ms = within_ms;
    search->done = done;
    search->arg = arg;
    error = start_child(search);
    if (error != 0) {
        free(search);
        return fsdp_fail(err, FSDP_ERR_IO, "no process to look at the machine with: %s", strerror(error));
    }
    uv_poll_init(loop, &search->heard, search->pipe);
    uv_timer_init(loop, &search->patience);
    search->heard.data = search->patience.data = search;
    search->n_open = 2;
    uv_poll_start(&search->heard, UV_READABLE, on_heard);
    uv_update_time(loop);
    uv_timer_start(&search->patience, on_late, within_ms, 0);
    *out = search;
    return FSDP_OK;
}

void placement_search_cancel(struct placement_search *search)
{
    if (search != NULL)
        part(search);
}
