/*
 * fsdp-agent: the node's agent as a service. It stays in the foreground; what supervises services (systemd, a
 * shell) puts it where it belongs.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/daemon/activation.h"
#include "agent/daemon/control_proto.h"
#include "agent/daemon/daemon.h"
#include "agent/daemon/daemon_impl.h"
#include "agent/daemon/job_group.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/version.h"

static const char usage[] =
    "usage: fsdp-agent [--socket PATH] [--pidfile PATH] [--config FILE] [--job-groups] [--idle-exit "
    "SECONDS]\n"
    "\n"
    "Runs the jobs that `fsdprun --agent PATH ...` hands over, as fsdprun itself "
    "would, until it is told to stop\n"
    "by TERM or INT: then the jobs of job files save and end.\n"
    "\n"
    "  --socket PATH   where to listen; default: $XDG_RUNTIME_DIR/fsdp/agent.sock, "
    "else /tmp/fsdp-<uid>/agent.sock\n"
    "  --pidfile PATH  write the process id there once it listens; one agent holds it at a time\n"
    "  --config FILE   the configuration, read again at HUP; a file that is not there is an empty one\n"
    "  --job-groups    make a control group for each job: for a unit of systemd with Delegate=yes\n"
    "  --idle-exit SECONDS  end after so long without a job; default: never\n"
    "  --help          this text\n"
    "  --version       version, commit and compiler\n";

struct arguments {
    char socket[108];
    int socket_fd; /* a listening socket from systemd; -1: none */
    const char *pidfile, *settings;
    bool with_groups;
    const char *group, *credentials; /* the job's control group and systemd's secrets; "": none */
    int job_fd;   /* the request of the job that this process is to run; -1: this process is the daemon */
    int start_fd; /* with a job: its socket to the daemon; without: is sent a byte once the daemon serves */
    int idle_exit_s;
};

enum { IDLE_EXIT_MOST_S = 1000000 };

/* Read a number, such as that of a descriptor. -1: the text is no number. */
static int number_of(const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10);

    return end == text || *end != '\0' || number < 0 || number > INT_MAX ? -1 : (int)number;
}

/*
 * Find out where to listen: at systemd's socket, else where --socket says, else at the default. Returns -1 to
 * go on, else the exit status.
 */
static int choose_socket(struct arguments *arguments)
{
    struct fsdp_err err = { 0 };
    char path[sizeof arguments->socket];
    const enum fsdp_status status = activation_take(&arguments->socket_fd, path, sizeof path, &err);

    if (status != FSDP_OK) {
        daemon_log("%s", err.message);
        return exit_status_of(status);
    }
    if (arguments->socket_fd >= 0) {
        if (arguments->socket[0] != '\0' && strcmp(arguments->socket, path) != 0) {
            daemon_log("--socket is %s, and the socket from systemd is %s", arguments->socket, path);
            return FSDP_EXIT_CONFIG;
        }
        memcpy(arguments->socket, path, sizeof path);
    }
    if (arguments->socket[0] == '\0' && !control_default_socket(arguments->socket, sizeof arguments->socket,
                                                                getenv("XDG_RUNTIME_DIR"), getuid())) {
        daemon_log("XDG_RUNTIME_DIR is too long for a socket: give --socket");
        return FSDP_EXIT_USAGE;
    }
    return -1;
}

/* Read the command line. Returns -1 to go on, else the exit status. */
static int parse(struct arguments *arguments, int argc, char **argv)
{
    static const struct option options[] = {
        { "socket", required_argument, NULL, 's' },    { "pidfile", required_argument, NULL, 'p' },
        { "config", required_argument, NULL, 'c' },    { "job-groups", no_argument, NULL, 'g' },
        { "run-job", required_argument, NULL, 'j' },   { "started", required_argument, NULL, 'r' },
        { "group", required_argument, NULL, 'G' },     { "credentials", required_argument, NULL, 'C' },
        { "idle-exit", required_argument, NULL, 'i' }, { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'v' },         { NULL, 0, NULL, 0 },
    };
    int option;

    arguments->job_fd = arguments->start_fd = -1;
    arguments->pidfile = arguments->settings = NULL;
    arguments->group = arguments->credentials = "";
    arguments->with_groups = false;
    arguments->idle_exit_s = 0;
    arguments->socket[0] = '\0';
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        switch (option) {
        case 's':
            if (optarg[0] == '\0' || strlen(optarg) >= sizeof arguments->socket) {
                daemon_log("--socket: a path of 1 to %zu bytes", sizeof arguments->socket - 1);
                return FSDP_EXIT_USAGE;
            }
            snprintf(arguments->socket, sizeof arguments->socket, "%s", optarg);
            break;
        case 'p':
            arguments->pidfile = optarg;
            break;
        case 'c':
            arguments->settings = optarg;
            break;
        case 'g':
            arguments->with_groups = true;
            break;
        case 'G':
            arguments->group = optarg;
            break;
        case 'C':
            arguments->credentials = optarg;
            break;
        case 'i':
            arguments->idle_exit_s = number_of(optarg);
            if (arguments->idle_exit_s < 1 || arguments->idle_exit_s > IDLE_EXIT_MOST_S) {
                daemon_log("--idle-exit: 1 to %d seconds", IDLE_EXIT_MOST_S);
                return FSDP_EXIT_USAGE;
            }
            break;
        case 'j':
        case 'r':
            *(option == 'j' ? &arguments->job_fd : &arguments->start_fd) = number_of(optarg);
            if (number_of(optarg) < 0) {
                daemon_log("--%s: \"%s\" is no descriptor", option == 'j' ? "run-job" : "started", optarg);
                return FSDP_EXIT_USAGE;
            }
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        case 'v':
            printf("fsdp-agent %s (%s), %s\n", version_number(), version_commit(), version_compiler());
            return 0;
        default:
            return FSDP_EXIT_USAGE; /* getopt_long() has printed the reason */
        }
    }
    if (optind < argc) {
        daemon_log("unexpected argument: %s", argv[optind]);
        return FSDP_EXIT_USAGE;
    }
    return -1;
}

/*
 * The process of a job. Its environment is the client's. It enters its control group before it starts any
 * other process, and puts the secrets of the daemon's unit where fsdprun looks for them.
 */
static int run_job(const struct arguments *arguments)
{
    if (arguments->group[0] != '\0' && !job_group_enter(arguments->group)) {
        daemon_log("control group %s: %s", arguments->group, strerror(errno));
        return FSDP_EXIT_IO;
    }
    if (arguments->credentials[0] != '\0')
        setenv("CREDENTIALS_DIRECTORY", arguments->credentials, 1);
    return daemon_run_job(arguments->job_fd, arguments->start_fd);
}

int main(int argc, char **argv)
{
    struct os_baseline baseline;
    struct arguments arguments;
    struct daemon_config config = { .program = "/proc/self/exe", .baseline = &baseline };
    int status;

    os_baseline_capture(&baseline);
    status = parse(&arguments, argc, argv);
    if (status >= 0)
        return status;
    if (arguments.job_fd >= 0)
        return run_job(&arguments);
    status = choose_socket(&arguments);
    if (status >= 0)
        return status;
    config.socket_path = arguments.socket;
    config.socket_fd = arguments.socket_fd;
    config.pidfile = arguments.pidfile;
    config.settings_path = arguments.settings;
    config.with_groups = arguments.with_groups;
    config.credentials = getenv("CREDENTIALS_DIRECTORY");
    if (config.credentials == NULL)
        config.credentials = "";
    config.idle_exit_s = arguments.idle_exit_s;
    config.started_fd = arguments.start_fd;
    if (config.started_fd >= 0)
        fcntl(config.started_fd, F_SETFD, FD_CLOEXEC);
    return daemon_run(&config);
}
