/*
 * What a run is told: plain data that the launcher fills in and agent_run() (agent/run/agent.h) reads.
 * Everything the struct points to is borrowed until the run has ended; nothing here is written by the agent.
 * This is the ground of the agent: every room may include it, and it includes none.
 */
#ifndef AGENT_CONFIG_H
#define AGENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>

/* Bits of a set of streams. */
enum { AGENT_STDOUT = 1, AGENT_STDERR = 2 };

/* Bits of a set of signals. Each asks a job to save a checkpoint and to end. */
enum agent_save_signal {
    AGENT_SAVE_NONE = 0,
    AGENT_SAVE_TERM = 1,
    AGENT_SAVE_USR1 = 2,
    /* Bits of a set of signals. Each of these signals makes a job save a checkpoint and then end. */
    AGENT_SAVE_DAEMON = 4
};

/*
 * What happens to the output of the workers. A stream that no member here names is inherited by the worker
 * from fsdprun, as under torchrun.
 */
struct agent_output {
    /* One set of streams per local rank; NULL: none. */
    const unsigned char *redirects; /* go to the log file only */
    const unsigned char *tees;      /* go to the log file and to the console */
    /* Per local rank: 1 if its output is shown on the console, else 0. NULL: all are shown. */
    const unsigned char *shown;
    bool prefix; /* console lines carry the rank; the streams are then captured */
    bool direct; /* a program's inherited output does not pass through the agent (agent/output/output.h) */
    bool color;  /* the console takes colours */
    bool bar;    /* a job on a terminal: draw the progress line (agent/output/progress.h) */
    const char *prefix_template; /* logs_prefix(); NULL: a job's "[rank ${rank}]: " */
    bool no_files;               /* keep no log files (as torchrun with the null device as its directory) */
    /*
     * Teed lines that contain one of these texts are also written to one file per generation. The list ends
     * with NULL. A NULL list: no such file.
     */
    char *const *stdout_filters, *const *stderr_filters;
    uint64_t file_limit_bytes; /* a log file that has reached this is rotated; 0: never */
    int n_rotated;             /* rotated files that are kept in addition; 0: the file is cut instead */
};

/* Which CPUs a worker runs on: those near its GPU, or its share of the machine. torchrun's --numa-binding. */
enum agent_numa {
    AGENT_NUMA_NONE,
    AGENT_NUMA_NODE,
    AGENT_NUMA_SOCKET,
    AGENT_NUMA_EXCLUSIVE,
    AGENT_NUMA_CORE_COMPLEX
};

/* The node that listens at the rendezvous endpoint. */
enum agent_hosting {
    /* the node that can listen there: the endpoint's address is its own, and the port is free */
    AGENT_HOST_AUTO,
    AGENT_HOST_YES, /* this node hosts, even if the endpoint's address is not among its own addresses */
    AGENT_HOST_NO   /* another node */
};

/* What decides which node coordinates a job of several nodes. */
enum agent_arbiter {
    /* no arbiter: the node that listens at the rendezvous endpoint leads, as long as it lives */
    AGENT_ARBITER_NONE,
    AGENT_ARBITER_DIRECTORY, /* a record in the run directory, which all nodes share */
    AGENT_ARBITER_ETCD       /* a record in an etcd */
};

/*
 * One look at the run, read from the progress pages. The progress line shows it. Doubles are NaN until
 * reported.
 */
struct agent_progress {
    int generation;
    int n_live; /* workers of this node that run */
    uint64_t step, total_steps;
    uint64_t tokens; /* consumed by all ranks so far */
    double loss, grad_norm, tokens_per_s;
    uint64_t memory_bytes; /* the largest of this node's ranks */
    enum fsdp_phase phase; /* of this node's first rank, which is rank 0 on the first node */
    bool stopping;
};

/*
 * What the caller of agent_run() may watch. Every function may be NULL. They are called in the agent, which
 * is a child process of the caller, on the thread of its loop.
 */
struct registry_entry;

struct agent_observer {
    void *arg;
    /* About four times a second, and only for jobs. */
    void (*progress)(void *arg, const struct agent_progress *progress);
    /* In each generation, once all workers of this node were started; some may have ended by then. */
    void (*started)(void *arg);
    /*
     * Called once, when the run is in the user's registry (list_name), or was refused there with a message.
     */
    void (*listed)(void *arg);
    /* Called with each line of events.jsonl, even if no such file is kept. Only on the node that leads. */
    void (*event)(void *arg, const char *line);
    /*
     * Called once, at the end of a run that has begun, on the node that leads. It writes lines about the
     * whole run, which are printed above the last line, or "". `out` has `size` bytes. The run ends with
     * `status`. `has_logs`: the run directory has output of ranks.
     */
    void (*ending)(void *arg, int status, bool has_logs, char *out, size_t size);
};

/*
 * Limits of a window of restarts. The agent keeps the time of each restart in it.
 */
enum { AGENT_RESTARTS_IN_WINDOW = 240, AGENT_RESTART_WINDOW_S = 1000000 };

struct place;

enum { AGENT_LEASE_MS = 3000 /* the default of lease_ms below */ };

struct agent_config {
    /*
     * What is run. argv[0] is a path, or a name to look up on PATH. "${local_rank}" in arguments is replaced.
     */
    char *const *argv; /* zero-terminated, at least one word */
    /* index in argv of the script that argv[0], an interpreter, runs; 0: no such script is known */
    int script;

    /* A job file's job; NULL for a program. The members after it are read only when it is set. */
    const char *job_json;      /* the resolved job, zero-terminated */
    const char *deciding_json; /* the keys of a job that decide its result, with their defaults, as JSON */
    uint64_t total_steps;      /* train.steps */
    bool resume_never;         /* checkpoint.resume: never */
    /* the job exports its model: if the export is missing, the job runs even if all its steps are done */
    bool exports;

    /* The world. */
    const char *run_id; /* TORCHELASTIC_RUN_ID; "none" is torchrun's default */
    const char *role;   /* ROLE_NAME; "default" */
    int n_workers;      /* on this node, at least 1 */
    int n_nodes;
    int node_rank; /* -1: any free number; number 0 is the node that listens at the endpoint */
    /* a world forms with at least so many nodes; equal to n_nodes: all are needed */
    int min_nodes;
    int64_t join_timeout_ms;      /* how long nodes wait for a world */
    int64_t last_call_timeout_ms; /* how much longer nodes wait for more nodes once min_nodes are there */
    /* how long a node may be silent before it is lost; the leader's value holds for all nodes */
    int64_t lease_ms;
    /* compute threads per worker; 0: the cores that are available, divided by the workers */
    int threads;
    int max_restarts;
    int64_t restart_window_ms; /* a restart counts against max_restarts for so long; 0: for the whole run */
    /* for a program: the time from TERM to KILL; for a job: how long a save on a signal may take */
    int64_t grace_ms;
    int64_t hang_timeout_ms; /* a rank that makes no progress for so long is stopped; 0: never */
    /* for a program: hang_timeout_ms applies to whatever its ranks show (agent/world/world_life.c) */
    bool watched;
    /* for a watched program: a module in PYTHONPATH makes Python show its stacks (python_stacks.h) */
    bool python_stacks;
    /* set of enum agent_save_signal: on these signals a job saves a checkpoint and ends with 77 */
    unsigned save_on_signal;
    /* for a job: a node with a slow rank is taken out of the world; the leader's value decides */
    bool straggler_restart;
    int standby;             /* for a job: how many workers this node starts ahead of the next generation */
    bool virtual_local_rank; /* LOCAL_RANK is 0 for all, and each worker sees one device */
    enum agent_numa numa;
    /*
     * Disjoint sets of signals, bit s for signal s. A signal of the first set ends the run: the workers are
     * stopped with that same signal. A signal of the second set is passed on to the workers and ends nothing.
     * A signal in neither set keeps its usual meaning.
     */
    uint64_t stop_signals, forward_signals;
    const char *stop_signals_text; /* as the user wrote it: TORCHELASTIC_SIGNALS_TO_HANDLE */

    /*
     * Whether a signal that reaches this node is meant for the whole job, because every node gets it.
     * Otherwise this node alone leaves the job.
     */
    bool signals_for_all;

    /*
     * The endpoint at which several nodes meet. All NULL or 0 on one node. NULL with AGENT_ARBITER_ETCD:
     * there is none, and the nodes find the one that leads by its record in the etcd.
     */
    const char *rendezvous_host;
    int rendezvous_port;
    enum agent_hosting hosting;
    /*
     * What decides which node leads. AGENT_ARBITER_DIRECTORY is used only for a job, or if the user named the
     * run directory.
     */
    enum agent_arbiter arbiter;
    /* for AGENT_ARBITER_ETCD: the addresses of etcd's members (agent/arbiter/etcd_endpoints.h) */
    const char *etcd;
    /* (secret_bytes) NULL: traffic between nodes is not protected, which the user must have asked for */
    const char *secret;
    size_t secret_bytes;
    /* MASTER_ADDR and MASTER_PORT, if the user names them. NULL, 0: loopback (or node 0), and a free port. */
    const char *master_address;
    int master_port;
    /* for a program: the agent opens no store, because rank 0 opens its own at that address and port */
    bool no_store;
    /*
     * the address at which other nodes reach this one; NULL: the one that its connection to the leader shows
     */
    const char *local_address;

    /*
     * Where the run is kept, an absolute path.
     *   job      RUN itself
     *   program  RUN as the user names it, or <log-dir>/<run id>_<random>, which the launcher has made
     *   NULL     nothing is kept: no stream is captured and no --log-dir is given; errors go to stderr only
     */
    const char *run_dir;
    /* A job's: where its checkpoints are, an absolute path. NULL: in RUN/checkpoints */
    const char *checkpoint_dir;
    /* for a program: the user named run_dir, so it is the same on all nodes and for later runs */
    bool run_dir_named;
    /* for a program: run_dir is a new temporary directory, which is removed if nothing was kept in it */
    bool run_dir_temporary;
    struct agent_output output;
    struct agent_observer observer;
    bool quiet; /* print only the first-cause line */

    /*
     * snapshot_bytes is the most that snapshots of programs may take in memory (agent/snapshot/place.h); -1:
     * the default, 0: there is no such place. agent_run() makes the place and sets its path; NULL: there is
     * none.
     */
    int64_t snapshot_bytes;
    bool replicas; /* for a job: its snapshots are copied to the memory of another node */
    /* a directory to which complete snapshots of a program are written, an absolute path; NULL: none */
    const char *snapshot_persist;
    struct place *place;

    /* The run's name in the user's registry (agent/desk/registry.h). NULL: the run is not listed. */
    const char *list_name;
    char *const *command; /* the command line of fsdprun, zero-terminated; read only with a list_name */
    /*
     * This run's entry in that registry, with its socket, if the job was listed before the run began, while
     * it waited for GPUs. NULL: the run makes its own entry.
     */
    struct registry_entry *entry;
    int entry_fd;
};

/**
 * Return the signals that a run handles: stop_signals, forward_signals, and those of save_on_signal. Never
 * KILL, STOP or CHLD.
 */
uint64_t agent_signals(const struct agent_config *config);

/**
 * Return the signal by which fsdp-agent, when it has to stop, asks a job to save and end. Users do not send
 * it: it is a real-time signal. The run takes it as TERM with --save-on-signal, whatever TERM itself means
 * there.
 */
int agent_daemon_stops(void);

/** Fill in every default: one worker on one node, the contract's grace. */
void agent_config_init(struct agent_config *config);

#endif
