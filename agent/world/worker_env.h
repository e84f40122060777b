/*
 * The environment and the arguments of a worker. Pure: all inputs are in the struct. The variables are
 * torchrun's, for unmodified PyTorch programs, and two of ours (FSDP_LINK_FD, FSDP_RUN_DIR).
 */
#ifndef AGENT_WORKER_ENV_H
#define AGENT_WORKER_ENV_H

#include <stddef.h>

struct agent_config;
struct world_plan;

struct worker_identity {
    const struct agent_config *config;
    const struct world_plan *plan;
    int local_rank;
    int threads;            /* OMP_NUM_THREADS, unless the parent sets it */
    const char *error_file; /* TORCHELASTIC_ERROR_FILE; NULL: empty */
    const char *run_dir;    /* FSDP_RUN_DIR; NULL: not set */
    const char *timer_file; /* TORCHELASTIC_TIMER_FILE; NULL: as in the parent */
    const char *snapshots;  /* FSDPRUN_SNAPSHOT_DIR; NULL: not set */
    int link_fd;            /* FSDP_LINK_FD; -1: not set */
    int heart_fd;           /* FSDPRUN_HEARTBEAT_FD; 0: not set */
    int stacks_fd;          /* FSDPRUN_STACKS; 0: not set */
    /* the descriptor of the archive that comes first in PYTHONPATH; 0: PYTHONPATH is as in the parent */
    int archive_fd;
};

/**
 * Copy `parent` (NAME=value strings, ended by a NULL pointer), and replace or add this worker's variables.
 * The result is one block; free it with free(). NULL: out of memory.
 */
char **worker_env_build(char *const *parent, const struct worker_identity *identity);

/**
 * The variables of this worker alone, as "NAME=value" texts, each with its zero: for a process that has
 * inherited the others.
 *   n_bytes  receives the size of all of them
 * The result is one block; free it with free(). NULL: out of memory.
 */
char *worker_env_own(char *const *parent, const struct worker_identity *identity, size_t *n_bytes);

/**
 * Copy `argv`. As torchrun does with Python's string.Template, "${local_rank}" and "$local_rank" become the
 * local rank, and "$$" becomes a dollar. Any other dollar stays, and the program's name is not changed. The
 * result is one block; free it with free(). NULL: out of memory.
 */
char **worker_env_args(char *const *argv, int local_rank);

#endif
