/*
 * A reader of /proc/PID/cgroup, whose lines are "NUMBER:CONTROLLERS:/GROUP" (cgroups(7)). The line of version
 * 2 names no controllers. Pure.
 */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* Both point into the caller's text, and neither ends with a zero byte. */
struct cgroup_line {
    const char *controllers, *group;
    size_t controllers_bytes, group_bytes;
};

/**
 * Read the next line of *text, and advance *text past it. Lines of another form are skipped. False: there is
 * none left.
 */
bool cgroup_next(const char **text, struct cgroup_line *line);

bool cgroup_is_v2(const struct cgroup_line *line);
/** Is `controller` in the line's list of controllers, such as "cpu,cpuacct"? */
bool cgroup_has(const struct cgroup_line *line, const char *controller);

#endif
