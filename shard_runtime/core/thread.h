/*
 * Starts a thread that takes no signals. Every thread but the first is started here. The first one handles
 * the signals of its process, and a new thread inherits the mask of the one that starts it.
 */
#ifndef CORE_THREAD_H
#define CORE_THREAD_H

#include <pthread.h>

/**
 * Starts run(arg) on a thread of its own, with all signals blocked. Returns 0 or an errno value.
 *
 *   thread  receives the thread, for pthread_join(); NULL: it is detached, and has a stack of 512 KiB. No
 *           caller waits for such a thread, so it must free what it shares, or leave that to its last user.
 *
 * Any thread may call it.
 */
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
