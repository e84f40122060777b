/*
 * A pseudo-terminal that stands in front of a real one: what is written to its slave comes out of its master byte for
 * byte, and to a program the slave is a terminal of the same size and kind.
 *
 * Thread: any.
 */
#ifndef AGENT_PTY_H
#define AGENT_PTY_H

#include <stdbool.h>
#include <sys/ioctl.h>

struct pty {
    int master; /* close-on-exec, O_NONBLOCK: ours */
    int slave;  /* close-on-exec: the program's */
    struct winsize size;
};

/** 0, or an errno with nothing open. The slave is nobody's controlling terminal. */
int pty_open(struct pty *pty, int terminal);

/** Give it the size that the terminal has now. */
void pty_resize(struct pty *pty, int terminal);

#endif
