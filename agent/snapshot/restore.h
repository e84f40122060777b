/*
 * From which memory a world can go on after a generation has ended: which step every rank has, in its own
 * node's memory or as a copy in another node's (copies.h). It also decides which node fetches it from where.
 *
 * Pure.
 */
#ifndef AGENT_RESTORE_H
#define AGENT_RESTORE_H

#include <stdbool.h>

#include "shard_runtime/shardfile/snapshot.h"

/* What a node has in memory when a generation of a world of that size is over. */
struct restore_steps {
    int world_size;              /* 0: it has nothing */
    int own_first_rank;          /* number of the first rank that ran on this node */
    struct snapshot_list own;    /* steps that all ranks of this node have */
    struct snapshot_list copies; /* steps of which it has copies for all ranks of another node */
    int copies_first_rank;       /* the first of the ranks of that other node; -1: this node has no copies */
};

/* A node that is there. */
struct restore_node {
    struct restore_steps held;
    int seat; /* the node's seat in the next generation, in the order of first ranks; -1: it takes no part */
};

/**
 * Chooses the newest step that is there for every rank of the generation that is over.
 *   nodes    (n) in any order; `seat` is not read. Those of a world of another size have nothing
 *   n_ranks  ranks of each node
 *   n_seats  nodes that the generation had
 *   covered  (n_seats) scratch
 * Returns step -1 if there is none.
 */
struct snapshot_held restore_choose(const struct restore_node *nodes, int n, int n_ranks, int n_seats,
                                    bool *covered);

/**
 * Does the node lack `step` for the ranks that it will have, but hold copies of just these ranks? Then it
 * swaps its own segments with those for copies. This happens to a node that takes the lead, because it gets
 * rank 0.
 */
bool restore_swaps(const struct restore_node *node, struct snapshot_held step);

/**
 * Finds where each node of the next generation gets what its ranks need of `step`: from itself; else from the
 * node that will hold its copies, if that has them already. Only this node's ranks are copied to that node,
 * so what it holds stays until it is fetched.
 *   n_ranks, n_seats  as above, of the next generation
 *   at_seat           (n_seats) scratch
 *   sources           (n) receives the numbers; -1 of a node without a seat
 * Returns false if a node with a seat finds it nowhere; its source is -1.
 */
bool restore_sources(const struct restore_node *nodes, int n, int n_ranks, int n_seats,
                     struct snapshot_held step, int *at_seat, int *sources);

#endif
