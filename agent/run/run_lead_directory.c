/*
 * What a node that takes over needs of the run directory: its files, and its lock. The disk's thread opens
 * and locks it. If the loop waited for the disk, this node could take no signal and print nothing, although
 * its record is still renewed.
 */
#include <stddef.h>

#include "agent/run/run_lead_impl.h"
#include "shard_runtime/core/exit_status.h"

/* how long a node that takes over waits for its run directory, in ticks of a quarter of a lease */
enum { OPEN_TICKS = 8 };

static struct run *run_of_open(struct disk_job *job)
{
    return (struct run *)((char *)job - offsetof(struct run, lead.open));
}

static void do_open(struct disk_job *job)
{
    struct run *run = run_of_open(job);
    struct run_lead *lead = &run->lead;

    fsdp_err_clear(&lead->open_err);
    if (rundir_begin(run->rundir, &lead->open_err) != FSDP_OK)
        return;
    (void)rundir_lock(run->rundir, false, NULL); /* the arbiter's term counts, see rundir.h */
    (void)events_open(&lead->events, rundir_fd(run->rundir), "events.jsonl", &lead->open_err);
}

static void on_open(struct disk_job *job)
{
    struct run *run = run_of_open(job);
    struct run_lead *lead = &run->lead;
    const bool wanted = lead->leads && !run->refused && run->ending == RUN_GOES_ON && run->uplink != NULL;

    lead->opening = false;
    if (wanted)
        uv_timer_stop(lead->tick);
    if (!wanted) {
        events_close(lead->events);
        lead->events = NULL;
    } else if (lead->open_err.status != FSDP_OK) {
        run_refuse(run, exit_status_of(lead->open_err.status), lead->open_err.message);
    } else {
        uplink_lead(run->uplink);
    }
}

/*
 * Counts the time that the disk takes in ticks of the loop. If the loop itself stood still, that counts as
 * one tick only.
 */
static void on_opening(uv_timer_t *timer)
{
    struct run *run = timer->data;
    const bool waits = run->lead.opening && run->lead.leads;
    char words[RUN_LINE_BYTES];

    if (waits && --run->lead.open_ticks > 0)
        return;
    uv_timer_stop(timer);
    if (!waits)
        return;
    snprintf(words, sizeof words, "this node cannot take over: the run directory %.500s does not answer",
             run->config->run_dir);
    run_refuse(run, FSDP_EXIT_IO, words);
}

void run_lead_open_directory(struct run *run)
{
    struct run_lead *lead = &run->lead;
    struct fsdp_err err = { 0 };
    const enum fsdp_status status = run_name_directory(run, &err);

    if (status != FSDP_OK) {
        run_refuse(run, exit_status_of(status), err.message);
        return;
    }
    lead->open_ticks = OPEN_TICKS;
    uv_timer_start(lead->tick, on_opening, (uint64_t)(run->config->lease_ms / 4),
                   (uint64_t)(run->config->lease_ms / 4));
    if (lead->opening)
        return; /* since an earlier lead */
    lead->opening = true;
    lead->open = (struct disk_job){ .work = do_open, .done = on_open };
    disk_submit(run->disk, &lead->open);
}

void run_lead_take_directory(struct run *run)
{
    run->events = run->lead.events;
    run->lead.events = NULL;
    if (run->config->run_dir_named)
        rundir_set_first_attempt(run->rundir, run->lead.past.first_attempt);
}

/* The lock */

static void change_lock(struct disk_job *job)
{
    struct run_lead *lead = (struct run_lead *)((char *)job - offsetof(struct run_lead, lock));

    if (lead->did_lock)
        (void)rundir_lock(lead->rundir, false, NULL);
    else
        rundir_unlock(lead->rundir);
}

static void submit_lock(struct run *run);

static void on_lock_changed(struct disk_job *job)
{
    struct run *run = (struct run *)((char *)job - offsetof(struct run, lead.lock));

    run->lead.locking = false;
    if (run->lead.did_lock != run->lead.wants_lock)
        submit_lock(run);
}

static void submit_lock(struct run *run)
{
    struct run_lead *lead = &run->lead;

    lead->locking = true;
    lead->rundir = run->rundir;
    lead->did_lock = lead->wants_lock;
    lead->lock = (struct disk_job){ .work = change_lock, .done = on_lock_changed };
    disk_submit(run->disk, &lead->lock);
}

void run_lead_want_lock(struct run *run, bool wanted)
{
    run->lead.wants_lock = wanted;
    if (run->rundir != NULL && !run->lead.locking)
        submit_lock(run);
}

void run_lead_lock(struct run *run)
{
    if (run->lead.takes_over && run->coordinator != NULL)
        run_lead_want_lock(run, true);
}

bool run_lead_has_lock(const struct run *run)
{
    return !run->lead.takes_over || (run->config->arbiter == AGENT_ARBITER_DIRECTORY && run->rundir != NULL &&
                                     !run->lead.locking && rundir_lock_fd(run->rundir) > 0);
}
