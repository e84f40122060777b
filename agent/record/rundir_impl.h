/*
 * Shared by the files of rundir.h. Each owns one part:
 *   rundir.c         opening, the lock, and what is removed at the end
 *   rundir_path.c    the path of a run, before there is a run directory
 *   rundir_file.c    files below the run directory: where they are, and how they are opened and written
 *   rundir_shared.c  one directory for several runs and nodes: the attempts in it, and the mark that nodes
 *                    look for
 */
#ifndef AGENT_RUNDIR_IMPL_H
#define AGENT_RUNDIR_IMPL_H

#include <dirent.h>

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

/**
 * Print a path into `path` (RUNDIR_PATH_BYTES). FSDP_ERR_CONFIG: it is too long.
 */
enum fsdp_status rundir_set_path(char *path, struct fsdp_err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Open the folder `name` below `parent_fd` for readdir(). A symbolic link is not followed. Returns NULL with
 * errno.
 */
DIR *rundir_list(int parent_fd, const char *name);

/**
 * Look at what earlier runs left in a directory that the user named. Continue the count of their attempts,
 * and remove the mark of a run that was killed. The caller holds the lock.
 *   FSDP_ERR_IO  the directory cannot be listed
 */
enum fsdp_status rundir_look_back(struct rundir *rundir, struct fsdp_err *err);

/** Remove the mark for the nodes that join. A no-op if there is none. */
void rundir_remove_mark(struct rundir *rundir);

#endif
