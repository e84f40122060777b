#include "agent/cpus.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
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

enum { PATH_BYTES = 8800, GROUP_BYTES = 4096 };

static __attribute__((format(printf, 3, 4))) bool read_line(char *out, size_t size, const char *format, ...)
{
    char path[PATH_BYTES];
    FILE *file;
    va_list args;
    bool read;

    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    read = fgets(out, (int)size, file) != NULL;
    fclose(file);
    return read;
}

static int limit_of_v2(const char *folder)
{
    char text[128];

    return read_line(text, sizeof text, "%s/cpu.max", folder) ? cpus_of_quota(text) : 0;
}

static int limit_of_v1(const char *folder)
{
    char quota[64], period[64], text[160];

    if (!read_line(quota, sizeof quota, "%s/cpu.cfs_quota_us", folder) ||
        !read_line(period, sizeof period, "%s/cpu.cfs_period_us", folder))
        return 0;
    snprintf(text, sizeof text, "%s %s", quota, period);
    return cpus_of_quota(text);
}

static int lower(int a, int b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* Every group above ours limits too: walk up from `group` to the mount point. */
static int limit_along(int (*limit_of)(const char *folder), const char *root, const char *mount,
                       const char *group)
{
    char folder[PATH_BYTES];
    int root_length = snprintf(folder, sizeof folder, "%s%s", root, mount), limit = 0;
    char *slash;

    snprintf(folder + root_length, sizeof folder - (size_t)root_length, "%s", group);
    for (;;) {
        limit = lower(limit, limit_of(folder));
        slash = strrchr(folder + root_length, '/');
        if (slash == NULL)
            return limit;
        *slash = '\0';
    }
}

/* Is `name` one of the list "cpu,cpuacct"? */
static bool lists(const char *list, const char *name)
{
    const size_t length = strlen(name);

    for (; *list != '\0'; list += strcspn(list, ","), list += *list == ',')
        if (strncmp(list, name, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return true;
    return false;
}

int cpus_quota(const char *root)
{
    char path[PATH_BYTES], line[GROUP_BYTES];
    int limit = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) { /* NUMBER:CONTROLLERS:/GROUP */
        char *controllers = strchr(line, ':'), *group;

        if (controllers == NULL || (group = strchr(controllers + 1, ':')) == NULL)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (*controllers == '\0') {
            limit = lower(limit, limit_along(limit_of_v2, root, "/sys/fs/cgroup", group));
            limit = lower(limit, limit_along(limit_of_v2, root, "/sys/fs/cgroup/unified", group));
        } else if (lists(controllers, "cpu")) {
            limit = lower(limit, limit_along(limit_of_v1, root, "/sys/fs/cgroup/cpu", group));
            limit = lower(limit, limit_along(limit_of_v1, root, "/sys/fs/cgroup/cpu,cpuacct", group));
        }
    }
    fclose(file);
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
