/*
 * The Python stack of a hung rank, from the text that Python's faulthandler writes. Pure.
 *
 * Only the thread is kept that handled the signal ("Current thread"), which is the program's main thread as a
 * rule. If that thread runs no Python, the last thread of the text is kept, which is the one that the program
 * began with.
 */
#ifndef AGENT_PYTHON_STACK_H
#define AGENT_PYTHON_STACK_H

#include <stdbool.h>
#include <stddef.h>

enum { PYTHON_STACK_FRAMES = 32, PYTHON_STACK_FRAME_BYTES = 160, PYTHON_STACK_TEXT_BYTES = 65536 };

struct python_stack {
    int n_threads; /* 0: there is no stack, and the other members are empty */
    int n_frames;
    char frames[PYTHON_STACK_FRAMES][PYTHON_STACK_FRAME_BYTES]; /* "train.py:41 in step", innermost first */
    int own;    /* index of the innermost frame that is in the program's own code; -1: none */
    bool waits; /* the thread is inside a function that waits for other ranks, or for a device */
};

/**
 * Read what faulthandler wrote into text[0..n), which may be any bytes.
 *   directory  the program's working directory: paths below it are cut to the rest; NULL: none are
 *
 * Returns whether there was a stack. If there are several, the last one counts.
 */
bool python_stack_take(struct python_stack *stack, const char *text, size_t n, const char *directory);

/**
 * Returns the innermost frame of the program's own code, or else the innermost frame: "train.py:41 in step".
 * "": there is none.
 */
const char *python_stack_line(const struct python_stack *stack);

#endif
