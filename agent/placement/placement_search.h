/*
 * placement_init() beside the loop. What it asks, NVML and the files of drivers, answers when it likes, or never: it runs
 * in a child of this process, which nobody waits for. One that is late, or no longer wanted, is killed; one that KILL
 * does not reach holds nothing of ours.
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

enum { PLACEMENT_WITHIN_MS = 35000 }; /* NVML has 30 s of it, and then its own words are told */

/**
 * `status` FSDP_OK: `found` is the caller's, to be given to placement_fini(). Else it is empty, and `why` begins with the
 * option that asked. The search is gone with it.
 */
typedef void placement_found(void *arg, const struct placement *found, enum fsdp_status status,
                             const char *why);

/**
 * Look; `done` is called once, from the loop, within `within_ms`. `config` is borrowed until then. The process has no
 * other thread yet (fork), and whoever takes its SIGCHLD reaps every child.
 *   FSDP_ERR_NOMEM, FSDP_ERR_IO  no memory, no process; `done` is not called
 */
enum fsdp_status placement_search_begin(struct placement_search **out, uv_loop_t *loop,
                                        const struct agent_config *config, uint64_t within_ms,
                                        placement_found *done, void *arg, struct fsdp_err *err);

/** `done` will not be called. NULL is a no-op. Memory is freed by close callbacks: run the loop to its end. */
void placement_search_cancel(struct placement_search *search);

#endif
