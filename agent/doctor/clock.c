#include <string.h>
#include <sys/stat.h>
#include <sys/timex.h>

#include "agent/doctor/checks.h"
#include "shard_runtime/core/clock.h"

void clock_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct clock_facts *clock = &facts->clock;
    struct timex kernel = { .modes = 0 };
    struct stat info;
    const int state = adjtimex(&kernel);

    clock->known = state >= 0;
    clock->synchronised = state >= 0 && state != TIME_ERROR && (kernel.status & STA_UNSYNC) == 0;
    clock->error_us = state >= 0 ? (int64_t)kernel.maxerror : -1;
    clock->now_s = (int64_t)clock_epoch_s();
    clock->program_s = stat(host->own_path, &info) == 0 ? (int64_t)info.st_mtim.tv_sec : -1;
    doctor_line(host, clock->source, sizeof clock->source,
                "/sys/devices/system/clocksource/clocksource0/current_clocksource");
}

/*
 * Containers often run no daemon that sets the clock, but the kernel still reports whether the host's clock
 * is synchronised.
 */
static enum doctor_state synchronised(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct clock_facts *clock = &facts->clock;

    if (!clock->known)
        return DOCTOR_NOTHING;
    if (!clock->synchronised)
        return doctor_say(DOCTOR_WARN, value, "no daemon synchronises the clock");
    return doctor_say(clock->error_us > 1000000 ? DOCTOR_WARN : DOCTOR_OK, value,
                      "synchronised, wrong by %.1f ms at most", (double)clock->error_us / 1e3);
}

static enum doctor_state date(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct clock_facts *clock = &facts->clock;
    const int64_t day_s = 86400;

    if (clock->program_s < 0)
        return DOCTOR_NOTHING;
    return clock->now_s + day_s < clock->program_s
               ? doctor_say(DOCTOR_FAIL, value, "%.0f days before this program was made",
                            (double)(clock->program_s - clock->now_s) / (double)day_s)
               : doctor_say(DOCTOR_OK, value, "after this program was made");
}

/*
 * With these clock sources a process reads the time without a system call. With others each reading is one.
 */
static enum doctor_state source(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    static const char *const slow[] = { "hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen" };
    const char *name = facts->clock.source;

    if (name[0] == '\0')
        return DOCTOR_NOTHING;
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        if (strcmp(name, slow[i]) == 0)
            return doctor_say(DOCTOR_WARN, value, "%s: reading the time is a slow system call", name);
    return doctor_say(DOCTOR_OK, value, "%s", name);
}

const struct doctor_check clock_checks[] = {
    { "clock.synchronised", synchronised,
      "run chrony or systemd-timesyncd: times of several hosts' logs and events cannot be compared" },
    { "clock.date", date, "set the clock: munge refuses credentials that are five minutes off" },
    { "clock.source", source, "boot with tsc=reliable if the CPU's counter is (dmesg | grep -i tsc)" },
    { 0 },
};
