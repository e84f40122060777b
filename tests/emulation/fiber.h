/*
 * Threads of execution that hand the processor to each other by name: a stack and where it stopped. On x86-64
 * a switch is a dozen instructions; elsewhere it is ucontext's, with a system call. The address sanitizer is
 * told of each.
 */
#ifndef EMULATION_FIBER_H
#define EMULATION_FIBER_H

#include <stddef.h>

struct fiber;

/**
 * A fiber that runs entry(argument) when first switched to; entry never returns. Kept until the process ends.
 */
struct fiber *fiber_create(void (*entry)(void *argument), void *argument);
/** The caller's own stack as a fiber, to switch back to. */
struct fiber *fiber_main(void);
/** Leave `from`, which is running, for `to`; returns when something switches back. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
