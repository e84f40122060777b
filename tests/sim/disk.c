/*
 * agent/os/disk.h: the thread of a disk has a stack of its own, so that what it calls can take time
 * (sim_block()). It stands still with its process, and dies with it.
 */
#include <stdlib.h>
#include <ucontext.h>

#include "agent/os/disk.h"
#include "tests/sim/sim.h"

enum { STACK_BYTES = 131072 };

struct disk {
    struct process *process;
    ucontext_t thread, events; /* `events` runs while the thread waits */
    struct disk_row waiting, performed;
    bool busy;
    uint64_t n_steps;
    size_t n_under_way;
    void (*idle)(void *arg);
    void *idle_arg;
};

static struct disk *running; /* whose thread runs now */

/* As swapcontext(), of which AddressSanitizer warns each time that it is used. */
static void turn_to(ucontext_t *from, const ucontext_t *to)
{
    volatile bool is_back = false;

    getcontext(from);
    if (is_back)
        return;
    is_back = true;
    setcontext(to);
}

static void on_answers(void *arg)
{
    struct disk *disk = arg;
    void (*idle)(void *arg) = NULL;
    struct disk_job *job;

    while ((job = disk_row_take(&disk->performed)) != NULL) {
        disk->n_under_way--;
        job->done(job);
    }
    if (disk->n_under_way > 0)
        return;
    idle = disk->idle;
    disk->idle = NULL;
    if (idle != NULL)
        idle(disk->idle_arg);
}

static void resume(void *what, uint64_t number)
{
    struct disk *disk = what;
    struct process *process = disk->process;

    if (!process->alive)
        return;
    if (sim_now < process->host->stalled_until && !process->host->busy) {
        sim_at(process->host->stalled_until + sim_between(SIM_AGENTS, 1, MS), resume, disk, number);
        return;
    }
    sim_current = process;
    running = disk;
    turn_to(&disk->events, &disk->thread);
    running = NULL;
    sim_current = NULL;
}

void sim_block(int64_t for_ns)
{
    struct disk *disk = running;

    sim_at(sim_now + for_ns, resume, disk, 0);
    turn_to(&disk->thread, &disk->events);
}

static void serve(void)
{
    struct disk *disk = running;
    struct disk_job *job;

    for (;;) {
        while ((job = disk_row_take(&disk->waiting)) != NULL) {
            job->work(job);
            disk->n_steps++;
            disk_row_add(&disk->performed, job);
            sim_later(disk->process, sim_between(SIM_AGENTS, 1000, MS / 10), on_answers, disk);
        }
        disk->busy = false;
        turn_to(&disk->thread, &disk->events);
    }
}

enum fsdp_status disk_create(struct disk **out, uv_loop_t *loop, struct fsdp_err *err)
{
    struct disk *disk = calloc(1, sizeof *disk);

    (void)err;
    disk->process = loop->data;
    disk_row_init(&disk->waiting);
    disk_row_init(&disk->performed);
    getcontext(&disk->thread);
    disk->thread.uc_stack = (stack_t){ .ss_sp = malloc(STACK_BYTES), .ss_size = STACK_BYTES };
    makecontext(&disk->thread, serve, 0);
    *out = disk;
    return FSDP_OK;
}

void disk_submit(struct disk *disk, struct disk_job *job)
{
    disk->n_under_way++;
    disk_row_add(&disk->waiting, job);
    if (!disk->busy)
        sim_at(sim_now + sim_between(SIM_AGENTS, 1000, MS), resume, disk, 0);
    disk->busy = true;
}

bool disk_is_idle(const struct disk *disk)
{
    return disk == NULL || disk->n_under_way == 0;
}

uint64_t disk_progress(const struct disk *disk)
{
    return disk == NULL ? 0 : disk->n_steps;
}

void disk_step(struct disk *disk)
{
    disk->n_steps++;
}

void disk_when_idle(struct disk *disk, void (*idle)(void *arg), void *arg)
{
    disk->idle = idle;
    disk->idle_arg = arg;
}

void disk_close(struct disk *disk)
{
    if (disk != NULL && disk->n_under_way > 0)
        sim_violated("no bug", "a disk is closed while it works");
}
