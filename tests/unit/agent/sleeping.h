/* A process that sleeps in the kernel (state D), as one does whose disk does not answer. */
#ifndef UNIT_AGENT_SLEEPING_H
#define UNIT_AGENT_SLEEPING_H

#include <unistd.h>

/* Until the other end of `go` is closed. While its vfork() child lives, a process sleeps in the kernel. */
static inline void sleep_in_kernel(int go)
{
    char byte;

    if (vfork() != 0)
        return;
    while (read(go, &byte, 1) > 0)
        ;
    _exit(0);
}

#endif
