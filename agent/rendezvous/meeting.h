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
 * begun. One that loses it later may meet again by meeting_again(). It joins no coordinator of another run
 * then, and does not host by the endpoint.
 *
 * Where an arbiter says who leads (agent/arbiter/arbiter.h), it also says who hosts:
 *   2'. The node of step 2 listens, but serves no node yet. offers() has its address, with which it claims.
 *   3'. A member that has lost its coordinator may listen too, with meeting_offer(), and claims.
 *   4. meeting_lead(): the claim succeeded, and this node hosts. meeting_follow(): another node leads, at
 *      that address, and this one joins it.
 *
 * An arbiter that is an etcd can take the endpoint's place too (rendezvous_host NULL):
 *   2''. Every node that may host listens, at any port, and offers(). It does so again if meeting_follow()
 *       has led to no coordinator. So offers() may come more than once.
 *   3''. It joins the leader that meeting_follow() names.
 *
 * Callbacks run on the loop's thread. hosts(), failed() and lost() come last, and lost() comes again only
 * after meeting_again(). From within any callback every function here may be called.
 */
#ifndef AGENT_MEETING_H
#define AGENT_MEETING_H

#include "agent/config.h"
#include "agent/rendezvous/pulse_sender.h"
#include "agent/rendezvous/rendezvous.h"
#include "agent/wire/swept.h"

struct meeting;

struct meeting_handlers {
    /*
     * This node hosts. `rendezvous` listens; the callee owns it. `where` names for a person the endpoint, and
     * whether that means every address.
     */
    void (*hosts)(void *arg, struct rendezvous *rendezvous, const char *where);
    /*
     * This node has the endpoint and listens; other nodes reach it at `host` and `port`. meeting_lead() or
     * meeting_follow() must follow. NULL: there is no arbiter, and hosts() comes at once. Returns false if
     * the caller ends this node instead: the meeting is over.
     */
    bool (*offers)(void *arg, const char *host, int port);
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

/**
 * Before the first meeting_again() of a node that has hosted: it was of this run, and other nodes reach it at
 * `host`.
 */
void meeting_resume(struct meeting *meeting, const unsigned char run[PROTO_IDENTITY_BYTES], const char *host);
/**
 * After lost(): join the coordinator again, or another one of the run, as a new node. As long as a new one,
 * it waits for it. `last_generation` and `last_node_rank` are those of struct proto_join.
 */
void meeting_again(struct meeting *meeting, int last_generation, int last_node_rank);

/**
 * After meeting_again(): listen, at the endpoint's port if it is free, because this node may come to lead.
 * WELCOME and meeting_follow() end that. From now on until WELCOME, a coordinator that is gone ends nothing.
 * Returns the address at which other nodes reach this one; owned by the meeting.
 *   FSDP_ERR_IO  it cannot listen
 */
enum fsdp_status meeting_offer(struct meeting *meeting, const char **host, int *port, struct fsdp_err *err);
/** This node leads, and no rank of it runs: hosts() comes, from within this call; or failed(). */
void meeting_lead(struct meeting *meeting);
/** Another node leads: this node joins it there, unless it is a member. The endpoint is tried as well. */
void meeting_follow(struct meeting *meeting, const char *host, int port);

/** Send a message (rendezvous_send()) to the coordinator. No effect unless this node is a member. */
void meeting_send(struct meeting *meeting, enum proto_type type, uint32_t generation, const void *message);
/**
 * So many processes of this node cannot be killed (struct reporter). The coordinator is told now, or by the
 * next JOIN.
 */
void meeting_set_unkilled(struct meeting *meeting, int n);
/** Is this node a member whose connection is open? */
bool meeting_is_member(const struct meeting *meeting);
/** Fill in session and address for pulses. Returns false unless this node is a member. */
bool meeting_aim(const struct meeting *meeting, struct pulse_aim *aim);
/** A pulse was answered so long ago: a sign of life of the coordinator. */
void meeting_pulse(struct meeting *meeting, int64_t ago_ms);
/** What this node has in memory, as its next JOIN says it. */
void meeting_set_held(struct meeting *meeting, const struct restore_steps *held);
/** Returns the job's key (TLS_KEY_BYTES); NULL: clear text. */
const unsigned char *meeting_key(const struct meeting *meeting);
/** Fill in what the guard of this node needs to speak for it. Returns false unless this node is a member. */
bool meeting_will(const struct meeting *meeting, struct swept_will *will);

/**
 * Closes the meeting after queued messages have been sent. The memory is freed when the loop has run. No
 * callback follows. NULL is a no-op.
 */
void meeting_destroy(struct meeting *meeting);

/**
 * Call it once, right after meeting_create(): this agent has had `identity` before, and keeps it. Without the
 * call it has one of the meeting's own.
 */
void meeting_keep_identity(struct meeting *meeting, const unsigned char identity[PROTO_IDENTITY_BYTES]);

#endif
