/*
 * One worker of this node in one generation: its start, and how it ended.
 *
 * A start has these steps:
 *   1. worker_begin() names the worker.
 *   2. worker_find_program() and worker_open_files() do what may wait for a file system. With a disk, its
 *      thread calls them.
 *   3. worker_start() makes the process. With a disk, this call does not wait for the exec, which may wait
 *      for a file system; only the new process waits.
 *   4. worker_executed() finds out later what became of the exec.
 *
 * Thread: the loop's, except for step 2.
 */
#ifndef AGENT_WORKER_H
#define AGENT_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/config.h"
#include "agent/link/link_server.h"
#include "agent/link/standby.h"
#include "agent/os/os.h"
#include "agent/output/output.h"
#include "agent/placement/placement.h"
#include "agent/record/first_cause.h"
#include "agent/snapshot/entries.h"
#include "agent/watch/hang_bounds.h"
#include "agent/watch/hang_life.h"
#include "agent/watch/heartbeat.h"
#include "agent/watch/pace.h"
#include "agent/world/start_wait.h"

/* What the coordinator tells a node about a generation. (Not the plan of a step.) */
struct world_plan {
    int generation, restart_count;
    int world_size, first_rank; /* this node's ranks are first_rank ... first_rank + n_workers - 1 */
    int n_nodes, node_rank;
    int role_rank,
        /*
         * role_rank: of this node's first worker, among all ranks of its role; role_world_size: the number of
         * these ranks
         */
        role_world_size;
    int first_attempt;   /* generation g is attempt first_attempt + g of the run directory */
    int64_t resume_step; /* the step to resume from; -1: from initial weights */
    /* a step that every rank has in memory, which is tried before resume_step; -1: none */
    int64_t memory_step;
    int memory_generation; /* in which that step was taken */
    /*
     * the node rank of the node whose copies this node's ranks resume from; -1: they have the snapshot
     * themselves
     */
    int memory_from;
    bool memory_is_peer;             /* some node fetches it from another one */
    char snapshot[ENTRY_NAME_BYTES]; /* the entry (snapshot of a program) that stays in memory; empty: none */
    int64_t lease_ms;                /* of the nodes: the host's */
    uint64_t term; /* the leader's term, which tells its orders from an earlier one's; 0: no arbiter */
    char master_address[256], node_address[256];
    int master_port;
    unsigned char token[32];
    /* the job survives the loss of this node: it goes on without the node, or waits for it or another one */
    bool bears_loss;
};

struct worker {
    int rank, local_rank;
    struct os_child child; /* its pidfd is -1 once it is closed */
    bool live;             /* started, and not reaped */
    /* the descriptor for agent_os.executed(), if the start did not wait for the exec; -1: the exec is over */
    int exec_fd;
    struct start_wait exec; /* for its end */
    bool refused;           /* the exec failed; `death` has the reason, and the process ends by itself */
    bool was_standby;       /* the process had been executed before its generation began */
    int sent_signal;        /* the signal that asked the worker to end; 0: none yet */
    bool killed;            /* KILL was sent */
    int64_t asked_us;       /* when the worker was asked to end, by the epoch clock */
    /* the state of the progress page at the last look; changed_ns is when that state last changed */
    uint64_t seen_beat;
    int64_t changed_ns;
    enum hang_class class;         /* what the worker did at the last look */
    struct hang_patience patience; /* how long the worker's silence since then is still excused */
    /* the pipe from which the worker's heartbeats are read; 0: there is none (world_life.c) */
    int heart_fd;
    struct heartbeat heart;
    /* the memfd for the worker's Python stacks; 0: there is none (agent/watch/python_stacks.h) */
    int stacks_fd;
    struct hang_sample sample;
    /* for a job: first_step is the first step of this generation, step the newest; -1: none has begun */
    int64_t first_step, step;
    struct pace_window window; /* for a job: the window in which its time is measured */
    /* the worker's process that is asleep in state D; 0: at the last check there was none */
    pid_t stuck_pid;
    /* since when every check has found that process so; 0: from the next check on */
    int64_t stuck_since_ns;
    struct death death; /* how the worker ended; kind DEATH_NONE while it lives, and if it ended well */
    uv_poll_t poll;     /* watches the pidfd; `data` is the worker */
    bool polled;
    char timer[160]; /* the expired watchdog timer, in words; empty: none */
    /* the signal that the timer sent to the worker or to a descendant of the worker; timer_ns is when */
    int timer_signal;
    int64_t timer_ns;
    void *world;
};

/*
 * The value that a worker of this node put at FSDP_LINK_KEPT_KEY. Workers of later generations get it in
 * their HELLO.
 */
struct link_kept {
    uint32_t n_bytes;
    unsigned char bytes[FSDP_LINK_KEPT_BYTES];
};

/* What starting a worker needs; the same for all workers of a generation. */
struct worker_context {
    const struct agent_config *config;
    const struct agent_os *os;
    const struct os_baseline *baseline;
    const struct world_plan *plan;
    struct link_server *links;
    /* the thread that writes the index; NULL: the loop writes it, and waits for each exec */
    struct disk *disk;
    struct rundir *rundir;  /* NULL: none */
    struct output *output;  /* NULL: workers write to this process's own streams */
    int archive_fd;         /* with the module of --python-stacks; 0: none */
    const char *timer_file; /* path of the FIFO for watchdog timers; NULL: none */
    const char *snapshots;  /* the directory for snapshots of programs; NULL: none */
    const char *program;    /* its path */
    const struct placement *placement;
    const struct link_kept *kept;
    bool has_snapshots;      /* each worker has a snapshot segment */
    bool has_copies;         /* this node holds copies of another node's snapshots */
    uint64_t held_bytes;     /* memory that they have */
    struct standby *standby; /* NULL: no worker is on standby */
    const char *host;
    const struct lease *lease; /* under which the worker runs; NULL: none */
};

/* What worker_open_files() (step 2 of a start) makes for one worker. */
struct worker_files {
    struct stream_files streams[2];
    bool has_error_folder; /* the worker gets an error file */
};

/**
 * Fill in kind, code and words of `death` for a program or script that cannot be started. `error` is an errno
 * of os_find_program(), os_check_script() or, with `found`, of exec.
 */
void worker_cannot_start(struct death *death, const char *program, int error, bool found);
/** Fill in `death` for something that the system refused: `what` was tried, and failed because of `why`. */
void worker_system_refused(struct death *death, const char *what, const char *why);

/**
 * Returns how one stream of a worker is to be treated. Its prefix is made in `prefix` (256 bytes). Thread:
 * any.
 */
struct stream_spec worker_stream_spec(const struct worker_context *context, int local_rank,
                                      enum rundir_stream which, char prefix[256]);

/** Make *worker the worker `local_rank` of the plan, which has no process yet. */
void worker_begin(struct worker *worker, const struct worker_context *context, int local_rank);

/** Find the program of the workers. False: *death has kind, code and words for the user. Thread: any. */
bool worker_find_program(const struct agent_config *config, char program[RUNDIR_PATH_BYTES],
                         struct death *death);

/**
 * Open the logs of worker `local_rank`, make its folder and look at its script. *files is zero before, and
 * goes to worker_close_files() also after an error. False: *death has kind, code and words for the user.
 * Thread: any. It does not read the members links, kept and standby of `context`.
 */
bool worker_open_files(struct worker_files *files, const struct worker_context *context, int local_rank,
                       struct death *death);
void worker_close_files(struct worker_files *files);

/**
 * Start a worker, with its files. On success it is live and has a pidfd, which the caller watches. On failure
 * no process of it runs, and worker->death has the reason in words for the user.
 */
bool worker_start(struct worker *worker, const struct worker_context *context, struct worker_files *files);

/**
 * Returns whether the exec of a started worker is over. If it failed, worker->refused is set and
 * worker->death has the reason; the process is reaped as ever.
 */
bool worker_executed(struct worker *worker, const struct agent_os *os, const struct agent_config *config);

/**
 * Start a process that can become worker `local_rank` of a later generation. Its descriptors are the
 * caller's. On failure no process runs, and *death has the reason in words for the user. With a disk, a
 * process whose exec fails ends by itself, and process->exec_fd has the reason.
 */
bool worker_start_standby(const struct worker_context *context, int local_rank,
                          struct standby_process *process, struct death *death);

/** Close our ends of the worker's heartbeat pipe and of its stacks, if it has them. */
void worker_close_watch(struct worker *worker);

/**
 * Fill in worker->death from how the process ended. `noticed`: it had been asked to save and stop, so exit
 * status 77 is a good end.
 */
void worker_ended(struct worker *worker, const siginfo_t *info, bool noticed,
                  const struct fsdp_progress *page, int64_t now_ns);

/** Fill in phase and step from the progress page. Values that the page does not have stay unchanged. */
void worker_read_place(struct death *death, const struct fsdp_progress *page);

/**
 * Signal the worker's process group. KILL is always sent; another signal only if the worker lives and was not
 * asked to end before.
 */
void worker_end(struct worker *worker, const struct agent_os *os, int signal);

/**
 * Write the path of the error file of a program's worker (TORCHELASTIC_ERROR_FILE). Returns false if it has
 * none. The file's folder need not exist.
 */
bool worker_error_file(const struct agent_config *config, const struct rundir *rundir, int generation,
                       const struct worker *worker, char *out, size_t size);

/** Returns where a stream of a rank goes, by the options about output. */
enum output_mode worker_output_mode(const struct agent_config *config, int local_rank, unsigned stream);

#endif
