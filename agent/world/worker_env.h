/*
 * What a worker is told: its environment and its arguments. Pure: everything comes in through the struct.
 * The names are torchrun's, so that unmodified PyTorch programs find what they look for, and two of ours.
 */
#ifndef AGENT_WORKER_ENV_H
#define AGENT_WORKER_ENV_H

#include <stdbool.h>

struct worker_identity {
    int rank, world_size;
    int local_rank, local_world_size;
    int node_rank, n_nodes;
    int role_rank, role_world_size; /* among the ranks of the same role, in rank order */
    bool virtual_local_rank;        /* LOCAL_RANK 0 and one device for each */
    const char *role;
    const char *run_id;
    const char *master_address;
    int master_port;
    bool agent_store; /* the agent serves PyTorch's store there; else rank 0 does */
    int restart_count, max_restarts;
    const char *stop_signals; /* TORCHELASTIC_SIGNALS_TO_HANDLE: names, as they were given */
    int threads;              /* OMP_NUM_THREADS where the parent does not set it */
    const char *error_file;   /* TORCHELASTIC_ERROR_FILE; NULL: empty */
    const char *run_dir;      /* FSDP_RUN_DIR; NULL: not set */
    const char *timer_file;   /* TORCHELASTIC_TIMER_FILE; NULL: as the parent has it */
    int link_fd;              /* FSDP_LINK_FD; -1: not set */
};

/**
 * `parent` (zero-terminated, NAME=value each) with this worker's variables in place of what it had under the
 * same names. One block to be freed with free(); NULL when memory ran out.
 */
char **worker_env_build(char *const *parent, const struct worker_identity *identity);

/**
 * A copy of `argv` in which "${local_rank}" and "$local_rank" are the local rank and "$$" is a dollar, as torchrun
 * has it by Python's string.Template. The program's name is copied as it is, and so is any other dollar. One block to be freed with free(); NULL when memory ran out.
 */
char **worker_env_args(char *const *argv, int local_rank);

#endif
