/*
 * From options and job to what the agent is told. Everything that struct agent_config borrows lives in struct
 * launch.
 */
#ifndef LAUNCHER_LAUNCH_H
#define LAUNCHER_LAUNCH_H

#include <stdbool.h>

#include "agent/config.h"
#include "agent/record/rundir.h"
#include "launcher/options.h"
#include "launcher/secret.h"
#include "launcher/what.h"
#include "shard_runtime/job/job.h"

enum {
    LAUNCH_DEFAULT_PORT = 29400, /* of --rdzv-endpoint */
    LAUNCH_MASTER_PORT = 29500,  /* of --master-addr, where that names the endpoint */
    LAUNCH_HOST_BYTES = 256,
    LAUNCH_JOB_RESTARTS = 3,
    LAUNCH_NOTES_MAX = 8,
    LAUNCH_NOTE_BYTES = 320
};

/* What the launcher finds around it. */
struct surroundings {
    const char *(*get_env)(void *arg, const char *name);
    void *arg;
    const struct what_files *files;
    const char *own_path; /* of the running fsdprun; fsdp-train lies beside it */
    const char *
        python_beside; /* the Python beside a torchrun called by its path, as venv/bin/torchrun; NULL: none */
    bool out_is_terminal, err_is_terminal;
    /* As options_input's; NULL: there are none. */
    int (*count_devices)(void *arg, const char *word, bool one_each, char *why, size_t why_bytes);
};

struct launch {
    struct agent_config config;
    struct secret secret;
    char run_dir[RUNDIR_PATH_BYTES];
    char run_id[37]; /* a UUID; empty where the id was given, or is none */
    char endpoint_host[LAUNCH_HOST_BYTES], master_host[LAUNCH_HOST_BYTES];
    char trainer[RUNDIR_PATH_BYTES];
    unsigned char *redirects, *tees; /* per local rank */
    bool *shown;
    char **stdout_filters, **stderr_filters;
    char **argv;
    char *job_json, *deciding_json;
    /* Lines for the user about what was taken otherwise than it was written. */
    char notes[LAUNCH_NOTES_MAX][LAUNCH_NOTE_BYTES];
    size_t n_notes;
};

/**
 * Fill `launch` for a job or a program. Returns 0, or the status fsdprun ends with, its line in `err`.
 * launch_program() creates the program's directory (agent/record/rundir.h) unless --dry-run was said, launch_job() nothing.
 */
int launch_job(struct launch *launch, const struct options *options, const struct job *job,
               const struct surroundings *around, struct fsdp_err *err);
int launch_program(struct launch *launch, const struct options *options, enum what_kind kind,
                   const struct surroundings *around, struct fsdp_err *err);

/** Overwrites the secret too. */
void launch_fini(struct launch *launch);

/**
 * argv of the workers of a program, as one zero-terminated array to be freed; the words are borrowed.
 * NULL: no memory, or (an err of FSDP_ERR_NOT_FOUND) no Python.
 */
char **launch_program_argv(const struct options *options, enum what_kind kind,
                           const struct surroundings *around, struct fsdp_err *err);

#endif
