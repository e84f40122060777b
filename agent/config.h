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
    AGENT_SAVE_DAEMON = 4 /* the signal agent_daemon_stops(), which only fsdp-agent sends */
};

/*
 * What happens to the output of the workers. A stream that no member names is inherited, as under torchrun.
 */
struct agent_output {
    /* One set of streams per local rank; NULL: none. */
    const unsigned char *redirects; /* go to the log file only */
    const unsigned char *tees;      /* go to the log file and to the console */
    /* Per local rank: 1 if its output is shown on the console, else 0. NULL: all are shown. */
    const unsigned char *shown;
    bool prefix; /* console lines carry the rank; this implies that they are captured */
    bool direct; /* a program's inherited output does not pass through the agent (agent/output/relay.h) */
    bool color;  /* the console takes colours */
    bool bar;    /* a job on a terminal: draw the progress line (agent/output/progress.h) */
    const char *prefix_template; /* logs_prefix(); NULL: a job's "[rank ${rank}]: " */
    bool no_files;               /* keep no log files (as torchrun with the null device as its directory) */
    /*
     * Teed lines that contain one of these texts are also kept in one file per generation. Zero-terminated;
     * NULL: none.
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
    AGENT_HOST_AUTO, /* the node that can: the endpoint's address is its own, and the port is free */
    AGENT_HOST_YES,  /* this node, even if the endpoint's address is none of its own */
    AGENT_HOST_NO    /* another node */
};

/* Who says which node coordinates a job of several. */
enum agent_arbiter {
    AGENT_ARBITER_NONE,      /* the endpoint: the node that has it does, as long as it lives */
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
    enum fsdp_phase phase; /* the phase of rank 0, or of this node's first rank */
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
    /* Once: the registry has the run (list_name), or it was said that it has not. */
    void (*listed)(void *arg);
    /*
     * Each line of events.jsonl, also where no such file is kept. Only on the node that coordinates the run.
     */
    void (*event)(void *arg, const char *line);
    /*
     * Once, at the end of a run that began, on that same node: the lines about the whole run that stand above
     * the last line. The run ends with `status`. `out` has `size` bytes, and receives whole lines, or "".
     */
    void (*ending)(void *arg, int status, char *out, size_t size);
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
    int script; /* index in argv of the file that argv[0], an interpreter, runs; 0: none that we know of */

    /* A job file's job; NULL for a program. The members after it are read only when it is set. */
    const char *job_json;      /* the resolved job, zero-terminated */
    const char *deciding_json; /* the keys of a job that decide its result, with their defaults, as JSON */
    uint64_t total_steps;      /* train.steps */
    bool resume_never;         /* checkpoint.resume: never */
    bool exports;              /* a job with all its steps still runs if its export is missing */

    /* The world. */
    const char *run_id; /* TORCHELASTIC_RUN_ID; "none" is torchrun's default */
    const char *role;   /* ROLE_NAME; "default" */
    int n_workers;      /* on this node, at least 1 */
    int n_nodes;
    int node_rank;                /* -1: any that is free; the node that can listen at the endpoint is 0 */
    int min_nodes;                /* the fewest nodes that may form a world; n_nodes: all are needed */
    int64_t join_timeout_ms;      /* how long nodes wait for a world */
    int64_t last_call_timeout_ms; /* with min_nodes there, how much longer they wait for others */
    int64_t lease_ms;             /* a node that is silent for so long is lost; the host's holds for all */
    int threads;                  /* compute threads per worker; 0: cores really available / workers */
    int max_restarts;
    int64_t restart_window_ms; /* only the restarts of so long ago count; 0: those of the whole run */
    int64_t grace_ms;          /* of a program: between TERM and KILL; of a job: for a save on a signal */
    int64_t hang_timeout_ms;   /* a rank that makes no progress for so long is stopped; 0: never */
    bool watched; /* a program: hang_timeout_ms holds for what any rank shows (agent/world/world_life.c) */
    bool python_stacks; /* ... and a module in PYTHONPATH makes Python show its stacks (python_stacks.h) */
    unsigned save_on_signal; /* set of enum agent_save_signal: these save a checkpoint and end with 77 */
    bool straggler_restart;  /* of a job: a node with a slow rank is set aside; the host's value holds */
    int standby; /* of a job: workers of this node that are executed ahead of the next generation */
    bool virtual_local_rank; /* LOCAL_RANK is 0 for all, and each worker sees one device */
    enum agent_numa numa;
    /*
     * Disjoint sets of signals, bit s for signal s. A signal of the first set ends the run: the workers are
     * stopped with that same signal. A signal of the second set is passed on to the workers and ends nothing.
     * A signal in neither set keeps its usual meaning.
     */
    uint64_t stop_signals, forward_signals;
    const char *stop_signals_text; /* as the user wrote it: TORCHELASTIC_SIGNALS_TO_HANDLE */

    /* A signal to one node means the job, because every node gets it. Else that node leaves the job. */
    bool signals_for_all;

    /*
     * The endpoint at which several nodes meet. All NULL or 0 on one node. NULL with AGENT_ARBITER_ETCD:
     * there is none, and the nodes find the one that leads by its record in the etcd.
     */
    const char *rendezvous_host;
    int rendezvous_port;
    enum agent_hosting hosting;
    /* AGENT_ARBITER_DIRECTORY: of a job, or with a run directory that the user names; else not used */
    enum agent_arbiter arbiter;
    const char *etcd;   /* AGENT_ARBITER_ETCD: its members (agent/arbiter/etcd_endpoints.h) */
    const char *secret; /* secret_bytes of it; NULL: insecure, which the user must have asked for */
    size_t secret_bytes;
    /* MASTER_ADDR and MASTER_PORT, if the user names them. NULL, 0: loopback (or node 0), and a free port. */
    const char *master_address;
    int master_port;
    bool no_store; /* the agent has no store: a program's rank 0 opens its own at that address and port */
    const char *local_address; /* where other nodes reach this one; NULL: the address the connection shows */

    /*
     * Where the run is kept, an absolute path.
     *   job      RUN itself
     *   program  RUN as the user names it, or <log-dir>/<run id>_<random>, which the launcher has made
     *   NULL     nothing is kept: no stream is captured and no --log-dir is given; errors go to stderr only
     */
    const char *run_dir;
    /* A job's: where its checkpoints are, an absolute path. NULL: in RUN/checkpoints */
    const char *checkpoint_dir;
    bool run_dir_named;     /* a program's, named by the user: the same for all nodes, and for later runs */
    bool run_dir_temporary; /* a program's, in a new temporary directory: removed if nothing was kept in it */
    struct agent_output output;
    struct agent_observer observer;
    bool quiet; /* print only the first-cause line */

    /*
     * Where programs keep snapshots (agent/snapshot/place.h). The limit is -1 for the default, and 0 for no
     * such place. agent_run() makes the place; NULL: there is none.
     */
    int64_t snapshot_bytes;
    bool replicas;                /* of a job: its snapshots are copied to the memory of another node */
    const char *snapshot_persist; /* where complete ones are written, an absolute path; NULL: nowhere */
    struct place *place;

    /* The run's name in the user's registry (agent/desk/registry.h). NULL: it is not there. */
    const char *list_name;
    char *const *command; /* the command line of fsdprun, zero-terminated; read only with a list_name */
    /*
     * The entry of this process in that registry, and its socket, if the job waited before it became a run.
     * The run answers there. NULL: it makes its own.
     */
    struct registry_entry *entry;
    int entry_fd;
};

/** Return the signals that a run takes: its two sets, and those that save. Never KILL, STOP or CHLD. */
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
