/*
 * agent/record/rundir.h: one directory that all hosts share, and its lock. A kernel gives the lock back when
 * the process that has it ends. That of a host that is gone stays with the server for a time (NFS).
 */
#include <fcntl.h>
#include <stdlib.h>

#include "agent/record/rundir.h"
#include "shard_runtime/core/require.h"
#include "tests/sim/sim.h"

enum { SERVER_KEEPS_S = 40 };

struct rundir {
    struct process *process;
    int first_attempt;
    bool open;
};

static const struct process *holder;

static bool is_locked(void)
{
    return holder != NULL &&
           (holder->alive || (holder->host->down && sim_now < holder->ended_at + SERVER_KEEPS_S * SECOND));
}

enum fsdp_status rundir_create(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err)
{
    *out = NULL;
    if (spec->path == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "a run directory without a path");
    *out = calloc(1, sizeof **out);
    (*out)->process = sim_current;
    return FSDP_OK;
}

/* The host by the endpoint opens it on its loop, which is nothing that takes time here. */
enum fsdp_status rundir_begin(struct rundir *rundir, struct fsdp_err *err)
{
    (void)err;
    if (!rundir->open && rundir->process->run->lead.opening)
        sim_block(sim_between(SIM_AGENTS, MS, sim_plan.lease_ms * MS));
    rundir->open = true;
    return FSDP_OK;
}

enum fsdp_status rundir_open(struct rundir **out, const struct rundir_spec *spec, struct fsdp_err *err)
{
    OK_OR_RETURN(rundir_create(out, spec, err));
    return rundir_begin(*out, err);
}

enum fsdp_status rundir_lock(struct rundir *rundir, bool begins, struct fsdp_err *err)
{
    (void)begins;
    if (holder != rundir->process && is_locked())
        return fsdp_fail(err, FSDP_ERR_BUSY, "n%d has the run directory", holder->host->number);
    holder = rundir->process;
    return FSDP_OK;
}

void rundir_unlock(struct rundir *rundir)
{
    if (holder == rundir->process)
        holder = NULL;
}

int rundir_lock_fd(const struct rundir *rundir)
{
    return holder == rundir->process;
}

void rundir_close(struct rundir *rundir, bool discard)
{
    (void)discard;
    if (rundir == NULL)
        return;
    rundir_unlock(rundir);
    free(rundir);
}

const char *rundir_path(const struct rundir *rundir)
{
    return rundir->process->config.run_dir;
}

/* A directory that there is; nothing is opened in it. */
int rundir_fd(const struct rundir *rundir)
{
    static int fd = -1;

    (void)rundir;
    if (fd < 0)
        fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd;
}

bool rundir_is_gone(const struct rundir *rundir)
{
    (void)rundir;
    return false;
}

int rundir_first_attempt(const struct rundir *rundir)
{
    return rundir->first_attempt;
}

void rundir_set_first_attempt(struct rundir *rundir, int first_attempt)
{
    rundir->first_attempt = first_attempt;
}

enum fsdp_status rundir_mark(struct rundir *rundir, const unsigned char token[32], struct fsdp_err *err)
{
    (void)rundir, (void)token, (void)err;
    sim_block(sim_between(SIM_AGENTS, MS, 30 * MS));
    return FSDP_OK;
}

enum fsdp_status rundir_find_mark(const struct rundir *rundir, const unsigned char token[32],
                                  struct fsdp_err *err)
{
    (void)rundir, (void)token, (void)err;
    return FSDP_OK;
}

/* Its file has more that the linker needs, so it is wrapped (--wrap). */
enum fsdp_status __wrap_rundir_write(struct rundir *rundir, const char *name, const char *text, size_t length,
                                     struct fsdp_err *err);

enum fsdp_status __wrap_rundir_write(struct rundir *rundir, const char *name, const char *text, size_t length,
                                     struct fsdp_err *err)
{
    (void)rundir, (void)name, (void)text, (void)length, (void)err;
    sim_block(sim_between(SIM_AGENTS, MS, 30 * MS));
    return FSDP_OK;
}
