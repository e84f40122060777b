/* How often a bench measures each thing. */
#ifndef TESTS_BENCH_RUNS_H
#define TESTS_BENCH_RUNS_H

#include <stdlib.h>

/* Returns `usual`, or what BENCH_RUNS in the environment says if that is from 1 to `usual`: 1 shows that a bench works. */
static inline int bench_runs(int usual)
{
    const char *wanted = getenv("BENCH_RUNS");
    const int n = wanted != NULL ? atoi(wanted) : usual;

    return n >= 1 && n < usual ? n : usual;
}

#endif
