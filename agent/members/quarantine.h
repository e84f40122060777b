/*
 * Nodes that come and go, or are slow. In a world that may be smaller, a node that is lost costs all others a
 * new generation, and so does its return. A node that was lost often is therefore not taken in at once: it
 * waits, longer each time.
 *
 *   1. Each loss of a node that took part is a strike. A node that its user stops gets none.
 *   2. A node with s strikes that comes waits 0 s for s = 1, then 10, 20, 40, ... s, at most 600 s.
 *   3. For each 10 minutes in which the node may take part, one strike is forgotten at its next loss.
 *   4. A node that was put aside because of a slow rank waits for the rest of that time when it comes again.
 *
 * So a world with one such node starts at most 4 + 2 log2(1 + t / 10) generations in the first t seconds. In
 * 60 s these are 9. That holds up to 20 minutes; from then on it starts two in 10 minutes.
 *
 * A node is known by its host name, its address, and its numbers from the scheduler and the user
 * (--node-rank). Its identity is a new one each time. Several agents of one host may agree in all of these.
 * Each of them has an entry of its own while it is there, and keeps it when it is lost. The next one that
 * comes takes the entry that is free and was lost last, because a node that flaps comes back before others
 * do. If two such agents are away at the same time, one may get the strikes of the other.
 *
 * Another coordinator goes on with the notes of this one (quarantine_note(), quarantine_restore()). A node
 * that was there when the coordinator was lost does not wait because it comes to the next one. A node that
 * was waiting waits from the beginning, because clocks of hosts are not compared.
 *
 * Pure: the caller passes the time, by a clock that never goes back.
 */
#ifndef AGENT_QUARANTINE_H
#define AGENT_QUARANTINE_H

#include <stdint.h>

#include "agent/members/roster.h"

enum {
    QUARANTINE_FIRST_MS = 10000,
    QUARANTINE_MOST_MS = 600000,
    QUARANTINE_FORGET_MS = 600000,
    /* nodes that are remembered; beyond that, the node whose loss is longest ago is forgotten */
    QUARANTINE_NODES = 1024
};

struct quarantine_node {
    uint64_t name; /* a hash of the host name, address and numbers by which the node is known */
    int number;    /* the node's number in the roster; -1: it is absent */
    bool stays;    /* the node is only on its way from the coordinator before to this one */
    int strikes;
    int64_t lost_ms;
    int64_t free_ms;  /* from when on the node may take part; meaningless while it is absent */
    int64_t aside_ms; /* until when the node was put aside; 0: it never was */
    int slow_rank;    /* ... because this rank was slow */
};

/* What another coordinator goes on with. */
struct quarantine_note {
    uint64_t name;
    int strikes;
    bool stays;       /* it is there, and does not wait */
    int64_t aside_ms; /* how long the node was still put aside; 0: it was not */
    int slow_rank;
};

/* Why a node has to wait. */
struct quarantine_why {
    int strikes;
    /* the slow rank because of which the node was put aside; -1: it was put aside because of its strikes */
    int slow_rank;
};

struct quarantine {
    struct quarantine_node *nodes; /* (n), allocated */
    int n, capacity;
};

/** Free what quarantine_lost() allocated. */
void quarantine_fini(struct quarantine *quarantine);
/**
 * Count the loss of a node that took part; `number` is its number in the roster. If there is no memory for
 * it, the loss is not counted.
 */
void quarantine_lost(struct quarantine *quarantine, int number, const struct roster_node *node,
                     int64_t now_ms);
/**
 * The node `number` takes no part for `aside_ms`, because a rank of it is slow. If there is no memory for
 * that, it does not wait when it comes again.
 */
void quarantine_put_aside(struct quarantine *quarantine, int number, const struct roster_node *node,
                          int slow_rank, int64_t now_ms, int64_t wait_ms);
/**
 * The node `number` has left, and its number is free. No effect after quarantine_lost(), or if the node is
 * unknown.
 */
void quarantine_gone(struct quarantine *quarantine, int number);
/**
 * A node has come.
 *   number   in the roster, until quarantine_gone() or quarantine_lost()
 *   why      receives its strikes, and the slow rank for which it was put aside
 * Returns how many milliseconds it has to wait before it may take part; 0: it need not wait.
 */
int64_t quarantine_came(struct quarantine *quarantine, int number, const struct roster_node *node,
                        int64_t now_ms, struct quarantine_why *why);

/** Returns the name (a hash) by which a node is known; never 0. */
uint64_t quarantine_name(const struct roster_node *node);
/**
 * Write up to `most` notes about nodes for another coordinator: first nodes that were put aside, then those
 * with the most strikes. Returns how many.
 */
int quarantine_notes(const struct quarantine *quarantine, int64_t now_ms, struct quarantine_note *notes,
                     int most);
/** Take a note that an earlier coordinator wrote. If there is no memory for it, it is dropped. */
void quarantine_restore(struct quarantine *quarantine, const struct quarantine_note *note, int64_t now_ms);
/**
 * Count a strike for the node with that name: it was lost together with the earlier coordinator, which led
 * there.
 */
void quarantine_lost_leader(struct quarantine *quarantine, uint64_t name, int64_t now_ms);

#endif
