#include "agent/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include <fsdp/link.h>

#include "agent/control_proto.h"
#include "agent/frame.h"
#include "shard_runtime/core/exit_status.h"

enum { ACCEPT_AT_ONCE = 16, READ_BYTES = 65536, ACCEPT_AGAIN_MS = 200 };

struct service {
    const struct daemon_config *config;
    uv_loop_t loop;
    uv_poll_t listener;
    uv_timer_t again; /* accepting waits for descriptors */
    uv_signal_t signals[2];
    int listen_fd, lock_fd;
    struct client *clients;
    int n_clients;
    bool stopping, killed;
};

/* A connection, its job, or a job without a connection. Gone when it has neither. */
struct client {
    struct service *service;
    struct client *next, *previous;
    int fd; /* -1: closed */
    uv_poll_t poll;
    uv_timer_t deadline; /* of the request */
    uv_poll_t job_poll;  /* on the pidfd */
    struct frame_parser parser;
    int stdio[3], n_stdio;
    struct os_child child; /* pidfd -1: no job, or reaped */
    bool detached;
    int n_open_handles;
};

static void stop_serving(struct service *service);

__attribute__((format(printf, 1, 2))) static void log_line(const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "fsdp-agent: %s\n", line);
}

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
    if (service->stopping)
        stop_serving(service);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;

    if (--client->n_open_handles == 0)
        free_client(client);
}

/* Let go of the connection; a job that hangs on it is killed: its guard goes, and takes everything along. */
static void hang_up(struct client *client)
{
    if (client->fd < 0)
        return;
    uv_close((uv_handle_t *)&client->poll, on_handle_closed);
    uv_close((uv_handle_t *)&client->deadline, on_handle_closed);
    close(client->fd);
    client->fd = -1;
    if (client->child.pidfd >= 0 && !client->detached)
        syscall(SYS_pidfd_send_signal, client->child.pidfd, SIGKILL, NULL, 0);
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

    log_line("a request was refused: %s", words);
    send_frame(client, CONTROL_REFUSED, payload,
               control_encode_words(payload, sizeof payload, (uint32_t)status, words));
    hang_up(client);
}

/* --- its job ------------------------------------------------------------------------------------------------------ */

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
    status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    log_line("job %d ended with %d", (int)client->child.pid, status);
    uv_close((uv_handle_t *)&client->job_poll, on_handle_closed);
    close(client->child.pidfd);
    client->child.pidfd = -1;
    send_frame(client, CONTROL_EXITED, payload, control_encode_number(payload, (uint32_t)status));
    hang_up(client);
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

static bool start_job(struct client *client, const struct control_job *job, int request_fd,
                      struct fsdp_err *err)
{
    const struct service *service = client->service;
    char number[16];
    char *argv[] = { (char[]){ "fsdp-agent" }, (char[]){ "--run-job" }, number, NULL };
    const struct os_spawn spawn = {
        .path = service->config->program,
        .argv = argv,
        .envp = job->config.environment,
        .directory = job->config.directory,
        .stdio = { client->stdio[0], client->stdio[1], client->stdio[2] },
        .keep_fd = request_fd,
        .baseline = service->config->baseline,
    };
    struct os_spawn_failure failure;

    snprintf(number, sizeof number, "%d", request_fd);
    if (agent_os_linux.spawn(agent_os_linux.arg, &spawn, &client->child, &failure))
        return true;
    fsdp_fail(err, FSDP_ERR_IO, "the job's process cannot be started: %s%s%s: %s", failure.call,
              strcmp(failure.call, "chdir") == 0 ? " " : "",
              strcmp(failure.call, "chdir") == 0 ? job->config.directory : "", strerror(failure.error));
    client->child.pidfd = -1;
    return false;
}

static void watch_job(struct client *client)
{
    unsigned char payload[4];

    uv_timer_stop(&client->deadline);
    if (uv_poll_init(&client->service->loop, &client->job_poll, client->child.pidfd) != 0) {
        /* Nothing would see its end. */
        syscall(SYS_pidfd_send_signal, client->child.pidfd, SIGKILL, NULL, 0);
        close(client->child.pidfd);
        client->child.pidfd = -1;
        refuse(client, FSDP_EXIT_IO, "the job cannot be watched");
        return;
    }
    client->job_poll.data = client;
    client->n_open_handles++;
    uv_poll_start(&client->job_poll, UV_READABLE, on_job_ended);
    if (!send_frame(client, CONTROL_ACCEPTED, payload,
                    control_encode_number(payload, (uint32_t)client->child.pid)))
        hang_up(client);
}

static void take_job(struct client *client, const struct frame *frame)
{
    struct control_job job;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    int request_fd;

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
    request_fd = make_request(frame->payload, frame->size);
    if (request_fd < 0) {
        refuse(client, FSDP_EXIT_IO, strerror(errno));
    } else if (!start_job(client, &job, request_fd, &err)) {
        refuse(client, FSDP_EXIT_IO, err.message);
    } else {
        log_line("job %d began: %s%s%s", (int)client->child.pid, job.config.argv[0],
                 job.config.run_dir != NULL ? " in " : "",
                 job.config.run_dir != NULL ? job.config.run_dir : "");
        watch_job(client);
    }
    if (request_fd >= 0)
        close(request_fd);
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
        syscall(SYS_pidfd_send_signal, client->child.pidfd, (int)number, NULL, 0);
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
        hang_up(client);
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

/* --- accepting ---------------------------------------------------------------------------------------------------- */

static bool is_allowed(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void welcome(struct service *service, int fd)
{
    struct client *client = calloc(1, sizeof *client);

    if (client == NULL || uv_poll_init(&service->loop, &client->poll, fd) != 0) {
        free(client);
        close(fd);
        return;
    }
    client->service = service;
    client->fd = fd;
    client->child.pidfd = -1;
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

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_accept_again(uv_timer_t *timer)
{
    struct service *service = timer->data;

    if (!service->stopping)
        uv_poll_start(&service->listener, UV_READABLE, on_connection);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct service *service = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        const int fd = accept4(service->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                uv_poll_stop(poll); /* it would be reported at once again */
                uv_timer_start(&service->again, on_accept_again, ACCEPT_AGAIN_MS, 0);
            }
            return;
        }
        if (!is_allowed(fd) || service->n_clients >= DAEMON_MAX_CONNECTIONS)
            close(fd);
        else
            welcome(service, fd);
    }
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void signal_jobs(struct service *service, int signal)
{
    for (struct client *client = service->clients; client != NULL; client = client->next)
        if (client->child.pidfd >= 0)
            syscall(SYS_pidfd_send_signal, client->child.pidfd, signal, NULL, 0);
}

/* Once the last job has ended, close what is left; the loop runs dry then. */
static void stop_serving(struct service *service)
{
    for (const struct client *client = service->clients; client != NULL; client = client->next)
        if (client->child.pidfd >= 0)
            return;
    for (struct client *client = service->clients; client != NULL; client = client->next)
        hang_up(client);
    for (int i = 0; i < 2; i++)
        if (!uv_is_closing((uv_handle_t *)&service->signals[i]))
            uv_close((uv_handle_t *)&service->signals[i], NULL);
}

static void on_stop(uv_signal_t *handle, int number)
{
    struct service *service = handle->data;

    if (service->stopping) {
        signal_jobs(service, SIGKILL); /* told twice: the guards go, and take everything along */
        return;
    }
    (void)number;
    service->stopping = true;
    daemon_notify("STOPPING=1");
    uv_close((uv_handle_t *)&service->listener, NULL);
    uv_close((uv_handle_t *)&service->again, NULL);
    unlink(service->config->socket_path); /* we hold the lock: it is still ours */
    signal_jobs(service, SIGTERM);
    stop_serving(service);
}

static enum fsdp_status start_service(struct service *service, struct fsdp_err *err)
{
    static const int stops[2] = { SIGTERM, SIGINT };
    enum fsdp_status status =
        daemon_listen(service->config->socket_path, &service->listen_fd, &service->lock_fd, err);
    int error;

    if (status != FSDP_OK)
        return status;
    error = uv_loop_init(&service->loop);
    if (error == 0)
        error = uv_poll_init(&service->loop, &service->listener, service->listen_fd);
    if (error == 0)
        error = uv_timer_init(&service->loop, &service->again);
    for (int i = 0; i < 2 && error == 0; i++) {
        error = uv_signal_init(&service->loop, &service->signals[i]);
        service->signals[i].data = service;
        if (error == 0)
            error = uv_signal_start(&service->signals[i], on_stop, stops[i]);
    }
    service->listener.data = service->again.data = service;
    if (error == 0)
        error = uv_poll_start(&service->listener, UV_READABLE, on_connection);
    return error == 0 ? FSDP_OK : fsdp_fail(err, FSDP_ERR_IO, "the event loop: %s", uv_strerror(error));
}

int daemon_run(const struct daemon_config *config)
{
    struct service service = { .config = config, .listen_fd = -1, .lock_fd = -1 };
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    signal(SIGPIPE, SIG_IGN);
    os_raise_nofile();
    status = start_service(&service, &err);
    if (status != FSDP_OK) {
        log_line("%s", err.message);
        return status == FSDP_ERR_BUSY ? FSDP_EXIT_PEER : exit_status_of(status);
    }
    log_line("serves %s (pid %d)", config->socket_path, (int)getpid());
    daemon_notify("READY=1");
    uv_run(&service.loop, UV_RUN_DEFAULT);
    uv_loop_close(&service.loop);
    close(service.listen_fd);
    close(service.lock_fd);
    return 0;
}
