/*
 * The lines of /proc/PID/cgroup, "NUMBER:CONTROLLERS:/GROUP" (cgroups(7)); version 2 names no controllers there. Pure.
 */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* Parts of the text, which is the caller's; neither ends with a zero. */
struct cgroup_line {
    const char *controllers, *group;
    size_t controllers_bytes, group_bytes;
};

/** The next line of `*text`, which moves behind it; lines that are none are passed over. False: there is no more. */
bool cgroup_next(const char **text, struct cgroup_line *line);

bool cgroup_is_v2(const struct cgroup_line *line);
/** Is `controller` one of the list "cpu,cpuacct"? */
bool cgroup_has(const struct cgroup_line *line, const char *controller);

#endif
