/*
 * Finds out that a wait for other ranks is pointless: the agent is gone, or has said that a rank is, or a
 * member's process on this host has ended. Every wait of the cpu back end checks this between two slices of
 * sleep.
 */
#ifndef COMM_WATCH_H
#define COMM_WATCH_H

#include <fsdp/status.h>

struct link;
struct watch;

/*
 * How long a wait sleeps before it checks. A dead rank is an error on the others within about as many
 * milliseconds.
 */
enum { WATCH_SLICE_MS = 5 };

/**
 * Exchanges process descriptors (pidfds) with the members of group `name` on this host; collective over them.
 *
 *   link      borrowed, outlives the watch
 *   first, n  their ranks in the group are first ... first + n - 1
 *   self      this process's rank in the group
 *
 * Each process makes its own descriptor, so that a pid that was used again cannot mislead. *out is the
 * caller's to destroy; NULL after an error. FSDP_ERR_UNSUPPORTED: the kernel has no pidfds.
 */
enum fsdp_status watch_create(struct watch **out, struct link *link, const char *name, int first, int n,
                              int self, struct fsdp_err *err);
/** Closes the descriptors. NULL is a no-op. */
void watch_destroy(struct watch *watch);

/** Returns FSDP_ERR_PEER if waiting is in vain, otherwise FSDP_OK. Never blocks. */
enum fsdp_status watch_check(struct watch *watch, struct fsdp_err *err);

#endif
