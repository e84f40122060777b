/*
 * How this node meets the others of its job. Which node hosts is decided by trying:
 *   1. Each node looks up the endpoint's name. Names are never compared, so it does not matter which of
 *      its names a user gives for a host.
 *   2. The node that has one of the endpoint's addresses, and can listen at its port, is the coordinator.
 *      Its meeting is over. It listens on every address it has, unless the endpoint is on loopback.
 *   3. Every other node connects to the endpoint's addresses, again and again. It says who it is and
 *      waits to be let in.
 *
 *   create -> hosts()                                this node is the coordinator
 *          -> welcomed() -> message()... -> lost()   it is a member of another's
 *          -> failed()                               no node answered in time, or the coordinator refused
 *
 * A member that loses the session after welcomed() and before the first message() meets again: nothing had
 * begun. One that loses it later may meet again by meeting_again(), but it joins no other coordinator then,
 * and never hosts.
 *
 * Callbacks run on the loop's thread. hosts(), failed() and lost() come last, and lost() comes again only
 * after meeting_again(). From within any callback every function here may be called.
 */
#ifndef AGENT_MEETING_H
#define AGENT_MEETING_H

#include "agent/config.h"
#include "agent/rendezvous/rendezvous.h"

struct meeting;

struct meeting_handlers {
    /*
     * This node hosts. `rendezvous` listens; the callee owns it. `where` names for a person the endpoint, and
     * whether that means every address.
     */
    void (*hosts)(void *arg, struct rendezvous *rendezvous, const char *where);
    void (*welcomed)(void *arg, const struct proto_welcome *welcome, const char *address);
    void (*message)(void *arg, const struct frame *frame);
    /*
     * The session has ended (struct session_handlers). FSDP_ERR_PEER: the coordinator may be there still, but
     * this node and it have not heard from each other for the lease, and each has given the other up.
     */
    void (*lost)(void *arg, const struct fsdp_err *why);
    void (*failed)(void *arg, int status, const char *words); /* `status`: the exit status of fsdprun */
    /* a line for the log: what the meeting waits for */
    void (*note)(void *arg, const char *words);
};

/**
 * Begins to meet the other nodes. `config` is borrowed until meeting_destroy().
 *   FSDP_ERR_CONFIG  the configured endpoint is not valid
 */
enum fsdp_status meeting_create(struct meeting **out, uv_loop_t *loop, const struct agent_config *config,
                                const struct meeting_handlers *handlers, void *arg, struct fsdp_err *err);

/** After lost(): join the same coordinator again, as a new node. As long as a new one, it waits for it. */
void meeting_again(struct meeting *meeting);

/** Send a message (rendezvous_send()) to the coordinator. No effect unless this node is a member. */
void meeting_send(struct meeting *meeting, enum proto_type type, uint32_t generation, const void *message);
/** Is this node a member whose connection is open? */
bool meeting_is_member(const struct meeting *meeting);

/**
 * Closes the meeting after queued messages have been sent. The memory is freed when the loop has run. No
 * callback follows. NULL is a no-op.
 */
void meeting_destroy(struct meeting *meeting);

#endif
