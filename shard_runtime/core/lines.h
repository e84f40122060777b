/*
 * Files of one JSON object a line, appended to over many runs.
 */
#ifndef CORE_LINES_H
#define CORE_LINES_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Drop half a line at the end of the file `fd`, open for reading and appending: a writer that was killed
 * between two pages, or a full disk, may have left it, and no reader of JSON lines gets past it. What has no
 * newline for `longest` bytes is not ours to cut: it is ended by one. A pipe or a device is left alone.
 * False: the system refused, see errno.
 */
bool lines_drop_half(int fd, size_t longest);

#endif
