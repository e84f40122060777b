/*
 * The control groups of this process and the limits that they set, of version 1 and 2.
 */
#ifndef AGENT_DOCTOR_GROUPS_H
#define AGENT_DOCTOR_GROUPS_H

#include "agent/doctor/doctor.h"

/*
 * The limit that leaves the least room, among our control group and all groups above it, and how much of it
 * is used. -1: no limit.
 */
struct group_limit {
    int64_t limit, used;
};

/**
 * Find the limit of `controller` ("memory", ...) that leaves the least room, among our group and those above
 * it.
 *   max2, now2  files of version 2: "memory.max", "memory.current"
 *   max1, now1  files of version 1
 */
void groups_tightest(struct group_limit *out, const struct doctor_host *host, const char *controller,
                     const char *max2, const char *now2, const char *max1, const char *now1);

#endif
