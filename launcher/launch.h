/*
 * Turns the options and the job into a struct agent_config, from which the agent runs. All that this struct
 * borrows is in struct launch, in the options, or in the job.
 */
#ifndef LAUNCHER_LAUNCH_H
#define LAUNCHER_LAUNCH_H

#include <stdbool.h>

#include "agent/config.h"
#include "agent/record/rundir.h"
#include "launcher/options.h"
#include "launcher/secret.h"
#include "launcher/slurm.h"
#include "launcher/what.h"
#include "shard_runtime/job/job.h"

enum {
    LAUNCH_DEFAULT_PORT = 29400, /* port of --rdzv-endpoint, if the user gives none */
    LAUNCH_MASTER_PORT = 29500,  /* port of --master-addr, if that names the endpoint and no port is given */
    LAUNCH_HOST_BYTES = 256,
    LAUNCH_NOTES_MAX = 8,
    LAUNCH_NOTE_BYTES = 320
};

/* What the launcher reads of its environment. A test passes its own. */
struct surroundings {
    const char *(*get_env)(void *arg, const char *name);
    void *arg;
    const struct what_files *files;
    const char *own_path; /* path of the running fsdprun; fsdp-train is in the same folder */
    const char
        /* Python in the folder of the program that was called (launcher/called.h); NULL: none */
        *python_beside;
    bool out_is_terminal, err_is_terminal;
    /* Counts devices, as described in struct options_input; NULL: there are no devices. */
    int (*count_devices)(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);
    const struct slurm_step
        *slurm; /* the Slurm step whose nodes fsdprun uses; this process is a task of it; NULL: none */
    char *const *command; /* command line of this process, terminated by NULL; NULL: unknown */
    /*
     * Socket to the fsdp-agent that runs this process. One byte is sent there once the workers run. NULL: no
     * fsdp-agent runs it.
     */
    int *start_fd;
};

/* One launch. launch_job() or launch_program() fills it in, and launch_fini() frees what it holds. */
struct launch {
    struct agent_config config;
    struct secret secret;
    /* path of the file with the Slurm step's secret, as long as some node must still read it; empty: none */
    char secret_file[RUNDIR_PATH_BYTES];
    bool has_made_secret; /* this process made secret_file, so launch_fini() removes it */
    char run_dir[RUNDIR_PATH_BYTES];
    char checkpoint_dir[RUNDIR_PATH_BYTES];
    char snapshot_persist[RUNDIR_PATH_BYTES];
    char list_name[256]; /* name in the registry of runs */
    char run_id[37];     /* UUID made up by fsdprun; empty: the user gave an id, or it is "none" */
    char endpoint_host[LAUNCH_HOST_BYTES], master_host[LAUNCH_HOST_BYTES];
    char trainer[RUNDIR_PATH_BYTES];
    /* For each local rank, as in struct agent_output. */
    unsigned char *redirects, *tees, *shown;
    char **stdout_filters, **stderr_filters;
    char **argv;
    char *job_json, *deciding_json;
    /* Lines for the user, for example that a setting is not used as it was written. */
    char notes[LAUNCH_NOTES_MAX][LAUNCH_NOTE_BYTES];
    size_t n_notes;
};

/**
 * Fills in `launch` for a job that has been resolved. It makes no file. Returns 0, or the exit status of
 * fsdprun with the line for the user in `err`. In both cases the caller must call launch_fini().
 */
int launch_job(struct launch *launch, const struct options *options, const struct job *job,
               const struct surroundings *around, struct fsdp_err *err);

/**
 * Fills in `launch` for a program of `kind`, like launch_job(). Unless --dry-run was given, it makes the
 * program's run directory (agent/record/rundir.h).
 */
int launch_program(struct launch *launch, const struct options *options, enum what_kind kind,
                   const struct surroundings *around, struct fsdp_err *err);

/**
 * Fills in which signals the run handles, and what each means. It needs only the options. So a client of
 * fsdp-agent can find out which signals to pass on. Returns 0, or FSDP_EXIT_USAGE if a signal would have two
 * meanings.
 */
int launch_set_signals(struct agent_config *config, const struct options *options, struct fsdp_err *err);

/** Frees what the launch holds, overwrites its secret, and empties it. */
void launch_fini(struct launch *launch);

/**
 * Writes the path of fsdp-train, which is in the same folder as fsdprun. Returns false if it does not fit.
 */
bool launch_trainer_path(const char *own_path, char *out, size_t size);

#endif
