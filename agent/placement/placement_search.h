/*
 * placement_init() without blocking the loop. NVML and drivers' files may answer late or never, so it runs in
 * a child process, and the loop watches the child's pipe. A child that is late or no longer needed is killed.
 * A child that even SIGKILL does not end has none of our descriptors.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_PLACEMENT_SEARCH_H
#define AGENT_PLACEMENT_SEARCH_H

#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

#include "agent/placement/placement.h"

struct placement_search;

/* longer than the 30 s that NVML gets, so that its own message is reported */
enum { PLACEMENT_WITHIN_MS = 35000 };

/**
 * Called once with the result. With FSDP_OK, the callee owns `found` and releases it by placement_fini().
 * Otherwise `found` is empty, and the message of `why` begins with the option that needed the search. After
 * this call the search no longer exists.
 */
typedef void placement_found(void *arg, const struct placement *found, enum fsdp_status status,
                             const char *why);

/**
 * Begin. `done` is called once, from the loop, within `within_ms`. `config` is borrowed until then. The
 * process must have no other thread yet, because this forks. The process's handler of SIGCHLD reaps the
 * child.
 *   FSDP_ERR_NOMEM, FSDP_ERR_IO  no memory or no process; `done` is not called
 */
enum fsdp_status placement_search_begin(struct placement_search **out, uv_loop_t *loop,
                                        const struct agent_config *config, uint64_t within_ms,
                                        placement_found *done, void *arg, struct fsdp_err *err);

/**
 * Cancel: `done` will not be called. The loop's close callbacks free the memory. NULL is a no-op.
 */
void placement_search_cancel(struct placement_search *search);

#endif
