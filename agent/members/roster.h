/*
 * Who is in a job: the nodes that are there, which of them form the running generation, and the ranks they
 * have in it. The coordinator keeps the roster. Its own node has the number 0. Every other node gets a number
 * when it is let in.
 *
 * A seat is a node's place in the order of ranks, 0 ... max_nodes - 1. A node keeps its seat as long as it is
 * there. If it comes back and its seat is still free, it gets the same seat again. Group ranks count the
 * taken seats without the gaps.
 *
 * Seats are given by the first of these that applies, so that the same nodes have the same ranks in every
 * run:
 *   1. the node's --node-rank;
 *   2. the place that the node had under an earlier coordinator of the run;
 *   3. the number that the cluster's scheduler gives to a node, if every node has one and no two are
 *      equal;
 *   4. the host's node first, then the others by name and address.
 *
 * The ranks of a generation follow the seats. In a job of the trainer the host's node has a seat before all
 * others, and comes first, whatever its seat. Rank 0 writes the head of its checkpoints, which the
 * coordinator publishes.
 *
 * roster.c lets nodes in and out and counts them. roster_seat.c gives seats and ranks.
 *
 * Pure: no sockets, no loop, no clock.
 */
#ifndef AGENT_ROSTER_H
#define AGENT_ROSTER_H

#include <stdbool.h>

#include "agent/members/proto.h"
#include "shard_runtime/core/table.h"

enum {
    ROSTER_SPARES = 64,        /* nodes beyond max_nodes that may wait */
    ROSTER_MAX_WORKERS = 4096, /* workers of one node; an int can count the workers of all nodes */
    ROSTER_NAME_BYTES = 2 * PROTO_TEXT_BYTES + 8
};

struct roster_node {
    struct proto_join who;
    char address[PROTO_TEXT_BYTES]; /* address at which the other nodes reach this node */
    char from[64];                  /* address from which this node's connection comes */
    bool present;
    bool active; /* the node takes part in the running generation, or took part until it was lost */
    /* the node wants to leave: it takes part until the generation is over, and in no later one */
    bool leaving;
    /*
     * the node is in quarantine, or its processes do not end: it takes part in no further generation until
     * roster_release()
     */
    bool held;
    int seat; /* -1: none yet */
    unsigned arrival;
    /* Places in the generation, valid if active. */
    int node_rank, first_rank, role_rank, role_world_size;
};

/* A seat, and the node that has it or had it last. */
struct roster_seat {
    int node;  /* -1: none */
    int asked; /* the node without a seat that asked for this seat by --node-rank; -1: none */
    char host[PROTO_TEXT_BYTES];
    int order;
};

struct roster {
    int min_nodes, max_nodes;
    unsigned char run[PROTO_IDENTITY_BYTES]; /* names the run, see struct proto_welcome */
    bool seated;                             /* seats have been given at least once: the job has run */
    /* seats were given by an earlier coordinator, and not yet by this one */
    bool continues;
    int capacity; /* length of `nodes` */
    unsigned n_arrived;
    int n_nodes, world_size; /* sizes of the generation */
    struct roster_node *nodes;
    struct roster_seat *seats; /* (max_nodes) */
    /* (capacity) the entries that `identities` links */
    struct table identities;
    struct roster_identity {
        struct table_entry entry;
        bool listed;
    } * entries; /* (capacity) of the table; not in `nodes`, because the table links different nodes */

    /*
     * Kept up to date by the functions below. Only roster_clear() and roster_seat(), which run once a
     * generation, look at all nodes. The others take the same time for any number of nodes.
     */
    int n_staying;      /* nodes that are present, not in quarantine, and do not want to leave */
    int n_staying_here; /* those of them that are active */
    int n_free;
    int *free_numbers; /* (capacity) the first n_free are free numbers; the last of these is given next */
    int *sorting;      /* (capacity + max_nodes) scratch of roster_seat() */
    uint64_t n_looked; /* nodes and seats looked at so far, and pairs of them compared: the cost, for tests */
};

/**
 * Begins a roster that has only the coordinator's own node, as number 0.
 *   self     the description of that node, which also has the limits on nodes
 *   address  where other nodes reach it, unless `self` names an address
 * After FSDP_ERR_NOMEM nothing must be freed.
 */
enum fsdp_status roster_init(struct roster *roster, const struct proto_join *self, const char *address,
                             struct fsdp_err *err);
/**
 * The run was begun by an earlier coordinator. Call it after roster_init().
 *   run     the name of the run
 *   seated  that coordinator had given seats
 */
void roster_continue(struct roster *roster, const unsigned char run[PROTO_IDENTITY_BYTES], bool seated);
/** Free what roster_init() took. */
void roster_fini(struct roster *roster);

/**
 * May this node join? If not, `refused` receives the reason, which names both nodes, and the exit status for
 * the node.
 *   address  where its connection comes from
 */
bool roster_judge(const struct roster *roster, const struct proto_join *join, const char *address,
                  struct proto_refused *refused);

/** Let a node in that roster_judge() has accepted. Returns its number. */
int roster_add(struct roster *roster, const struct proto_join *join, const char *address);
/**
 * Returns the number of the node that is present with this identity: the same agent has joined before. -1:
 * there is none, or it is the coordinator's own.
 */
int roster_find(const struct roster *roster, const unsigned char identity[PROTO_IDENTITY_BYTES]);
/**
 * Holds a node back: until roster_release() it counts as absent, and gets no seat. If it takes part in the
 * running generation, it does so until that is over, and then loses its seat.
 */
void roster_hold(struct roster *roster, int node);
/** Ends roster_hold(): the node may take part again. */
void roster_release(struct roster *roster, int node);
/** The node wants to leave. A second call changes nothing. */
void roster_leave(struct roster *roster, int node);
/**
 * The node is gone. No other node gets its number while it is active in the running generation. A second call
 * changes nothing.
 */
void roster_remove(struct roster *roster, int node);
/** Returns the present node that has seat `node_rank`, or has asked for it; NULL: there is none. */
const struct roster_node *roster_holder(const struct roster *roster, int node_rank);

/** Is the node present, not in quarantine, and does not want to leave? */
static inline bool roster_stays(const struct roster_node *node)
{
    return node->present && !node->leaving && !node->held;
}

/** Is the run a job of the trainer? Otherwise it runs a program. */
static inline bool roster_is_job(const struct roster *roster)
{
    return roster->nodes[0].who.what != 0;
}

/** Returns how many nodes are present, not in quarantine, and do not want to leave. */
int roster_n_present(const struct roster *roster);
/** Are there enough nodes to form a world? It always has the coordinator's own node. */
bool roster_enough(const struct roster *roster);
/** Are there as many nodes as a world may have, so that no other node has to be waited for? */
bool roster_full(const struct roster *roster);
/** Would the next generation include a node that is not in the running one? */
bool roster_has_newcomers(const struct roster *roster);
/** Would there be enough nodes without this one? */
bool roster_can_spare(const struct roster *roster, int node);

/** The generation is over: no node is active, and nodes that are gone are forgotten. */
void roster_clear(struct roster *roster);
/**
 * Give seats and ranks to the nodes of the next generation, at most max_nodes. Call it after roster_clear().
 * It sorts nodes, so it takes N log N steps for N nodes.
 */
void roster_seat(struct roster *roster);
/**
 * Finds the nodes that would take part if roster_seat() were called now, without changing the roster. Call it
 * after roster_clear().
 *   numbers  (max_nodes) receives the numbers of the nodes, in the order of their ranks
 * Returns how many they are; -1: there is no memory.
 */
int roster_preview(struct roster *roster, int *numbers);

/** Write "HOST (ADDRESS)" into `out` (ROSTER_NAME_BYTES). Returns `out`. */
const char *roster_name(char *out, const char *host, const char *address);

#endif
