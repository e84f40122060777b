/*
 * One connection to the daemon: its request, and the job that it asked for. The life of a client:
 *   1. daemon_welcome(): it has DAEMON_REQUEST_MS to send a whole request with three descriptors.
 *   2. take_job(): its job is started, and watched by a pidfd and by the socket of daemon_lease.c.
 *   3. It may send signals for the job. If it goes away, daemon_hang_up() decides what happens to the job.
 *   4. on_job_ended(): it is told the exit status. Once connection, job and socket are gone, free_client()
 *      frees it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/config.h"
#include "agent/daemon/control_proto.h"
#include "agent/daemon/daemon_impl.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/message.h"

enum { READ_BYTES = 65536 };

static void close_stdio(struct client *client)
{
    for (int i = 0; i < client->n_stdio; i++)
        close(client->stdio[i]);
    client->n_stdio = 0;
}

static void free_client(struct client *client)
{
    struct service *service = client->service;

    if (client->previous != NULL)
        client->previous->next = client->next;
    else
        service->clients = client->next;
    if (client->next != NULL)
        client->next->previous = client->previous;
    close_stdio(client);
    frame_parser_fini(&client->parser);
    free(client->runtime_dir);
    free(client->temporary);
    free(client);
    service->n_clients--;
    daemon_idle_look(service);
    daemon_settle(service);
}

void daemon_handle_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;

    if (--client->n_open_handles == 0)
        free_client(client);
}

void daemon_signal_job(const struct client *client, int signal)
{
    if (client->child.pidfd >= 0)
        syscall(SYS_pidfd_send_signal, client->child.pidfd, signal, NULL, 0);
}

/* The job's guard gets SIGKILL; the agent below it then ends everything. */
void daemon_hang_up(struct client *client)
{
    if (client->fd < 0)
        return;
    uv_close((uv_handle_t *)&client->poll, daemon_handle_closed);
    uv_close((uv_handle_t *)&client->deadline, daemon_handle_closed);
    close(client->fd);
    client->fd = -1;
    if (!client->detached || !(client->started || client->queued)) {
        daemon_signal_job(client, SIGKILL);
        daemon_place_lost(client);
    }
}

/* Send one message, or return false. The socket's buffer has room for all that one client ever gets. */
static bool send_frame(struct client *client, enum control_type type, const void *payload, size_t n_bytes)
{
    const struct frame frame = { .type = (uint16_t)type, .size = (uint32_t)n_bytes };
    unsigned char head[FRAME_HEAD_BYTES];
    struct iovec parts[2] = { { head, sizeof head }, { (void *)(uintptr_t)payload, n_bytes } };
    const struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

    if (client->fd < 0)
        return false;
    frame_write_head(head, &frame);
    return sendmsg(client->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)(sizeof head + n_bytes);
}

void daemon_say(struct client *client, enum control_type type, uint32_t number)
{
    unsigned char payload[4];

    send_frame(client, type, payload, control_encode_number(payload, number));
}

/* Tell the client the status and words it is to end with, log them, and close the connection. */
static void refuse(struct client *client, int status, const char *words)
{
    unsigned char payload[4 + CONTROL_WORDS_BYTES];

    daemon_log("a request was refused: %s", words);
    send_frame(client, CONTROL_REFUSED, payload,
               control_encode_words(payload, sizeof payload, (uint32_t)status, words));
    daemon_hang_up(client);
}

static void on_job_ended(uv_poll_t *poll, int poll_status, int events)
{
    struct client *client = poll->data;
    siginfo_t info;
    int status;

    (void)poll_status;
    (void)events;
    if (!agent_os_linux.reap(agent_os_linux.arg, &client->child, &info))
        return;
    /* the workers may have started since the last look; this is the last chance to see it */
    daemon_channel_look(client);
    /* A job that cannot save yet is killed by the daemon's own signal. Its user sees that as SIGTERM. */
    status = info.si_code == CLD_EXITED               ? info.si_status
             : info.si_status == agent_daemon_stops() ? 128 + SIGTERM
                                                      : 128 + info.si_status;
    daemon_log("job %d ended with %d", (int)client->child.pid, status);
    uv_close((uv_handle_t *)&client->job_poll, daemon_handle_closed);
    close(client->child.pidfd);
    client->child.pidfd = -1;
    daemon_group_leave(client->service, client->group);
    daemon_tell_status(client->service);
    daemon_say(client, CONTROL_EXITED, (uint32_t)status);
    daemon_hang_up(client);
}

/*
 * Put the request into a memfd, which the job's process reads. It is sealed, so that nothing can change it.
 * Returns -1 on failure, with errno set.
 */
static int make_request(const unsigned char *payload, size_t n_bytes)
{
    const int fd = memfd_create("fsdp-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -1;
    if (!file_write(fd, payload, n_bytes)) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    return fd;
}

/*
 * Start the job's process: this program again (daemon_job.c), which becomes fsdprun. Its environment,
 * directory and standard streams are the job's. It reads everything else from `request_fd`.
 */
static bool start_job(struct client *client, const struct control_job *job, int request_fd, int start_fd,
                      struct fsdp_err *err)
{
    struct service *service = client->service;
    char request[16], start[16], group[JOB_GROUP_PATH_BYTES];
    char *argv[] = { "fsdp-agent", "--run-job",     request,
                     "--started",  start,           "--group",
                     group,        "--credentials", service->config->credentials,
                     NULL };
    const struct os_spawn spawn = {
        .path = service->config->program,
        .argv = argv,
        .envp = job->environment,
        .directory = job->directory,
        .stdio = { client->stdio[0], client->stdio[1], client->stdio[2] },
        .keep_fds = { request_fd, start_fd, -1, -1 },
        .baseline = service->config->baseline,
    };
    struct os_spawn_failure failure;

    if (daemon_group_make(service, &client->group, group, err) != FSDP_OK)
        return false;
    snprintf(request, sizeof request, "%d", request_fd);
    snprintf(start, sizeof start, "%d", start_fd);
    if (agent_os_linux.spawn(agent_os_linux.arg, &spawn, &client->child, &failure))
        return true;
    fsdp_fail(err, FSDP_ERR_IO, "the job's process cannot be started: %s%s%s: %s", failure.call,
              strcmp(failure.call, "chdir") == 0 ? " " : "",
              strcmp(failure.call, "chdir") == 0 ? job->directory : "", strerror(failure.error));
    client->child.pidfd = -1;
    daemon_group_leave(service, client->group);
    return false;
}

static void on_silent(uv_timer_t *timer)
{
    daemon_place_lost(timer->data);
}

/* Watch the job, and tell the client that it is accepted. `channel` belongs to the client from here on. */
static void watch_job(struct client *client, int channel)
{
    unsigned char payload[4];

    uv_timer_start(&client->deadline, on_silent, DAEMON_NEED_MS, 0);
    if (!daemon_channel_open(client, channel) ||
        uv_poll_init(&client->service->loop, &client->job_poll, client->child.pidfd) != 0) {
        daemon_signal_job(client, SIGKILL); /* its end would go unseen */
        close(client->child.pidfd);
        client->child.pidfd = -1;
        daemon_group_leave(client->service, client->group);
        refuse(client, FSDP_EXIT_IO, "the job cannot be watched");
        return;
    }
    client->job_poll.data = client;
    client->n_open_handles++;
    uv_poll_start(&client->job_poll, UV_READABLE, on_job_ended);
    if (!send_frame(client, CONTROL_ACCEPTED, payload,
                    control_encode_number(payload, (uint32_t)client->child.pid)))
        daemon_hang_up(client);
}

/*
 * Returns a copy of a variable of the job's. It is "" if it is not set, or longer than a path can be, as then
 * the job does not use it. NULL: no memory.
 */
static char *copy_variable(const struct control_job *job, const char *name)
{
    const size_t length = strlen(name);

    for (char *const *at = job->environment; *at != NULL; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=' &&
            strlen(*at + length + 1) < CONTROL_PATH_BYTES)
            return strdup(*at + length + 1);
    return strdup("");
}

/* Tell the client which jobs live, and where their entries of the registry are. */
static void list_jobs(struct client *client)
{
    unsigned char *payload = malloc(CONTROL_JOBS_BYTES);
    bool fits = payload != NULL;
    size_t n = 0;

    for (const struct client *other = client->service->clients; other != NULL; other = other->next) {
        const struct control_place place = { .pid = (uint32_t)other->child.pid,
                                             .runtime_dir = other->runtime_dir,
                                             .temporary = other->temporary };

        if (other->child.pidfd >= 0 && other->runtime_dir != NULL && other->temporary != NULL)
            fits = fits && control_put_place(payload, &n, &place);
    }
    if (!fits)
        refuse(client, FSDP_EXIT_IO, "the list of jobs is too large");
    else if (send_frame(client, CONTROL_JOBS, payload, n))
        daemon_hang_up(client);
    else
        refuse(client, FSDP_EXIT_IO, "the list of jobs cannot be sent");
    free(payload);
}

/* Start the job that a RUN asks for. If the request is wrong or the start fails, the client is told. */
static void take_job(struct client *client, const struct frame *frame)
{
    struct control_job job;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    int request_fd, channel[2] = { -1, -1 }; /* the second end is the job's */

    if (client->n_stdio != 3) {
        refuse(client, FSDP_EXIT_USAGE, "a request comes with three descriptors");
        return;
    }
    status = control_decode_job(&job, frame->payload, frame->size, &err);
    if (status != FSDP_OK) {
        refuse(client,
               status == FSDP_ERR_MISMATCH ? FSDP_EXIT_PEER
               : status == FSDP_ERR_FORMAT ? FSDP_EXIT_USAGE
                                           : exit_status_of(status),
               err.message);
        return;
    }
    client->detached = job.head.detach != 0;
    client->saves = job.head.saves != 0;
    free(client->runtime_dir);
    free(client->temporary);
    client->runtime_dir = copy_variable(&job, "XDG_RUNTIME_DIR");
    client->temporary = copy_variable(&job, "TMPDIR");
    request_fd = make_request(frame->payload, frame->size);
    if (request_fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0) {
        refuse(client, FSDP_EXIT_IO, strerror(errno));
    } else if (!start_job(client, &job, request_fd, channel[1], &err)) {
        close(channel[0]);
        refuse(client, FSDP_EXIT_IO, err.message);
    } else {
        daemon_log("job %d began in %s", (int)client->child.pid, job.directory);
        watch_job(client, channel[0]);
        daemon_tell_status(client->service);
    }
    if (request_fd >= 0)
        close(request_fd);
    if (channel[1] >= 0)
        close(channel[1]);
    close_stdio(client); /* the job has copies */
    control_job_free(&job);
}

static void take_frame(struct client *client, const struct frame *frame)
{
    const struct service *service = client->service;
    uint32_t number;

    if (frame->type == CONTROL_RUN && service->settings.drain && !service->stopping) {
        refuse(client, FSDP_EXIT_PEER, "the agent takes no new jobs (drain = yes in its configuration)");
    } else if (frame->type == CONTROL_RUN && client->child.pidfd < 0 && !service->stopping) {
        take_job(client, frame);
    } else if (frame->type == CONTROL_SIGNAL && client->child.pidfd >= 0 &&
               control_decode_number(frame->payload, frame->size, &number) &&
               control_signal_allowed(number)) {
        daemon_signal_job(client, (int)number);
    } else if (frame->type == CONTROL_JOBS && client->child.pidfd < 0) {
        list_jobs(client);
    } else {
        refuse(client, FSDP_EXIT_USAGE, service->stopping ? "the agent is stopping" : "no such message here");
    }
}

static void take_frames(struct client *client)
{
    struct fsdp_err err = { 0 };
    struct frame frame;

    while (client->fd >= 0) {
        if (frame_parser_next(&client->parser, &frame, &err) != FSDP_OK) {
            refuse(client, FSDP_EXIT_USAGE, err.message);
            return;
        }
        if (frame.payload == NULL)
            return;
        take_frame(client, &frame);
    }
}

/* Keep the first three descriptors of a request; close all others. */
static void keep_descriptors(struct client *client, const struct message_fds *came)
{
    for (int i = 0; i < MESSAGE_FDS && came->fds[i] >= 0; i++)
        if (client->n_stdio < 3 && client->child.pidfd < 0)
            client->stdio[client->n_stdio++] = came->fds[i];
        else
            close(came->fds[i]);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct client *client = poll->data;
    struct fsdp_err err = { 0 };
    char bytes[READ_BYTES];
    struct iovec iov = { bytes, sizeof bytes };
    struct message_fds came = { .most = MESSAGE_FDS };
    ssize_t n;

    (void)status;
    (void)events;
    n = message_receive(client->fd, &iov, 1, MSG_DONTWAIT, &came);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0)
        keep_descriptors(client, &came);
    if (n <= 0) {
        daemon_hang_up(client);
    } else if (frame_parser_feed(&client->parser, bytes, (size_t)n, &err) != FSDP_OK) {
        refuse(client, FSDP_EXIT_IO, err.message);
    } else {
        take_frames(client);
    }
}

static void on_too_slow(uv_timer_t *timer)
{
    refuse(timer->data, FSDP_EXIT_USAGE, "the request was not whole in time");
}

void daemon_welcome(struct service *service, int fd)
{
    struct client *client = calloc(1, sizeof *client);

    if (client == NULL || uv_poll_init(&service->loop, &client->poll, fd) != 0) {
        free(client);
        close(fd);
        return;
    }
    client->service = service;
    client->fd = fd;
    client->child.pidfd = client->channel_fd = -1;
    frame_parser_init(&client->parser, CONTROL_MAX_BYTES);
    uv_timer_init(&service->loop, &client->deadline);
    client->poll.data = client->deadline.data = client;
    client->n_open_handles = 2;
    client->next = service->clients;
    if (client->next != NULL)
        client->next->previous = client;
    service->clients = client;
    service->n_clients++;
    daemon_idle_look(service);
    uv_poll_start(&client->poll, UV_READABLE, on_readable);
    uv_timer_start(&client->deadline, on_too_slow, DAEMON_REQUEST_MS, 0);
}
