/*
 * A pseudo-terminal in front of a real one. What a program writes to the slave comes out of the master byte
 * for byte. To the program, the slave is a terminal with the size and the modes of the real one.
 *
 * Thread: any.
 */
#ifndef AGENT_PTY_H
#define AGENT_PTY_H

#include <sys/ioctl.h>

struct pty {
    int master;          /* our end: close-on-exec, O_NONBLOCK */
    int slave;           /* the program's end: close-on-exec */
    struct winsize size; /* as it was set last */
};

/**
 * Open a pseudo-terminal in front of the terminal `terminal`, a descriptor that is only borrowed for the
 * call. The slave becomes no process's controlling terminal. The caller closes both ends. Returns 0, or an
 * errno; then nothing is open.
 */
int pty_open(struct pty *pty, int terminal);

/** Give the pseudo-terminal the current size of `terminal`. A no-op if that has not changed or is unknown. */
void pty_resize(struct pty *pty, int terminal);

#endif
