/*
 * Who is in a job: the nodes that came, which of them make up the generation that runs, and the ranks they have
 * in it. The coordinator keeps it; its own node has the number 0, the others get one when they are let in.
 *
 * A seat is a node's place in the order of ranks, 0 ... max_nodes - 1. A node keeps its seat for as long as it is
 * there, and gets it back when it returns to a job that still has it free; group ranks are the seats that are
 * taken, counted without the gaps. Seats are first given by --node-rank; then by the number that the cluster's scheduler
 * gives a node, where every node has one and no two the same; then the host's node first and the others by their
 * names and addresses. So the same nodes have the same ranks in every run.
 *
 * Pure: no sockets, no loop, no clock.
 */
#ifndef AGENT_ROSTER_H
#define AGENT_ROSTER_H

#include <stdbool.h>

#include "agent/wire/proto.h"

enum {
    ROSTER_SPARES = 64,        /* so many more than max_nodes may be there and wait */
    ROSTER_MAX_WORKERS = 4096, /* of a node; of as many nodes as there may be, an int counts all of them */
    ROSTER_NAME_BYTES = 2 * PROTO_TEXT_BYTES + 8
};

struct roster_node {
    struct proto_join who;
    char address[PROTO_TEXT_BYTES]; /* by which the others reach it */
    char from[64];                  /* as its connection shows it */
    bool present;
    bool active;  /* takes part in the generation that runs, or did until it was lost */
    bool leaving; /* has said goodbye: takes part until the generation is over, and in no other */
    int seat;     /* -1: none yet */
    unsigned arrival;
    /* Of the generation, where active. */
    int node_rank, first_rank, role_rank, role_world_size;
};

/* Who has a seat, or had it last. */
struct roster_seat {
    int node; /* -1: nobody */
    char host[PROTO_TEXT_BYTES];
    int order;
};

struct roster {
    int min_nodes, max_nodes;
    bool seated;  /* seats were given once: the job has run */
    int capacity; /* of `nodes` */
    unsigned n_arrived;
    int n_nodes, world_size; /* of the generation */
    struct roster_node *nodes;
    struct roster_seat *seats; /* (max_nodes) */
};

/** The coordinator's own node is in it, as number 0. FSDP_ERR_NOMEM leaves nothing to be freed. */
enum fsdp_status roster_init(struct roster *roster, const struct proto_join *self, const char *address,
                             struct fsdp_err *err);
void roster_fini(struct roster *roster);

/** May it come in? If not, why: both nodes are named, and the status is its exit status. */
bool roster_judge(const struct roster *roster, const struct proto_join *join, const char *address,
                  struct proto_refused *refused);

/** Let it in, after roster_judge(): its number. */
int roster_add(struct roster *roster, const struct proto_join *join, const char *address);
/** It is gone. Its number stays its own while it counts as active. */
void roster_remove(struct roster *roster, int node);

/** How many are there and stay. */
int roster_n_present(const struct roster *roster);
/** Can a world be made of those that are there? */
bool roster_enough(const struct roster *roster);
/** Is nobody more needed? */
bool roster_full(const struct roster *roster);
/** Would the next generation take in a node that the one that runs has not? */
bool roster_has_newcomers(const struct roster *roster);
/** Would enough remain without this node? */
bool roster_can_spare(const struct roster *roster, int node);

/** The generation is over: nobody is active, those that are gone are forgotten. */
void roster_clear(struct roster *roster);
/** Give seats and ranks to those that make up the next generation: as many as there may be. After roster_clear(). */
void roster_seat(struct roster *roster);

/** "HOST (ADDRESS)", in `out` (ROSTER_NAME_BYTES), which is returned. */
const char *roster_name(char *out, const char *host, const char *address);

#endif
