/*
 * Why a wait for other ranks may be in vain: the agent is gone or said so, or a process of this host that takes
 * part has ended. Every wait of a back end looks here between two slices of sleep.
 */
#ifndef COMM_WATCH_H
#define COMM_WATCH_H

#include <fsdp/status.h>

struct link;
struct watch;

/* How long a wait sleeps before it looks: a dead peer is an error within about as many milliseconds. */
enum { WATCH_SLICE_MS = 5 };

/**
 * Exchange process descriptors with the members of group `name` on this host; collective over them.
 *   first, n  their ranks in the group are first ... first + n - 1
 *   self      this process's rank in the group
 * A descriptor is made by the process that it names, so that no reuse of a pid can mislead.
 */
enum fsdp_status watch_create(struct watch **out, struct link *link, const char *name, int first, int n,
                              int self, struct fsdp_err *err);
void watch_destroy(struct watch *watch);

/** FSDP_ERR_PEER when waiting is in vain; never blocks. */
enum fsdp_status watch_check(struct watch *watch, struct fsdp_err *err);

#endif
