#include "shard_runtime/core/thread.h"

#include <signal.h>

enum { DETACHED_STACK_BYTES = 512 * 1024 };

int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t detached;
    int error = pthread_attr_init(&attributes);

    if (error != 0)
        return error;
    if (thread == NULL) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, DETACHED_STACK_BYTES);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread != NULL ? thread : &detached, &attributes, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}
