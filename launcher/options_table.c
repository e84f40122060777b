#include "launcher/options.h"

#include "agent/config.h"

static const char world[] = "World";
static const char run[] = "What is run";
static const char nodes[] = "Several nodes";
static const char output[] = "Output";
static const char daemon_group[] = "A standing agent";
static const char little[] = "torchrun's, with little or no effect";
static const char other[] = "Other";

static const char *const backends[] = { "static", "c10d", NULL };
/* values that shells offer; a number is allowed too */
static const char *const counts[] = { "cpu", "gpu", "auto", "xpu", NULL };
/* values that shells offer; a list is allowed too */
static const char *const streams[] = { "0", "1", "2", "3", NULL };
static const char *const signals[] = { "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", NULL };
static const char *const bindings[] = { "node", "socket", "exclusive", "core-complex", NULL };
static const char *const methods[] = { "spawn", "fork", "forkserver", NULL };
static const char *const stragglers[] = { "report", "restart", NULL };
static const char *const handlers[] = { "null", NULL };
static const char *const shells[] = { "bash", "zsh", "fish", NULL };
static const char *const none[] = { NULL };

#define THEIRS       .from = OPTION_TORCHRUN
#define THEIRS_LATER .from = OPTION_TORCHRUN_LATER

/* clang-format off */
#define GIVEN(key)               { (key), FIELD_GIVEN, 0 }
#define FIELD(key, kind, member) { (key), FIELD_##kind, offsetof(struct agent_config, member) }

const struct option option_table[] = {
    { OPT_NPROC_PER_NODE, "nproc-per-node", 0, OPTION_PROCS, "N", 1, 4096, counts, THEIRS, .pet = true,
      .fallback = "1", .group = world,
      .called = "n|np|nproc|nprocs|num-proc|num-processes|num-gpus|gpus|world-size",
      .brief = "workers on this node: N, cpu, gpu or auto [1]",
      .help = "Workers on this node: a number; cpu, one per CPU that may be used; gpu, one per GPU; auto, "
              "the GPUs or else the CPUs. In a Slurm step: its tasks on this node, or the GPUs it asked for.",
      .fields = { FIELD("nproc_per_node", INT, n_workers) } },
    { OPT_MAX_RESTARTS, "max-restarts", 0, OPTION_RESTARTS, "N[/SECONDS]", 0, 1000000, THEIRS, .pet = true,
      .fallback = "0 for programs, 3 for jobs", .group = world,
      .brief = "restarts after a failure [programs 0, jobs 3]",
      .help = "How often a failed world is formed again before its failure is final. With /SECONDS, only "
              "the restarts of the last SECONDS count, and N is at most 240.",
      .fields = { FIELD("max_restarts", INT, max_restarts),
                  FIELD("restart_window_s", SECONDS, restart_window_ms) } },
    { OPT_SHUTDOWN_TIMEOUT, "shutdown-timeout", 0, OPTION_COUNT, "SECONDS", 0, 86400, THEIRS, .pet = true,
      .also = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", .fallback = "30; of a job under Slurm, KillWait - 5",
      .group = world,
      .help = "How long a program's workers have to end, from the signal that asks them to stop until "
              "KILL. For a job: how long a save after a signal may take.",
      .fields = { FIELD("shutdown_timeout_s", SECONDS, grace_ms) } },
    { OPT_SIGNALS_TO_HANDLE, "signals-to-handle", 0, OPTION_SIGNALS, "NAME,...", 0, 0, signals, THEIRS,
      .pet = true, .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT", .group = world,
      .help = "Signals that end the run. A program's workers get the same signal.",
      .fields = { FIELD("signals_to_handle", SIGNALS, stop_signals) } },
    { OPT_FORWARD_SIGNALS, "forward-signals", 0, OPTION_SIGNALS, "NAME,...", 0, 0, signals, .group = world,
      .help = "Signals that are passed on to the workers and do not end the run, as USR1,USR2.",
      .fields = { FIELD("forward_signals", SIGNALS, forward_signals) } },
    { OPT_SAVE_ON_SIGNAL, "save-on-signal", 0, OPTION_FLAG, .group = world,
      .brief = "a job saves when TERM or USR1 stops it, status 77",
      .help = "On SIGTERM or SIGUSR1 a job finishes its step, saves, and ends with status 77. Run it "
              "again to resume. Under Slurm that is the default, and after SIGUSR1 the job is requeued." },
    { OPT_ROLE, "role", 0, OPTION_TEXT, "NAME", THEIRS, .pet = true, .fallback = "default", .group = world,
      .help = "ROLE_NAME of the workers, and the name in front of their teed lines.",
      .fields = { FIELD("role", TEXT, role) } },
    { OPT_VIRTUAL_LOCAL_RANK, "virtual-local-rank", 0, OPTION_FLAG, THEIRS, .pet = true, .group = world,
      .help = "Every worker has LOCAL_RANK 0 and sees only one GPU.",
      .fields = { FIELD("virtual_local_rank", BOOL, virtual_local_rank) } },
    { OPT_NUMA_BINDING, "numa-binding", 0, OPTION_CHOICE, "KIND", 0, 0, bindings, THEIRS, .group = world,
      .help = "Bind workers to the CPUs near their GPUs: node, socket, exclusive (the node's cores split "
              "between its workers) or core-complex (the CPUs of one last-level cache).",
      .fields = { GIVEN("numa_binding") } },
    { OPT_STANDBY, "standby", 0, OPTION_COUNT, "N", 0, 4096, .group = world,
      .fallback = "with checkpoint.snapshot_every all, else 0",
      .help = "For a job: keep N workers of this node executed and waiting, so that a restart need not start "
              "them. At most --nproc-per-node." },
    { OPT_HANG_TIMEOUT, "hang-timeout", 0, OPTION_COUNT, "SECONDS", 0, 1000000, .group = world,
      .fallback = "of a job launch.hang_timeout_s; of a program none",
      .help = "A rank that shows no sign of life for so long hangs: what all ranks show is printed, and the "
              "world is restarted. For a job it is launch.hang_timeout_s. 0: never.",
      .fields = { FIELD("hang_timeout_s", SECONDS, hang_timeout_ms) } },
    { OPT_STRAGGLER, "straggler", 0, OPTION_CHOICE, "WHAT", 0, 0, stragglers, .fallback = "report",
      .group = world,
      .help = "What becomes of a job's rank for which the others wait in every step. report: it is named. "
              "restart: the job also saves, and goes on for an hour without that rank's node, if it can. The "
              "host's choice holds." },
    { OPT_PYTHON_STACKS, "python-stacks", 0, OPTION_FLAG, .group = world,
      .help = "With --hang-timeout: Python programs write the stacks of their threads when a rank hangs, by "
              "faulthandler. A sitecustomize module turns it on.",
      .fields = { FIELD("python_stacks", BOOL, python_stacks) } },
    { OPT_SNAPSHOT_MEMORY, "snapshot-memory", 0, OPTION_SIZE, "SIZE", .fallback = "half of /dev/shm",
      .group = world,
      .help = "Memory of a node for what workers keep in FSDPRUN_SNAPSHOT_DIR, which survives restarts, "
              "as 40G (or K, M, T). 0: no such directory." },
    { OPT_SNAPSHOT_PERSIST, "snapshot-persist", 0, OPTION_TEXT, "DIR", .group = world,
      .help = "Write to DIR, in the background, what all nodes have in FSDPRUN_SNAPSHOT_DIR. The nodes share "
              "DIR." },

    { OPT_MODULE, "module", 'm', OPTION_FLAG, THEIRS, .pet = true, .group = run,
      .help = "The program is the name of a Python module: python -u -m NAME." },
    { OPT_NO_PYTHON, "no-python", 0, OPTION_FLAG, THEIRS, .pet = true, .group = run,
      .help = "Execute the program as it is, whatever its name ends with." },
    { OPT_RUN_PATH, "run-path", 0, OPTION_FLAG, THEIRS, .pet = true, .group = run,
      .help = "Run the file by Python's runpy, as __main__. Wins over --no-python and --module." },
    { OPT_SET, "set", 0, OPTION_SETTING, "SECTION.KEY=VALUE", .no_env = true, .group = run,
      .brief = "override a key of the job file",
      .help = "Override a key of the job file. May be repeated; for each key the last one wins." },
    { OPT_DRY_RUN, "dry-run", 0, OPTION_FLAG, .no_env = true, .group = run,
      .brief = "print what would be run, and run nothing",
      .help = "Print the resolved job or launch, and where each value came from. Run nothing." },

    { OPT_NNODES, "nnodes", 0, OPTION_NODES, "N or MIN:MAX", 1, 65536, THEIRS, .pet = true,
      .fallback = "1", .group = nodes,
      .called = "num-nodes|num-machines|nodes|n-nodes",
      .brief = "nodes; start the same command on each [1]",
      .help = "Nodes of the job. Run the same command on each. With MIN:MAX the job begins with MIN. "
              "In a Slurm step: its nodes.",
      .fields = { FIELD("min_nodes", INT, min_nodes), FIELD("max_nodes", INT, n_nodes) } },
    { OPT_NODE_RANK, "node-rank", 0, OPTION_COUNT, "N", 0, 65535, THEIRS, .pet = true,
      .called = "machine-rank", .fallback = "0; with c10d any that is free", .group = nodes,
      .help = "The rank of this node among the nodes.",
      .fields = { FIELD("node_rank", INT, node_rank) } },
    { OPT_RDZV_BACKEND, "rdzv-backend", 0, OPTION_CHOICE, "NAME", 0, 0, backends,
      "needs a server of its own, which nothing here does: use static or c10d, with --rdzv-endpoint",
      THEIRS, .pet = true, .fallback = "static", .group = nodes,
      .help = "static: every node is given its rank. c10d: it need not be. fsdprun's own protocol is "
              "used for both.",
      .fields = { GIVEN("rdzv_backend") } },
    { OPT_RDZV_ENDPOINT, "rdzv-endpoint", 0, OPTION_BLANK, "HOST[:PORT]", THEIRS, .pet = true,
      .fallback = "port 29400", .group = nodes,
      .brief = "where several nodes meet",
      .help = "Where the nodes meet. The node that has this address listens there. With etcd://HOST:PORT,... "
              "(etcds:// for TLS) no node is the fixed host: the nodes find the one that leads in this etcd, "
              "and if it is lost, another one takes its place. In a Slurm step: at its first node.",
      .fields = { FIELD("rdzv_host", TEXT, rendezvous_host), FIELD("rdzv_port", INT, rendezvous_port) } },
    { OPT_RDZV_ID, "rdzv-id", 0, OPTION_TEXT, "ID", THEIRS, .pet = true,
      .fallback = "none, a UUID on one node; the run's name for a job", .group = nodes,
      .help = "Name of the run, the same on all nodes.",
      .fields = { FIELD("rdzv_id", TEXT, run_id) } },
    { OPT_RDZV_CONF, "rdzv-conf", 0, OPTION_CONF, "KEY=VALUE,...", THEIRS, .pet = true, .group = nodes,
      .help = "join_timeout=600: seconds that nodes wait for each other. last_call_timeout=30: seconds "
              "that they wait for more nodes once MIN are there. lease=3: seconds of silence after which "
              "a node is lost. is_host=1: this node listens.",
      .fields = { FIELD("is_host", HOSTING, hosting),
                  FIELD("join_timeout_s", SECONDS, join_timeout_ms),
                  FIELD("last_call_timeout_s", SECONDS, last_call_timeout_ms),
                  FIELD("lease_s", SECONDS, lease_ms) } },
    { OPT_ARBITER, "arbiter", 0, OPTION_TEXT, "WHERE",
      .fallback = "directory for a job or with --run-dir; else none", .group = nodes,
      .help = "What says which node leads the others. directory: a record in the run directory. If the "
              "leader's host is lost, another node takes its place. etcd://HOST:PORT,...: the same, with the "
              "record in an etcd (etcds:// for TLS). none: that loss ends the job. An etcd as the endpoint "
              "is the arbiter too.",
      .fields = { GIVEN("arbiter"), FIELD("etcd", TEXT, etcd) } },
    { OPT_STANDALONE, "standalone", 0, OPTION_FLAG, THEIRS, .pet = true, .group = nodes,
      .help = "Run on this node only, whatever other options or variables say about nodes.",
      .fields = { GIVEN("standalone") } },
    { OPT_MASTER_ADDR, "master-addr", 0, OPTION_BLANK, "HOST", THEIRS,
      .called = "main-process-ip", .pet = true, .fallback = "127.0.0.1", .group = nodes,
      .help = "MASTER_ADDR of the workers. Without --rdzv-endpoint it is the endpoint's host too.",
      .fields = { FIELD("master_addr", TEXT, master_address) } },
    { OPT_MASTER_PORT, "master-port", 0, OPTION_COUNT, "PORT", 0, 65535, THEIRS,
      .called = "main-process-port", .pet = true, .fallback = "a free one; 29500 as an endpoint",
      .group = nodes,
      .help = "MASTER_PORT of the workers. Without --rdzv-endpoint it is the endpoint's port too.",
      .fields = { FIELD("master_port", INT, master_port) } },
    { OPT_LOCAL_ADDR, "local-addr", 0, OPTION_BLANK, "ADDRESS", THEIRS, .pet = true,
      .fallback = "the one the connection shows", .group = nodes,
      .help = "The address at which the other nodes reach this one.",
      .fields = { FIELD("local_addr", TEXT, local_address) } },
    { OPT_SECRET_FILE, "secret-file", 0, OPTION_TEXT, "FILE", .group = nodes,
      .brief = "the secret that they share",
      .help = "The job's secret, the same on all nodes, in a file that only its owner can read. In a Slurm "
              "step the first node makes one up.",
      .fields = { FIELD("secret", IS_SET, secret) } },
    { OPT_INSECURE, "insecure", 0, OPTION_FLAG, .group = nodes,
      .help = "Let several nodes work without a secret: in clear text, and with any process that "
              "connects." },

    { OPT_LOG_DIR, "log-dir", 0, OPTION_TEXT, "DIR", THEIRS, .pet = true, .group = output,
      .called = "output-dir|out-dir",
      .brief = "keep output, events and checkpoints below DIR",
      .help = "Keep the run's files below DIR: in DIR/<run.name> for a job, in torchrun's layout for a "
              "program.",
      .fields = { GIVEN("log_dir") } },
    { OPT_RUN_DIR, "run-dir", 0, OPTION_TEXT, "DIR", .group = output,
      .brief = "the run directory; run again in it to resume",
      .help = "The run directory itself, instead of one below --log-dir. It is made if it does not "
              "exist. The same command again resumes from its newest checkpoint, or begins the program's "
              "next attempt. Several nodes share it.",
      .fields = { GIVEN("run_dir") } },
    { OPT_SUMMARY, "summary", 0, OPTION_TEXT, "FILE", .group = output,
      .help = "Write a JSON object about the run to FILE once it has ended: its status, generations, "
              "restarts, steps, where the time went, and the first cause. Of several nodes, the one that "
              "hosts writes it.",
      .fields = { GIVEN("summary") } },
    { OPT_REDIRECTS, "redirects", 'r', OPTION_STREAMS, "STREAMS", 0, 0, streams, THEIRS, .pet = true,
      .fallback = "0", .group = output,
      .help = "Write to files only: 1 stdout, 2 stderr, 3 both; or by local rank, as 0:3,11:2.",
      .fields = { FIELD("redirects", STREAMS, output.redirects) } },
    { OPT_TEE, "tee", 't', OPTION_STREAMS, "STREAMS", 0, 0, streams, THEIRS, .pet = true, .fallback = "0",
      .group = output,
      .brief = "each rank's output to files as well: 3 is both",
      .help = "Write to files and to the console; as --redirects.",
      .fields = { FIELD("tee", STREAMS, output.tees) } },
    { OPT_LOCAL_RANKS_FILTER, "local-ranks-filter", 0, OPTION_RANKS, "RANK,...", THEIRS, .pet = true,
      .fallback = "all", .group = output,
      .help = "Show only these local ranks on the console. Files are kept for all.",
      .fields = { FIELD("shown_local_ranks", RANKS, output.shown) } },
    { OPT_DUPLICATE_STDOUT_FILTERS, "duplicate-stdout-filters", 0, OPTION_PATTERNS, "TEXT,...", THEIRS,
      .pet = true, .group = output,
      .help = "Write teed lines of stdout that contain any of these texts also to one file for all "
              "ranks. ,, stands for a comma.",
      .fields = { FIELD("duplicate_stdout_filters", TEXTS, output.stdout_filters) } },
    { OPT_DUPLICATE_STDERR_FILTERS, "duplicate-stderr-filters", 0, OPTION_PATTERNS, "TEXT,...", THEIRS,
      .pet = true, .group = output,
      .help = "The same for stderr.",
      .fields = { FIELD("duplicate_stderr_filters", TEXTS, output.stderr_filters) } },
    { OPT_LOG_LINE_PREFIX_TEMPLATE, "log-line-prefix-template", 0, OPTION_BLANK, "TEXT", THEIRS_LATER,
      .pet = true, .also = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
      .fallback = "[${role_name}${local_rank}]:", .group = output,
      .help = "Prefix of teed lines. Knows ${rank}, ${local_rank}, ${role_name} and ${hostname}.",
      .fields = { FIELD("log_line_prefix_template", TEXT, output.prefix_template) } },
    { OPT_LOG_LIMIT, "log-limit", 0, OPTION_SIZE, "SIZE", 1, .fallback = "none", .group = output,
      .help = "Largest size of a log file, as 100M (or K, G, T). A full file is renamed and a new one "
              "begun.",
      .fields = { FIELD("log_limit_bytes", BYTES, output.file_limit_bytes) } },
    { OPT_LOG_KEEP, "log-keep", 0, OPTION_COUNT, "N", 0, 1000, .fallback = "1", .group = output,
      .help = "With --log-limit, how many full files are kept in addition to the current one.",
      .fields = { FIELD("log_keep", INT, output.n_rotated) } },
    { OPT_PREFIX, "prefix", 0, OPTION_FLAG, .group = output,
      .help = "Capture a program's output and put the rank in front of every line, as for jobs." },
    { OPT_DIRECT_OUTPUT, "direct-output", 0, OPTION_FLAG, .group = output,
      .help = "A program writes to the terminal, pipe or file itself. No output is kept to explain a "
              "failure, and none is lost if the agent is killed (SIGKILL). For full-screen programs, and "
              "pagers that read keys from stderr.",
      .fields = { FIELD("direct_output", BOOL, output.direct) } },
    { OPT_COLOR, "color", 0, OPTION_FLAG, .group = output,
      .help = "Colours even if the console is no terminal." },
    { OPT_NO_COLOR, "no-color", 0, OPTION_FLAG, .group = output,
      .help = "No colours; also when NO_COLOR is set." },
    { OPT_QUIET, "quiet", 'q', OPTION_FLAG, .group = output,
      .help = "Print no progress, and no lines of fsdprun's own but the cause of a failure." },

    { OPT_AGENT, "agent", 0, OPTION_TEXT, "SOCKET", .group = daemon_group,
      .help = "Run it by the fsdp-agent that listens on SOCKET, instead of in this process." },
    { OPT_DETACH, "detach", 0, OPTION_FLAG, .group = daemon_group,
      .help = "Run it by an agent, print the job's id, and end once the workers run. The job goes on. "
              "Without --agent, this user's agent is found, or one is started." },
    { OPT_GPUS, "gpus", 0, OPTION_COUNT, "N", 0, 256, .fallback = "one for each worker",
      .group = daemon_group,
      .help = "Under an agent: how many GPUs of this node the job gets for itself. It waits until they are "
              "free." },

    { OPT_MONITOR_INTERVAL, "monitor-interval", 0, OPTION_REAL, "SECONDS", THEIRS, .pet = true,
      .group = little,
      .help = "Accepted without effect: fsdprun does not poll." },
    { OPT_START_METHOD, "start-method", 0, OPTION_CHOICE, "NAME", 0, 0, methods, THEIRS, .pet = true,
      .group = little,
      .help = "Accepted without effect: spawn, fork or forkserver. Workers are programs, started in one "
              "way." },
    { OPT_EVENT_LOG_HANDLER, "event-log-handler", 0, OPTION_CHOICE, "NAME", 0, 0, handlers,
      "is a handler in Python, of which there are none here: events.jsonl below --log-dir has the events",
      THEIRS, .pet = true, .fallback = "null", .group = little,
      .help = "Only null. Events are kept in events.jsonl, see --log-dir." },
    { OPT_LOGS_SPECS, "logs-specs", 0, OPTION_CHOICE, "NAME", 0, 0, none,
      "is an entry point of Python, of which there are none here: use --log-dir, --redirects and --tee",
      THEIRS, .no_env = true, .group = little,
      .help = "Refused: use --log-dir, --redirects and --tee." },

    { OPT_INSTALL_AS_TORCHRUN, "install-as-torchrun", 0, OPTION_FLAG, .no_env = true, .group = other,
      .help = "Put a link torchrun next to the fsdprun that is called. A torchrun that is there is kept as "
              "torchrun.before-fsdprun." },
    { OPT_UNINSTALL_AS_TORCHRUN, "uninstall-as-torchrun", 0, OPTION_FLAG, .no_env = true, .group = other,
      .help = "Remove that link, and put the torchrun from before in its place." },
    { OPT_PRINT_COMPLETION, "print-completion", 0, OPTION_CHOICE, "SHELL", 0, 0, shells, THEIRS_LATER,
      .no_env = true, .group = other,
      .help = "Print the completion for bash, zsh or fish." },
    { OPT_HELP, "help", 'h', OPTION_FLAG, THEIRS, .no_env = true, .group = other,
      .help = "The options that most runs need." },
    { OPT_HELP_ALL, "help-all", 0, OPTION_FLAG, .no_env = true, .group = other,
      .help = "Every option, every key of a job file and the exit statuses." },
    { OPT_VERSION, "version", 0, OPTION_FLAG, .no_env = true,
      .called = "v|V", .group = other,
      .help = "Version, commit, compiler and features." },
};
/* clang-format on */
const size_t option_table_size = sizeof option_table / sizeof *option_table;
