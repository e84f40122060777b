/*
 * The record that an arbiter keeps of who leads a run. A leader writes it again and again, with a higher
 * sequence each time; others see it change. A claim, by which an agent takes a term, is a record too, with
 * sequence 0: the first of its term.
 *
 * Encoded, it has a fixed size and order of bytes, so one write stores it, and hosts of any kind read it.
 *
 * Pure: no files, no clock.
 */
#ifndef AGENT_LEADER_RECORD_H
#define AGENT_LEADER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/wire/session_hello.h"

enum {
    LEADER_RECORD_BYTES = 640,
    LEADER_HOST_BYTES = 256,
    LEADER_DIVERGED_HOST_BYTES = 65,
    LEADER_SUSPECTS = 7, /* of more nodes, the record has those that were lost most often */
    LEADER_RESTARTS = 9  /* of more restarts, it has the times of the newest */
};

#define LEADER_TERMS ((uint64_t)INT64_MAX)

enum leader_state {
    LEADER_LEADS = 1,
    LEADER_ENDED, /* the run is over, with `exit_status` */
    LEADER_LEFT,  /* the agent that took this term could not lead: no generation began, and another may */
    LEADER_SWEPT  /* the leader's agent was killed, and its guard says so: no process of its node is left */
};

/* The last failure of the job, and how often it came in a row. All zero: there was none. */
struct leader_failure {
    int64_t step;
    int32_t kind, code, phase;
    uint32_t n; /* below 65536 */
};

/*
 * The last divergence of training that was tried again, until its step has passed. All zero: there is none.
 */
struct leader_divergence {
    int64_t step;
    int32_t generation, world_size;
    int32_t rank; /* the only one whose part of the loss was NaN or infinite; -1: not known */
    char host[LEADER_DIVERGED_HOST_BYTES]; /* of that rank; may be empty */
};

/* A node that has been lost, or has a slow rank. */
struct leader_suspect {
    uint64_t name; /* a hash of what it is known by; 0: this entry is none, and neither are those after it */
    int32_t slow_rank; /* it was put aside because of this rank, and so long; meaningless if `aside_s` is 0 */
    uint16_t aside_s;
    uint8_t strikes;
    bool stays; /* it took part, or could, when this was written */
};

/* What another coordinator needs to go on. */
struct leader_progress {
    int32_t generation; /* the newest that began; -1: none did */
    /*
     * Of that generation, if the leader of this record has formed it itself: how many nodes it has, and the
     * leader's own rank among them. 0 nodes: this is not known.
     */
    int32_t n_nodes, node_rank;
    uint32_t n_restarts;      /* of the whole run */
    uint32_t n_restarts_left; /* when the record was written; UINT32_MAX: without a bound */
    /*
     * How many seconds ago the newest restarts were, the last one first, when this was published; 0: just
     * then, or unknown. And how many seconds ago that was when the record was written.
     */
    uint32_t restarts_s[LEADER_RESTARTS], published_s;
    int64_t step; /* of the newest published checkpoint; -1: there is none */
    struct leader_failure failure;
    struct leader_divergence diverged;
    uint64_t leader; /* the name of the leader's own node, as that of a suspect; 0: unknown */
    struct leader_suspect suspects[LEADER_SUSPECTS];
};

struct leader_record {
    uint64_t run;      /* the run's number: identity_job() */
    uint64_t term;     /* from 1; below LEADER_TERMS */
    uint64_t sequence; /* 0: a claim; each record that is written after it has a higher one */
    unsigned char identity[SESSION_IDENTITY_BYTES]; /* the leader's, as in its JOIN and WELCOME */
    char host[LEADER_HOST_BYTES]; /* where members reach the leader: an address in digits, or a name */
    int port;
    int64_t lease_ms; /* the leader's; positive. It holds for all who judge this record */
    enum leader_state state;
    int exit_status;
    bool goes_on;  /* without the store, its leader may lead longer than its lease (lead.h) */
    bool unlocked; /* a lock that is free does not show that its leader's process is gone */
    struct leader_progress progress;
};

/** Is `record` a later one than `than`: of a higher term, or of the same term with a higher sequence? */
bool leader_record_is_later(const struct leader_record *record, const struct leader_record *than);

/** Encode a record, with its checksum. `host` has a zero at its end. */
void leader_record_encode(const struct leader_record *record, unsigned char out[LEADER_RECORD_BYTES]);

/**
 * Decode what was stored, which may be anything. Returns false if it is no whole record of this version: it
 * was cut, torn, changed, or never one. Then the contents of `out` are undefined.
 */
bool leader_record_decode(struct leader_record *out, const void *bytes, size_t n_bytes);

#endif
