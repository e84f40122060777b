#include "launcher/options.h"

static const char world[] = "World";
static const char run[] = "What is run";
static const char nodes[] = "Several nodes";
static const char output[] = "Output";
static const char daemon_group[] = "A standing agent";
static const char little[] = "Of torchrun, with little to say here";
static const char other[] = "Other";

static const char *const backends[] = { "static", "c10d", NULL };
static const char *const counts[] = { "cpu", "gpu", "auto", "xpu", NULL }; /* beside a number */
static const char *const streams[] = { "0", "1", "2", "3", NULL };         /* beside a list */
static const char *const signals[] = { "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", NULL };
static const char *const bindings[] = { "node", "socket", "exclusive", "core-complex", NULL };
static const char *const methods[] = { "spawn", "fork", "forkserver", NULL };
static const char *const handlers[] = { "null", NULL };
static const char *const shells[] = { "bash", "zsh", "fish", NULL };
static const char *const none[] = { NULL };

#define THEIRS       .from = OPTION_TORCHRUN
#define THEIRS_LATER .from = OPTION_TORCHRUN_LATER

/* clang-format off */
const struct option option_table[] = {
    { OPT_NPROC_PER_NODE, "nproc-per-node", 0, OPTION_PROCS, "N", 1, 4096, counts, THEIRS, .pet = true, .fallback = "1",
      .group = world,
      .called = "n|np|nproc|nprocs|num-proc|num-processes|num-gpus|gpus|world-size", .brief = "workers on this node: N, cpu, gpu or auto [1]",
      .help = "Workers on this node: a number; cpu, one per CPU that may be used; gpu, one per GPU; auto, the GPUs or "
              "else the CPUs." },
    { OPT_MAX_RESTARTS, "max-restarts", 0, OPTION_COUNT, "N", 0, 1000000, THEIRS, .pet = true,
      .fallback = "0 for programs, 3 for jobs", .group = world,
      .brief = "restarts after a failure [programs 0, jobs 3]",
      .help = "How often a failed world is formed again before its failure is final." },
    { OPT_SHUTDOWN_TIMEOUT, "shutdown-timeout", 0, OPTION_COUNT, "SECONDS", 0, 86400, THEIRS, .pet = true,
      .also = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", .fallback = "30; of a job under Slurm, KillWait - 5", .group = world,
      .help = "From the signal that asks a program's workers to stop to KILL, on every way to the end. Of a job: how long a "
              "save on a signal may take." },
    { OPT_SIGNALS_TO_HANDLE, "signals-to-handle", 0, OPTION_SIGNALS, "NAME,...", 0, 0, signals, THEIRS, .pet = true,
      .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT", .group = world,
      .help = "Signals that end the run: a program's workers get the same one." },
    { OPT_FORWARD_SIGNALS, "forward-signals", 0, OPTION_SIGNALS, "NAME,...", 0, 0, signals, .group = world,
      .help = "Signals that are passed on to the workers and end nothing, as USR1,USR2." },
    { OPT_SAVE_ON_SIGNAL, "save-on-signal", 0, OPTION_FLAG, .group = world,
      .brief = "a job saves when TERM or USR1 stops it, status 77",
      .help = "On SIGTERM or SIGUSR1 a job finishes its step, saves, and ends with status 77: run it again to go on." },
    { OPT_ROLE, "role", 0, OPTION_TEXT, "NAME", THEIRS, .pet = true, .fallback = "default", .group = world,
      .help = "ROLE_NAME of the workers, and the name in front of their teed lines." },
    { OPT_VIRTUAL_LOCAL_RANK, "virtual-local-rank", 0, OPTION_FLAG, THEIRS, .pet = true, .group = world,
      .help = "LOCAL_RANK is 0 for all, and each worker is shown one GPU only." },
    { OPT_NUMA_BINDING, "numa-binding", 0, OPTION_CHOICE, "KIND", 0, 0, bindings, THEIRS, .group = world,
      .help = "Bind workers to the CPUs near their GPUs: node, socket, exclusive (the node's cores split between its "
              "workers) or core-complex (the CPUs of one last-level cache)." },

    { OPT_MODULE, "module", 'm', OPTION_FLAG, THEIRS, .pet = true, .group = run,
      .help = "The program is the name of a Python module: python -u -m NAME." },
    { OPT_NO_PYTHON, "no-python", 0, OPTION_FLAG, THEIRS, .pet = true, .group = run,
      .help = "Execute the program as it is, whatever its name ends in." },
    { OPT_RUN_PATH, "run-path", 0, OPTION_FLAG, THEIRS, .pet = true, .group = run,
      .help = "Run the file by Python's runpy, as __main__; wins over --no-python and --module." },
    { OPT_SET, "set", 0, OPTION_SETTING, "SECTION.KEY=VALUE", .no_env = true, .group = run,
      .brief = "override a key of the job file",
      .help = "Override a key of the job file; may be given again, the last one of a key wins." },
    { OPT_DRY_RUN, "dry-run", 0, OPTION_FLAG, .no_env = true, .group = run,
      .brief = "print what would be run, and run nothing",
      .help = "Print the resolved job or launch, with where each value came from, and run nothing." },

    { OPT_NNODES, "nnodes", 0, OPTION_NODES, "N or MIN:MAX", 1, 65536, THEIRS, .pet = true, .fallback = "1", .group = nodes,
      .called = "num-nodes|num-machines|nodes|n-nodes", .brief = "nodes; start the same command on each [1]",
      .help = "Nodes of the job: run the same command on each. With MIN:MAX, MIN are enough to begin with." },
    { OPT_NODE_RANK, "node-rank", 0, OPTION_COUNT, "N", 0, 65535, THEIRS, .pet = true, .called = "machine-rank",
      .fallback = "0; with c10d any that is free", .group = nodes,
      .help = "Which of the nodes this one is, in the order of ranks." },
    { OPT_RDZV_BACKEND, "rdzv-backend", 0, OPTION_CHOICE, "NAME", 0, 0, backends,
      "needs a server of its own, which nothing here does: use static or c10d, with --rdzv-endpoint", THEIRS,
      .pet = true, .fallback = "static", .group = nodes,
      .help = "static: nodes are told their rank. c10d: they need not be. How they meet is ours for both." },
    { OPT_RDZV_ENDPOINT, "rdzv-endpoint", 0, OPTION_BLANK, "HOST[:PORT]", THEIRS, .pet = true, .fallback = "port 29400",
      .group = nodes, .brief = "where several nodes meet",
      .help = "Where the nodes meet: the one that has this address listens there." },
    { OPT_RDZV_ID, "rdzv-id", 0, OPTION_TEXT, "ID", THEIRS, .pet = true, .fallback = "none, a UUID on one node; the run's name for a job", .group = nodes,
      .help = "Name of the run, the same on all nodes." },
    { OPT_RDZV_CONF, "rdzv-conf", 0, OPTION_CONF, "KEY=VALUE,...", THEIRS, .pet = true, .group = nodes,
      .help = "join_timeout=600: seconds that nodes wait for each other. last_call_timeout=30: with MIN there, for "
              "how much longer. is_host=1: this node listens." },
    { OPT_STANDALONE, "standalone", 0, OPTION_FLAG, THEIRS, .pet = true, .group = nodes,
      .help = "This node alone, whatever else would make it one of several." },
    { OPT_MASTER_ADDR, "master-addr", 0, OPTION_BLANK, "HOST", THEIRS, .called = "main-process-ip", .pet = true, .fallback = "127.0.0.1", .group = nodes,
      .help = "MASTER_ADDR of the workers; names the endpoint when there is no --rdzv-endpoint." },
    { OPT_MASTER_PORT, "master-port", 0, OPTION_COUNT, "PORT", 0, 65535, THEIRS, .called = "main-process-port", .pet = true, .fallback = "a free one; 29500 as an endpoint", .group = nodes,
      .help = "MASTER_PORT of the workers, or of the endpoint as above." },
    { OPT_LOCAL_ADDR, "local-addr", 0, OPTION_BLANK, "ADDRESS", THEIRS, .pet = true, .fallback = "the one the connection shows",
      .group = nodes, .help = "Address at which the other nodes reach this one." },
    { OPT_SECRET_FILE, "secret-file", 0, OPTION_TEXT, "FILE", .group = nodes,
      .brief = "the secret that they share",
      .help = "The job's secret, the same on all nodes, in a file that only its owner can read." },
    { OPT_INSECURE, "insecure", 0, OPTION_FLAG, .group = nodes,
      .help = "Let several nodes talk without a secret, in clear text, with whoever connects." },

    { OPT_LOG_DIR, "log-dir", 0, OPTION_TEXT, "DIR", THEIRS, .pet = true, .group = output,
      .called = "output-dir|out-dir", .brief = "keep output, events and checkpoints below DIR",
      .help = "Keep the run's files below DIR: DIR/<run.name> of a job, torchrun's layout of a program." },
    { OPT_RUN_DIR, "run-dir", 0, OPTION_TEXT, "DIR", .group = output, .brief = "the run directory; run again in it to resume",
      .help = "The run directory itself, in place of one below --log-dir; made where it is not there. Running again with "
              "it goes on: from its newest checkpoint, and with the next attempt of a program. Several nodes share it." },
    { OPT_REDIRECTS, "redirects", 'r', OPTION_STREAMS, "STREAMS", 0, 0, streams, THEIRS, .pet = true, .fallback = "0", .group = output,
      .help = "Write to files only: 1 stdout, 2 stderr, 3 both; or by local rank, as 0:3,11:2." },
    { OPT_TEE, "tee", 't', OPTION_STREAMS, "STREAMS", 0, 0, streams, THEIRS, .pet = true, .fallback = "0", .group = output,
      .brief = "each rank's output to files as well: 3 is both",
      .help = "Write to files and to the console; as --redirects." },
    { OPT_LOCAL_RANKS_FILTER, "local-ranks-filter", 0, OPTION_RANKS, "RANK,...", THEIRS, .pet = true, .fallback = "all", .group = output,
      .help = "Show only these local ranks on the console; files are kept of all." },
    { OPT_DUPLICATE_STDOUT_FILTERS, "duplicate-stdout-filters", 0, OPTION_PATTERNS, "TEXT,...", THEIRS, .pet = true, .group = output,
      .help = "Teed lines of stdout with any of these texts in them also go to one file of all ranks; ,, is a comma." },
    { OPT_DUPLICATE_STDERR_FILTERS, "duplicate-stderr-filters", 0, OPTION_PATTERNS, "TEXT,...", THEIRS, .pet = true, .group = output,
      .help = "The same for stderr." },
    { OPT_LOG_LINE_PREFIX_TEMPLATE, "log-line-prefix-template", 0, OPTION_BLANK, "TEXT", THEIRS_LATER, .pet = true,
      .also = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", .fallback = "[${role_name}${local_rank}]:", .group = output,
      .help = "In front of teed lines; knows ${rank}, ${local_rank}, ${role_name} and ${hostname}." },
    { OPT_LOG_LIMIT, "log-limit", 0, OPTION_SIZE, "SIZE", .fallback = "none", .group = output,
      .help = "Largest size of a log file, as 100M (or K, G, T): then it begins anew." },
    { OPT_LOG_KEEP, "log-keep", 0, OPTION_COUNT, "N", 0, 1000, .fallback = "1", .group = output,
      .help = "With --log-limit, how many full files are kept beside the one that is written." },
    { OPT_PREFIX, "prefix", 0, OPTION_FLAG, .group = output,
      .help = "Capture a program's output and put the rank in front of every line, as for jobs." },
    { OPT_DIRECT_OUTPUT, "direct-output", 0, OPTION_FLAG, .group = output,
      .help = "A program writes to the terminal, pipe or file itself, and nothing of it is kept for when it fails. "
              "For full-screen programs, and pagers that read their keys from stderr; nor is anything lost then that "
              "the agent had not yet passed on when it was killed (SIGKILL)." },
    { OPT_COLOR, "color", 0, OPTION_FLAG, .group = output,
      .help = "Colours even where the console is no terminal." },
    { OPT_NO_COLOR, "no-color", 0, OPTION_FLAG, .group = output,
      .help = "No colours; also when NO_COLOR is set." },
    { OPT_QUIET, "quiet", 'q', OPTION_FLAG, .group = output,
      .help = "No progress and no lines of our own but the cause of a failure." },

    { OPT_AGENT, "agent", 0, OPTION_TEXT, "SOCKET", .group = daemon_group,
      .help = "Have the fsdp-agent that listens on SOCKET run it, instead of this process." },
    { OPT_DETACH, "detach", 0, OPTION_FLAG, .group = daemon_group,
      .help = "With --agent: print the job's id and end once the workers run; the job goes on." },

    { OPT_MONITOR_INTERVAL, "monitor-interval", 0, OPTION_REAL, "SECONDS", THEIRS, .pet = true, .group = little,
      .help = "Accepted; there is no interval, as nothing is polled." },
    { OPT_START_METHOD, "start-method", 0, OPTION_CHOICE, "NAME", 0, 0, methods, THEIRS, .pet = true, .group = little,
      .help = "Accepted: spawn, fork or forkserver; workers are programs, started in one way." },
    { OPT_EVENT_LOG_HANDLER, "event-log-handler", 0, OPTION_CHOICE, "NAME", 0, 0, handlers,
      "is a handler in Python, of which there are none here: events.jsonl below --log-dir has the events", THEIRS,
      .pet = true, .fallback = "null", .group = little,
      .help = "Only null: events are kept in events.jsonl, see --log-dir." },
    { OPT_LOGS_SPECS, "logs-specs", 0, OPTION_CHOICE, "NAME", 0, 0, none,
      "is an entry point of Python, of which there are none here: use --log-dir, --redirects and --tee", THEIRS,
      .no_env = true, .group = little, .help = "Refused: use --log-dir, --redirects and --tee." },

    { OPT_PRINT_COMPLETION, "print-completion", 0, OPTION_CHOICE, "SHELL", 0, 0, shells, THEIRS_LATER, .no_env = true, .group = other,
      .help = "Print the completion for bash, zsh or fish." },
    { OPT_HELP, "help", 'h', OPTION_FLAG, THEIRS, .no_env = true, .group = other,
      .help = "The options that most runs need." },
    { OPT_HELP_ALL, "help-all", 0, OPTION_FLAG, .no_env = true, .group = other,
      .help = "Every option, every key of a job file and the exit statuses." },
    { OPT_VERSION, "version", 0, OPTION_FLAG, .no_env = true, .called = "v|V", .group = other,
      .help = "Version, commit, compiler and features." },
};
/* clang-format on */
const size_t option_table_size = sizeof option_table / sizeof *option_table;
