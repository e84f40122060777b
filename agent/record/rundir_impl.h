/*
 * Inside agent/rundir: rundir.c opens and locks the directory and knows where things stand in it; rundir_shared.c counts
 * the attempts of several runs in one directory, and sees to it that all nodes have the same one.
 */
#ifndef AGENT_RUNDIR_IMPL_H
#define AGENT_RUNDIR_IMPL_H

#include "agent/record/rundir.h"

#define RUNDIR_ATTEMPT_PREFIX "attempt_"

struct rundir {
    enum rundir_kind kind;
    char *path;
    int fd; /* the directory */
    struct fsdp_io *io;
    int lock_fd; /* -1: not the coordinator */
    int first_attempt;
    bool temporary;
    char mark[32];  /* for the nodes that join; empty: none */
    char begun[32]; /* RFC 3339 */
};

/** What earlier runs left: their attempts, which are counted on, and the mark of one that was killed. Under the lock. */
enum fsdp_status rundir_look_back(struct rundir *rundir, struct fsdp_err *err);
void rundir_remove_mark(struct rundir *rundir); /* nothing is done where there is none */

#endif
