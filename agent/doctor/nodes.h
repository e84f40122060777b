/*
 * The nodes of a job, as the doctor sees them when all have met: one rank on each. Rank 0 makes the report.
 */
#ifndef AGENT_DOCTOR_NODES_H
#define AGENT_DOCTOR_NODES_H

#include "agent/doctor/pairs.h"
#include "agent/doctor/report.h"

/* What a node has told. */
struct node_view {
    char name[DOCTOR_NODE_BYTES]; /* the node's host name; if several nodes have it, with a number after it */
    char version[64];             /* of its fsdprun, with the commit */
    bool sees_run_dir;            /* this node sees the file that rank 0 made in the run directory */
};

/**
 * Add rows about each node and its pairs: "nodes.version", "nodes.reach", "nodes.bandwidth",
 * "nodes.roundtrip", "nodes.clock", and if `run_dir` is not NULL "nodes.rundir". Pure. Returns false if there
 * is no memory for it.
 *   nodes   (n_nodes)
 *   pairs   (n_pairs) each pair once
 */
bool nodes_judge(struct doctor_report *report, const struct node_view *nodes, int n_nodes,
                 const struct pair *pairs, size_t n_pairs, const char *run_dir);

/**
 * Is this what nodes_examine() leaves on a rank that does not have the report of all nodes? Then its only row
 * says where that one is.
 */
bool nodes_are_elsewhere(const struct doctor_report *report);

/**
 * Be one rank of the doctor: exchange reports with the others, and measure.
 *   report   what the checks of this node have found. On rank 0 it becomes the report of all nodes. On the
 *            others it becomes one row: where that report is, and its worst state
 *   version  of this program
 *   run_dir  the run directory, or one above it; NULL: the user has named none
 *   link_fd  the link to the agent
 * FSDP_ERR_PEER: another node is gone.
 */
enum fsdp_status nodes_examine(struct doctor_report *report, const char *version, const char *run_dir,
                               int link_fd, struct fsdp_err *err);

#endif
