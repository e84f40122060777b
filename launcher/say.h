/*
 * Prints the messages of fsdprun. A message is one line. A terminal shows it in several lines if needed,
 * broken between words. In a pipe or a file it stays one line, for scripts.
 */
#ifndef LAUNCHER_SAY_H
#define LAUNCHER_SAY_H

#include <stdio.h>

enum { SAY_BYTES = 8192 };

/**
 * Prints a message and a newline.
 *   out     a terminal, or anything else
 *   format  as for printf(), without a newline; text beyond SAY_BYTES is cut
 * A word that is longer than a line of the terminal, such as a path, is not broken, so that it can be copied.
 */
__attribute__((format(printf, 2, 3))) void say(FILE *out, const char *format, ...);

#endif
