#include "agent/placement/gpu_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/placement/nvml_process.h"

struct gpu_watch {
    uv_poll_t poll;
    struct gpu_health *health;
    struct gpu_watch_listener listener;
    pid_t pid; /* 0: it has been reaped */
    int fd;
    uint32_t n_asked;
    bool answered, ended;
};

bool gpu_watch_possible(void)
{
    return getenv("FSDP_TEST_NVML") != NULL || access("/proc/driver/nvidia/version", F_OK) == 0;
}

static void take(struct gpu_watch *watch, const struct gpu_sample *sample)
{
    char words[GPU_HEALTH_WORDS_BYTES];
    const enum gpu_warning warning = gpu_health_take(watch->health, sample, words);

    if (warning != GPU_FINE)
        watch->listener.warned(watch->listener.arg, warning, sample, words);
    if (sample->ends_round && sample->n_asked == watch->n_asked)
        watch->answered = true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct gpu_watch *watch = poll->data;
    struct gpu_sample sample;
    ssize_t n = 0;

    (void)events;
    if (status == 0)
        while ((n = read(watch->fd, &sample, sizeof sample)) == (ssize_t)sizeof sample)
            take(watch, &sample);
    if (status != 0 || n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        watch->ended = true;
        uv_poll_stop(poll);
    }
    watch->listener.sampled(watch->listener.arg);
}

struct gpu_watch *gpu_watch_start(uv_loop_t *loop, struct gpu_health *health,
                                  const struct gpu_watch_listener *listener)
{
    struct gpu_watch *watch = calloc(1, sizeof *watch);

    if (watch == NULL)
        return NULL;
    watch->health = health;
    watch->listener = *listener;
    if (nvml_process_start(NVML_WATCH, getenv("FSDP_TEST_NVML"), &watch->pid, &watch->fd, NULL) != FSDP_OK) {
        free(watch);
        return NULL;
    }
    (void)fcntl(watch->fd, F_SETFL, O_NONBLOCK);
    if (uv_poll_init(loop, &watch->poll, watch->fd) != 0) {
        kill(watch->pid, SIGKILL);
        close(watch->fd);
        free(watch);
        return NULL;
    }
    watch->poll.data = watch;
    uv_poll_start(&watch->poll, UV_READABLE, on_readable);
    return watch;
}

static void on_closed(uv_handle_t *handle)
{
    struct gpu_watch *watch = handle->data;

    close(watch->fd);
    free(watch);
}

void gpu_watch_stop(struct gpu_watch *watch)
{
    if (watch == NULL)
        return;
    if (watch->pid != 0)
        kill(watch->pid, SIGKILL);
    uv_close((uv_handle_t *)&watch->poll, on_closed);
}

void gpu_watch_ask(struct gpu_watch *watch)
{
    const char byte = 0;

    if (send(watch->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return; /* the watch process has ended, or does not read; then gpu_watch_answered() stays false */
    watch->n_asked++;
    watch->answered = false;
}

bool gpu_watch_answered(const struct gpu_watch *watch)
{
    return watch->answered;
}

bool gpu_watch_ended(const struct gpu_watch *watch)
{
    return watch->ended;
}

pid_t gpu_watch_pid(const struct gpu_watch *watch)
{
    return watch->pid;
}

void gpu_watch_reaped(struct gpu_watch *watch, pid_t pid)
{
    if (watch != NULL && watch->pid == pid)
        watch->pid = 0;
}
