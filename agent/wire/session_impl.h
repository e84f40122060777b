/* Shared by session.c (one session) and session_pool.c (the sessions of one end, listeners, and time). */
#ifndef AGENT_SESSION_IMPL_H
#define AGENT_SESSION_IMPL_H

#include "agent/wire/peer.h"
#include "agent/wire/session.h"
#include "agent/wire/session_agents.h"
#include "agent/wire/session_core.h"

enum {
    SESSION_ATTEMPTS = 4, /* connections that one session may dial at the same time */
    SESSION_BUCKETS = 1024
};

/* Lines for the log, which are limited by their kind. */
enum session_notes { SESSION_NOTE_LINK, SESSION_NOTE_STRANGER, SESSION_NOTES };

struct session {
    struct session_pool *pool;
    struct session_core core;
    struct session *next, **link; /* in the pool's list */
    struct session *same, **from; /* place in the list of its bucket; from NULL: it is in no list */
    struct peer *peer;            /* the current connection; NULL: none */
    uint64_t n_heard; /* bytes that had come over `peer` when the session last compared this number */
    int n_peers;      /* connections whose closed() has not been called yet */

    /* of a session that dials */
    /* the address by which the other end was reached last comes first */
    struct endpoint_addresses addresses;
    /* the agent of this end; for an accepted session, that of the other end */
    unsigned char agent[SESSION_IDENTITY_BYTES];
    struct session_attempt {
        struct peer *peer;
        int address;
        int64_t dialled_ns;
    } attempts[SESSION_ATTEMPTS]; /* oldest first */
    int n_attempts;
    int current;   /* the address of the current connection */
    int n_dialled; /* since the last connection that served */
    int64_t dial_at_ns, answer_by_ns;
    bool refused; /* the last dial to the address that served was refused: no process listens there */
    /* before opened(): a known address did not refuse, or another address accepted a connection */
    bool met;

    bool proven; /* for an accepted session: each of its connections must prove `agent` */
    bool dials, admitted, leaving, over;
    bool counted; /* in the pool's n_well */
    bool opened;  /* both ends have heard from each other */
    /* nothing was heard for a quarter of the lease, and the connection has not recovered since */
    bool suspect;
    /* the last sign of life before the connection broke or fell silent; 0: there is no trouble */
    int64_t trouble_ns;
    bool failed;         /* a frame could not be kept: the session ends at the next look */
    int64_t leave_by_ns; /* of a session that leaves */
    struct fsdp_err why; /* the reason why a connection broke last */
    void *data;
    char name[80];
};

struct session_pool {
    uv_loop_t *loop;
    struct session_config config;
    struct tls_context *tls; /* NULL: clear text */
    struct peer_config peers;
    unsigned char scratch[PEER_SCRATCH_BYTES]; /* of all peers */
    struct peer_listener *listeners[ENDPOINT_MAX_ADDRESSES];
    int n_listeners;
    int n_well; /* admitted sessions whose connection serves */
    /*
     * How often the time for the first handshake was doubled. A coordinator that thousands of nodes dial at
     * once may take longer than that time. A node that gave up would go back to the end of the queue.
     */
    int patience;
    struct session *all;
    struct session *buckets[SESSION_BUCKETS]; /* by identity */
    struct session_agents agents;             /* that have proven their identity */
    int n_peers;                              /* connections whose closed() has not been called yet */
    /*
     * libuv runs timers before it polls. So the timer only asks for a look, which the check handle takes
     * after everything that had arrived was read. The idle handle keeps that poll from waiting.
     */
    uv_timer_t timer;
    uv_idle_t idle;
    uv_check_t check;
    int n_open; /* handles whose memory the loop still holds */
    struct session_note_limit {
        int n; /* lines in the hour that began then */
        int64_t began_ns;
    } notes[SESSION_NOTES];
    bool closing, walking, handles_closed;
};

/* session_pool.c */

/** Returns the current time, by which sessions are judged. It is read fresh, and is not the loop's time. */
int64_t session_now_ns(void);
struct session *session_make(struct session_pool *pool, const unsigned char identity[SESSION_IDENTITY_BYTES],
                             struct fsdp_err *err);
/** No HELLO finds the session any more. */
void session_forget(struct session *session);
/**
 * Frees the session if it is over and nothing points to it. Then frees the pool if it is closed and this was
 * its last session.
 */
void session_reap(struct session *session);
/** The other end has said which lease counts for both ends, for a pool that dials. */
void session_pool_take_lease(struct session_pool *pool, int64_t lease_ms);
/**
 * The state of a session has changed: tells the listeners how many sessions have no connection, because so
 * many connections are expected.
 */
void session_pool_count(struct session *session);
/** That agent was restored from an earlier state: refuses it for good, and reports that. */
void session_pool_refuse(struct session_pool *pool, const unsigned char agent[SESSION_IDENTITY_BYTES]);
void session_pool_note(struct session_pool *pool, enum session_notes kind, const char *words);

/* session.c */

/** Begin one more connection. */
void session_dial_next(struct session *session, int64_t now_ns);
/** A connection of this session has opened: say HELLO. */
void session_attempt_opened(struct session *session, struct peer *peer);
/**
 * A HELLO for this session came on `peer`, whose data is NULL: answers it, and moves the session to that
 * connection if the HELLO fits.
 */
void session_take_hello(struct session *session, struct peer *peer, const struct session_hello *hello);
/** A frame came on a connection of this session: handles it. */
void session_take_frame(struct session *session, struct peer *peer, const struct frame *frame);
/** Writes the frames that wait, while the connection's queue is short. */
void session_pump(struct session *session);
void session_peer_closed(struct session *session, struct peer *peer, const struct fsdp_err *why);
/** Judges the session after time has passed and everything that had arrived was read. */
void session_look(struct session *session, int64_t now_ns);
/** Write a frame with a hello on a connection. */
void session_write_hello(struct peer *peer, uint16_t type, const struct session_hello *hello);

#endif
