/*
 * A control group (cgroups(7), version 2) for each job, below the daemon's own. systemd must have delegated
 * that one (Delegate=yes). The daemon itself moves into a group "agent" next to them. A group that limits the
 * groups below it may have no processes of its own.
 *
 * A job's group bounds its memory, tells systemd-cgtop what it uses, and ends what a job has left.
 */
#ifndef AGENT_DAEMON_JOB_GROUP_H
#define AGENT_DAEMON_JOB_GROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { JOB_GROUP_PATH_BYTES = PATH_MAX };

/* The folder of the daemon's own group; "": there are no groups. */
struct job_groups {
    char folder[JOB_GROUP_PATH_BYTES];
    unsigned last; /* the number of the newest job's group */
};

/**
 * Find the group of this process, and move this process into "agent" below it.
 *   own   /proc/self/cgroup
 *   root  /sys/fs/cgroup, or where the tree of version 2 stands below it
 *   FSDP_ERR_IO  there is no group of version 2, or this user may not change it; then there are no groups
 */
enum fsdp_status job_groups_begin(struct job_groups *groups, const char *own, const char *root,
                                  struct fsdp_err *err);

/**
 * Make the group of a job.
 *   memory_max  in bytes; 0: no limit
 *   path        (JOB_GROUP_PATH_BYTES) its folder, for job_group_enter()
 * Returns its number, from 1 on; 0: it could not be made, or cannot have that limit.
 */
unsigned job_group_make(struct job_groups *groups, int64_t memory_max, char *path, struct fsdp_err *err);

/** Move this process into the group at `path`. False: errno says why not. */
bool job_group_enter(const char *path);

/**
 * Kill what is in a group, and remove it. Returns false while something in it has not ended: call it again.
 * With number 0 there is nothing to do.
 */
bool job_group_end(const struct job_groups *groups, unsigned number);

#endif
