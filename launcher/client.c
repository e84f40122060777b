#include "launcher/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/config.h"
#include "agent/daemon/control_proto.h"
#include "agent/os/os.h"
#include "agent/wire/frame.h"
#include "launcher/agent_jobs.h"
#include "launcher/launch.h"
#include "launcher/own_agent.h"
#include "launcher/say.h"
#include "launcher/terminal.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/message.h"
#include "shard_runtime/core/text.h"

extern char **environ;

enum { TRIES = 5, SEND_MS = 10000, ANSWER_MS = 2000, LAST_WORDS_MS = 1000 };

struct client {
    const char *socket_path;
    bool is_own;  /* the user gave no --agent: --detach found the agent or started it */
    bool is_gone; /* the agent closed the connection before it answered */
    int fd;       /* the connection */
    int signals;  /* a signalfd */
    int words; /* read end of the pipe that is a detached job's stderr until the job has started; -1: none */
    bool accepted, detach;
    bool queued; /* the job waits for GPUs */
    /* the request to run the job, with the environment and its secrets; NULL once no agent needs it again */
    unsigned char *request;
    size_t request_bytes;
    struct frame_parser parser;
};

__attribute__((format(printf, 2, 3))) static int fail(int status, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    say(stderr, "fsdprun: %s", line);
    return status;
}

/*
 * Connects to the agent. The agent will receive this process's environment, so it must run as our user or as
 * root. Returns 0, or the exit status.
 */
static int connect_to_agent(struct client *client)
{
    struct fsdp_err err = { 0 };
    uid_t owner;

    if (agent_connect(client->socket_path, &client->fd, &owner, &err) != FSDP_OK)
        return fail(exit_status_of_request(err.status), "%s", err.message);
    return 0;
}

/*
 * Sends all bytes within SEND_MS. If `stdio` is not NULL, its three descriptors go with the first byte.
 * Returns false, with errno set, if the agent does not read them in that time or the connection fails.
 */
static bool send_all(int fd, const unsigned char *bytes, size_t n_bytes, const int *stdio)
{
    const int64_t deadline = clock_now_ms() + SEND_MS;

    while (n_bytes > 0) {
        const struct iovec part = { (void *)(uintptr_t)bytes, n_bytes };
        struct pollfd writable = { .fd = fd, .events = POLLOUT };
        const ssize_t n = message_send(fd, &part, 1, stdio, stdio != NULL ? 3 : 0);

        if (n > 0) {
            bytes += n;
            n_bytes -= (size_t)n;
            stdio = NULL;
        } else if ((n < 0 && errno != EAGAIN) || (poll(&writable, 1, 50) < 0 && errno != EINTR)) {
            return false;
        }
        if (n_bytes > 0 && clock_now_ms() > deadline) {
            errno = ETIMEDOUT;
            return false;
        }
    }
    return true;
}

static bool send_frame(int fd, enum control_type type, const unsigned char *payload, size_t n_bytes,
                       const int *stdio)
{
    const struct frame frame = { .type = (uint16_t)type, .size = (uint32_t)n_bytes };
    unsigned char head[FRAME_HEAD_BYTES];

    frame_write_head(head, &frame);
    return send_all(fd, head, sizeof head, stdio) && send_all(fd, payload, n_bytes, NULL);
}

/*
 * Chooses the three standard streams that the job gets.
 *   - A stream that is closed in this process is /dev/null in the job.
 *   - A detached job has no terminal: its stdin and stdout are /dev/null. Its stderr is a pipe, which this
 *     process reads only until the job has started.
 *   opened  receives descriptors that the caller closes once the job is sent; -1: none
 */
static bool choose_stdio(struct client *client, int stdio[3], int opened[2])
{
    int words[2];

    opened[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (opened[0] < 0)
        return false;
    for (int i = 0; i < 3; i++)
        stdio[i] = client->detach || fcntl(i, F_GETFD) < 0 ? opened[0] : i;
    if (!client->detach)
        return true;
    if (pipe2(words, O_CLOEXEC) < 0)
        return false;
    client->words = words[0];
    stdio[2] = opened[1] = words[1];
    return true;
}

/* Prints the `n` bytes in `bytes`, which has room for a zero after them. Whole lines fit a terminal. */
static bool print_words(char *bytes, size_t n)
{
    bytes[n] = '\0';
    if (isatty(STDERR_FILENO) == 0 || strlen(bytes) < n || bytes[n - 1] != '\n')
        return write(STDERR_FILENO, bytes, n) == (ssize_t)n;
    text_wrap_messages(stderr, bytes, terminal_look(STDERR_FILENO).columns);
    return ferror(stderr) == 0;
}

/*
 * Copies what a detached job has written to its stderr pipe to this process's stderr. Returns false at the
 * end of the pipe, or if nothing came within `patience_ms`.
 */
static bool pass_words_on(struct client *client, int patience_ms)
{
    struct pollfd readable = { .fd = client->words, .events = POLLIN };
    char bytes[4096];
    ssize_t n;

    if (client->words < 0 || poll(&readable, 1, patience_ms) <= 0)
        return false;
    n = read(client->words, bytes, sizeof bytes - 1);
    if (n > 0)
        return print_words(bytes, (size_t)n);
    close(client->words);
    client->words = -1;
    return false;
}

static void describe_here(struct control_head *head, const struct os_baseline *baseline)
{
    struct rlimit limit;

    for (int i = 1; i <= 64; i++) {
        head->ignored |= (uint64_t)(sigismember(&baseline->ignored, i) == 1) << (i - 1);
        head->blocked |= (uint64_t)(sigismember(&baseline->mask, i) == 1) << (i - 1);
    }
    head->umask = umask(0);
    umask((mode_t)head->umask);
    for (int i = 0; i < RLIM_NLIMITS; i++)
        head->limits[i] = getrlimit(i, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
    if (sched_getaffinity(0, sizeof head->cpus, &head->cpus) < 0)
        memset(&head->cpus, 0xff, sizeof head->cpus);
}

/*
 * Makes the request to run the job. From then on the job secret is no longer in the environment of this
 * process: only the request has it. Returns 0, or the exit status.
 */
static int make_request(struct client *client, char *const *argv, bool is_job,
                        const struct os_baseline *baseline)
{
    struct control_job job = { .head = { .detach = client->detach, .saves = is_job },
                               .argv = argv,
                               .environment = environ };
    struct fsdp_err err = { 0 };
    char directory[PATH_MAX];
    enum fsdp_status status;

    job.directory = getcwd(directory, sizeof directory);
    if (job.directory == NULL)
        return fail(FSDP_EXIT_IO, "the working directory: %s", strerror(errno));
    describe_here(&job.head, baseline);
    status = control_encode_job(&job, &client->request, &client->request_bytes, &err);
    secret_forget_variable();
    if (status == FSDP_OK)
        return 0;
    return fail(status == FSDP_ERR_NOMEM ? exit_status_of(status) : FSDP_EXIT_USAGE, "--agent: %s",
                err.message);
}

/* Overwrites the request and frees it. */
static void drop_request(struct client *client)
{
    if (client->request != NULL)
        explicit_bzero(client->request, client->request_bytes);
    free(client->request);
    client->request = NULL;
}

/* Sends the request to run the job. Returns 0, or the exit status. */
static int send_job(struct client *client)
{
    int stdio[3], opened[2] = { -1, -1 }, status = 0;

    if (!choose_stdio(client, stdio, opened))
        status = fail(FSDP_EXIT_IO, "the job's standard streams: %s", strerror(errno));
    else if (!send_frame(client->fd, CONTROL_RUN, client->request, client->request_bytes, stdio) &&
             errno == ETIMEDOUT)
        status = fail(FSDP_EXIT_LINK, "the agent at %s does not take the job", client->socket_path);
    /*
     * On any other error the agent has closed the connection. It may have sent the reason, which is read
     * next.
     */
    for (int i = 0; i < 2; i++)
        if (opened[i] >= 0)
            close(opened[i]);
    /* an agent of --detach may be gone before it has taken the job, which is then sent to another one */
    if (!client->is_own)
        drop_request(client);
    return status;
}

/*
 * Blocks the signals in `taken` and those of job control, and returns a descriptor from which they are read.
 * Every other signal keeps its usual effect on this process. A signal that this process was started with as
 * ignored stays ignored.
 */
static int open_signals(uint64_t taken, const struct os_baseline *baseline)
{
    const uint64_t wanted = taken | UINT64_C(1) << SIGTSTP | UINT64_C(1) << SIGCONT;
    sigset_t set;

    os_signals_to_take(&set, wanted, baseline);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * Sends each signal that has arrived to the job. Exception: SIGHUP (the terminal was closed) while a detached
 * job waits in the queue ends only this process, and the job stays queued. Returns -1 to go on, else the exit
 * status.
 */
static int pass_signals_on(struct client *client)
{
    struct signalfd_siginfo info;

    while (read(client->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        unsigned char payload[4];

        if (!client->accepted) {
            if (info.ssi_signo == SIGCONT || info.ssi_signo == SIGTSTP)
                continue;
            return 128 + (int)info.ssi_signo;
        }
        if (info.ssi_signo == SIGHUP && client->detach && client->queued)
            return 128 + SIGHUP;
        send_frame(client->fd, CONTROL_SIGNAL, payload, control_encode_number(payload, info.ssi_signo), NULL);
        if (info.ssi_signo == SIGTSTP)
            /* the shell's fg sends SIGCONT: it wakes this process, which then reads it from the descriptor */
            raise(SIGSTOP);
    }
    return -1;
}

/*
 * Prints the id of a detached job that now runs, alone on stdout, for scripts. Returns 0, or the exit status.
 */
static int say_id(uint32_t job)
{
    printf("%u\n", job);
    return fflush(stdout) == 0 ? 0 : fail(FSDP_EXIT_IO, "write the job's id: %s", strerror(errno));
}

/* Handles one message from the agent. Returns -1 to go on, else the exit status. */
static int take_frame(struct client *client, const struct frame *frame)
{
    char words[CONTROL_WORDS_BYTES + 1];
    uint32_t number;

    if (frame->type == CONTROL_REFUSED &&
        control_decode_words(frame->payload, frame->size, &number, words, sizeof words))
        return fail(number > 0 && number < 256 ? (int)number : FSDP_EXIT_PEER, "the agent refuses: %s",
                    words);
    if (!control_decode_number(frame->payload, frame->size, &number))
        number = UINT32_MAX;
    if (frame->type == CONTROL_ACCEPTED && number != UINT32_MAX) {
        client->accepted = true;
        drop_request(client);
        return -1;
    }
    if (frame->type == CONTROL_QUEUED && number != UINT32_MAX) {
        client->queued = true; /* the job itself prints what it waits for */
        return -1;
    }
    if (frame->type == CONTROL_STARTED && number != UINT32_MAX) {
        while (pass_words_on(client, 0))
            continue;
        return client->detach ? say_id(number) : -1;
    }
    if (frame->type == CONTROL_EXITED && number < 256) {
        while (pass_words_on(client, LAST_WORDS_MS))
            continue;
        return (int)number;
    }
    return fail(FSDP_EXIT_LINK, "the agent at %s says what no agent says", client->socket_path);
}

static int take_bytes(struct client *client)
{
    unsigned char bytes[4096];
    struct fsdp_err err = { 0 };
    struct frame frame;
    int status = -1;
    ssize_t n = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -1;
    client->is_gone = n <= 0 && client->is_own && !client->accepted;
    if (client->is_gone)
        return FSDP_EXIT_LINK;
    if (n <= 0)
        return fail(FSDP_EXIT_LINK, "the agent at %s is gone%s", client->socket_path,
                    client->accepted ? "; it takes its jobs with it" : "");
    if (frame_parser_feed(&client->parser, bytes, (size_t)n, &err) != FSDP_OK)
        return fail(exit_status_of(err.status), "%s", err.message);
    while (status < 0) {
        if (frame_parser_next(&client->parser, &frame, &err) != FSDP_OK)
            return fail(FSDP_EXIT_LINK, "the agent at %s: %s", client->socket_path, err.message);
        if (frame.payload == NULL)
            break;
        status = take_frame(client, &frame);
    }
    return status;
}

/*
 * Waits at most ANSWER_MS at a time until the agent has accepted or refused the job. It is called before a
 * signal is passed on: the job may run, and its user may signal it, before the agent's answer has arrived
 * here. Returns -1 to go on, else the exit status.
 */
static int await_answer(struct client *client)
{
    struct pollfd agent = { .fd = client->fd, .events = POLLIN };
    int status = -1;

    while (!client->accepted && status < 0 && poll(&agent, 1, ANSWER_MS) > 0)
        status = take_bytes(client);
    return status;
}

/* Waits until the job has ended, or until a detached job has started. Returns the exit status. */
static int wait_for_end(struct client *client)
{
    for (;;) {
        struct pollfd fds[3] = { { .fd = client->fd, .events = POLLIN },
                                 { .fd = client->signals, .events = POLLIN },
                                 { .fd = client->words, .events = POLLIN } };
        int status = -1;

        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return fail(FSDP_EXIT_IO, "poll: %s", strerror(errno));
        if (fds[1].revents != 0)
            status = await_answer(client);
        if (status < 0 && fds[1].revents != 0)
            status = pass_signals_on(client);
        if (status < 0 && fds[0].revents != 0)
            status = take_bytes(client);
        if (status < 0 && fds[2].revents != 0)
            pass_words_on(client, 0);
        if (status >= 0)
            return status;
    }
}

/*
 * Sends the job to the agent and waits for its end. The caller has opened client->signals. Returns the exit
 * status.
 */
static int hand_over(struct client *client)
{
    int status;

    client->fd = client->words = -1;
    frame_parser_init(&client->parser, FRAME_HEAD_BYTES + 4 + CONTROL_WORDS_BYTES);
    status = connect_to_agent(client);
    if (status == 0)
        status = send_job(client);
    if (status == 0)
        status = wait_for_end(client);
    if (client->fd >= 0)
        close(client->fd);
    if (client->words >= 0)
        close(client->words);
    frame_parser_fini(&client->parser);
    return status;
}

/*
 * Finds the agent and sends it the job. Signals are blocked only after the agent is found. Until then a
 * signal ends this process.
 */
static int find_and_hand_over(struct client *client, const struct agent_config *config,
                              const struct os_baseline *baseline, const char *own_path)
{
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    struct fsdp_err err = { 0 };
    int status;

    client->is_gone = false;
    if (client->is_own && own_agent_find(path, sizeof path, own_path, &err) != FSDP_OK)
        return fail(err.status == FSDP_ERR_PEER ? FSDP_EXIT_PEER : exit_status_of(err.status), "--detach: %s",
                    err.message);
    if (client->is_own)
        client->socket_path = path;
    client->signals = open_signals(agent_signals(config), baseline);
    if (client->signals < 0)
        return fail(FSDP_EXIT_IO, "signalfd: %s", strerror(errno));
    status = hand_over(client);
    close(client->signals);
    sigprocmask(SIG_SETMASK, &baseline->mask, NULL);
    return status;
}

int client_run(const struct options *options, char *const *argv, bool is_job, const char *own_path)
{
    struct client client = { .socket_path = options->of[OPT_AGENT].text,
                             .is_own = !options_has(options, OPT_AGENT),
                             .detach = options_has(options, OPT_DETACH) };
    struct agent_config config;
    struct os_baseline baseline;
    struct fsdp_err err = { 0 };
    int status;

    agent_config_init(&config);
    status = launch_set_signals(&config, options, &err);
    if (status != 0)
        return fail(status, "%s", err.message);
    os_baseline_capture(&baseline);
    status = make_request(&client, argv, is_job, &baseline);
    if (status != 0)
        return status;
    for (int i = 0; i < TRIES && (i == 0 || client.is_gone); i++)
        status = find_and_hand_over(&client, &config, &baseline, own_path);
    drop_request(&client);
    return client.is_gone ? fail(FSDP_EXIT_LINK, "one agent after another is gone before it takes the job")
                          : status;
}
