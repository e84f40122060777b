/*
 * The directories of a program's own choice that a run has saved to. The list only grows, so another thread
 * may go on reading from any of its members.
 */
#ifndef AGENT_SAVE_OWN_H
#define AGENT_SAVE_OWN_H

#include <stdbool.h>

struct save_own {
    struct save_own *next;
    char path[];
};

/**
 * Find the member of *list with this path, or add it. *found receives it, or NULL if `path` is "" or
 * `run_directory`, the run's own. Returns false if there is no memory; *found is NULL then.
 */
bool save_own_find(struct save_own **list, const char *path, const char *run_directory,
                   const struct save_own **found);
void save_own_free(struct save_own *list); /* NULL is a no-op */

#endif
