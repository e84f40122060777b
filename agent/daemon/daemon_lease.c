/*
 * The socket between the daemon and the fsdprun of a job (agent/daemon/lease.h). It carries the job's place
 * in the queue of GPUs, and the report that its workers run.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/control_proto.h"
#include "agent/daemon/daemon_impl.h"
#include "agent/daemon/lease.h"

union message {
    unsigned char word;
    struct lease_need need;
};

static struct client *client_of(struct queue_job *job)
{
    return (struct client *)((char *)job - offsetof(struct client, place));
}

static void on_channel(uv_poll_t *poll, int status, int events);

/*
 * Tell the job which GPUs it holds, or what it waits for. A job that is stopped cannot take messages. When it
 * takes them again, it gets only its state at that time.
 */
static void tell(struct client *client)
{
    const struct queue *queue = &client->service->queue;
    struct lease_answer answer = { .granted = client->place.state == QUEUE_HOLDS,
                                   .held = client->place.held };
    bool waits;

    if (!answer.granted) {
        queue_words(queue, &client->place, answer.words);
        if (strcmp(answer.words, client->told) == 0)
            return;
    }
    waits =
        send(client->channel_fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EAGAIN;
    if (!waits)
        memcpy(client->told, answer.words, sizeof client->told);
    if (!waits && answer.granted)
        daemon_log("job %d has %d GPU%s", (int)client->child.pid, client->place.n_wanted,
                   client->place.n_wanted == 1 ? "" : "s");
    uv_poll_start(&client->channel_poll, waits ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_channel);
}

void daemon_queue_look(struct service *service)
{
    struct queue_job *job;

    while (!service->stopping && (job = queue_next(&service->queue)) != NULL)
        tell(client_of(job));
    for (job = service->queue.first; job != NULL; job = job->next)
        if (job->state == QUEUE_WAITS)
            tell(client_of(job));
}

static void take_need(struct client *client, struct lease_need *need)
{
    need->name[sizeof need->name - 1] = '\0';
    if (need->n_gpus > QUEUE_GPUS ||
        !queue_need(&client->service->queue, &client->place, (int)need->n_gpus, &need->usable, need->name)) {
        daemon_log("job %d asks for GPUs that it cannot get, and is killed", (int)client->child.pid);
        daemon_signal_job(client, SIGKILL);
    }
    if (client->fd >= 0)
        uv_timer_stop(&client->deadline);
    daemon_queue_look(client->service);
}

static void take_word(struct client *client, unsigned char word)
{
    if (word == LEASE_STARTED && !client->started) {
        client->started = true;
        daemon_say(client, CONTROL_STARTED, (uint32_t)client->child.pid);
    } else if (word == LEASE_QUEUED && !client->queued) {
        client->queued = true; /* from now on a detached job outlives its client */
        daemon_log("job %d %s", (int)client->child.pid, client->told);
        daemon_say(client, CONTROL_QUEUED, (uint32_t)client->child.pid);
    }
}

void daemon_channel_look(struct client *client)
{
    union message message;

    while (client->channel_fd >= 0) {
        const ssize_t n = recv(client->channel_fd, &message, sizeof message, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n == (ssize_t)sizeof message.need) {
            take_need(client, &message.need);
        } else if (n == (ssize_t)sizeof message.word) {
            take_word(client, message.word);
        } else {
            /* the job's processes have closed their end of the socket, or its fsdprun is of another build */
            daemon_channel_close(client);
        }
    }
}

static void on_channel(uv_poll_t *poll, int status, int events)
{
    struct client *client = poll->data;

    (void)status;
    daemon_channel_look(client);
    if (client->channel_fd >= 0 && (events & UV_WRITABLE) != 0) {
        uv_poll_start(poll, UV_READABLE, on_channel);
        if (client->place.state == QUEUE_WAITS || client->place.state == QUEUE_HOLDS)
            tell(client);
    }
}

bool daemon_channel_open(struct client *client, int fd)
{
    if (uv_poll_init(&client->service->loop, &client->channel_poll, fd) != 0) {
        close(fd);
        return false;
    }
    client->channel_poll.data = client;
    client->channel_fd = fd;
    client->n_open_handles++;
    queue_arrive(&client->service->queue, &client->place, (int)client->child.pid);
    uv_poll_start(&client->channel_poll, UV_READABLE, on_channel);
    return true;
}

void daemon_channel_close(struct client *client)
{
    if (client->channel_fd < 0)
        return;
    uv_close((uv_handle_t *)&client->channel_poll, daemon_handle_closed);
    close(client->channel_fd);
    client->channel_fd = -1;
    queue_leave(&client->service->queue, &client->place);
    daemon_queue_look(client->service);
}

void daemon_place_lost(struct client *client)
{
    queue_late(&client->service->queue, &client->place);
    daemon_queue_look(client->service);
}
