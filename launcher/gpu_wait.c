#include "launcher/gpu_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "agent/desk/desk.h"
#include "agent/desk/job_view.h"
#include "agent/desk/registry.h"
#include "agent/os/os.h"
#include "launcher/say.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"

/* A job that waits for GPUs. */
struct waiting {
    const struct gpu_wait *wait;
    struct lease_answer *answer;
    uv_loop_t loop;
    uv_poll_t channel, signals;
    uv_timer_t stop; /* fires after a stop order has been answered */
    int signal_fd;
    struct registry_job about;
    struct desk *desk; /* answers the commands over jobs; NULL: it could not be opened */
    int64_t began_ns;
    int ordered; /* exit status that a stop order leads to */
    int status;  /* exit status at the end of the wait; -1: still waiting */
};

static void end_wait(struct waiting *waiting, int status)
{
    static const char words[] = "it was stopped while it waited for GPUs";

    if (waiting->status >= 0)
        return;
    waiting->status = status;
    desk_close(waiting->desk, status, words);
    waiting->desk = NULL;
    uv_close((uv_handle_t *)&waiting->channel, NULL);
    uv_close((uv_handle_t *)&waiting->signals, NULL);
    uv_close((uv_handle_t *)&waiting->stop, NULL);
}

/* Messages of the agent */

static void on_channel(uv_poll_t *poll, int status, int events)
{
    struct waiting *waiting = poll->data;
    struct lease_answer answer;
    const ssize_t n = recv(waiting->wait->channel, &answer, sizeof answer, MSG_DONTWAIT);

    (void)status;
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof answer) {
        end_wait(waiting, FSDP_EXIT_LINK);
        return;
    }
    *waiting->answer = answer;
    if (answer.granted != 0)
        end_wait(waiting, 0);
}

/*
 * Ends the wait. A signal that comes after the grant is not read here. It stays pending, and then ends the
 * job like any signal before its run.
 */
static void on_signal(uv_poll_t *poll, int status, int events)
{
    struct waiting *waiting = poll->data;
    struct signalfd_siginfo info;

    (void)status;
    (void)events;
    if (waiting->status < 0 && read(waiting->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        end_wait(waiting,
                 128 + ((int)info.ssi_signo == agent_daemon_stops() ? SIGTERM : (int)info.ssi_signo));
}

/*
 * Opens a descriptor for the signals that end a program, except those that were ignored when this process
 * started.
 */
static int open_signals(sigset_t *before)
{
    const uint64_t wanted = UINT64_C(1) << SIGHUP | UINT64_C(1) << SIGINT | UINT64_C(1) << SIGQUIT |
                            UINT64_C(1) << SIGTERM | UINT64_C(1) << agent_daemon_stops();
    struct os_baseline baseline;
    sigset_t set;

    os_baseline_capture(&baseline);
    os_signals_to_take(&set, wanted, &baseline);
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Answers to the commands over jobs */

static void on_show(void *arg, enum desk_word word, struct json_text *answer)
{
    const struct waiting *waiting = arg;
    const struct agent_config *config = waiting->wait->config;
    const struct job_view view = { .id = waiting->about.id,
                                   .name = waiting->about.name,
                                   .state = JOB_QUEUED,
                                   .n_nodes = config->n_nodes,
                                   .n_ranks = config->n_nodes * config->n_workers,
                                   .step = -1,
                                   .loss = (double)NAN,
                                   .tokens_per_s = (double)NAN,
                                   .age_s = (double)(clock_now_ns() - waiting->began_ns) / 1e9,
                                   .run_dir = config->run_dir,
                                   .waits_for = waiting->answer->words,
                                   .node_rank = -1 };

    json_open(answer, NULL, '{');
    job_view_put(answer, &view);
    if (word != DESK_PS)
        job_view_put_workers(answer, &view);
    if (word == DESK_INSPECT)
        job_view_put_command(answer, config->command);
    json_close(answer, '}');
}

static void on_stop(uv_timer_t *timer)
{
    struct waiting *waiting = timer->data;

    end_wait(waiting, waiting->ordered);
}

static int refuse(char *reason, int status, const char *words)
{
    snprintf(reason, DESK_REASON_BYTES, "%s", words);
    return status;
}

/*
 * Answers a stop order. The stop itself happens later, in on_stop(): the desk must not be closed inside one
 * of its handlers.
 */
static int on_order(void *arg, enum desk_word word, char *reason)
{
    struct waiting *waiting = arg;

    if (word == DESK_RESTART)
        return refuse(reason, FSDP_EXIT_PEER, "the job waits for GPUs: nothing of it runs yet");
    if (word == DESK_SAVE && waiting->wait->config->job_json == NULL)
        return refuse(reason, FSDP_EXIT_CONFIG, "a program cannot be asked to save: only a job can");
    waiting->ordered = word == DESK_SAVE ? FSDP_EXIT_NOTICE : 128 + SIGTERM;
    uv_timer_start(&waiting->stop, on_stop, 0, 0);
    return 0;
}

/*
 * Enters the job into the registry of runs, and answers the commands over jobs at its socket. That socket
 * stays open for the run, which will answer in place of this process. A command that connects in between
 * waits in its backlog.
 */
static void list_job(struct waiting *waiting, struct registry_entry **entry, int *entry_fd)
{
    const struct agent_config *config = waiting->wait->config;
    const struct desk_handlers handlers = { .arg = waiting, .show = on_show, .order = on_order };
    struct registry_job *about = &waiting->about;
    struct fsdp_err err = { 0 };

    about->pid = getpid();
    about->started_s = clock_epoch_s();
    snprintf(about->id, sizeof about->id, "%d", (int)about->pid);
    snprintf(about->name, sizeof about->name, "%s", config->list_name);
    snprintf(about->run_dir, sizeof about->run_dir, "%s", config->run_dir != NULL ? config->run_dir : "");
    if (registry_enter(entry, about, entry_fd, &err) == FSDP_OK) {
        const int listen_fd = fcntl(*entry_fd, F_DUPFD_CLOEXEC, 0);

        if (listen_fd >= 0)
            (void)desk_open(&waiting->desk, &waiting->loop, listen_fd, &handlers, &err);
    }
    if (err.status != FSDP_OK && !config->quiet)
        say(stderr, "fsdprun: `fsdprun ps` does not show this job: %s", err.message);
}

/*
 * Prints one line about what the job waits for, once the registry has the job. It then tells the agent, so
 * that the client of a detached job may end.
 */
static void say_what_for(const struct waiting *waiting)
{
    const struct gpu_wait *wait = waiting->wait;
    const unsigned char word = LEASE_QUEUED;

    if (wait->detached && !wait->config->quiet)
        say(stderr, "fsdprun: job %d under %s%s %s", (int)getpid(),
            wait->agent != NULL ? "the agent at " : "this user's agent",
            wait->agent != NULL ? wait->agent : "", waiting->answer->words);
    else if (!wait->config->quiet)
        say(stderr, "fsdprun: %s", waiting->answer->words);
    /* if the agent has ended, the loop sees it next */
    (void)!send(wait->channel, &word, sizeof word, MSG_NOSIGNAL);
}

/*
 * Replaces stderr by /dev/null if no process reads it any more. The client of a detached job may have ended
 * while the job was queued. The next line on stderr would then end this process by SIGPIPE.
 */
static void replace_unread_stderr(void)
{
    struct pollfd pipe = { .fd = STDERR_FILENO, .events = POLLOUT };
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (null >= 0 && poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR) != 0)
        dup2(null, STDERR_FILENO);
    if (null >= 0)
        close(null);
}

static void watch(struct waiting *waiting)
{
    uv_poll_init(&waiting->loop, &waiting->channel, waiting->wait->channel);
    uv_poll_init(&waiting->loop, &waiting->signals, waiting->signal_fd);
    uv_timer_init(&waiting->loop, &waiting->stop);
    waiting->channel.data = waiting->signals.data = waiting->stop.data = waiting;
    uv_poll_start(&waiting->channel, UV_READABLE, on_channel);
    uv_poll_start(&waiting->signals, UV_READABLE, on_signal);
}

int gpu_wait(const struct gpu_wait *wait, struct lease_answer *answer, struct registry_entry **entry,
             int *entry_fd, struct fsdp_err *err)
{
    struct waiting waiting = {
        .wait = wait, .answer = answer, .signal_fd = -1, .began_ns = clock_now_ns(), .status = -1
    };
    const int flags = fcntl(wait->channel, F_GETFL);
    sigset_t before;

    *entry = NULL;
    *entry_fd = -1;
    if (uv_loop_init(&waiting.loop) != 0) {
        fsdp_fail(err, FSDP_ERR_IO, "no event loop can be made");
        return FSDP_EXIT_IO;
    }
    waiting.signal_fd = open_signals(&before);
    watch(&waiting);
    list_job(&waiting, entry, entry_fd);
    say_what_for(&waiting);
    uv_run(&waiting.loop, UV_RUN_DEFAULT);
    uv_loop_close(&waiting.loop);
    close(waiting.signal_fd);
    fcntl(wait->channel, F_SETFL, flags); /* back to blocking: the loop had made it non-blocking */
    if (waiting.status != 0) {
        registry_leave(*entry);
        *entry = NULL;
        if (*entry_fd >= 0)
            close(*entry_fd);
        *entry_fd = -1;
    }
    if (wait->detached)
        replace_unread_stderr();
    if (waiting.status == FSDP_EXIT_LINK)
        fsdp_fail(err, FSDP_ERR_PEER, "the agent is gone");
    sigprocmask(SIG_SETMASK, &before, NULL);
    return waiting.status;
}
