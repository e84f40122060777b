#include "shard_runtime/core/thread.h"

#include <criterion/criterion.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>

struct seen {
    bool ran, blocked;
    sem_t over;
};

static void *look(void *arg)
{
    struct seen *seen = arg;
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    seen->blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGCHLD) == 1;
    seen->ran = true;
    sem_post(&seen->over);
    return NULL;
}

static bool takes_signals(void)
{
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return sigismember(&mask, SIGTERM) == 0;
}

Test(thread, takes_no_signals_and_leaves_the_mask_of_its_starter, .timeout = 10)
{
    struct seen seen = { 0 };
    pthread_t thread;

    sem_init(&seen.over, 0, 0);
    cr_assert_eq(thread_start(&thread, look, &seen), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert(seen.ran && seen.blocked && takes_signals());
}

Test(thread, runs_detached_too, .timeout = 10)
{
    static struct seen seen;

    sem_init(&seen.over, 0, 0);
    cr_assert_eq(thread_start(NULL, look, &seen), 0);
    cr_assert_eq(sem_wait(&seen.over), 0);
    cr_assert(seen.ran && seen.blocked && takes_signals());
}
