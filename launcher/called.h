/*
 * By which path fsdprun was called, and the Python that belongs there. The path is not that of the file: a
 * link to fsdprun in the folder of a virtual environment stands for that environment.
 */
#ifndef LAUNCHER_CALLED_H
#define LAUNCHER_CALLED_H

#include <limits.h>
#include <stdbool.h>

/**
 * Find the path of this program as it was called. A name without a folder is looked up on PATH, as the shell
 * has done.
 *   name      argv[0]
 *   own_path  the file of the running program; also the answer if `name` does not lead to it
 */
void called_path(const char *name, const char *own_path, char path[PATH_MAX]);

/**
 * Find the Python in the folder of `path`. torchrun runs the Python of the folder that it is in, whatever is
 * on PATH. So do all programs that pip installs in a virtual environment.
 *   path         from called_path()
 *   as_torchrun  fsdprun was called torchrun; else only a virtual environment counts
 *   python       gets its path
 * Returns `python`, or NULL if there is none.
 */
const char *called_python(const char *path, bool as_torchrun, char python[PATH_MAX]);

#endif
