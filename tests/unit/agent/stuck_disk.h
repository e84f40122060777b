/* A disk that does not answer until the test lets it go. */
#ifndef UNIT_AGENT_STUCK_DISK_H
#define UNIT_AGENT_STUCK_DISK_H

#include <criterion/criterion.h>
#include <uv.h>

#include "agent/os/disk.h"

static uv_sem_t stuck_gate;

static void stuck_work(struct disk_job *job)
{
    uv_sem_wait(&stuck_gate);
}

static void stuck_done(struct disk_job *job)
{
}

static struct disk_job stuck_job = { .work = stuck_work, .done = stuck_done };

/** From now on the disk performs no job, until stuck_let_go(). */
static inline void stuck_begin(struct disk *disk)
{
    cr_assert(uv_sem_init(&stuck_gate, 0) == 0);
    disk_submit(disk, &stuck_job);
}

static inline void stuck_let_go(void)
{
    uv_sem_post(&stuck_gate);
}

#endif
