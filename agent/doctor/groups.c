#include "agent/doctor/groups.h"

#include <string.h>

#include "agent/doctor/checks.h"
#include "agent/os/cgroup.h"
#include "agent/os/small_file.h"

enum { PATH_BYTES = 2048 };

static void look(struct group_limit *out, const struct doctor_host *host, const char *folder, const char *max,
                 const char *now)
{
    const int64_t limit = doctor_number(host, "%s/%s", folder, max),
                  used = doctor_number(host, "%s/%s", folder, now);

    if (limit >= 0 && (out->limit < 0 || limit - used < out->limit - out->used))
        *out = (struct group_limit){ limit, used < 0 ? 0 : used };
}

/* From the group up to the mount. */
static void walk(struct group_limit *out, const struct doctor_host *host, const char *mount,
                 const struct cgroup_line *line, const char *max, const char *now)
{
    char folder[PATH_BYTES];
    const int mount_length = snprintf(folder, sizeof folder, "%s", mount);
    char *slash;

    snprintf(folder + mount_length, sizeof folder - (size_t)mount_length, "%.*s", (int)line->group_bytes,
             line->group);
    for (;;) {
        look(out, host, folder, max, now);
        slash = strrchr(folder + mount_length, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

void groups_tightest(struct group_limit *out, const struct doctor_host *host, const char *controller,
                     const char *max2, const char *now2, const char *max1, const char *now1)
{
    char text[16384], mount[128];
    struct cgroup_line line;
    const char *at = text;

    *out = (struct group_limit){ -1, -1 };
    small_file_read(text, sizeof text, "%s/proc/self/cgroup", host->root);
    while (cgroup_next(&at, &line)) {
        if (cgroup_is_v2(&line)) {
            walk(out, host, "/sys/fs/cgroup", &line, max2, now2);
            walk(out, host, "/sys/fs/cgroup/unified", &line, max2, now2);
        } else if (cgroup_has(&line, controller)) {
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
            walk(out, host, mount, &line, max1, now1);
        }
    }
}
