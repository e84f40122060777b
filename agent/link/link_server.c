#include "agent/link/link_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/link/link_memory.h"
#include "agent/link/link_outbox.h"
#include "agent/link/store.h"
#include "shard_runtime/core/message.h"

enum {
    PACKET_BYTES = sizeof(struct fsdp_link_header) + sizeof(struct fsdp_link_put) + FSDP_LINK_VALUE_BYTES,
    PACKETS_A_TURN = 64, /* packets read from one worker before the others have their turn */
    LAST_PACKETS = 4096,
    KEYS_MAX_BYTES = 64 << 20, /* keys, values and waits of the workers of this node */
};

struct link_client {
    struct link_server *server;
    uv_poll_t poll;
    bool polled; /* the loop has the handle */
    bool broken; /* nothing more is sent to it or read from it */
    int fd, rank;
    struct fsdp_progress *page;
    struct link_outbox outbox;
};

struct link_server {
    uv_loop_t *loop;
    struct link_server_handlers handlers;
    struct store *store;
    bool aborted, destroyed;
    int n_open_handles;
    int n_clients;
    _Alignas(16) unsigned char received[PACKET_BYTES];
    struct link_client clients[];
};

static void on_poll(uv_poll_t *poll, int status, int events);

static void free_if_over(struct link_server *server)
{
    if (!server->destroyed || server->n_open_handles > 0)
        return;
    store_destroy(server->store);
    free(server);
}

static void on_closed(uv_handle_t *handle)
{
    struct link_client *client = handle->data;

    close(client->fd); /* not earlier: the loop watched the descriptor until this callback */
    client->fd = -1;
    client->server->n_open_handles--;
    free_if_over(client->server);
}

static void close_client(struct link_client *client)
{
    outbox_fini(&client->outbox);
    client->broken = true;
    if (client->server->store != NULL)
        store_forget(client->server->store, client);
    if (client->polled) {
        client->polled = false;
        uv_close((uv_handle_t *)&client->poll, on_closed);
    }
}

static void break_link(struct link_client *client, const char *words)
{
    if (client->broken)
        return;
    close_client(client);
    client->server->handlers.broken(client->server->handlers.arg, client->rank, words);
}

/* Out */

static void watch(struct link_client *client)
{
    if (client->polled)
        uv_poll_start(&client->poll, UV_READABLE | (outbox_is_empty(&client->outbox) ? 0 : UV_WRITABLE),
                      on_poll);
}

static void flush(struct link_client *client)
{
    if (outbox_flush(&client->outbox, client->fd, NULL) != FSDP_OK)
        close_client(client); /* the worker is gone: its exit status tells why */
    else if (outbox_is_empty(&client->outbox))
        watch(client);
}

/* Send one message, later if the socket is full. `fd` stays the caller's. */
static void send_message(struct link_client *client, enum fsdp_link_type type, uint32_t tag,
                         const void *payload, size_t size_bytes, int fd)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    if (client->broken)
        return;
    status = outbox_send(&client->outbox, client->fd, type, tag, payload, size_bytes, fd, &err);
    if (status == FSDP_ERR_PEER)
        close_client(client); /* the worker is gone: its exit status tells why */
    else if (status != FSDP_OK)
        break_link(client, err.message);
    else if (!outbox_is_empty(&client->outbox))
        watch(client);
}

static void answer(void *arg, void *client, uint32_t tag, const struct store_value *value)
{
    (void)arg;
    send_message(client, FSDP_LINK_VALUE, tag, value->bytes, value->size_bytes, value->fd);
}

/* In */

static bool is_text(const char *field, size_t size)
{
    return memchr(field, '\0', size) != NULL;
}

static const char *take_put(struct link_client *client, const unsigned char *payload, size_t size, int *fd)
{
    struct link_server *server = client->server;
    const struct fsdp_link_put *put = (const void *)payload;
    struct fsdp_err err = { 0 };
    int value_fd = *fd;

    if (size < sizeof *put || !is_text(put->key, sizeof put->key) || put->key[0] == '\0')
        return "a put without a key";
    *fd = -1; /* store_put() takes the descriptor over, also if it fails */
    if (store_put(server->store, put->key, payload + sizeof *put, size - sizeof *put, value_fd, answer,
                  server, &err) != FSDP_OK) {
        break_link(client, err.message);
        return NULL;
    }
    /* other hosts cannot use a descriptor, so they are not told of a key that has one */
    if (value_fd < 0 && server->handlers.put != NULL)
        server->handlers.put(server->handlers.arg, put->key, payload + sizeof *put, size - sizeof *put);
    return NULL;
}

static const char *take_get(struct link_client *client, const unsigned char *payload, size_t size,
                            uint32_t tag)
{
    const struct fsdp_link_get *get = (const void *)payload;
    struct link_server *server = client->server;
    struct store_value value;
    struct fsdp_err err = { 0 };
    bool first;

    if (size != sizeof *get || !is_text(get->key, sizeof get->key) || get->key[0] == '\0')
        return "a get without a key";
    if (store_get(server->store, get->key, client, tag, &value, &first, &err) != FSDP_OK) {
        break_link(client, err.message);
        return NULL;
    }
    if (value.bytes != NULL)
        answer(server, client, tag, &value);
    else if (first && server->handlers.want != NULL)
        server->handlers.want(server->handlers.arg, get->key);
    return NULL;
}

static const char *take_saved(struct link_client *client, const unsigned char *payload, size_t size, int *fd)
{
    const struct link_server_handlers *handlers = &client->server->handlers;
    const struct fsdp_link_saved *saved = (const void *)payload;
    int manifest_fd = *fd;

    if (size != sizeof *saved || !is_text(saved->directory, sizeof saved->directory) ||
        !is_text(saved->temporary, sizeof saved->temporary) || !is_text(saved->file, sizeof saved->file) ||
        !is_text(saved->words, sizeof saved->words))
        return "a damaged report of a save";
    *fd = -1;
    handlers->saved(handlers->arg, client->rank, saved, manifest_fd);
    return NULL;
}

static const char *take(struct link_client *client, const struct fsdp_link_header *header,
                        const unsigned char *payload, int *fd)
{
    const struct link_server_handlers *handlers = &client->server->handlers;

    switch (header->type) {
    case FSDP_LINK_PUT:
        return take_put(client, payload, header->size, fd);
    case FSDP_LINK_GET:
        return take_get(client, payload, header->size, header->tag);
    case FSDP_LINK_SAVED:
        return take_saved(client, payload, header->size, fd);
    case FSDP_LINK_EVENT:
        if (header->size > FSDP_LINK_EVENT_BYTES)
            return "an event that is too long";
        handlers->event(handlers->arg, client->rank, (const char *)payload, header->size);
        return NULL;
    default:
        return "a message of an unknown type";
    }
}

/* Read one packet. False: there is none now, or the link is closed. */
static bool receive(struct link_client *client)
{
    struct link_server *server = client->server;
    struct iovec iov = { .iov_base = server->received, .iov_len = sizeof server->received };
    struct message_fds came = { .most = 1 };
    struct fsdp_link_header header;
    const char *wrong = NULL;
    ssize_t n;

    if (client->broken)
        return false;
    n = message_receive(client->fd, &iov, 1, MSG_DONTWAIT, &came);
    if (n < 0 && outbox_is_full(errno))
        return false;
    if (n <= 0) {
        close_client(client);
        return false;
    }
    memcpy(&header, server->received, sizeof header);
    if (came.cut != 0 || (size_t)n < sizeof header || came.n > 1 || header.magic != FSDP_LINK_MAGIC ||
        header.size != (size_t)n - sizeof header)
        wrong = "a packet that is none";
    else if (header.version != FSDP_LINK_VERSION)
        wrong = "another version of the link";
    else
        wrong = take(client, &header, server->received + sizeof header, &came.fds[0]);
    if (came.fds[0] >= 0)
        close(came.fds[0]);
    if (wrong != NULL)
        break_link(client, wrong);
    return !client->broken;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct link_client *client = poll->data;

    if (status < 0) {
        close_client(client);
        return;
    }
    if ((events & UV_WRITABLE) != 0 && !client->broken)
        flush(client);
    if ((events & UV_READABLE) != 0)
        for (int i = 0; i < PACKETS_A_TURN && receive(client); i++)
            ;
}

/* Life */

enum fsdp_status link_server_create(struct link_server **out, uv_loop_t *loop, int n_workers,
                                    const struct link_server_handlers *handlers, struct fsdp_err *err)
{
    struct link_server *server = calloc(1, sizeof *server + (size_t)n_workers * sizeof *server->clients);

    *out = NULL;
    if (server == NULL || (server->store = store_create(KEYS_MAX_BYTES)) == NULL) {
        free(server);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory for the links of %d workers", n_workers);
    }
    server->loop = loop;
    server->handlers = *handlers;
    server->n_clients = n_workers;
    for (int i = 0; i < n_workers; i++) {
        server->clients[i].server = server;
        server->clients[i].fd = -1;
        server->clients[i].broken = true; /* until link_server_add() */
        outbox_init(&server->clients[i].outbox);
    }
    *out = server;
    return FSDP_OK;
}

void link_server_destroy(struct link_server *server)
{
    if (server == NULL)
        return;
    for (int i = 0; i < server->n_clients; i++) {
        close_client(&server->clients[i]);
        if (server->clients[i].page != NULL)
            munmap(server->clients[i].page, FSDP_PROGRESS_BYTES);
        server->clients[i].page = NULL;
    }
    server->destroyed = true;
    free_if_over(server);
}

enum fsdp_status link_server_take(struct link_server *server, int index, const struct fsdp_link_hello *hello,
                                  const char *job_json, int socket, struct fsdp_err *err)
{
    struct link_client *client = &server->clients[index];
    enum fsdp_status status = FSDP_OK;
    struct fsdp_progress *page = MAP_FAILED;
    int page_fd = -1, job_fd = -1;

    page_fd = link_memory_page(&page);
    if (page_fd < 0) {
        status = fsdp_fail(err, FSDP_ERR_IO, "progress page: %s", strerror(errno));
        goto done;
    }
    if (job_json != NULL && (job_fd = link_memory_job(job_json)) < 0) {
        status = fsdp_fail(err, FSDP_ERR_IO, "memory for the job: %s", strerror(errno));
        goto done;
    }
    if (fcntl(socket, F_SETFL, O_NONBLOCK) < 0 || uv_poll_init(server->loop, &client->poll, socket) != 0) {
        status = fsdp_fail(err, FSDP_ERR_IO, "link: it cannot be watched");
        goto done;
    }
    client->poll.data = client;
    client->polled = true;
    client->broken = false;
    client->fd = socket;
    client->rank = (int)hello->rank;
    client->page = page;
    server->n_open_handles++;
    page = MAP_FAILED;
    watch(client);
    send_message(client, FSDP_LINK_HELLO, 0, hello, sizeof *hello, page_fd);
    if (job_fd >= 0)
        send_message(client, FSDP_LINK_JOB, 0, NULL, 0, job_fd);
done:
    if (page != MAP_FAILED)
        munmap(page, FSDP_PROGRESS_BYTES);
    if (page_fd >= 0)
        close(page_fd);
    if (job_fd >= 0)
        close(job_fd);
    return status;
}

enum fsdp_status link_server_add(struct link_server *server, int index, const struct fsdp_link_hello *hello,
                                 const char *job_json, int *worker_fd, struct fsdp_err *err)
{
    enum fsdp_status status;
    int ends[2];

    *worker_fd = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "socketpair: %s", strerror(errno));
    status = link_server_take(server, index, hello, job_json, ends[0], err);
    if (status == FSDP_OK) {
        *worker_fd = ends[1];
        return FSDP_OK;
    }
    close(ends[0]);
    close(ends[1]);
    return status;
}

struct fsdp_progress *link_server_page(const struct link_server *server, int index)
{
    return server->clients[index].page;
}

void link_server_notify(struct link_server *server, const struct fsdp_link_notice *notice)
{
    for (int i = 0; i < server->n_clients; i++)
        send_message(&server->clients[i], FSDP_LINK_NOTICE, 0, notice, sizeof *notice, -1);
}

void link_server_publish(struct link_server *server, const struct fsdp_link_published *published)
{
    for (int i = 0; i < server->n_clients; i++)
        send_message(&server->clients[i], FSDP_LINK_PUBLISHED, 0, published, sizeof *published, -1);
}

void link_server_abort(struct link_server *server)
{
    const struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_ABORT, .stop_after_step = -1 };

    if (server->aborted)
        return;
    server->aborted = true;
    for (int i = 0; i < server->n_clients; i++)
        if (server->clients[i].page != NULL)
            atomic_store(&server->clients[i].page->abort_word, 1);
    link_server_notify(server, &notice);
}

enum fsdp_status link_server_put(struct link_server *server, const char *key, const void *value,
                                 size_t size_bytes, struct fsdp_err *err)
{
    return store_put(server->store, key, value, size_bytes, -1, answer, server, err);
}

enum fsdp_status link_server_put_fd(struct link_server *server, const char *key, int fd, struct fsdp_err *err)
{
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    if (copy < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "key %s: copying its descriptor: %s", key, strerror(errno));
    return store_put(server->store, key, "", 0, copy, answer, server, err);
}

void link_server_drop(struct link_server *server, int index)
{
    struct link_client *client = &server->clients[index];

    for (int i = 0; i < LAST_PACKETS && receive(client); i++)
        ; /* no endless reading: a child of the worker may hold the other end and write */
    if (!client->broken)
        close_client(client);
}
