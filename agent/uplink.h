/*
 * A member's line to the coordinator, the agent of node 0: what the coordinator says comes out as calls of its
 * member operations (agent/coordinator.h), the same that a coordinator in this process makes; what happens on
 * this node goes in. When the line breaks, the node's workers are stopped, with the grace, and the run ends here
 * with 76: without its coordinator nobody may go on.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_UPLINK_H
#define AGENT_UPLINK_H

#include "agent/agent.h"
#include "agent/console.h"
#include "agent/coordinator.h"

/* ASK_STOP carries a signal, and how it is meant. */
enum {
    UPLINK_ASK_SIGNAL = 0xff,
    UPLINK_ASK_NOW = 0x100,
    UPLINK_ASK_SAVE = 0x200,
    UPLINK_ASK_FORWARD = 0x400
};

struct uplink;

/** Begin to join. `member` is told what the coordinator says, finish() last and once. */
enum fsdp_status uplink_create(struct uplink **out, uv_loop_t *loop, const struct agent_config *config,
                               const struct coordinator_member *ops, void *member, struct console *console,
                               struct fsdp_err *err);
void uplink_destroy(struct uplink *uplink); /* NULL is a no-op */

/* Reports, as of struct world_listener. */
void uplink_exited(struct uplink *uplink, int generation, const struct death *death,
                   const struct errors_detail *detail);
void uplink_stopped(struct uplink *uplink, int generation);
void uplink_event(struct uplink *uplink, int generation, int rank, const char *json, size_t length);
void uplink_record(struct uplink *uplink, int generation, const char *event,
                   const struct events_field *fields);
void uplink_saved(struct uplink *uplink, int generation, int rank, const struct fsdp_link_saved *saved);
void uplink_put(struct uplink *uplink, int generation, const char *key, const void *value, size_t size_bytes);

/** A signal of the user's on this node: ask the coordinator to stop the run; before there is one, end alone. */
void uplink_stop(struct uplink *uplink, int signal, bool now);
void uplink_notice(struct uplink *uplink, int signal);
/** One that goes on to every worker of the job, and ends nothing. */
void uplink_forward(struct uplink *uplink, int signal);

#endif
