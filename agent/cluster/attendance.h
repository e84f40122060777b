/*
 * Who of a generation's workers has come to the store where they meet: what is known of the phase of a program that says
 * nothing itself. Of this host it is known which worker a connection is (its process); of other nodes only whence it came,
 * and there all of a node's workers have come once it has made as many connections. Pure.
 */
#ifndef AGENT_ATTENDANCE_H
#define AGENT_ATTENDANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct attendance_node {
    int n_workers; /* 0: it takes no part */
    int n_known, n_unknown;
    pid_t *known; /* (n_workers), of which n_known are set */
};

struct attendance { /* all zero: nobody is expected */
    int n_nodes;
    struct attendance_node *nodes;
};

/** A generation of up to n_nodes nodes begins. False: no memory, and nobody is expected. */
bool attendance_begin(struct attendance *attendance, int n_nodes);
bool attendance_expect(struct attendance *attendance, int node, int n_workers);
void attendance_fini(struct attendance *attendance);

/** A connection from that node; `pid` 0: it is not known which of its workers it is. */
void attendance_came(struct attendance *attendance, int node, pid_t pid);

/** Has this worker come, as far as can be known? */
bool attendance_has(const struct attendance *attendance, int node, pid_t pid);
/** Have all of the node? All of the world? */
bool attendance_node_complete(const struct attendance *attendance, int node);
bool attendance_complete(const struct attendance *attendance);

#endif
