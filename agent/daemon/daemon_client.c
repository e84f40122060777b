/* One connection to the daemon: its request, and the job that it asked for. */
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

#include "agent/daemon/control_proto.h"
#include "agent/daemon/daemon_impl.h"
#include "shard_runtime/core/exit_status.h"

enum { READ_BYTES = 65536 };

/* --- the life of a client ----------------------------------------------------------------------------------------- */

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
    free(client);
    service->n_clients--;
    daemon_settle(service);
}

static void on_handle_closed(uv_handle_t *handle)
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

/* SIGKILL of the job's guard ends everything below it, too. */
void daemon_hang_up(struct client *client)
{
    if (client->fd < 0)
        return;
    uv_close((uv_handle_t *)&client->poll, on_handle_closed);
    uv_close((uv_handle_t *)&client->deadline, on_handle_closed);
    close(client->fd);
    client->fd = -1;
    if (!client->detached || !client->started)
        daemon_signal_job(client, SIGKILL);
}

/* The socket's buffer holds all we ever send: a client that lets it fill up is hung up on. */
static bool send_frame(struct client *client, enum control_type type, const void *payload, size_t n_bytes)
{
    const struct frame frame = { .type = (uint16_t)type, .size = (uint32_t)n_bytes };
    unsigned char bytes[FRAME_HEAD_BYTES + 4 + CONTROL_WORDS_BYTES];

    if (client->fd < 0)
        return false;
    frame_write_head(bytes, &frame);
    memcpy(bytes + FRAME_HEAD_BYTES, payload, n_bytes);
    return send(client->fd, bytes, FRAME_HEAD_BYTES + n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)(FRAME_HEAD_BYTES + n_bytes);
}

static void refuse(struct client *client, int status, const char *words)
{
    unsigned char payload[4 + CONTROL_WORDS_BYTES];

    daemon_log("a request was refused: %s", words);
    send_frame(client, CONTROL_REFUSED, payload,
               control_encode_words(payload, sizeof payload, (uint32_t)status, words));
    daemon_hang_up(client);
}

/* --- its job ------------------------------------------------------------------------------------------------------ */

static void stop_waiting_for_start(struct client *client)
{
    if (client->start_fd < 0)
        return;
    uv_close((uv_handle_t *)&client->start_poll, on_handle_closed);
    close(client->start_fd);
    client->start_fd = -1;
}

/* The byte says that its workers run. Without it, the end of the pipe says that they never will. */
static void look_for_start(struct client *client)
{
    unsigned char byte, payload[4];
    ssize_t n;

    if (client->start_fd < 0)
        return;
    n = read(client->start_fd, &byte, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    stop_waiting_for_start(client);
    if (n != 1)
        return;
    client->started = true;
    send_frame(client, CONTROL_STARTED, payload, control_encode_number(payload, (uint32_t)client->child.pid));
}

static void on_start(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    look_for_start(poll->data);
}

static void on_job_ended(uv_poll_t *poll, int poll_status, int events)
{
    struct client *client = poll->data;
    unsigned char payload[4];
    siginfo_t info;
    int status;

    (void)poll_status;
    (void)events;
    if (!agent_os_linux.reap(agent_os_linux.arg, &client->child, &info))
        return;
    look_for_start(client); /* it may have started and ended since the last look */
    stop_waiting_for_start(client);
    status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    daemon_log("job %d ended with %d", (int)client->child.pid, status);
    uv_close((uv_handle_t *)&client->job_poll, on_handle_closed);
    close(client->child.pidfd);
    client->child.pidfd = -1;
    send_frame(client, CONTROL_EXITED, payload, control_encode_number(payload, (uint32_t)status));
    daemon_hang_up(client);
}

/* The request as the job's process reads it. */
static int make_request(const unsigned char *payload, size_t n_bytes)
{
    int fd = memfd_create("fsdp-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t done = 0;

    while (fd >= 0 && done < n_bytes) {
        const ssize_t n = write(fd, payload + done, n_bytes - done);

        if (n < 0 && errno != EINTR) {
            close(fd);
            fd = -1;
        } else if (n > 0) {
            done += (size_t)n;
        }
    }
    if (fd >= 0)
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    return fd;
}

static bool start_job(struct client *client, const struct control_job *job, int request_fd, int start_fd,
                      struct fsdp_err *err)
{
    const struct service *service = client->service;
    char request[16], start[16];
    char *argv[] = {
        (char[]){ "fsdp-agent" }, (char[]){ "--run-job" }, request, (char[]){ "--started" }, start, NULL
    };
    const struct os_spawn spawn = {
        .path = service->config->program,
        .argv = argv,
        .envp = job->config.environment,
        .directory = job->config.directory,
        .stdio = { client->stdio[0], client->stdio[1], client->stdio[2] },
        .keep_fds = { request_fd, start_fd },
        .baseline = service->config->baseline,
    };
    struct os_spawn_failure failure;

    snprintf(request, sizeof request, "%d", request_fd);
    snprintf(start, sizeof start, "%d", start_fd);
    if (agent_os_linux.spawn(agent_os_linux.arg, &spawn, &client->child, &failure))
        return true;
    fsdp_fail(err, FSDP_ERR_IO, "the job's process cannot be started: %s%s%s: %s", failure.call,
              strcmp(failure.call, "chdir") == 0 ? " " : "",
              strcmp(failure.call, "chdir") == 0 ? job->config.directory : "", strerror(failure.error));
    client->child.pidfd = -1;
    return false;
}

/* `start_fd` is the client's from here on. */
static void watch_job(struct client *client, int start_fd)
{
    unsigned char payload[4];

    uv_timer_stop(&client->deadline);
    if (uv_poll_init(&client->service->loop, &client->job_poll, client->child.pidfd) != 0) {
        daemon_signal_job(client, SIGKILL); /* nothing would see its end */
        close(client->child.pidfd);
        close(start_fd);
        client->child.pidfd = -1;
        refuse(client, FSDP_EXIT_IO, "the job cannot be watched");
        return;
    }
    client->job_poll.data = client->start_poll.data = client;
    client->n_open_handles++;
    uv_poll_start(&client->job_poll, UV_READABLE, on_job_ended);
    if (uv_poll_init(&client->service->loop, &client->start_poll, start_fd) == 0) {
        client->start_fd = start_fd;
        client->n_open_handles++;
        uv_poll_start(&client->start_poll, UV_READABLE, on_start);
    } else {
        close(start_fd);
    }
    if (!send_frame(client, CONTROL_ACCEPTED, payload,
                    control_encode_number(payload, (uint32_t)client->child.pid)))
        daemon_hang_up(client);
}

static void take_job(struct client *client, const struct frame *frame)
{
    struct control_job job;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    int request_fd, start[2] = { -1, -1 }; /* start: a pipe from the job's process */

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
    client->detached = job.detach;
    client->saves = job.config.job_json != NULL;
    request_fd = make_request(frame->payload, frame->size);
    if (request_fd < 0 || pipe2(start, O_CLOEXEC | O_NONBLOCK) < 0) {
        refuse(client, FSDP_EXIT_IO, strerror(errno));
    } else if (!start_job(client, &job, request_fd, start[1], &err)) {
        close(start[0]);
        refuse(client, FSDP_EXIT_IO, err.message);
    } else {
        daemon_log("job %d began: %s%s%s", (int)client->child.pid, job.config.argv[0],
                   job.config.run_dir != NULL ? " in " : "",
                   job.config.run_dir != NULL ? job.config.run_dir : "");
        watch_job(client, start[0]);
    }
    if (request_fd >= 0)
        close(request_fd);
    if (start[1] >= 0)
        close(start[1]);
    close_stdio(client); /* the job has its own */
    control_job_free(&job);
}

/* --- what clients say --------------------------------------------------------------------------------------------- */

static void take_frame(struct client *client, const struct frame *frame)
{
    uint32_t number;

    if (frame->type == CONTROL_RUN && client->child.pidfd < 0 && !client->service->stopping) {
        take_job(client, frame);
    } else if (frame->type == CONTROL_SIGNAL && client->child.pidfd >= 0 &&
               control_decode_number(frame->payload, frame->size, &number) &&
               control_signal_allowed(number)) {
        daemon_signal_job(client, (int)number);
    } else {
        refuse(client, FSDP_EXIT_USAGE,
               client->service->stopping ? "the agent is stopping" : "no such message here");
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

static void keep_descriptors(struct client *client, struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        size_t n;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (client->n_stdio < 3 && client->child.pidfd < 0)
                client->stdio[client->n_stdio++] = fd;
            else
                close(fd);
        }
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    static const size_t control_bytes = CMSG_SPACE(8 * sizeof(int));
    struct client *client = poll->data;
    struct fsdp_err err = { 0 };
    char bytes[READ_BYTES], control[CMSG_SPACE(8 * sizeof(int))];
    struct iovec iov = { bytes, sizeof bytes };
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_bytes
    };
    ssize_t n;

    (void)status;
    (void)events;
    do
        n = recvmsg(client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0)
        keep_descriptors(client, &message);
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

/* --- its beginning ------------------------------------------------------------------------------------------------ */

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
    client->child.pidfd = client->start_fd = -1;
    frame_parser_init(&client->parser, CONTROL_MAX_BYTES);
    uv_timer_init(&service->loop, &client->deadline);
    client->poll.data = client->deadline.data = client;
    client->n_open_handles = 2;
    client->next = service->clients;
    if (client->next != NULL)
        client->next->previous = client;
    service->clients = client;
    service->n_clients++;
    uv_poll_start(&client->poll, UV_READABLE, on_readable);
    uv_timer_start(&client->deadline, on_too_slow, DAEMON_REQUEST_MS, 0);
}
