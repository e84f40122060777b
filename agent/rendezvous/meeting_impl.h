/*
 * Shared by the files of a meeting:
 *   meeting.c          looks for the others in rounds, until the time is over: what the others do not own
 *   meeting_member.c   the session with the node that hosts: served, coordinator, session, welcomed, bound,
 *                      host, run, refused_ms, joined_unkilled
 *   meeting_host.c     decides whether this node hosts, and listens: offer, stands, leader
 */
#ifndef AGENT_MEETING_IMPL_H
#define AGENT_MEETING_IMPL_H

#include "agent/rendezvous/meeting.h"
#include "agent/wire/lookup.h"
#include "agent/wire/tls.h"

enum { MEETING_FIRST_PAUSE_MS = 100 };

struct meeting {
    uv_loop_t *loop;
    const struct agent_config *config;
    struct meeting_handlers handlers;
    void *arg;
    /*
     * Where the nodes meet. Port 0: there is no endpoint, and `host` is a server (etcd) that shows this node
     * its own address.
     */
    struct endpoint endpoint;
    /* address of the leader that the arbiter named last; port 0: it has named none */
    struct endpoint leader;
    unsigned n_rounds; /* rounds since the arbiter named it; even rounds dial that address */
    /* listens in case this node comes to lead; NULL: this node makes no such offer */
    struct rendezvous *offer;
    struct proto_join self;
    int joined_unkilled; /* self.n_unkilled of the last JOIN */
    struct session_config sessions;
    unsigned char key[TLS_KEY_BYTES];

    struct lookup *lookup;               /* the lookup of the endpoint's name while it runs; else NULL */
    uv_timer_t timer;                    /* runs until the next round is due */
    struct endpoint_addresses addresses; /* addresses of the current round */
    struct endpoint_addresses served;    /* the addresses at which this node has reached its coordinator */
    unsigned char coordinator[PROTO_IDENTITY_BYTES]; /* of the last WELCOME */
    struct session_pool *pool;                       /* NULL until this node dials for the first time */
    struct session *session;                         /* of the current round; NULL: none */

    /* when the meeting began and must end; deadline 0: no limit, because this node was let in before */
    uint64_t began_ms, deadline_ms;
    /* since then, no round has met a process that listens; 0: the last round met one */
    uint64_t refused_ms;
    int64_t pause_ms;
    bool welcomed, bound, over, destroyed, told;
    bool again; /* this node was a member of a coordinator, and they have lost each other */
    /* this node has made an offer since then, so the arbiter may give it the lead, or name another leader */
    bool stands;
    /* the process that answered belongs to another job or program, so more waiting is useless */
    bool fatal;
    unsigned char run[PROTO_IDENTITY_BYTES]; /* of the last WELCOME */
    char address[PROTO_TEXT_BYTES];          /* where other nodes reach this one; empty: it is not known */
    char host[PROTO_TEXT_BYTES], last_words[FSDP_ERR_MESSAGE_BYTES + 64];
};

/* In meeting.c */

/** Ends the meeting with a failure. No effect if it is over. */
void meeting_fail(struct meeting *meeting, int status, const char *words);
/** Do the nodes meet at an endpoint? Otherwise only the arbiter says where. */
bool meeting_has_endpoint(const struct meeting *meeting);
/**
 * Returns the address that the current round dials. Port 0: none, because the arbiter has not named a leader
 * yet.
 */
const struct endpoint *meeting_place(const struct meeting *meeting);
/** Returns how long the meeting still waits, in ms. Meaningless once this node is let in. */
uint64_t meeting_left_ms(const struct meeting *meeting);
/** This node meets the others from now on, for as long as the configuration says. */
void meeting_begin_anew(struct meeting *meeting);
/** This round has led to no coordinator: the next one follows after a pause. `tell_now`: say so at once. */
void meeting_end_round(struct meeting *meeting, bool tell_now);
/** Begins the next round, or gives up if the time is over. */
void meeting_on_timer(uv_timer_t *timer);
/** Ends what this round has begun, if the round has not led to a coordinator. */
void meeting_end_attempt(struct meeting *meeting);

/* In meeting_member.c */

/** What the session reports; `arg` is the struct meeting. */
extern const struct session_handlers meeting_session_handlers;

/* In meeting_host.c */

/**
 * Returns whether nodes on other hosts can reach the endpoint. A loopback endpoint serves this host alone.
 */
bool meeting_is_open_to_others(const struct meeting *meeting);
/**
 * Returns whether this node may host because it has the endpoint. Once there was a leader, only the arbiter
 * decides who is next.
 */
bool meeting_hosts_by_endpoint(const struct meeting *meeting);
/**
 * Tries to become the host. Returns true if this node hosts now, or listens and waits for the arbiter's
 * decision.
 */
bool meeting_become_host(struct meeting *meeting);
/**
 * Does the address of this round belong to this node's own offer? Dialling it must be avoided: if this node
 * came to lead at that moment, it would let itself in as another node.
 */
bool meeting_leads_here(const struct meeting *meeting);
/**
 * Makes an offer to host, if there is no endpoint and this node was never let in. It does so even while it
 * dials a leader that the arbiter named, because that leader may be gone. Returns false if the meeting is
 * over.
 */
bool meeting_offer_without_endpoint(struct meeting *meeting);
/** Ends the offer to host, if there is one. */
void meeting_end_offer(struct meeting *meeting);

#endif
