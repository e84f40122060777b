/*
 * Shared by the files of the uplink:
 *   uplink.c            meets the others, loses the coordinator and joins again, and ends: what the others do
 *                       not own
 *   uplink_lease.c      asks for the lease, and looks whether it is over: answered_ns, heard_ms, lease_ms,
 *                       beat, pulses, fenced, can_lead
 *   uplink_messages.c   takes the messages of the coordinator: generation, past.progress, held, held_end,
 *                       held_bytes
 *   uplink_reports.c    sends the reports of this node: asked, past.held, past.last_step
 */
#ifndef AGENT_UPLINK_IMPL_H
#define AGENT_UPLINK_IMPL_H

#include "agent/rendezvous/meeting.h"
#include "agent/rendezvous/uplink.h"

struct held; /* a message that is kept until the lease runs */

struct uplink {
    const struct agent_config *config;
    coordinator_tell *tell;
    struct uplink_handlers handlers;
    void *member;
    struct meeting *meeting;
    char host[PROTO_TEXT_BYTES]; /* host name of the coordinator */
    int generation;              /* generation of the last START; -1: none came yet */
    /* what the next coordinator goes on with, if this node takes its place */
    struct coordinator_past past;
    int64_t answered_ns; /* of that coordinator: struct proto_beat */
    int64_t heard_ms;    /* when the last answer to a beat came, by CLOCK_BOOTTIME; 0: none came */
    bool leads;          /* this node was given the lead, and takes it as soon as its workers are gone */
    bool up;             /* workers of `generation` may be alive on this node */
    bool bears_loss;     /* if this node is lost, the job goes on without it, or waits for it */
    bool again;          /* the session is lost, and this node joins again when its workers are gone */
    int asked;           /* the signal by which this node asked to stop; 0: it did not */
    /* this node's part in the run ends: PROTO_FINISH follows when its workers are gone */
    bool ending;
    bool finished;
    const struct lease *lease; /* of this node; borrowed */
    int64_t lease_ms;          /* the lease: our own setting until the coordinator tells its own */
    uv_timer_t *beat;          /* fires LEASE_BEATS times per lease, from the first WELCOME on */
    /* ask for the lease too, on a thread of their own; NULL: there is no such thread */
    struct pulse_sender *pulses;
    bool fenced;   /* the lease is over, and the guard kills the ranks */
    bool can_lead; /* this node has told the coordinator that it can take its place */
    struct held *held, **held_end;
    size_t held_bytes;
    struct coordinator_end end; /* the result that this node ends with */
};

/* In uplink.c */

/** Reports the end of the run to this node. It leaves in order. */
void uplink_finish(struct uplink *uplink);
/** Has the ranks of this node stopped. */
void uplink_stop_ranks(struct uplink *uplink, const struct proto_stop *how);
/**
 * Ends the run on this node: at once if no worker is alive here, otherwise after its workers were stopped.
 * `lost`: the reason is that the coordinator is lost.
 */
void uplink_end_with(struct uplink *uplink, const struct coordinator_end *end, bool lost);
/**
 * Ends the run on this node with `status` and `line`, without a coordinator: it is gone, or was never found.
 */
void uplink_end_alone(struct uplink *uplink, int status, const char *line);
/** Ends the run on this node because a message of the coordinator is invalid. */
void uplink_end_wrong(struct uplink *uplink, const struct fsdp_err *why);
/** Ends the run on this node without a coordinator, because of a signal. */
void uplink_end_stopped(struct uplink *uplink, int signal);
/** Returns whether this node may take the place of a lost coordinator, or join the one that does. */
bool uplink_may_stand(const struct uplink *uplink);
/** Notes the time at which the coordinator was lost, unless it is noted already. */
void uplink_note_loss(struct uplink *uplink);
/**
 * Joins as a new node: the session is lost, and no process of the generation is left here. What belonged to
 * that generation is dropped.
 */
void uplink_join_again(struct uplink *uplink);

/* In uplink_lease.c */

/** Asks for the lease from now on, LEASE_BEATS times per lease. */
void uplink_begin_to_ask(struct uplink *uplink);
/** From now on, answers to pulses no longer extend the lease. */
void uplink_end_pulses(struct uplink *uplink);
/** The coordinator has answered a beat. */
void uplink_take_answer(struct uplink *uplink, const struct frame *frame);
/**
 * Looks whether the lease of the generation is over, because the coordinator has not answered for so long, or
 * this agent stood still. If it is, the guard kills the ranks. The coordinator is told as soon as there is a
 * connection to it, and this node takes part in the next generation. If the session is lost as well, the node
 * joins again.
 */
bool uplink_note_end_of_lease(struct uplink *uplink);
/** The same, and has the ranks stopped that may still run. */
void uplink_look_at_lease(struct uplink *uplink);

/* In uplink_messages.c */

/** Handles a message of the coordinator; `uplink` is the struct uplink. */
void uplink_take(void *uplink, const struct frame *frame);
/** The lease runs now: handles the messages that were kept for that. */
void uplink_take_held(struct uplink *uplink);
/** Drops the messages that are kept. */
void uplink_drop_held(struct uplink *uplink);

#endif
