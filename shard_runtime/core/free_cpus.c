#include "shard_runtime/core/free_cpus.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* Returns the threads that run or are ready, of the whole host (proc(5)); -1: unknown. */
static int count_running(const char *loadavg_path)
{
    FILE *file = fopen(loadavg_path, "re");
    int n = -1;

    if (file == NULL)
        return -1;
    if (fscanf(file, "%*s %*s %*s %d", &n) != 1)
        n = -1;
    fclose(file);
    return n;
}

int free_cpus(const char *loadavg_path)
{
    const int running = count_running(loadavg_path);
    const int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t own;
    int most, n;

    /* on a host with more CPUs than a cpu_set_t holds, the call fails, and the host's number counts */
    most = sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : online;
    if (running < 0)
        return 0;
    /* the caller is one of the threads that run, so it is left out */
    n = online - (running > 0 ? running : 1);
    return n < 0 ? 0 : n < most - 1 ? n : most - 1;
}
