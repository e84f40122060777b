/*
 * Calls that may wait for a disk, for the loop that must not wait: writing records and logs, making folders,
 * finding a program. One thread performs the jobs one after another, in the order of disk_submit(). The
 * answers come on the loop, in the same order.
 *
 * A disk that is NULL has no thread: disk_submit() performs the job and answers it before it returns. A run
 * on one node has no other agent that could miss this one, so it uses none.
 *
 * A job's memory belongs to its owner, so submitting cannot fail. Each owner limits how many jobs it has
 * under way, and decides what happens beyond that.
 *
 * The thread starts no process: the kernel kills a worker when the thread that started it ends
 * (PR_SET_PDEATHSIG). All signals are blocked in it.
 */
#ifndef AGENT_DISK_H
#define AGENT_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

struct disk;

struct disk_job {
    void (*work)(struct disk_job *job); /* on the disk's thread; may block */
    void (*done)(struct disk_job *job); /* on the loop, after `work`; may free or submit the job */
    struct disk_job *next;              /* used by the disk while the job is under way */
};

/*
 * Jobs in the order in which they came. The caller must hold the disk's lock, unless the disk has no thread.
 */
struct disk_row {
    struct disk_job *first, **end;
};

static inline void disk_row_init(struct disk_row *row)
{
    row->first = NULL;
    row->end = &row->first;
}

static inline void disk_row_add(struct disk_row *row, struct disk_job *job)
{
    job->next = NULL;
    *row->end = job;
    row->end = &job->next;
}

static inline struct disk_job *disk_row_take(struct disk_row *row)
{
    struct disk_job *job = row->first;

    if (job == NULL)
        return NULL;
    row->first = job->next;
    if (row->first == NULL)
        row->end = &row->first;
    return job;
}

/**
 * Start the thread.
 *   FSDP_ERR_NOMEM  *out is NULL: the system has no thread, or no memory
 */
enum fsdp_status disk_create(struct disk **out, uv_loop_t *loop, struct fsdp_err *err);

/** Queue a job. Thread: the loop's. */
void disk_submit(struct disk *disk, struct disk_job *job);

/** Is no job under way, and every one answered? A disk of NULL is always idle. */
bool disk_is_idle(const struct disk *disk);

/**
 * Returns a number that changes whenever the thread gets something done: a job, or a step of one. This tells
 * a slow disk from one that does not answer. 0 for NULL.
 */
uint64_t disk_progress(const struct disk *disk);

/** Count a step of a long job. A no-op if `disk` is NULL. Thread: the disk's. */
void disk_step(struct disk *disk);

/**
 * Call `idle` once, from the loop, as soon as the disk is idle. Requires that it is not idle now. `idle` may
 * call disk_close().
 */
void disk_when_idle(struct disk *disk, void (*idle)(void *arg), void *arg);

/**
 * End the thread. Requires disk_is_idle(). A close callback frees the memory: run the loop to its end before
 * closing it. NULL is a no-op.
 */
void disk_close(struct disk *disk);

#endif
