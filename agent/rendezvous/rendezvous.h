/*
 * The coordinator's end of the rendezvous (agent/rendezvous/meeting.h is the members' end). It listens at the
 * endpoint as long as the job lives. A callback decides whether a node that comes may join. The sessions of
 * nodes that joined (agent/wire/session.h) are kept by node number. A stranger that has no secret, is silent
 * or sends nonsense is cut off, and changes nothing.
 *
 * Callbacks run on the loop's thread. From within any callback every function here may be called.
 */
#ifndef AGENT_RENDEZVOUS_H
#define AGENT_RENDEZVOUS_H

#include <uv.h>

#include "agent/members/proto.h"
#include "agent/rendezvous/pulse_listener.h"
#include "agent/wire/endpoint.h"
#include "agent/wire/session.h"

struct rendezvous;

struct rendezvous_handlers {
    /*
     * Called when a node that has the secret asks to join, from `address`. Returns the node's number, 1 ...
     * capacity - 1; or -1, with the reason in *refused. If another session has that number, it is left
     * without a call of lost(): its node was given up, but its session had not ended.
     */
    int (*judge)(void *arg, const struct proto_join *join, const char *address,
                 struct proto_refused *refused);
    void (*joined)(void *arg, int node); /* frames may be sent to it */
    /* A frame from a node. Its payload is valid during the call. */
    void (*message)(void *arg, int node, const struct frame *frame);
    /*
     * The session of `node` has ended, as `why` says. Nothing had been heard from the node for `silent_ms`.
     */
    void (*lost)(void *arg, int node, int64_t silent_ms, const struct fsdp_err *why);
    /* A line for the log: who was refused, and why; or whose connection was replaced. */
    void (*note)(void *arg, const char *words);
    /*
     * The guard of agent `agent` reports that no process of that agent is left. Its node may still have a
     * session, or may be lost already.
     */
    void (*swept)(void *arg, const unsigned char agent[PROTO_IDENTITY_BYTES]);
    /*
     * Reports what is known of a node by its pulses: now and then, and once after its session has ended,
     * before lost(). May be NULL.
     */
    void (*told)(void *arg, int node, const struct pulse_told *told);
    /* Returns the `away_ns` for pulse_book_turned(). NULL: INT64_MAX. */
    int64_t (*away_ns)(void *arg);
    /*
     * The agent `identity` was restored from an earlier state, such as a snapshot of its machine. It is
     * refused for good.
     */
    void (*restored)(void *arg, const unsigned char identity[PROTO_IDENTITY_BYTES]);
};

/**
 * Listens on those of the addresses that belong to this host. `sessions` configures the sessions
 * (its handlers are not used). No node is admitted before rendezvous_serve(): one that asks is cut off,
 * and asks again.
 *   FSDP_ERR_BUSY       another process listens there already
 *   FSDP_ERR_NOT_FOUND  none of the addresses belongs to this host
 *   FSDP_ERR_IO         the system refused the request
 */
enum fsdp_status rendezvous_listen(struct rendezvous **out, uv_loop_t *loop,
                                   const struct endpoint_addresses *addresses,
                                   const struct session_config *sessions, struct fsdp_err *err);

/**
 * Admits nodes from now on, with numbers below `capacity`. Call it once.
 *   lead  decides whether beats are answered; NULL: all are
 */
enum fsdp_status rendezvous_serve(struct rendezvous *rendezvous, int capacity,
                                  const struct rendezvous_handlers *handlers, void *arg,
                                  const struct pulse_lead *lead, struct fsdp_err *err);

/** The loop turns: pulse_book_turned(). Only needed while no node has a session. */
void rendezvous_turn(struct rendezvous *rendezvous);
/** `node` has reported over its session which answer has reached it (pulse_book_heard()). */
void rendezvous_heard(struct rendezvous *rendezvous, int node, int64_t heard_ns);

/**
 * Send a message, the struct of its type (proto_encode()), or NULL if the type has none, to one node. No
 * effect if the node is gone.
 */
void rendezvous_send(struct rendezvous *rendezvous, int node, enum proto_type type, uint32_t generation,
                     const void *message);
/**
 * Sends a message as rendezvous_send() does, over a session, at either end. If there is no memory for the
 * message, nothing is sent.
 */
void rendezvous_tell(struct session *session, enum proto_type type, uint32_t generation, const void *message);
/** End the session of a node without a call of lost(). */
void rendezvous_drop(struct rendezvous *rendezvous, int node);

/**
 * Returns this host's numeric address for the other nodes: the one at which the last node that joined reached
 * this host. A node on this host may have come over loopback. Its address counts only while no node from
 * elsewhere has joined. Before any node has joined, it is the first address that is listened on, or
 * "127.0.0.1" if that means every address.
 */
const char *rendezvous_address(const struct rendezvous *rendezvous);

/** Returns the port that is listened on. */
int rendezvous_port(const struct rendezvous *rendezvous);

/**
 * Leaves every session, and destroys the rendezvous. If a node's connection is broken just then, its session
 * waits for the node to come back for its last messages. It waits up to 1.1 leases. No callback follows. NULL
 * is a no-op.
 */
void rendezvous_destroy(struct rendezvous *rendezvous);

#endif
