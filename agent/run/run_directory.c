/*
 * Looks whether the run directory is still where it was. Someone may remove or rename it while the run goes
 * on. Its open files then take what is written, and no one will ever read it.
 */
#include <stddef.h>

#include "agent/run/run_impl.h"

enum { LOOK_MS = 1000 };

static void look(struct disk_job *job)
{
    struct run_directory *directory =
        (struct run_directory *)((char *)job - offsetof(struct run_directory, job));

    directory->n_gone = rundir_is_gone(directory->rundir) ? directory->n_gone + 1 : 0;
}

/*
 * Reports that the directory is gone, after two looks in a row that did not find it. One look may fall
 * between the two renames by which a user replaces the directory.
 */
static void on_looked(struct disk_job *job)
{
    struct run_directory *directory =
        (struct run_directory *)((char *)job - offsetof(struct run_directory, job));
    struct run *run = directory->run;

    directory->looking = false;
    if (directory->n_gone < 2 || directory->said || run->coordinator == NULL || run->ending != RUN_GOES_ON)
        return;
    directory->said = true;
    if (run->config->job_json != NULL)
        coordinator_lose_directory(run->coordinator);
    else
        run_say(run, "the run directory %s is gone: it was removed or renamed; its logs and events are lost",
                rundir_path(run->rundir));
}

static void on_tick(uv_timer_t *timer)
{
    struct run *run = timer->data;
    struct run_directory *directory = &run->directory;

    if (directory->looking || directory->said || run->coordinator == NULL || run->rundir == NULL ||
        run->ending != RUN_GOES_ON)
        return;
    directory->looking = true;
    directory->rundir = run->rundir;
    disk_submit(run->disk, &directory->job);
}

void run_watch_directory(struct run *run)
{
    run->directory.run = run;
    run->directory.job = (struct disk_job){ .work = look, .done = on_looked };
    uv_timer_init(run->loop, &run->directory.tick);
    run->directory.tick.data = run;
    uv_timer_start(&run->directory.tick, on_tick, LOOK_MS, LOOK_MS);
}
