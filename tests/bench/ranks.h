/*
 * What benches do with the processes that they measure.
 */
#ifndef TESTS_BENCH_RANKS_H
#define TESTS_BENCH_RANKS_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* One CPU to each rank as far as they go: a bench's short turns are over before a scheduler has spread the ranks. */
static inline void rank_pin(int rank)
{
    cpu_set_t all, one;
    int n = 0;

    if (sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n++ == rank % CPU_COUNT(&all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
}

/* A line of one rank; false at its end. Byte by byte: it comes over a pipe and is short. */
static inline bool rank_read_line(int fd, char *line, size_t room)
{
    size_t n = 0;

    while (n + 1 < room && read(fd, line + n, 1) == 1) {
        if (line[n] == '\n') {
            line[n] = '\0';
            return true;
        }
        n++;
    }
    return false;
}

#endif
