/*
 * What a rank of train_timers.c writes when an order is carried out. Seconds. Start, end and waiting are by
 * the clock on the wall (CLOCK_MONOTONIC). Work is CPU time of the process, so that its shares hold on a busy
 * machine too.
 */
#ifndef TESTS_BENCH_TRAIN_REPORT_H
#define TESTS_BENCH_TRAIN_REPORT_H

struct train_report {
    double start_s, end_s;
    double work_s;      /* all of it; of this: */
    double products_s;  /* in matrix products */
    double kernels_s;   /* in the rest of the model's operations */
    double optimizer_s; /* clipping and updating */
    double wait_s;      /* on the wall: the computing thread in collectives, or waiting for one */
};

#endif
