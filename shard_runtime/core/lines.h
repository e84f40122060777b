/*
 * Files with one JSON object per line, to which several runs append.
 */
#ifndef CORE_LINES_H
#define CORE_LINES_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Removes an incomplete last line from the file `fd`, which is open for reading and appending. A killed
 * writer or a full disk can leave such a line, and readers of JSON lines fail on it. If the last `longest`
 * bytes contain no newline, another program wrote the text. Then the function appends a newline and removes
 * nothing. Pipes and devices stay unchanged. Returns false with errno if the system refused an operation.
 */
bool lines_drop_half(int fd, size_t longest);

/**
 * Appends a line of at most `longest` bytes by one write. If only part of it was written, that part is
 * removed again. Returns 0, or the errno of what failed; ENOSPC: the line was cut short, or there is no file.
 *
 *   fd     open for reading and appending; -1: there is no file
 *   *torn  half a line may stand at the end of the file: it is removed first; set if that fails
 */
int lines_write(int fd, const char *line, size_t length, size_t longest, bool *torn);

#endif
