#include "launcher/options.h"

static const char world[] = "World";
static const char run[] = "What is run";
static const char nodes[] = "Several nodes";
static const char output[] = "Output";
static const char daemon_group[] = "A standing agent";
static const char other[] = "Other";
static const char later[] = "Known from torchrun, not built yet (refused)";

/* clang-format off */
const struct option option_table[] = {
    { OPT_NPROC_PER_NODE, "nproc-per-node", 0, OPTION_PROCS, "N", 1, 4096, .pet = true, .fallback = "1", .group = world,
      .help = "Workers on this node: a number, or cpu for one per CPU that may be used." },
    { OPT_MAX_RESTARTS, "max-restarts", 0, OPTION_COUNT, "N", 0, 1000000, .pet = true,
      .fallback = "0 for programs, 3 for jobs", .group = world,
      .help = "How often a failed world is formed again before its failure is final." },
    { OPT_SHUTDOWN_TIMEOUT, "shutdown-timeout", 0, OPTION_COUNT, "SECONDS", 0, 86400, .pet = true,
      .also = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", .fallback = "30", .group = world,
      .help = "Time between TERM and KILL when workers are stopped." },
    { OPT_SAVE_ON_SIGNAL, "save-on-signal", 0, OPTION_FLAG, .group = world,
      .help = "On SIGTERM or SIGUSR1 a job finishes its step, saves, and ends with status 77: run it again to go on." },

    { OPT_SET, "set", 0, OPTION_SETTING, "SECTION.KEY=VALUE", .no_env = true, .group = run,
      .help = "Override a key of the job file; may be given again, the last one of a key wins." },
    { OPT_DRY_RUN, "dry-run", 0, OPTION_FLAG, .no_env = true, .group = run,
      .help = "Print the resolved job, with where each value came from, and run nothing." },
    { OPT_NO_PYTHON, "no-python", 0, OPTION_FLAG, .pet = true, .group = run,
      .help = "Execute the program as it is, whatever its name ends in." },
    { OPT_MODULE, "module", 'm', OPTION_FLAG, .pet = true, .group = run,
      .help = "The program is the name of a Python module: python -u -m NAME." },

    { OPT_NNODES, "nnodes", 0, OPTION_NODES, "N", 1, 65536, .pet = true, .fallback = "1", .group = nodes,
      .help = "Nodes of the job; run the same command on each, with its --node-rank." },
    { OPT_NODE_RANK, "node-rank", 0, OPTION_COUNT, "N", 0, 65535, .pet = true, .fallback = "0", .group = nodes,
      .help = "Which of the nodes this one is; node 0 coordinates and listens." },
    { OPT_RDZV_ENDPOINT, "rdzv-endpoint", 0, OPTION_TEXT, "HOST[:PORT]", .pet = true, .fallback = "port 29400",
      .group = nodes, .help = "Where node 0 listens and the others find it." },
    { OPT_RDZV_ID, "rdzv-id", 0, OPTION_TEXT, "ID", .pet = true, .fallback = "none; the run's name for a job", .group = nodes,
      .help = "Name of the run, the same on all nodes." },
    { OPT_MASTER_ADDR, "master-addr", 0, OPTION_TEXT, "HOST", .pet = true, .fallback = "127.0.0.1", .group = nodes,
      .help = "MASTER_ADDR of the workers; names the endpoint when there is no --rdzv-endpoint." },
    { OPT_MASTER_PORT, "master-port", 0, OPTION_COUNT, "PORT", 0, 65535, .pet = true, .fallback = "a free one", .group = nodes,
      .help = "MASTER_PORT of the workers, or of the endpoint as above." },
    { OPT_SECRET_FILE, "secret-file", 0, OPTION_TEXT, "FILE", .group = nodes,
      .help = "The job's secret, the same on all nodes, in a file that only its owner can read." },
    { OPT_INSECURE, "insecure", 0, OPTION_FLAG, .group = nodes,
      .help = "Let several nodes talk without a secret, in clear text, with whoever connects." },

    { OPT_LOG_DIR, "log-dir", 0, OPTION_TEXT, "DIR", .pet = true, .group = output,
      .help = "Keep the run's files below DIR: DIR/<run.name> of a job, torchrun's layout of a program." },
    { OPT_REDIRECTS, "redirects", 'r', OPTION_STREAMS, "STREAMS", .pet = true, .fallback = "0", .group = output,
      .help = "Write to files only: 1 stdout, 2 stderr, 3 both; or by local rank, as 0:3,1:2." },
    { OPT_TEE, "tee", 't', OPTION_STREAMS, "STREAMS", .pet = true, .fallback = "0", .group = output,
      .help = "Write to files and to the console; as --redirects." },
    { OPT_PREFIX, "prefix", 0, OPTION_FLAG, .group = output,
      .help = "Capture a program's output and put the rank in front of every line, as for jobs." },
    { OPT_COLOR, "color", 0, OPTION_FLAG, .group = output,
      .help = "Colours even where the console is no terminal." },
    { OPT_NO_COLOR, "no-color", 0, OPTION_FLAG, .group = output,
      .help = "No colours; also when NO_COLOR is set." },
    { OPT_QUIET, "quiet", 'q', OPTION_FLAG, .group = output,
      .help = "No progress and no lines of our own but the cause of a failure." },

    { OPT_AGENT, "agent", 0, OPTION_TEXT, "SOCKET", .group = daemon_group,
      .help = "Have the fsdp-agent that listens on SOCKET run it, instead of this process." },
    { OPT_DETACH, "detach", 0, OPTION_FLAG, .group = daemon_group,
      .help = "With --agent: the run goes on when this process ends." },

    { OPT_HELP, "help", 'h', OPTION_FLAG, .no_env = true, .group = other, .help = "This page." },
    { OPT_VERSION, "version", 0, OPTION_FLAG, .no_env = true, .group = other,
      .help = "Version, commit, compiler and features." },

    { OPT_LATER, "standalone", 0, OPTION_FLAG, .pet = true, .group = later },
    { OPT_LATER, "rdzv-backend", 0, OPTION_TEXT, "NAME", .pet = true, .fallback = "static", .group = later },
    { OPT_LATER, "rdzv-conf", 0, OPTION_TEXT, "K=V,...", .pet = true, .group = later },
    { OPT_LATER, "monitor-interval", 0, OPTION_TEXT, "SECONDS", .pet = true, .fallback = "0.1", .group = later },
    { OPT_LATER, "start-method", 0, OPTION_TEXT, "NAME", .pet = true, .fallback = "spawn", .group = later },
    { OPT_LATER, "event-log-handler", 0, OPTION_TEXT, "NAME", .pet = true, .fallback = "null", .group = later },
    { OPT_LATER, "role", 0, OPTION_TEXT, "NAME", .pet = true, .fallback = "default", .group = later },
    { OPT_LATER, "run-path", 0, OPTION_FLAG, .pet = true, .group = later },
    { OPT_LATER, "local-ranks-filter", 0, OPTION_TEXT, "RANKS", .pet = true, .group = later },
    { OPT_LATER, "duplicate-stdout-filters", 0, OPTION_TEXT, "TEXT,...", .pet = true, .group = later },
    { OPT_LATER, "duplicate-stderr-filters", 0, OPTION_TEXT, "TEXT,...", .pet = true, .group = later },
    { OPT_LATER, "local-addr", 0, OPTION_TEXT, "ADDRESS", .pet = true, .group = later },
    { OPT_LATER, "logs-specs", 0, OPTION_TEXT, "NAME", .no_env = true, .group = later },
    { OPT_LATER, "numa-binding", 0, OPTION_TEXT, "KIND", .no_env = true, .group = later },
    { OPT_LATER, "signals-to-handle", 0, OPTION_TEXT, "NAMES", .pet = true, .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
      .group = later },
    { OPT_LATER, "virtual-local-rank", 0, OPTION_FLAG, .pet = true, .group = later },
};
/* clang-format on */
const size_t option_table_size = sizeof option_table / sizeof *option_table;
