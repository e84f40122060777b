/*
 * The directories of a program's own choice that a run has saved to: a list that only grows, so that another thread may
 * read on from any of its members.
 */
#ifndef AGENT_SAVE_OWN_H
#define AGENT_SAVE_OWN_H

#include <stdbool.h>

struct save_own {
    struct save_own *next;
    char path[];
};

/**
 * The member of *list with this path, in *found, added where it is not there yet; NULL for "" and for `run_directory`, the
 * run's own. False: no memory.
 */
bool save_own_find(struct save_own **list, const char *path, const char *run_directory,
                   const struct save_own **found);
void save_own_free(struct save_own *list); /* NULL is a no-op */

#endif
