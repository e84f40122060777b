#include "agent/daemon/job_group.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/os/cgroup.h"
#include "agent/os/small_file.h"

enum { TEXT_BYTES = 8192 };

/* Write a text into the file `name` of a group. Returns false, with the reason in errno. */
__attribute__((format(printf, 3, 4))) static bool put(const char *folder, const char *name,
                                                      const char *format, ...)
{
    char path[JOB_GROUP_PATH_BYTES + 32], text[32];
    va_list args;
    ssize_t n;
    int fd, length;

    va_start(args, format);
    length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = write(fd, text, (size_t)length);
    close(fd);
    return n == length;
}

bool job_group_enter(const char *path)
{
    return put(path, "cgroup.procs", "0");
}

/*
 * Find the folder of a group. The tree of version 2 is mounted at `root`, or in a folder next to the trees of
 * version 1. A container may see only its own part of the tree; the group is then the top of it.
 */
static bool find_folder(char folder[JOB_GROUP_PATH_BYTES], const char *root, const char *group)
{
    static const char *const tops[] = { "", "/unified" };
    char file[JOB_GROUP_PATH_BYTES + 32];

    for (int i = 0; i < 4; i++) {
        const int n = snprintf(folder, JOB_GROUP_PATH_BYTES, "%s%s%s", root, tops[i / 2],
                               i % 2 == 0 && strcmp(group, "/") != 0 ? group : "");

        snprintf(file, sizeof file, "%s/cgroup.controllers", folder);
        if (n < JOB_GROUP_PATH_BYTES - 32 && access(file, F_OK) == 0)
            return true;
    }
    return false;
}

static bool find_own(char folder[JOB_GROUP_PATH_BYTES], const char *own, const char *root)
{
    char text[TEXT_BYTES], group[JOB_GROUP_PATH_BYTES];
    const char *at = text;
    struct cgroup_line line;

    if (!small_file_read(text, sizeof text, "%s", own))
        return false;
    while (cgroup_next(&at, &line))
        if (cgroup_is_v2(&line) && line.group_bytes < sizeof group) {
            snprintf(group, sizeof group, "%.*s", (int)line.group_bytes, line.group);
            return find_folder(folder, root, group);
        }
    return false;
}

enum fsdp_status job_groups_begin(struct job_groups *groups, const char *own, const char *root,
                                  struct fsdp_err *err)
{
    char agent[JOB_GROUP_PATH_BYTES + 32];

    *groups = (struct job_groups){ .folder = "" };
    if (!find_own(groups->folder, own, root)) {
        groups->folder[0] = '\0';
        return fsdp_fail(err, FSDP_ERR_IO, "there are no control groups of version 2 here");
    }
    snprintf(agent, sizeof agent, "%s/agent", groups->folder);
    if ((mkdir(agent, 0755) < 0 && errno != EEXIST) || !job_group_enter(agent)) {
        fsdp_fail(err, FSDP_ERR_IO, "control group %s: %s", agent, strerror(errno));
        groups->folder[0] = '\0';
        return FSDP_ERR_IO;
    }
    /* a failure shows in job_group_make(), which looks whether the controller is there */
    put(groups->folder, "cgroup.subtree_control", "+memory");
    return FSDP_OK;
}

unsigned job_group_make(struct job_groups *groups, int64_t memory_max, char *path, struct fsdp_err *err)
{
    const unsigned number = groups->last + 1;

    snprintf(path, JOB_GROUP_PATH_BYTES, "%.*s/job-%u", JOB_GROUP_PATH_BYTES - 32, groups->folder, number);
    if (mkdir(path, 0755) < 0 && errno != EEXIST) {
        fsdp_fail(err, FSDP_ERR_IO, "control group %s: %s", path, strerror(errno));
        return 0;
    }
    if (memory_max > 0 && !put(path, "memory.max", "%" PRId64, memory_max)) {
        fsdp_fail(err, FSDP_ERR_IO, "%s/memory.max: %s: job_memory_max cannot be kept here", path,
                  strerror(errno));
        rmdir(path);
        return 0;
    }
    groups->last = number;
    return number;
}

bool job_group_end(const struct job_groups *groups, unsigned number)
{
    char path[JOB_GROUP_PATH_BYTES];

    if (number == 0)
        return true;
    snprintf(path, sizeof path, "%.*s/job-%u", JOB_GROUP_PATH_BYTES - 32, groups->folder, number);
    if (rmdir(path) == 0 || errno == ENOENT)
        return true;
    put(path, "cgroup.kill", "1");
    return rmdir(path) == 0 || errno == ENOENT;
}
