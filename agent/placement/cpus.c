#include "agent/placement/cpus.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/cgroup.h"
#include "agent/os/small_file.h"

/* Read the number at *text and advance *text past it. 0: there is no positive number ("max", "-1"). */
static long long take_positive(const char **text)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(*text, &end, 10);
    if (errno != 0 || value <= 0)
        return 0;
    *text = end;
    return value;
}

int cpus_of_quota(const char *text)
{
    const long long quota = take_positive(&text);
    const long long period = quota > 0 ? take_positive(&text) : 0;

    if (period == 0)
        return 0;
    if (quota < period)
        return 1;
    return quota / period > INT_MAX ? INT_MAX : (int)(quota / period);
}

enum { PATH_BYTES = 8192, GROUPS_BYTES = 16384 };

static int limit_of_v2(const char *folder)
{
    char text[128];

    return small_file_read(text, sizeof text, "%s/cpu.max", folder) ? cpus_of_quota(text) : 0;
}

static int limit_of_v1(const char *folder)
{
    char quota[64], period[64], text[160];

    if (!small_file_read(quota, sizeof quota, "%s/cpu.cfs_quota_us", folder) ||
        !small_file_read(period, sizeof period, "%s/cpu.cfs_period_us", folder))
        return 0;
    snprintf(text, sizeof text, "%s %s", quota, period);
    return cpus_of_quota(text);
}

static int lower(int a, int b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/*
 * Returns the smallest limit of our control group and of every group above it. It walks up from our group to
 * the mount point.
 */
static int limit_along(int (*limit_of)(const char *folder), const char *root, const char *mount,
                       const struct cgroup_line *line)
{
    char folder[PATH_BYTES];
    int root_length = snprintf(folder, sizeof folder, "%s%s", root, mount), limit = 0;
    char *slash;

    snprintf(folder + root_length, sizeof folder - (size_t)root_length, "%.*s", (int)line->group_bytes,
             line->group);
    for (;;) {
        limit = lower(limit, limit_of(folder));
        slash = strrchr(folder + root_length, '/');
        if (slash == NULL)
            return limit;
        *slash = '\0';
    }
}

int cpus_quota(const char *root)
{
    char text[GROUPS_BYTES];
    const char *at = text;
    struct cgroup_line line;
    int limit = 0;

    if (!small_file_read(text, sizeof text, "%s/proc/self/cgroup", root))
        return 0;
    while (cgroup_next(&at, &line)) {
        if (cgroup_is_v2(&line)) {
            limit = lower(limit, limit_along(limit_of_v2, root, "/sys/fs/cgroup", &line));
            limit = lower(limit, limit_along(limit_of_v2, root, "/sys/fs/cgroup/unified", &line));
        } else if (cgroup_has(&line, "cpu")) {
            limit = lower(limit, limit_along(limit_of_v1, root, "/sys/fs/cgroup/cpu", &line));
            limit = lower(limit, limit_along(limit_of_v1, root, "/sys/fs/cgroup/cpu,cpuacct", &line));
        }
    }
    return limit;
}

void cpus_allowed(struct cpu_mask *out)
{
    memset(out, 0, sizeof *out);
    sched_getaffinity(0, sizeof *out, (cpu_set_t *)out->words);
}

int cpus_available(void)
{
    struct cpu_mask allowed;
    int n;

    cpus_allowed(&allowed);
    n = lower(cpu_mask_count(&allowed), cpus_quota(""));
    return n < 1 ? 1 : n;
}
