#include "agent/daemon/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/daemon/notify.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/thread.h"

/* A period below this cannot be kept with timers of whole milliseconds. */
enum { PERIOD_LEAST_MS = 8, LONGEST_MS = 1 << 30 };

int64_t watchdog_period_ms(const char *usec, const char *pid, pid_t self)
{
    char *end;
    long long n;

    if (usec == NULL || *usec < '0' || *usec > '9')
        return 0;
    n = strtoll(usec, &end, 10);
    if (*end != '\0' || n <= 0)
        return 0;
    if (pid != NULL && (strtoll(pid, &end, 10) != self || end == pid || *end != '\0'))
        return 0;
    n /= 1000;
    return n < PERIOD_LEAST_MS ? PERIOD_LEAST_MS : n > LONGEST_MS ? LONGEST_MS : n;
}

bool watchdog_is_alive(int64_t period_ms, int64_t beat_ms, int64_t now_ms)
{
    return now_ms - beat_ms < period_ms / 2;
}

static void on_beat(uv_timer_t *timer)
{
    struct watchdog *watchdog = timer->data;

    atomic_store(&watchdog->beat_ms, clock_now_ms());
}

static void *send_signs(void *arg)
{
    struct watchdog *watchdog = arg;
    struct pollfd end = { .fd = watchdog->end_fd, .events = POLLIN };

    do {
        if (watchdog_is_alive(watchdog->period_ms, atomic_load(&watchdog->beat_ms), clock_now_ms()))
            notify("WATCHDOG=1");
    } while (poll(&end, 1, (int)(watchdog->period_ms / 4)) <= 0);
    return NULL;
}

enum fsdp_status watchdog_begin(struct watchdog *watchdog, uv_loop_t *loop, struct fsdp_err *err)
{
    const uint64_t step_ms =
        (uint64_t)watchdog_period_ms(getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"), getpid()) / 8;
    int error = 0;

    *watchdog = (struct watchdog){ .end_fd = -1 };
    if (step_ms == 0)
        return FSDP_OK;
    watchdog->period_ms = (int64_t)step_ms * 8;
    atomic_store(&watchdog->beat_ms, clock_now_ms());
    uv_timer_init(loop, &watchdog->timer);
    watchdog->timer.data = watchdog;
    uv_timer_start(&watchdog->timer, on_beat, step_ms, step_ms);
    uv_unref((uv_handle_t *)&watchdog->timer);
    watchdog->end_fd = eventfd(0, EFD_CLOEXEC);
    if (watchdog->end_fd < 0)
        error = errno;
    if (error == 0)
        error = thread_start(&watchdog->thread, send_signs, watchdog);
    if (error == 0)
        return FSDP_OK;
    if (watchdog->end_fd >= 0)
        close(watchdog->end_fd);
    uv_close((uv_handle_t *)&watchdog->timer, NULL);
    watchdog->period_ms = 0;
    return fsdp_fail(err, FSDP_ERR_IO, "the watchdog's thread: %s", strerror(error));
}

void watchdog_end(struct watchdog *watchdog)
{
    const uint64_t one = 1;

    if (watchdog->period_ms == 0)
        return;
    if (write(watchdog->end_fd, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(watchdog->thread, NULL);
    close(watchdog->end_fd);
    uv_close((uv_handle_t *)&watchdog->timer, NULL);
    watchdog->period_ms = 0;
}
