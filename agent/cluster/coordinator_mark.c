/*
 * The mark in a run directory that the user of a program named. By it, the other nodes see that they share
 * the directory. It is written before any node is told to start; each node looks for it. The disk's thread
 * makes it. A disk that does not answer is named and given up as by the start of workers
 * (agent/world/start_wait.h).
 */
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"

struct mark {
    struct disk_job job;
    struct coordinator *coordinator;
    struct rundir *rundir;
    unsigned char token[32];
    struct fsdp_err err;
    struct start_wait wait;
    coordinator_marked *marked;
};

static void write_mark(struct disk_job *job)
{
    struct mark *mark = (struct mark *)job;

    (void)rundir_mark(mark->rundir, mark->token, &mark->err);
}

/* Ends the wait for the mark. The coordinator no longer points to it. */
static void end_wait(struct mark *mark, const struct fsdp_err *err)
{
    struct coordinator *coordinator = mark->coordinator;

    coordinator->mark = NULL;
    mark->marked(coordinator, err);
}

static void on_marked(struct disk_job *job)
{
    struct mark *mark = (struct mark *)job;
    struct coordinator *coordinator = mark->coordinator;

    if (coordinator->mark == mark) {
        if (mark->err.status != FSDP_OK) /* without the mark, the other nodes end the run */
            console_say(coordinator->services.console, "fsdprun: %s", mark->err.message);
        end_wait(mark, &(struct fsdp_err){ 0 });
    }
    free(mark);
}

static void await_look(struct coordinator *coordinator)
{
    coordinator->mark_look_ms = coordinator_now_ms(coordinator) + START_WAIT_LOOK_MS;
    coordinator_arm(coordinator);
}

void coordinator_mark(struct coordinator *coordinator, coordinator_marked *marked)
{
    const struct coordinator_services *services = &coordinator->services;
    struct fsdp_err err = { 0 };
    struct mark *mark;

    if (services->disk == NULL || services->rundir == NULL || !coordinator->config->run_dir_named) {
        marked(coordinator, &err);
        return;
    }
    mark = calloc(1, sizeof *mark);
    if (mark == NULL) {
        fsdp_fail(&err, FSDP_ERR_NOMEM, "out of memory");
        marked(coordinator, &err);
        return;
    }
    mark->job = (struct disk_job){ .work = write_mark, .done = on_marked };
    mark->coordinator = coordinator;
    mark->rundir = services->rundir;
    memcpy(mark->token, coordinator->token, sizeof mark->token);
    mark->marked = marked;
    start_wait_begin(&mark->wait, coordinator_now_ns(coordinator));
    coordinator->mark = mark;
    await_look(coordinator);
    disk_submit(services->disk, &mark->job);
}

void coordinator_mark_look(struct coordinator *coordinator)
{
    struct mark *mark = coordinator->mark;
    char why[START_WAIT_WORDS_BYTES];
    struct fsdp_err err = { 0 };

    if (mark == NULL)
        return;
    if (!start_wait_look_at_disk(&mark->wait, coordinator_now_ns(coordinator), coordinator->services.console,
                                 why)) {
        await_look(coordinator);
        return;
    }
    fsdp_fail(&err, FSDP_ERR_IO, "cannot start a worker: the mark in %s: %s",
              rundir_path(coordinator->services.rundir), why);
    end_wait(mark, &err);
}
