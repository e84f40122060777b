/*
 * This node among several: it meets the others (agent/cluster/meeting.h), and either hosts them or becomes a member. As a
 * member this is its line to the coordinator: what the coordinator says comes out as calls of its member operations
 * (agent/cluster/coordinator.h), the same that a coordinator in this process makes; what happens on this node goes in.
 * When the line breaks, the node's workers are stopped, with the grace, and the run ends here with 76: without its
 * coordinator nobody may go on.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_UPLINK_H
#define AGENT_UPLINK_H

#include "agent/cluster/coordinator.h"
#include "agent/cluster/rendezvous.h"
#include "agent/config.h"

/* ASK_STOP carries a signal, and how it is meant. */
enum {
    UPLINK_ASK_SIGNAL = 0xff,
    UPLINK_ASK_NOW = 0x100,
    UPLINK_ASK_SAVE = 0x200,
    UPLINK_ASK_FORWARD = 0x400
};

struct uplink;

/* What is told beside the member operations. */
struct uplink_handlers {
    /* This node is the coordinator; `rendezvous` is the callee's, which destroys the uplink. */
    void (*hosts)(void *member, struct rendezvous *rendezvous, const char *where);
    void (*note)(void *member, const char *words); /* a line for the log */
};

/**
 * Begin to meet. `member` is told what the coordinator says, finish() last and once; form() may be the first.
 *   FSDP_ERR_CONFIG  the endpoint is none
 */
enum fsdp_status uplink_create(struct uplink **out, uv_loop_t *loop, const struct agent_config *config,
                               const struct coordinator_member *ops, const struct uplink_handlers *handlers,
                               void *member, struct fsdp_err *err);
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

/** A signal of the user's on this node: ask the coordinator to let it leave, or to stop the run; before there is one,
 * end alone. */
void uplink_stop(struct uplink *uplink, int signal, bool now);
void uplink_notice(struct uplink *uplink, int signal);
/** One that goes on to every worker of the job, and ends nothing. */
void uplink_forward(struct uplink *uplink, int signal);

#endif
