/*
 * Messages of fsdprun: one line each, which a terminal shows in as many lines as it needs, broken between
 * words. In a pipe or a file a message stays one line, for scripts.
 */
#ifndef LAUNCHER_SAY_H
#define LAUNCHER_SAY_H

#include <stdio.h>

enum { SAY_BYTES = 8192 };

/**
 * Print a message, and the end of its line.
 *   out     a terminal, or anything else
 *   format  as of printf(); no newline in it. What is longer than SAY_BYTES is cut
 * A word that is longer than the terminal is wide, such as a path, stays whole: it can be copied.
 */
__attribute__((format(printf, 2, 3))) void say(FILE *out, const char *format, ...);

#endif
