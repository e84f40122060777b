/*
 * Finds the path by which fsdprun was called, and the Python that belongs to it. That path may be a link to
 * the file of the program. If the link is in the folder of a virtual environment, fsdprun uses that
 * environment.
 */
#ifndef LAUNCHER_CALLED_H
#define LAUNCHER_CALLED_H

#include <limits.h>
#include <stdbool.h>

/**
 * Finds the path by which this program was called. If `name` has no folder, this function searches PATH, as
 * the shell did.
 *   name      argv[0]
 *   own_path  the file of the running program
 *   path      receives the path; it is `own_path` if `name` does not lead to that file
 */
void called_path(const char *name, const char *own_path, char path[PATH_MAX]);

/**
 * Finds the Python in the folder of `path`. torchrun runs the Python that is in its own folder, whatever PATH
 * says. So do all programs that pip installs in a virtual environment.
 *   path         from called_path()
 *   as_torchrun  fsdprun was called by the name torchrun; otherwise only the Python of a virtual environment
 *                counts
 *   python       receives its path
 * Returns `python`, or NULL if there is none.
 */
const char *called_python(const char *path, bool as_torchrun, char python[PATH_MAX]);

#endif
