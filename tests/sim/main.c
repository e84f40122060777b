/*
 * Usage: sim SEED            one history, with all its lines
 *        sim FIRST LAST JOBS  those seeds, in so many processes at a time; ends at the first violation
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/history.h"

static double seconds(void)
{
    struct timespec now;

    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static pid_t begin(uint64_t seed)
{
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    alarm(120); /* real time: an endless loop of the product's */
    sim_history(seed);
    _exit(0);
}

/* Returns false if a seed has failed. */
static bool reap(int *n_running)
{
    int status;

    if (wait(&status) < 0)
        return false;
    (*n_running)--;
    if (WIFSIGNALED(status))
        printf("a history ended by signal %d; its seed is one of the last ones\n", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run_range(uint64_t first, uint64_t last, int n_jobs)
{
    const double began = seconds();
    uint64_t n_done = 0;
    int n_running = 0;
    bool well = true;

    for (uint64_t seed = first; seed <= last && well; seed++) {
        if (begin(seed) < 0)
            return 2;
        n_done++;
        if (++n_running == n_jobs)
            well = reap(&n_running);
    }
    while (n_running > 0)
        well = reap(&n_running) && well;
    printf("%llu seeds in %.1f s, %.0f a second: %s\n", (unsigned long long)n_done, seconds() - began,
           (double)n_done / (seconds() - began), well ? "no violation" : "a violation");
    return well ? 0 : 1;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2) {
        sim_prints = true;
        sim_history(strtoull(argv[1], NULL, 10));
        printf("%llu events, digest %016llx: no violation\n", (unsigned long long)sim_n_events,
               (unsigned long long)sim_digest);
        _exit(0); /* what the killed processes had in memory was never freed */
    }
    if (argc != 4) {
        fprintf(stderr, "usage: %s SEED | FIRST LAST JOBS\n", argv[0]);
        return 2;
    }
    return run_range(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), atoi(argv[3]));
}
