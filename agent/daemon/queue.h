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
    QUEUE_LATE,    /* the same, and nothing is kept for it */
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
 * Returns false if it has said so before, or can never get as many: nothing changes then.
 */
bool queue_need(struct queue *queue, struct queue_job *job, int n_wanted, const struct queue_gpus *usable,
                const char *name);

/** A job that has not said what it needs moves to the end, and nothing is kept for it. Else: no effect. */
void queue_late(struct queue *queue, struct queue_job *job);

/** Take a job out. The GPUs that it held are free. One that is in no queue: no effect. */
void queue_leave(struct queue *queue, struct queue_job *job);

/**
 * Returns the next job that may start: it holds its GPUs (job->held) from now on. NULL: there is none. Call
 * it until then, whenever the queue has changed.
 */
struct queue_job *queue_next(struct queue *queue);

/**
 * Say for what a job waits, as "waits for 2 GPUs: job a (4711) holds 0, 1; 3 jobs are ahead". `out` has
 * QUEUE_WORDS_BYTES.
 */
void queue_words(const struct queue *queue, const struct queue_job *job, char *out);

/** Is a GPU in a set? Put one in. How many are in it? */
bool queue_gpus_have(const struct queue_gpus *gpus, int i);
void queue_gpus_put(struct queue_gpus *gpus, int i);
int queue_gpus_count(const struct queue_gpus *gpus);

#endif
