/* Finds where in a log its last lines begin, for `fsdprun logs --tail N`. */
#ifndef LAUNCHER_LOG_TAIL_H
#define LAUNCHER_LOG_TAIL_H

#include <stddef.h>
#include <sys/types.h>

/**
 * Finds where the last `n_lines` lines begin of the log `path` and its rotated files (PATH.1 is the newest of
 * these). A last line without a newline counts.
 *   inode, offset  on entry, the place before which nothing is wanted (inode 0: everything is); they receive
 *                  the place of the first line, unchanged if there are fewer lines
 * Returns how many lines there are from that place on, at most `n_lines`.
 */
size_t log_tail_find(const char *path, size_t n_lines, ino_t *inode, off_t *offset);

#endif
