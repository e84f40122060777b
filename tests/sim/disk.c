/*
 * agent/os/disk.h and agent/arbiter/arbiter_thread.h: each thread has a stack of its own, so that what it
 * calls can take time (sim_block()). It stands still with its process, and dies with it.
 */
#include <stdlib.h>
#include <ucontext.h>

#include "agent/arbiter/arbiter_thread.h"
#include "agent/os/disk.h"
#include "tests/sim/sim.h"

enum { STACK_BYTES = 131072 };

/* A thread. `events` runs while it waits. */
struct fiber {
    struct process *process;
    ucontext_t thread, events;
};

struct disk {
    struct fiber fiber; /* first */
    struct disk_row waiting, performed;
    bool busy;
    uint64_t n_steps;
    size_t n_under_way;
    void (*idle)(void *arg);
    void *idle_arg;
};

static struct fiber *running; /* the thread that runs now */

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

static void make_fiber(struct fiber *fiber, struct process *process, void (*serve)(void))
{
    fiber->process = process;
    getcontext(&fiber->thread);
    fiber->thread.uc_stack = (stack_t){ .ss_sp = malloc(STACK_BYTES), .ss_size = STACK_BYTES };
    makecontext(&fiber->thread, serve, 0);
}

static bool stands_still(const struct process *process)
{
    return sim_now < process->host->stalled_until && !process->host->busy;
}

static void resume(void *what, uint64_t number)
{
    struct fiber *fiber = what;
    struct process *process = fiber->process;

    if (!process->alive)
        return;
    if (stands_still(process)) {
        sim_at(process->host->stalled_until + sim_between(SIM_AGENTS, 1, MS), resume, fiber, number);
        return;
    }
    sim_current = process;
    running = fiber;
    turn_to(&fiber->events, &fiber->thread);
    running = NULL;
    sim_current = NULL;
}

void sim_block(int64_t for_ns)
{
    struct fiber *fiber = running;

    sim_at(sim_now + for_ns, resume, fiber, 0);
    turn_to(&fiber->thread, &fiber->events);
}

/* The disk */

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

static void serve(void)
{
    struct disk *disk = (struct disk *)running;
    struct disk_job *job;

    for (;;) {
        while ((job = disk_row_take(&disk->waiting)) != NULL) {
            job->work(job);
            disk->n_steps++;
            disk_row_add(&disk->performed, job);
            sim_later(disk->fiber.process, sim_between(SIM_AGENTS, 1000, MS / 10), on_answers, disk);
        }
        disk->busy = false;
        turn_to(&disk->fiber.thread, &disk->fiber.events);
    }
}

enum fsdp_status disk_create(struct disk **out, uv_loop_t *loop, struct fsdp_err *err)
{
    struct disk *disk = calloc(1, sizeof *disk);

    (void)err;
    make_fiber(&disk->fiber, loop->data, serve);
    disk_row_init(&disk->waiting);
    disk_row_init(&disk->performed);
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

/* The arbiter's thread */

struct arbiter_thread {
    struct fiber fiber; /* first */
    struct arbiter_thread_calls calls;
    bool woken, waits, over;
    uint64_t n_waits; /* a wake-up that was planned for an earlier wait does nothing */
};

static void end_wait(void *what, uint64_t number)
{
    struct arbiter_thread *thread = what;

    if (thread->over || !thread->waits || thread->n_waits != number)
        return;
    if (stands_still(thread->fiber.process)) {
        sim_at(thread->fiber.process->host->stalled_until + sim_between(SIM_AGENTS, 1, MS), end_wait, what,
               number);
        return;
    }
    thread->waits = false;
    resume(what, 0);
}

static void serve_arbiter(void)
{
    struct arbiter_thread *thread = (struct arbiter_thread *)running;

    for (;;) {
        const int64_t wait_ms = thread->calls.turn(thread->calls.arg);

        thread->waits = true;
        thread->n_waits++;
        sim_at(sim_now + (thread->woken ? 0 : wait_ms * MS) + sim_between(SIM_AGENTS, 1000, MS / 10),
               end_wait, thread, thread->n_waits);
        thread->woken = false;
        turn_to(&thread->fiber.thread, &thread->fiber.events);
    }
}

enum fsdp_status arbiter_thread_create(struct arbiter_thread **out, uv_loop_t *loop,
                                       const struct arbiter_thread_calls *calls, struct fsdp_err *err)
{
    struct arbiter_thread *thread = calloc(1, sizeof *thread);

    (void)err;
    make_fiber(&thread->fiber, loop->data, serve_arbiter);
    thread->calls = *calls;
    thread->waits = true;
    *out = thread;
    return FSDP_OK;
}

void arbiter_thread_wake(struct arbiter_thread *thread)
{
    if (!thread->woken && thread->waits)
        sim_at(sim_now + sim_between(SIM_AGENTS, 1000, MS / 10), end_wait, thread, thread->n_waits);
    thread->woken = !thread->waits;
}

void arbiter_thread_tell(struct arbiter_thread *thread)
{
    sim_later(thread->fiber.process, sim_between(SIM_AGENTS, 1000, MS / 10), thread->calls.told,
              thread->calls.arg);
}

void arbiter_thread_close(struct arbiter_thread *thread, void (*closed)(void *arg))
{
    if (!thread->waits)
        sim_violated("no bug", "the arbiter is closed while it works");
    thread->over = true;
    (void)closed;
}
