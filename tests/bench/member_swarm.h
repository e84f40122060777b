/*
 * Many members of one job in one process: each is a session (agent/wire/session.h) of one pool. It joins and
 * answers as a node without workers would, and asks for its lease as agent/rendezvous/uplink does: by pulses,
 * and over its session while no pulse is answered.
 */
#ifndef TESTS_BENCH_MEMBER_SWARM_H
#define TESTS_BENCH_MEMBER_SWARM_H

#include <stdbool.h>
#include <uv.h>

#include "agent/config.h"
#include "agent/members/proto.h"
#include "agent/wire/tls.h"
#include "shard_runtime/core/table.h"

struct swarm_member {
    struct session *session;
    struct proto_join join; /* what it says of itself */
    struct swarm *swarm;
    struct table_entry at; /* in `welcomed`, by the name of its session */
    bool welcomed;
    uv_timer_t
        beat; /* LEASE_BEATS times in a lease, since its WELCOME; before it, the pause until it dials again */
    int64_t lease_ms, answered_ns;
    int64_t pulse_ms; /* when its last pulse was answered; 0: none was */
};

struct swarm {
    uv_loop_t loop;
    struct session_pool *pool;
    struct swarm_member *members; /* (capacity) */
    struct table welcomed;
    struct tls_mac_key *key; /* of pulses */
    int pulse_fd;            /* of all members */
    uv_poll_t pulses;
    int capacity, n; /* n: how many were begun */
    /* Counts since they were last set to 0 */
    int n_welcomed, n_started, n_stopped, n_again; /* n_again: dials that nobody answered in time */
    int n_beats;                                   /* questions ... */
    int n_asked;                   /* ... for which no pulse was answered, and which went over a session */
    double started_at, stopped_at; /* when the last of them was */
    clockid_t cpu;                 /* of the coordinator */
    /* its time, and how many beats had been counted, when all members had stopped, and had started */
    double stopped_cpu, started_cpu;
    int stopped_beats, started_beats;
    int generation, rank; /* of the last START; the rank is the first member's */
    const struct agent_config *config;
};

/** Open a swarm that can have `capacity` members. `config` is borrowed; its secret is the key. */
void swarm_open(struct swarm *swarm, const struct agent_config *config, int capacity);
/** Begin `n` more members. */
void swarm_join(struct swarm *swarm, int n);
/** A worker of the first member fails: the coordinator restarts the world. */
void swarm_fail(struct swarm *swarm);
/** Run the loop until *count is at least `wanted`; ends the bench after DEADLINE seconds. */
void swarm_await(struct swarm *swarm, const int *count, int wanted, const char *what);
/** Run the loop for so long. */
void swarm_idle(struct swarm *swarm, double seconds);
/** Drop every member at once, and close the swarm. */
void swarm_close(struct swarm *swarm);

#endif
