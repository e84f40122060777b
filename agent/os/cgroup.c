#include "agent/os/cgroup.h"

#include <string.h>

bool cgroup_next(const char **text, struct cgroup_line *line)
{
    while (**text != '\0') {
        const char *from = *text, *end = from + strcspn(from, "\n");
        const char *controllers = memchr(from, ':', (size_t)(end - from));
        const char *group =
            controllers == NULL ? NULL : memchr(controllers + 1, ':', (size_t)(end - controllers - 1));

        *text = *end == '\n' ? end + 1 : end;
        if (group == NULL)
            continue;
        *line = (struct cgroup_line){ .controllers = controllers + 1,
                                      .group = group + 1,
                                      .controllers_bytes = (size_t)(group - controllers - 1),
                                      .group_bytes = (size_t)(end - group - 1) };
        return true;
    }
    return false;
}

bool cgroup_is_v2(const struct cgroup_line *line)
{
    return line->controllers_bytes == 0;
}

bool cgroup_has(const struct cgroup_line *line, const char *controller)
{
    const size_t length = strlen(controller);
    size_t at = 0;

    while (at < line->controllers_bytes) {
        const char *name = line->controllers + at;
        const char *comma = memchr(name, ',', line->controllers_bytes - at);
        const size_t n = comma == NULL ? line->controllers_bytes - at : (size_t)(comma - name);

        if (n == length && memcmp(name, controller, n) == 0)
            return true;
        at += n + 1;
    }
    return false;
}
