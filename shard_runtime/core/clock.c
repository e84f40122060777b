#include "shard_runtime/core/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now); /* all of these clocks exist on every Linux */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_boot_ns(void)
{
    return read_ns(CLOCK_BOOTTIME);
}

int64_t clock_boot_ms(void)
{
    return clock_boot_ns() / 1000000;
}

int64_t clock_now_ms(void)
{
    return clock_now_ns() / 1000000;
}

double clock_now_s(void)
{
    return (double)clock_now_ns() * 1e-9;
}

int64_t clock_epoch_us(void)
{
    return read_ns(CLOCK_REALTIME) / 1000;
}

double clock_epoch_s(void)
{
    return (double)read_ns(CLOCK_REALTIME) * 1e-9;
}
