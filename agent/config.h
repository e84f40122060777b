/*
 * What a run is told: plain data that the launcher, or the daemon for its client, fills in and agent_run()
 * (agent/run/agent.h) reads. Everything the struct points to is borrowed until the run has ended; nothing here is
 * written by the agent. The ground of the agent: every room may include it, and it includes none.
 */
#ifndef AGENT_CONFIG_H
#define AGENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>

/* Bits of a stream set: what is captured, shown, ... */
enum { AGENT_STDOUT = 1, AGENT_STDERR = 2 };

/* What asks a job for a checkpoint and its end. DAEMON: the signal agent_daemon_stops(), sent by the daemon alone. */
enum agent_save_signal {
    AGENT_SAVE_NONE = 0,
    AGENT_SAVE_TERM = 1,
    AGENT_SAVE_USR1 = 2,
    AGENT_SAVE_DAEMON = 4
};

/* What happens to the output of the workers. Streams named nowhere are inherited, as under torchrun. */
struct agent_output {
    const unsigned char *redirects; /* per local rank: streams that go to the log file only; NULL: none */
    const unsigned char
        *tees;         /* per local rank: streams that go to the log file and the console; NULL: none */
    const bool *shown; /* per local rank: is its console output shown; NULL: all are */
    bool prefix;       /* console lines carry the rank; implies that they are captured */
    bool direct;       /* a program's inherited output does not pass through the agent (agent/output/relay.h) */
    bool color;        /* the console takes colours */
    bool bar;          /* a job on a terminal: draw the progress line (agent/output/progress.h) */
    const char *prefix_template; /* logs_prefix(); NULL: a job's "[rank ${rank}]: " */
    bool no_files;               /* keep no log files (as torchrun with the null device as its directory) */
    /* Teed lines with any of these in them are also kept in one file a generation; zero-terminated lists, NULL: none. */
    char *const *stdout_filters, *const *stderr_filters;
    uint64_t file_limit_bytes; /* a log file that has reached this is rotated; 0: never */
    int n_rotated;             /* rotated files that are kept beside it; 0: it is cut instead */
};

/* Which CPUs a worker runs on, from where its GPU (or its share of the machine) is. torchrun's --numa-binding. */
enum agent_numa {
    AGENT_NUMA_NONE,
    AGENT_NUMA_NODE,
    AGENT_NUMA_SOCKET,
    AGENT_NUMA_EXCLUSIVE,
    AGENT_NUMA_CORE_COMPLEX
};

/* Who listens at the rendezvous endpoint. */
enum agent_hosting {
    AGENT_HOST_AUTO, /* whichever node can: the endpoint's address is its own, and the port is free */
    AGENT_HOST_YES,  /* this one, also where the endpoint's address is none of its own */
    AGENT_HOST_NO    /* another */
};

/* One look at the run, from the progress pages; what the progress line shows. Doubles are NaN until reported. */
struct agent_progress {
    int generation;
    int n_live; /* workers of this node that run */
    uint64_t step, total_steps;
    double loss, grad_norm, tokens_per_s;
    uint64_t memory_bytes; /* the largest of this node's ranks */
    enum fsdp_phase phase; /* of rank 0, or of this node's first rank */
    bool stopping;
};

/*
 * Told what happens while the run goes on; every member may be NULL. Called on the loop's thread. The progress line
 * of a terminal needs none of it: the world hands it to the console, which keeps it apart from the lines.
 */
struct agent_observer {
    void *arg;
    void (*progress)(void *arg,
                     const struct agent_progress *progress); /* about four times a second, jobs only */
    void (*started)(void *arg); /* in each generation, once all workers of this node run */
};

struct agent_config {
    /* What is run. argv[0] is a path, or a name looked up on PATH; "${local_rank}" in arguments is replaced. */
    char *const *argv;        /* zero-terminated, at least one */
    char *const *environment; /* the workers' environment before ours is added; NULL: this process's */
    const char *directory;    /* the workers' working directory; NULL: this process's */
    int stdio[3]; /* the workers' stdin, stdout and stderr where inherited: 0, 1, 2 unless a client's */
    int script;   /* index in argv of the file that argv[0], an interpreter, runs; 0: none that we know of */

    /* A job of ours; NULL for a program. The members after it are read only when it is set. */
    const char *job_json; /* the resolved job, zero-terminated */
    const char *deciding_json; /* the keys of a job that decide its result, with their defaults, as JSON */
    uint64_t total_steps; /* train.steps */
    bool resume_never;    /* checkpoint.resume: never */
    bool exports;         /* a job with all its steps still runs where its export is not there */

    /* The world. */
    const char *run_id; /* TORCHELASTIC_RUN_ID; "none" is torchrun's default */
    const char *role;   /* ROLE_NAME; "default" */
    int n_workers;      /* on this node, at least 1 */
    int n_nodes,
        node_rank; /* node_rank -1: whichever is free; the node that can listen at the endpoint is 0 */
    int min_nodes; /* so many may form a world of fewer than n_nodes; n_nodes: none is ever smaller */
    int64_t join_timeout_ms;      /* how long a world is waited for */
    int64_t last_call_timeout_ms; /* with min_nodes there, how much longer others are */
    int threads;                  /* compute threads a worker; 0: cores really available / workers */
    int max_restarts;
    int64_t grace_ms;        /* of a program: between TERM and KILL; of a job: for a save on a signal */
    int64_t hang_timeout_ms; /* a rank that makes no progress for so long is stopped; 0: never */
    unsigned
        save_on_signal; /* set of enum agent_save_signal: these ask for a checkpoint, then stop with 77 */
    bool virtual_local_rank; /* LOCAL_RANK 0 for all, one device each */
    enum agent_numa numa;
    /* Sets of signals, bit s for signal s. Those that end the run: workers are stopped with that very signal. And
     * those that are passed on to the workers and end nothing. Disjoint; what is in neither keeps its meaning. */
    uint64_t stop_signals, forward_signals;
    const char *stop_signals_text; /* as it was given: TORCHELASTIC_SIGNALS_TO_HANDLE */

    /* More than one node (all NULL or 0 on one): who is met where. */
    const char *rendezvous_host;
    int rendezvous_port;
    enum agent_hosting hosting;
    const char *secret; /* of secret_bytes; NULL: insecure, only where it was asked for */
    size_t secret_bytes;
    /* MASTER_ADDR and MASTER_PORT where the user names them; NULL, 0: this host's loopback (or node 0), a free port. */
    const char *master_address;
    int master_port;
    bool no_store; /* a program's rank 0 opens its store itself, at those two: the agent has none for it */
    const char *local_address; /* the address other nodes reach us by; NULL: the one the connection shows */

    /* Where the run is kept. Absolute path. Job: RUN itself. Program: RUN as the user names it, or <log-dir>/<run
     * id>_<random>, created by the launcher; NULL: none is needed (nothing captured, no --log-dir) and errors go to
     * stderr only. */
    const char *run_dir;
    bool run_dir_named; /* a program's, named by the user: one directory for all nodes, and for later runs */
    bool
        run_dir_temporary; /* a program's, in a fresh temporary directory: removed where nothing was kept in it */
    struct agent_output output;
    struct agent_observer observer;
    bool quiet; /* only the first-cause line */
};

/** The signals that a run takes: those of its two sets, and what asks for a checkpoint. Never KILL, STOP or CHLD. */
uint64_t agent_signals(const struct agent_config *config);

/**
 * The signal by which the daemon, told to stop, asks a job of ours to save and end. It is none that a user sends by its
 * name: to the run it is TERM with --save-on-signal, whatever TERM itself does there.
 */
int agent_daemon_stops(void);

/** A config with every default filled in: one worker on one node, the contract's grace, stdio 0 1 2. */
void agent_config_init(struct agent_config *config);

#endif
