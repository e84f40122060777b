/*
 * From options and job to what the agent is told. Everything that struct agent_config borrows lives in struct
 * launch, in the options, or in the job.
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
    LAUNCH_DEFAULT_PORT = 29400, /* of --rdzv-endpoint */
    LAUNCH_MASTER_PORT = 29500,  /* of --master-addr, if that names the endpoint */
    LAUNCH_HOST_BYTES = 256,
    LAUNCH_NOTES_MAX = 8,
    LAUNCH_NOTE_BYTES = 320
};

/* What the launcher finds around it. A test passes its own. */
struct surroundings {
    const char *(*get_env)(void *arg, const char *name);
    void *arg;
    const struct what_files *files;
    const char *own_path; /* path of the running fsdprun; fsdp-train is in the same folder */
    const char
        *python_beside; /* in the folder of the program that was called (launcher/called.h); NULL: none */
    bool out_is_terminal, err_is_terminal;
    /* As in struct options_input; NULL: there are no devices. */
    int (*count_devices)(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);
    const struct slurm_step
        *slurm;           /* the step that Slurm arranges, and this process is a task of; NULL: none */
    char *const *command; /* the command line of this process, zero-terminated; NULL: it is not known */
    /* fsdp-agent runs this process, and gets one byte here once the workers run. NULL: it does not. */
    int *start_fd;
};

/* One launch, made by launch_job() or launch_program() and released by launch_fini(). */
struct launch {
    struct agent_config config;
    struct secret secret;
    char secret_file[RUNDIR_PATH_BYTES]; /* the step's secret, until all nodes have read it; empty: none */
    bool has_made_secret;                /* in that file: launch_fini() removes it */
    char run_dir[RUNDIR_PATH_BYTES];
    char checkpoint_dir[RUNDIR_PATH_BYTES];
    char snapshot_persist[RUNDIR_PATH_BYTES];
    char list_name[256]; /* of the registry of runs */
    char run_id[37];     /* a UUID that was made up; empty: the id was given, or is "none" */
    char endpoint_host[LAUNCH_HOST_BYTES], master_host[LAUNCH_HOST_BYTES];
    char trainer[RUNDIR_PATH_BYTES];
    /* Per local rank, as struct agent_output has them. */
    unsigned char *redirects, *tees, *shown;
    char **stdout_filters, **stderr_filters;
    char **argv;
    char *job_json, *deciding_json;
    /* Lines for the user, as where a setting is not taken as it was written. */
    char notes[LAUNCH_NOTES_MAX][LAUNCH_NOTE_BYTES];
    size_t n_notes;
};

/**
 * Fill in `launch` for a job that has been resolved. It makes no file. Returns 0, or the exit status of
 * fsdprun, with its line in `err`. launch_fini() releases the launch in both cases.
 */
int launch_job(struct launch *launch, const struct options *options, const struct job *job,
               const struct surroundings *around, struct fsdp_err *err);

/**
 * The same for a program of `kind`. Unless --dry-run was given, it makes the program's run directory
 * (agent/record/rundir.h).
 */
int launch_program(struct launch *launch, const struct options *options, enum what_kind kind,
                   const struct surroundings *around, struct fsdp_err *err);

/**
 * Fill in which signals the run takes, and what each means. Needs only the options, so that a client of
 * fsdp-agent can ask which signals it has to pass on. Returns 0, or FSDP_EXIT_USAGE for a signal that would
 * have two meanings.
 */
int launch_set_signals(struct agent_config *config, const struct options *options, struct fsdp_err *err);

/** Release the launch and overwrite its secret. The launch is empty afterwards. */
void launch_fini(struct launch *launch);

/** Write the path of fsdp-train, which is in the folder of fsdprun. Returns false if it does not fit. */
bool launch_trainer_path(const char *own_path, char *out, size_t size);

#endif
