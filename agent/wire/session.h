/*
 * Sessions between two agents (agent/wire/session_core.h) over connections (agent/wire/peer.h). A pool holds
 * the sessions of one end: the coordinator's accepts them, a member's dials one.
 *   - A connection that breaks is replaced. The end that dialled it dials again at once, and then every lease
 *     / 12. It also does so while its connection has been silent for a quarter of the lease. The reason is
 *     TCP's own back-off: it makes a cut of 2 s a silence of 3.3 s. A host that has accepted a connection
 *     gets a third of the lease for the handshake before the next dial.
 *   - Frames that the other end has not acknowledged are sent again. Neither end loses or repeats a frame.
 *   - A session ends when nothing was heard for a lease, when the other end leaves, or when it no longer
 *     knows the session. If the other end's process dies, its kernel closes the connection in order; a
 *     session of which no connection comes back within a tenth of the lease has then ended.
 *   - An accepted session ends with its first connection until session_admit() is called for it.
 *   - With a key, the handshake of each connection proves the identity of the agent that dials. A HELLO of
 *     another agent's session is dropped. An agent that was restored from an earlier state is refused for
 *     good (agent/wire/session_agents.h). Without a key a session is known by its name alone, and ends if its
 *     numbers go back; the agent may come again.
 *
 * All functions must be called on the loop's thread. Any callback may call any function of this header.
 */
#ifndef AGENT_SESSION_H
#define AGENT_SESSION_H

#include "agent/wire/endpoint.h"
#include "agent/wire/frame.h"
#include "agent/wire/session_hello.h"

struct session;
struct session_pool;

struct session_handlers {
    /* The other end is there, and frames may be sent. Comes once. May be NULL. */
    void (*opened)(void *arg, struct session *session);
    void (*frame)(void *arg, struct session *session, const struct frame *frame);
    /*
     * The session is over, and no longer exists after this call. Called once, as the last callback; not
     * called after session_leave() or session_drop().
     *   FSDP_OK             the other end has left
     *   FSDP_ERR_NOT_FOUND  no process listens there any more, or none has yet
     *   FSDP_ERR_PEER       nothing was heard for the lease, or the other end has given the session up
     *   FSDP_ERR_MISMATCH   one end was restored from an earlier state: the other refuses it for good
     */
    void (*ended)(void *arg, struct session *session, const struct fsdp_err *why);
    /* A line for the log: a connection was replaced, or a stranger was dropped. */
    void (*note)(void *arg, const char *words);
    /*
     * The guard of agent `agent` reports that no process of that agent is left (agent/wire/swept.h). A
     * session with the agent may still exist. Only for a pool that listens. May be NULL.
     */
    void (*swept)(void *arg, const unsigned char agent[SESSION_IDENTITY_BYTES]);
    /*
     * The agent that has proven this identity was restored from an earlier state. It is refused for good. May
     * be NULL.
     */
    void (*refused)(void *arg, const unsigned char agent[SESSION_IDENTITY_BYTES]);
    /*
     * The sessions are judged right after this call. The callee passes on the pulses that have arrived, by
     * session_pulse(). May be NULL.
     */
    void (*looks)(void *arg);
};

struct session_config {
    /* (TLS_KEY_BYTES), copied; NULL: clear text, for which the user must have asked */
    const unsigned char *key;
    uint64_t job;     /* the number in every frame */
    int64_t lease_ms; /* the accepting end's holds for both ends */
    /* for a pool that listens: how many sessions will come, perhaps all at once, and come back after a cut */
    int n_expected;
    struct session_handlers handlers;
    void *arg;
};

/**
 * Create a pool without sessions.
 *   listens  its sessions are accepted by listeners; false: they are dialled
 *   config   copied
 */
enum fsdp_status session_pool_create(struct session_pool **out, uv_loop_t *loop, bool listens,
                                     const struct session_config *config, struct fsdp_err *err);

/** Listen on one more address, up to ENDPOINT_MAX_ADDRESSES. Errors as those of peer_listen(). */
enum fsdp_status session_pool_listen(struct session_pool *pool, const struct sockaddr *address,
                                     struct fsdp_err *err);

/**
 * Drop all sessions but those that are leaving. No callback follows. The listeners stay until the leaving
 * sessions have ended, so that their other ends can still come back. Close callbacks free the pool. NULL is
 * a no-op.
 */
void session_pool_close(struct session_pool *pool);

/**
 * Begin a session that dials. It tries each address once, one after another, and ends if none answers.
 *   agent      the identity that its connections prove: that of this agent as long as it lives
 *   addresses  copied; at least one. Some of them may have led to the other end before (n_known). If now all
 *              of these refuse, and no other address accepts a connection, the other end is gone
 *              (FSDP_ERR_NOT_FOUND). Other addresses may never have led to it
 */
enum fsdp_status session_dial(struct session **out, struct session_pool *pool,
                              const unsigned char agent[SESSION_IDENTITY_BYTES],
                              const struct endpoint_addresses *addresses, struct fsdp_err *err);

/**
 * The caller has found that the other end belongs to the job. From now on the session outlives its
 * connection, and accepts large frames. A session that dials needs no call.
 */
void session_admit(struct session *session);

/**
 * Send one frame. If SESSION_HELD_MAX_BYTES wait for the other end, the session ends. No effect on a session
 * that is leaving.
 */
void session_send(struct session *session, uint16_t type, uint32_t generation, const void *payload,
                  size_t size_bytes);

/**
 * End the session in order: the other end receives everything that was sent, and then learns that this end
 * has left. The caller must not use the session any more. The pool keeps it until the other end has
 * acknowledged all, for 1.1 leases at most.
 */
void session_leave(struct session *session);
/** End the session at once. The caller must not use it any more. */
void session_drop(struct session *session);

/**
 * Has the other end of an accepted session proven this identity? Without a key nothing is proven, and every
 * identity is believed.
 */
bool session_is_of(const struct session *session, const unsigned char agent[SESSION_IDENTITY_BYTES]);

/** Two functions: set a pointer that belongs to the caller, and get it. It is NULL at first. */
void session_set_data(struct session *session, void *data);
void *session_data(const struct session *session);
/** For a session that dials: returns the address that last led to the other end; NULL: none has. */
const struct sockaddr_storage *session_served(const struct session *session);
/** Returns the random number that names the session. Only its two ends know it. */
const unsigned char *session_identity(const struct session *session);
/** Returns the session with that name, unless it is over; NULL: there is none. */
struct session *session_pool_find(struct session_pool *pool,
                                  const unsigned char identity[SESSION_IDENTITY_BYTES]);
/** Another channel than the connection has brought a sign of life, `ago_ms` ago (session_core_pulse()). */
void session_pulse(struct session *session, int64_t ago_ms);
/** Returns for how long nothing was heard from the other end. */
int64_t session_silent_ms(const struct session *session);
/** Returns the address and port of the other end as text, "10.0.0.2:4312"; "?" if none has answered. */
const char *session_name(const struct session *session);
/**
 * Print the address of the other end (or, `ours`, of this end) of the current connection, without its port;
 * "?" if there is none.
 */
void session_address(const struct session *session, bool ours, char *out, size_t size);
/** Returns the port on which the first listener of the pool listens. */
int session_pool_port(const struct session_pool *pool);

#endif
