#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/tcpstore/tcpstore_impl.h"

/* Closing a client */

static void on_closed(uv_handle_t *handle)
{
    struct tcpstore_client *client = handle->data;
    struct tcpstore *store = client->store;

    free(client);
    tcpstore_handle_closed(store);
}

/*
 * Closes a client. Its waits and its unfinished request end at once. Its memory is freed when the handle is
 * closed.
 */
void tcpstore_client_close(struct tcpstore_client *client)
{
    struct tcpstore *store = client->store;

    if (client->closing)
        return;
    client->closing = true;
    *(client->prev == NULL ? &store->clients : &client->prev->next) = client->next;
    if (client->next != NULL)
        client->next->prev = client->prev;
    store->held_bytes -= client->held_bytes;
    tcpstore_session_fini(&client->session);
    free(client->stash);
    client->stash = NULL;
    uv_close((uv_handle_t *)&client->tcp, on_closed);
}

static void refuse(struct tcpstore_client *client, const char *words)
{
    tcpstore_refuse(client->store, TCPSTORE_REFUSED_REQUEST, "the key-value store closed a connection: %s",
                    words);
    tcpstore_client_close(client);
}

/*
 * Add what changed in this client's requests and answers to the total. If the total exceeds the limit, this
 * client is closed.
 */
static void count_held(struct tcpstore_client *client)
{
    struct tcpstore *store = client->store;
    size_t held;

    if (client->closing)
        return;
    held = tcpstore_session_held_bytes(&client->session) + client->stash_n + client->sending_bytes;
    store->held_bytes += held - client->held_bytes;
    client->held_bytes = held;
    if (store->held_bytes > TCPSTORE_MAX_HELD_BYTES)
        refuse(client, "too many bytes are on their way from it and to it");
}

/* Sending answers */

static void on_written(uv_write_t *write, int status);

/* Sends the answers: as many as the socket takes now, and the rest later. */
static void flush(struct tcpstore_client *client)
{
    size_t n;
    unsigned char *bytes;
    uv_buf_t buffer;
    int sent;

    if (client->closing || client->sending != NULL)
        return;
    if (client->session.out_of_memory) {
        refuse(client, "no room for an answer");
        return;
    }
    bytes = tcpstore_session_take(&client->session, &n);
    if (bytes == NULL)
        return;
    buffer = uv_buf_init((char *)bytes, (unsigned)n);
    sent = uv_try_write((uv_stream_t *)&client->tcp, &buffer, 1);
    if (sent == (int)n) {
        free(bytes);
        return;
    }
    if (sent < 0 && sent != UV_EAGAIN) {
        free(bytes);
        tcpstore_client_close(client);
        return;
    }
    client->sending = bytes;
    client->sending_bytes = n;
    buffer.base += sent > 0 ? sent : 0;
    buffer.len -= sent > 0 ? (size_t)sent : 0;
    if (uv_write(&client->write, (uv_stream_t *)&client->tcp, &buffer, 1, on_written) != 0) {
        free(bytes);
        client->sending = NULL;
        client->sending_bytes = 0;
        tcpstore_client_close(client);
        return;
    }
    count_held(client);
}

void tcpstore_client_woken(void *arg, void *owner)
{
    struct tcpstore *store = arg;
    struct tcpstore_client *client = owner;

    tcpstore_session_woken(&client->session);
    if (client->woken)
        return;
    client->woken = true;
    client->next_woken = store->woken;
    store->woken = client;
}

/*
 * Answer the clients whose waits have ended. None of them has been freed: close callbacks run only in the
 * loop.
 */
static void flush_woken(struct tcpstore *store)
{
    struct tcpstore_client *client;

    while ((client = store->woken) != NULL) {
        store->woken = client->next_woken;
        client->woken = false;
        flush(client);
        count_held(client);
    }
}

/* Reading requests */

static bool keep(struct tcpstore_client *client, const unsigned char *data, size_t n)
{
    unsigned char *stash = n == 0 ? NULL : malloc(n);

    if (n > 0 && stash == NULL)
        return false;
    if (n > 0)
        memcpy(stash, data, n);
    free(client->stash);
    client->stash = stash;
    client->stash_n = n;
    return true;
}

/* Perform the client's requests, as long as it reads the answers. Returns true if all bytes were taken. */
static bool feed(struct tcpstore_client *client, const unsigned char *data, size_t n)
{
    while (n > 0 && client->sending == NULL) {
        struct fsdp_err err = { 0 };
        const enum fsdp_status status = tcpstore_session_feed(&client->session, &data, &n, &err);

        if (client->session.changed)
            client->store->changed_ms = uv_now(client->store->loop);
        client->session.changed = false;
        flush(client);
        if (client->closing)
            return false;
        if (status != FSDP_OK) {
            refuse(client, err.message);
            return false;
        }
    }
    if (!keep(client, data, n)) {
        refuse(client, "out of memory");
        return false;
    }
    return n == 0;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct tcpstore_client *client = handle->data;

    /* All clients share one buffer: its bytes are used or copied before the next client reads. */
    (void)suggested;
    *buffer = uv_buf_init((char *)client->store->buffer, sizeof client->store->buffer);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct tcpstore_client *client = stream->data;
    struct tcpstore *store = client->store;

    if (n == 0)
        return;
    if (n < 0) {
        tcpstore_client_close(client);
        return;
    }
    if (!feed(client, (const unsigned char *)buffer->base, (size_t)n) && !client->closing)
        uv_read_stop(stream);
    count_held(client);
    flush_woken(store);
}

/* The client has read its answers: perform the requests that came in the meantime, and read again. */
static void on_written(uv_write_t *write, int status)
{
    struct tcpstore_client *client = write->handle->data;
    struct tcpstore *store = client->store;
    unsigned char *stash;
    size_t stash_n;
    bool all;

    free(client->sending);
    client->sending = NULL;
    client->sending_bytes = 0;
    if (client->closing)
        return;
    if (status != 0) {
        tcpstore_client_close(client);
        return;
    }
    stash = client->stash;
    stash_n = client->stash_n;
    client->stash = NULL;
    client->stash_n = 0;
    flush(client); /* answers to waits that ended meanwhile */
    all = !client->closing && feed(client, stash, stash_n);
    free(stash);
    if (all)
        uv_read_start((uv_stream_t *)&client->tcp, on_alloc, on_read);
    count_held(client);
    flush_woken(store);
}

bool tcpstore_client_begin(struct tcpstore *store, int fd)
{
    struct tcpstore_client *client = calloc(1, sizeof *client);

    if (client == NULL) {
        close(fd);
        return false;
    }
    client->store = store;
    client->tcp.data = client;
    uv_tcp_init(store->loop, &client->tcp);
    store->n_handles++;
    tcpstore_session_init(&client->session, store->keys, client);
    client->next = store->clients;
    if (client->next != NULL)
        client->next->prev = client;
    store->clients = client;
    if (uv_tcp_open(&client->tcp, fd) != 0) {
        close(fd);
        tcpstore_client_close(client);
        return false;
    }
    uv_tcp_nodelay(&client->tcp, 1);
    if (uv_read_start((uv_stream_t *)&client->tcp, on_alloc, on_read) != 0)
        tcpstore_client_close(client);
    return true;
}
