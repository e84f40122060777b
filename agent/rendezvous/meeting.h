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
     * Called when this node hosts. `rendezvous` listens, and belongs to the callee. `where` is a text for
     * people: the endpoint, and whether the node listens on every address.
     */
    void (*hosts)(void *arg, struct rendezvous *rendezvous, const char *where);
    /*
     * Called when this node has the endpoint and listens; other nodes reach it at `host` and `port`. The
     * caller of meeting_create() must later call meeting_lead() or meeting_follow(). NULL: there is no
     * arbiter, and hosts() is called at once. A return value of false ends the meeting.
     */
    bool (*offers)(void *arg, const char *host, int port);
    void (*welcomed)(void *arg, const struct proto_welcome *welcome, const char *address);
    void (*message)(void *arg, const struct frame *frame);
    /*
     * The session has ended, as `why` says (struct session_handlers). With FSDP_ERR_PEER the coordinator may
     * still live: it and this node have not heard from each other for a lease, and each treats the other as
     * lost.
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
 * Call it before the first meeting_again() of a node that has led: it belongs to the run `run`, and other
 * nodes reach it at `host`.
 */
void meeting_resume(struct meeting *meeting, const unsigned char run[PROTO_IDENTITY_BYTES], const char *host);
/**
 * Call it after lost(): joins the same coordinator again, or another one of the run, as if this node were
 * new. It waits as long as a new node does. The numbers are those for struct proto_join.
 */
void meeting_again(struct meeting *meeting, int last_generation, int last_node_rank);

/**
 * After meeting_again(): listen, at the endpoint's port if it is free, because this node may come to lead. It
 * listens until WELCOME or meeting_follow(). Until WELCOME, the meeting goes on even if the coordinator's
 * process has ended. Returns the address at which other nodes reach this one; owned by the meeting.
 *   FSDP_ERR_IO  it cannot listen
 */
enum fsdp_status meeting_offer(struct meeting *meeting, const char **host, int *port, struct fsdp_err *err);
/** This node leads, and none of its ranks runs. Calls hosts() from within, or failed(). */
void meeting_lead(struct meeting *meeting);
/**
 * Another node leads, at that address: this node joins it there, unless it is a member already. Some rounds
 * still try the endpoint.
 */
void meeting_follow(struct meeting *meeting, const char *host, int port);

/** Send a message (rendezvous_send()) to the coordinator. No effect unless this node is a member. */
void meeting_send(struct meeting *meeting, enum proto_type type, uint32_t generation, const void *message);
/**
 * `n` processes of this node do not end although they were killed (struct reporter). A member tells its
 * coordinator at once; otherwise the next JOIN says it.
 */
void meeting_set_unkilled(struct meeting *meeting, int n);
/** Is this node a member whose connection is open? */
bool meeting_is_member(const struct meeting *meeting);
/**
 * Fill in where pulses go: session and address of the coordinator. Returns false, with nothing filled in,
 * unless this node is a member.
 */
bool meeting_aim(const struct meeting *meeting, struct pulse_aim *aim);
/** A pulse was answered `ago_ms` ago: this counts as a sign of life of the coordinator. */
void meeting_pulse(struct meeting *meeting, int64_t ago_ms);
/** Sets what this node has in memory; its next JOIN reports it. */
void meeting_set_held(struct meeting *meeting, const struct restore_steps *held);
/** Returns the job's key (TLS_KEY_BYTES). NULL: there is no key, and messages are clear text. */
const unsigned char *meeting_key(const struct meeting *meeting);
/**
 * Fill in what the guard of this node needs to speak to the coordinator. Returns false unless this node is a
 * member.
 */
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
