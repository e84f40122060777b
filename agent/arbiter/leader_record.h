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
    LEADER_SUSPECTS = 7, /* the record has so many nodes at most: those that were lost most often */
    LEADER_RESTARTS = 9  /* the record has the times of so many restarts at most: the newest */
};

#define LEADER_TERMS ((uint64_t)INT64_MAX)

enum leader_state {
    LEADER_LEADS = 1,
    LEADER_ENDED, /* the run is over, with `exit_status` */
    /* the agent that took this term could not lead and began no generation; another may claim at once */
    LEADER_LEFT,
    /* the leader's agent was killed, and its guard has written that no process of its node is left */
    LEADER_SWEPT
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
    int32_t rank; /* the only rank whose part of the loss was NaN or infinite; -1: not known */
    char host[LEADER_DIVERGED_HOST_BYTES]; /* of that rank; may be empty */
};

/* A node that has been lost, or has a slow rank. */
struct leader_suspect {
    uint64_t name; /* a hash of the node's name; 0: this entry and those after it are empty */
    /* the rank because of which the node was set aside for `aside_s`; meaningless if `aside_s` is 0 */
    int32_t slow_rank;
    uint16_t aside_s;
    uint8_t strikes;
    bool stays; /* the node took part when this was written, or could have */
};

/* What another coordinator needs to go on. */
struct leader_progress {
    int32_t generation; /* the newest that began; -1: none did */
    /*
     * n_nodes: how many nodes the leader's newest generation has; 0: the leader of this record has formed
     * none, or it is not known. node_rank: the leader's own node rank in it.
     */
    int32_t n_nodes, node_rank;
    uint32_t n_restarts;      /* of the whole run */
    uint32_t n_restarts_left; /* restarts that were left when the record was written; UINT32_MAX: no limit */
    /*
     * restarts_s: how many seconds before publishing each of the newest restarts was, the last one first; 0:
     * just then, or unknown. published_s: how many seconds before the record was written that publishing was.
     */
    uint32_t restarts_s[LEADER_RESTARTS], published_s;
    int64_t step; /* step of the newest published checkpoint; -1: there is none */
    struct leader_failure failure;
    struct leader_divergence diverged;
    uint64_t leader; /* hash of the name of the leader's own node, as in a leader_suspect; 0: not known */
    struct leader_suspect suspects[LEADER_SUSPECTS];
};

struct leader_record {
    uint64_t run;      /* the run's number: identity_job() */
    uint64_t term;     /* from 1; below LEADER_TERMS */
    uint64_t sequence; /* 0: this is a claim; each later record of the term has a higher number */
    unsigned char identity[SESSION_IDENTITY_BYTES]; /* the leader's, as in its JOIN and WELCOME */
    char host[LEADER_HOST_BYTES]; /* where members reach the leader: an address in digits, or a name */
    int port;
    int64_t lease_ms; /* the leader's lease; positive. All agents judge this record by it */
    enum leader_state state;
    int exit_status;
    bool goes_on;  /* without the store, its leader may lead longer than its lease (lead.h) */
    bool unlocked; /* a free lock of the run directory does not prove that this leader's process is gone */
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
