#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/watchdog.h"
#include "shard_runtime/core/clock.h"

Test(watchdog, the_period_is_systemds_if_it_means_this_process)
{
    cr_assert(eq(long, watchdog_period_ms("30000000", "42", 42), 30000));
    cr_assert(eq(long, watchdog_period_ms("30000000", NULL, 42), 30000));
    cr_assert(eq(long, watchdog_period_ms("1", "42", 42), 8), "the least");
    cr_assert(eq(long, watchdog_period_ms("9223372036854775807", NULL, 42), 1 << 30), "the most");
    cr_assert(eq(long, watchdog_period_ms(NULL, "42", 42), 0));
    cr_assert(eq(long, watchdog_period_ms("30000000", "43", 42), 0));
    cr_assert(eq(long, watchdog_period_ms("30000000", "", 42), 0));
    cr_assert(eq(long, watchdog_period_ms("30000000", "42x", 42), 0));
    cr_assert(eq(long, watchdog_period_ms("", NULL, 42), 0));
    cr_assert(eq(long, watchdog_period_ms("0", NULL, 42), 0));
    cr_assert(eq(long, watchdog_period_ms("-5", NULL, 42), 0));
    cr_assert(eq(long, watchdog_period_ms("5s", NULL, 42), 0));
}

/*
 * Follow the thread's looks at a loop that stands still from 0 on, with signs at every look at which it
 * counts as alive. Returns when systemd, which waits for a period after each sign, kills it.
 */
static int64_t killed_at(int64_t period_ms, int64_t first_look_ms)
{
    int64_t sign_ms = first_look_ms - period_ms / 4;

    for (int64_t look_ms = first_look_ms; look_ms < 10 * period_ms; look_ms += period_ms / 4)
        if (watchdog_is_alive(period_ms, 0, look_ms))
            sign_ms = look_ms;
    return sign_ms + period_ms;
}

Test(watchdog, who_stands_still_is_killed_between_one_period_and_one_and_a_half)
{
    for (int64_t period_ms = 8; period_ms <= 32768; period_ms *= 2)
        for (int64_t first_ms = 1; first_ms <= period_ms / 4; first_ms += 1 + period_ms / 64) {
            const int64_t at = killed_at(period_ms, first_ms);

            cr_assert(at >= period_ms && at <= period_ms + period_ms / 2, "%ld after %ld", (long)at,
                      (long)period_ms);
        }
}

static int fd; /* systemd's end */

static int signs(int timeout_ms)
{
    struct pollfd readable = { .fd = fd, .events = POLLIN };
    char text[64];
    int n = 0;

    while (poll(&readable, 1, n == 0 ? timeout_ms : 0) == 1) {
        const ssize_t got = recv(fd, text, sizeof text - 1, 0);

        cr_assert(got == 10 && memcmp(text, "WATCHDOG=1", 10) == 0);
        n++;
    }
    return n;
}

static void on_enough(uv_timer_t *timer)
{
    int *n = timer->data;

    *n += signs(0);
    if (*n >= 8)
        uv_close((uv_handle_t *)timer, NULL);
}

Test(watchdog, a_loop_that_runs_gives_signs_and_one_that_stands_still_gives_none, .timeout = 120)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct watchdog watchdog;
    struct fsdp_err err = { 0 };
    uv_timer_t enough;
    uv_loop_t loop;
    char path[64];
    int n = 0;

    snprintf(path, sizeof path, "@fsdp-watchdog-%d", (int)getpid());
    memcpy(address.sun_path + 1, path + 1, strlen(path + 1));
    fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    cr_assert(bind(fd, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) == 0);
    setenv("NOTIFY_SOCKET", path, 1);
    setenv("WATCHDOG_USEC", "160000", 1);
    unsetenv("WATCHDOG_PID");
    uv_loop_init(&loop);
    cr_assert(watchdog_begin(&watchdog, &loop, &err) == FSDP_OK);
    uv_timer_init(&loop, &enough);
    enough.data = &n;
    uv_timer_start(&enough, on_enough, 5, 5);
    uv_run(&loop, UV_RUN_DEFAULT); /* until the eighth sign */
    cr_assert(ge(int, n, 8));
    /* The loop does not run from here on: signs end, and do not come back. */
    for (int64_t deadline = clock_now_ms() + 60000; signs(320) > 0;)
        cr_assert(lt(long, clock_now_ms(), deadline));
    cr_assert(eq(int, signs(320), 0));
    watchdog_end(&watchdog);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(eq(int, uv_loop_close(&loop), 0), "a handle is left");
}

Test(watchdog, without_systemd_there_is_none)
{
    struct watchdog watchdog;
    struct fsdp_err err = { 0 };
    uv_loop_t loop;

    unsetenv("WATCHDOG_USEC");
    uv_loop_init(&loop);
    cr_assert(watchdog_begin(&watchdog, &loop, &err) == FSDP_OK);
    watchdog_end(&watchdog);
    cr_assert(eq(int, uv_loop_close(&loop), 0));
}
