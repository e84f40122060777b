/*
 * The queue of a daemon: which of its jobs hold which GPUs of the node, and which wait. Pure.
 *
 * A job arrives (queue_arrive()) before it has read its own command line. Later it says how many GPUs it
 * needs and which of them would do (queue_need()). queue_next() then names the jobs that may start, in order
 * of arrival. The rules:
 *
 *   1. A GPU is held by one job at a time, until that job leaves (queue_leave()).
 *   2. A GPU that would do for a job that waits is kept for it: no job that arrived later gets it. So a job
 *      that needs many GPUs is not passed by small ones. Jobs that can only use other GPUs are not held up.
 *   3. Until a job has said what it needs, everything is kept for it. One that does not say it in time loses
 *      its place (queue_late()).
 *
 * A GPU is a number: its place in PCI order (struct gpu, agent/placement/gpu.h).
 */
#ifndef AGENT_QUEUE_H
#define AGENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QUEUE_GPUS = 256, QUEUE_NAME_BYTES = 64, QUEUE_WORDS_BYTES = 256 };

/* A set of GPUs: bit i % 64 of word i / 64 is GPU i. */
struct queue_gpus {
    uint64_t words[QUEUE_GPUS / 64];
};

enum queue_state {
    QUEUE_OUT,     /* it is in no queue */
    QUEUE_ARRIVED, /* it has not said what it needs */
    /* QUEUE_ARRIVED, but late: the job has not said what it needs, and no GPU is kept for it */
    QUEUE_LATE,
    QUEUE_WAITS,
    QUEUE_HOLDS
};

/* A job, in the caller's memory. All zero: it is in no queue. Only this module changes it. */
struct queue_job {
    struct queue_job *next, *previous; /* in order of arrival */
    enum queue_state state;
    int n_wanted;
    struct queue_gpus usable; /* while it waits: those that would do */
    struct queue_gpus held;
    char name[QUEUE_NAME_BYTES];
    int id; /* the process id that its user sees */
};

/* All zero: empty. */
struct queue {
    struct queue_job *first, *last;
};

/** Append a job that is in no queue. */
void queue_arrive(struct queue *queue, struct queue_job *job, int id);

/**
 * A job says what it needs. One that needs nothing leaves the queue.
 *   usable  the GPUs that would do
 *   name    as the user knows it; control characters become spaces
 * Returns false, and changes nothing, if the job has said so before, or if n_wanted is more than it could
 * ever get.
 */
bool queue_need(struct queue *queue, struct queue_job *job, int n_wanted, const struct queue_gpus *usable,
                const char *name);

/**
 * A job that has not said in time what it needs moves to the end of the queue, and no GPU is kept for it. No
 * effect on other jobs.
 */
void queue_late(struct queue *queue, struct queue_job *job);

/** Take a job out of the queue, and free the GPUs that it held. No effect on a job that is in no queue. */
void queue_leave(struct queue *queue, struct queue_job *job);

/**
 * Returns the next job that may start; it holds its GPUs (job->held) from now on. NULL: no job may start.
 * Call it until NULL, whenever the queue has changed.
 */
struct queue_job *queue_next(struct queue *queue);

/**
 * Say for what a job waits, as "waits for 2 GPUs: job a (4711) holds 0, 1; 3 jobs are ahead". `out` has
 * QUEUE_WORDS_BYTES.
 */
void queue_words(const struct queue *queue, const struct queue_job *job, char *out);

/** Three operations on a set: is GPU `i` in it; put GPU `i` in; how many GPUs are in it. */
bool queue_gpus_have(const struct queue_gpus *gpus, int i);
void queue_gpus_put(struct queue_gpus *gpus, int i);
int queue_gpus_count(const struct queue_gpus *gpus);

#endif
