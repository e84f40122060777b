#include "agent/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/config.h"
#include "agent/daemon/daemon_impl.h"
#include "agent/daemon/notify.h"
#include "agent/os/sink.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/hide_memory.h"
#include "shard_runtime/core/text.h"

enum { ACCEPT_AT_ONCE = 16, ACCEPT_AGAIN_MS = 200 };

void daemon_log(const char *format, ...)
{
    const struct sink terminal = { .fd = STDERR_FILENO, .tty = isatty(STDERR_FILENO) != 0 };
    char line[1024] = "fsdp-agent: ";
    const size_t n = strlen(line);
    va_list args;

    va_start(args, format);
    vsnprintf(line + n, sizeof line - n, format, args);
    va_end(args);
    if (terminal.tty)
        text_wrap_messages(stderr, line, sink_width(&terminal));
    else
        fprintf(stderr, "%s\n", line);
}

/*
 * Is the process at the other end of our uid, or root? The socket's mode does not suffice, because chmod can
 * change it.
 */
static bool is_allowed(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/*
 * Close the connection of the oldest client that has not sent a request, so that silent connections keep no
 * job out. Returns false if every client has a job.
 */
static bool make_room(struct service *service)
{
    struct client *oldest = NULL;

    for (struct client *client = service->clients; client != NULL; client = client->next)
        if (client->fd >= 0 && client->child.pidfd < 0)
            oldest = client;
    if (oldest != NULL)
        daemon_hang_up(oldest);
    return oldest != NULL;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_accept_again(uv_timer_t *timer)
{
    struct service *service = timer->data;

    if (!service->stopping)
        uv_poll_start(&service->listener, UV_READABLE, on_connection);
}

/*
 * Accept the connections that wait. If no descriptor is free, the listener pauses for ACCEPT_AGAIN_MS: the
 * connection stays readable, and would keep the loop busy.
 */
void daemon_accept(struct service *service)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        const int fd = accept4(service->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                /* otherwise the loop would report the waiting connection again at once */
                uv_poll_stop(&service->listener);
                uv_timer_start(&service->again, on_accept_again, ACCEPT_AGAIN_MS, 0);
            }
            return;
        }
        if (!is_allowed(fd) || (service->n_clients >= DAEMON_MAX_CONNECTIONS && !make_room(service)))
            close(fd);
        else
            daemon_welcome(service, fd);
    }
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    daemon_accept(poll->data);
}

/* Once all handles are closed, the loop ends, and with it the daemon. */
void daemon_settle(struct service *service)
{
    if (!service->stopping)
        return;
    for (const struct client *client = service->clients; client != NULL; client = client->next)
        if (client->child.pidfd >= 0)
            return;
    for (struct client *client = service->clients; client != NULL; client = client->next) {
        daemon_hang_up(client);
        /* the job has ended, even if a process outlived its guard: that is no reason to wait */
        daemon_channel_close(client);
    }
    for (int i = 0; i < DAEMON_N_SIGNALS; i++)
        if (!uv_is_closing((uv_handle_t *)&service->signals[i]))
            uv_close((uv_handle_t *)&service->signals[i], NULL);
}

/*
 * Removes the socket, which is still ours because we hold the lock. systemd's socket stays, because it starts
 * the next daemon.
 */
static void remove_socket(const struct service *service)
{
    if (service->config->socket_fd < 0)
        unlink(service->config->socket_path);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    (void)number;
    daemon_reload(handle->data);
}

void daemon_stop(struct service *service)
{
    service->stopping = true;
    notify("STOPPING=1");
    daemon_tell_status(service);
    uv_close((uv_handle_t *)&service->listener, NULL);
    uv_close((uv_handle_t *)&service->again, NULL);
    uv_close((uv_handle_t *)&service->idle, NULL);
    remove_socket(service);
    for (const struct client *client = service->clients; client != NULL; client = client->next)
        daemon_signal_job(client, client->saves ? agent_daemon_stops() : SIGTERM);
    daemon_settle(service);
}

/* The first TERM or INT asks jobs to end. The second kills them. */
static void on_stop(uv_signal_t *handle, int number)
{
    struct service *service = handle->data;

    (void)number;
    if (!service->stopping) {
        daemon_stop(service);
        return;
    }
    for (const struct client *client = service->clients; client != NULL; client = client->next)
        daemon_signal_job(client, SIGKILL); /* each guard ends with all below it */
}

/*
 * The socket is made before the pidfile. So a second daemon is refused at the socket, and leaves the first
 * one's pidfile alone.
 */
static enum fsdp_status listen_alone(struct service *service, struct fsdp_err *err)
{
    const struct daemon_config *config = service->config;
    enum fsdp_status status;

    service->listen_fd = config->socket_fd;
    status = config->socket_fd >= 0
                 ? daemon_adopt(config->socket_path, &service->lock_fd, err)
                 : daemon_listen(config->socket_path, &service->listen_fd, &service->lock_fd, err);
    if (status != FSDP_OK || config->pidfile == NULL)
        return status;
    status = daemon_pidfile_take(config->pidfile, &service->pidfile_fd, err);
    if (status != FSDP_OK) {
        remove_socket(service);
        daemon_unlock(config->socket_path, service->lock_fd);
    }
    return status;
}

static enum fsdp_status start_service(struct service *service, struct fsdp_err *err)
{
    static const struct {
        int number;
        uv_signal_cb taken;
    } signals[DAEMON_N_SIGNALS] = { { SIGTERM, on_stop }, { SIGINT, on_stop }, { SIGHUP, on_hangup } };
    enum fsdp_status status = listen_alone(service, err);
    int error;

    if (status != FSDP_OK)
        return status;
    error = uv_loop_init(&service->loop);
    if (error == 0)
        error = uv_poll_init(&service->loop, &service->listener, service->listen_fd);
    if (error == 0)
        error = uv_timer_init(&service->loop, &service->again);
    if (error == 0 && daemon_idle_open(service) != FSDP_OK)
        error = UV_ENOMEM;
    for (int i = 0; i < DAEMON_N_SIGNALS && error == 0; i++) {
        error = uv_signal_init(&service->loop, &service->signals[i]);
        service->signals[i].data = service;
        if (error == 0)
            error = uv_signal_start(&service->signals[i], signals[i].taken, signals[i].number);
    }
    service->listener.data = service->again.data = service;
    if (error == 0)
        error = uv_poll_start(&service->listener, UV_READABLE, on_connection);
    return error == 0 ? watchdog_begin(&service->watchdog, &service->loop, err)
                      : fsdp_fail(err, FSDP_ERR_IO, "the event loop: %s", uv_strerror(error));
}

/*
 * Tells the process that started the daemon that it serves now. That process stops reading our stderr then.
 */
static void say_started(const struct service *service)
{
    const struct daemon_config *config = service->config;
    const int null = config->started_fd < 0 ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (config->started_fd < 0)
        daemon_log("serves %s (pid %d)", config->socket_path, (int)getpid());
    daemon_tell_status(service);
    if (config->started_fd < 0)
        return;
    (void)!write(config->started_fd, "", 1);
    close(config->started_fd);
    if (null >= 0) {
        dup2(null, STDERR_FILENO);
        close(null);
    }
}

int daemon_run(const struct daemon_config *config)
{
    struct service service = { .config = config, .listen_fd = -1, .lock_fd = -1, .pidfile_fd = -1 };
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    core_hide_memory(); /* the environments of clients pass through it */
    signal(SIGPIPE, SIG_IGN);
    os_raise_nofile();
    status = os_check_kernel(&err);
    if (status == FSDP_OK && config->settings_path != NULL)
        status = settings_load(&service.settings, config->settings_path, &err);
    if (status == FSDP_OK)
        status = start_service(&service, &err);
    if (status != FSDP_OK) {
        daemon_log("%s", err.message);
        return status == FSDP_ERR_BUSY ? FSDP_EXIT_PEER : exit_status_of(status);
    }
    daemon_groups_begin(&service);
    say_started(&service);
    uv_run(&service.loop, UV_RUN_DEFAULT);
    watchdog_end(&service.watchdog);
    daemon_groups_end(&service);
    uv_run(&service.loop, UV_RUN_DEFAULT); /* what has been closed last */
    uv_loop_close(&service.loop);
    close(service.listen_fd);
    daemon_pidfile_drop(config->pidfile, service.pidfile_fd);
    daemon_unlock(config->socket_path, service.lock_fd);
    return 0;
}
