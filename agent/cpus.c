#include "agent/cpus.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number at *text, which moves behind it; 0 where none above 0 stands there ("max", "-1"). */
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

static bool read_text(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    bool read;

    if (file == NULL)
        return false;
    read = fgets(out, (int)size, file) != NULL;
    fclose(file);
    return read;
}

static int lower(int a, int b)
{
    return b > 0 && b < a ? b : a;
}

/* Every group above ours limits too: walk up from `group` to the mount point. */
static int limit_of_v2(const char *mount, char *group, int cpus)
{
    char path[4400], text[128];

    for (;;) {
        char *slash;

        snprintf(path, sizeof path, "%s%s/cpu.max", mount, group);
        if (read_text(path, text, sizeof text))
            cpus = lower(cpus, cpus_of_quota(text));
        slash = strrchr(group, '/');
        if (slash == NULL)
            return cpus;
        *slash = '\0';
    }
}

static int limit_of_v1(const char *mount, char *group, int cpus)
{
    char path[4400], quota[64], period[64], text[160];

    for (;;) {
        char *slash;

        snprintf(path, sizeof path, "%s%s/cpu.cfs_quota_us", mount, group);
        if (read_text(path, quota, sizeof quota)) {
            snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", mount, group);
            if (read_text(path, period, sizeof period)) {
                snprintf(text, sizeof text, "%s %s", quota, period);
                cpus = lower(cpus, cpus_of_quota(text));
            }
        }
        slash = strrchr(group, '/');
        if (slash == NULL)
            return cpus;
        *slash = '\0';
    }
}

int cpus_available(void)
{
    char line[4096];
    cpu_set_t set;
    int cpus = 1;
    FILE *file;

    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        cpus = CPU_COUNT(&set);
    file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return cpus;
    while (fgets(line, sizeof line, file) != NULL) {
        char *controllers = strchr(line, ':'), *group;

        if (controllers == NULL || (group = strchr(controllers + 1, ':')) == NULL)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (*controllers == '\0') {
            char again[4096];

            snprintf(again, sizeof again, "%s", group);
            cpus = limit_of_v2("/sys/fs/cgroup", group, cpus);
            cpus = limit_of_v2("/sys/fs/cgroup/unified", again, cpus);
        } else if (strcmp(controllers, "cpu") == 0 || strcmp(controllers, "cpu,cpuacct") == 0) {
            cpus = limit_of_v1("/sys/fs/cgroup/cpu", group, cpus);
        }
    }
    fclose(file);
    return cpus;
}
