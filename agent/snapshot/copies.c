#include "agent/snapshot/copies.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/link/link_outbox.h"
#include "shard_runtime/core/message.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/self_process.h"

/* The key of a node's address is this and its node rank. */
static const char key_prefix[] = "copies.";

/*
 * At the end of a generation the other node's process may end first. So a failure is only said if the
 * generation still goes on after this time.
 */
enum { SAY_AFTER_MS = 3000 };

struct copies {
    uv_poll_t poll;
    uv_timer_t say;
    int n_handles; /* whose close callbacks are to come */
    struct copies_handlers handlers;
    struct copies_seat seat;
    char address[COPIES_ADDRESS_BYTES];
    const struct segments *own;
    pid_t pid;
    int socket;
    struct link_outbox orders; /* which its socket does not take yet */
    bool has_put, is_ready, has_failed, stopped;
    char why[FSDP_LINK_WORDS_BYTES]; /* it has failed */
};

int copies_holder(int node_rank, int n_nodes)
{
    return (node_rank + 1) % n_nodes;
}

static void key_of(int node_rank, char key[FSDP_LINK_KEY_BYTES])
{
    snprintf(key, FSDP_LINK_KEY_BYTES, "%s%d", key_prefix, node_rank);
}

static void want(const struct copies *copies, int node_rank)
{
    char key[FSDP_LINK_KEY_BYTES];

    key_of(node_rank, key);
    copies->handlers.want(copies->handlers.arg, key);
}

static void make_ready(struct copies *copies)
{
    if (copies->is_ready)
        return;
    copies->is_ready = true;
    copies->handlers.ready(copies->handlers.arg);
}

static void on_say(uv_timer_t *timer)
{
    const struct copies *copies = timer->data;
    char words[FSDP_LINK_WORDS_BYTES + 128];

    snprintf(words, sizeof words, "snapshots of this node are not copied to another one any more: %s",
             copies->why);
    copies->handlers.line(copies->handlers.arg, words);
}

/* No filling is copied any more, and no worker waits for that. */
static void fail(struct copies *copies, const char *why)
{
    if (copies->has_failed)
        return;
    copies->has_failed = true;
    snprintf(copies->why, sizeof copies->why, "%s", why);
    segments_end_copying(copies->own);
    uv_timer_start(&copies->say, on_say, SAY_AFTER_MS, 0);
}

/* Tells the other nodes where this one is reached. Port 0: it is not. */
static void put_address(const struct copies_handlers *handlers, const struct copies_seat *seat, int port)
{
    char key[FSDP_LINK_KEY_BYTES], value[COPIES_ADDRESS_BYTES + 16];
    const int length = snprintf(value, sizeof value, "%d %s", port, seat->address);

    key_of(seat->node_rank, key);
    handlers->put(handlers->arg, key, value, (size_t)length + 1);
}

static void on_ready_socket(uv_poll_t *poll, int status, int events);

static void watch(struct copies *copies)
{
    uv_poll_start(&copies->poll, UV_READABLE | (outbox_is_empty(&copies->orders) ? 0 : UV_WRITABLE),
                  on_ready_socket);
}

/* Sends the order now, or as soon as the process takes it. */
static enum fsdp_status send_order(struct copies *copies, const struct copies_order *order, int fd,
                                   struct fsdp_err *err)
{
    const enum fsdp_status status =
        outbox_send_bytes(&copies->orders, copies->socket, order, sizeof *order, fd, err);

    if (status == FSDP_OK && !outbox_is_empty(&copies->orders))
        watch(copies);
    return status;
}

static void take_listens(struct copies *copies, const struct copies_answer *answer)
{
    copies->has_put = true;
    put_address(&copies->handlers, &copies->seat, answer->port);
    if (answer->port == 0) {
        fail(copies, answer->words);
        make_ready(copies);
        return;
    }
    want(copies, copies_holder(copies->seat.node_rank, copies->seat.n_nodes));
    if (copies->seat.fetch_from < 0)
        make_ready(copies);
    else if (copies->seat.fetch_from != copies_holder(copies->seat.node_rank, copies->seat.n_nodes))
        want(copies, copies->seat.fetch_from);
}

static void take_fetched(struct copies *copies, const struct copies_answer *answer)
{
    char words[FSDP_LINK_WORDS_BYTES + 128];

    if (answer->status != FSDP_OK) {
        snprintf(words, sizeof words, "step %lld could not be fetched from the memory of another node: %s",
                 (long long)copies->seat.begin.from.step, answer->words);
        copies->handlers.line(copies->handlers.arg, words);
    }
    make_ready(copies);
}

static void take_answer(struct copies *copies, struct copies_answer *answer)
{
    answer->words[sizeof answer->words - 1] = '\0';
    if (answer->kind == COPIES_LISTENS)
        take_listens(copies, answer);
    else if (answer->kind == COPIES_FETCHED)
        take_fetched(copies, answer);
    else
        fail(copies, answer->words);
}

/* Takes the answers that are there. Returns false if the process is gone, or the copies were stopped. */
static bool take_answers(struct copies *copies)
{
    while (!copies->stopped) {
        struct copies_answer answer;
        struct iovec part = { &answer, sizeof answer };
        struct message_fds came = { .most = 0 };
        const ssize_t n = message_receive(copies->socket, &part, 1, MSG_DONTWAIT, &came);

        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n != (ssize_t)sizeof answer)
            return false;
        take_answer(copies, &answer);
    }
    return false;
}

static void on_ready_socket(uv_poll_t *poll, int status, int events)
{
    struct copies *copies = poll->data;
    bool lives = status == 0;

    if (lives && (events & UV_READABLE) != 0)
        lives = take_answers(copies);
    if (copies->stopped)
        return; /* from within an answer */
    if (lives && outbox_flush(&copies->orders, copies->socket, NULL) == FSDP_OK) {
        watch(copies);
        return;
    }
    uv_poll_stop(poll);
    if (!copies->has_put)
        put_address(&copies->handlers, &copies->seat, 0); /* no node waits for it */
    copies->has_put = true;
    fail(copies, "the process that copies them has died");
    make_ready(copies);
}

bool copies_take(struct copies *copies, const char *key, const void *value, size_t size_bytes)
{
    struct copies_order order = { .kind = COPIES_PEER };
    char text[COPIES_ADDRESS_BYTES + 16] = "", extra;
    int node_rank;

    if (sscanf(key, "copies.%d%c", &node_rank, &extra) != 1)
        return false;
    if (copies == NULL || size_bytes == 0 || size_bytes > sizeof text)
        return true;
    memcpy(text, value, size_bytes - 1);
    if (sscanf(text, "%d %255s", &order.port, order.address) != 2)
        order.port = 0;
    if (node_rank == copies->seat.fetch_from && !copies->is_ready) {
        order.kind = COPIES_FETCH;
        if (order.port == 0 || send_order(copies, &order, -1, NULL) != FSDP_OK)
            take_fetched(copies, &(struct copies_answer){ .status = FSDP_ERR_PEER,
                                                          .words = "the other node gives no copies" });
    }
    if (copies->stopped || node_rank != copies_holder(copies->seat.node_rank, copies->seat.n_nodes))
        return true;
    order.kind = COPIES_PEER;
    if (order.port == 0 || send_order(copies, &order, -1, NULL) != FSDP_OK)
        fail(copies, "the other node takes no copies");
    return true;
}

static void on_closed(uv_handle_t *handle)
{
    struct copies *copies = handle->data;

    if (--copies->n_handles > 0)
        return;
    outbox_fini(&copies->orders);
    close(copies->socket);
    free(copies);
}

void copies_stop(struct copies *copies)
{
    if (copies == NULL)
        return;
    copies->stopped = true;
    self_process_kill(copies->pid);
    uv_close((uv_handle_t *)&copies->poll, on_closed);
    uv_close((uv_handle_t *)&copies->say, on_closed);
}

/* Sends what the process needs. */
static enum fsdp_status give(struct copies *copies, const struct segments *own, const struct segments *held,
                             struct fsdp_err *err)
{
    struct copies_order order = { .begin = copies->seat.begin };
    struct fsdp_err why = { 0 };
    enum fsdp_status status = FSDP_OK;

    for (uint32_t i = 0; status == FSDP_OK && i < order.begin.n; i++) {
        order.index = i;
        order.kind = COPIES_OWN;
        status = send_order(copies, &order, segments_fd(own, (int)i), &why);
        order.kind = COPIES_HELD;
        if (status == FSDP_OK)
            status = send_order(copies, &order, segments_fd(held, (int)i), &why);
    }
    order.kind = COPIES_BEGIN;
    if (status == FSDP_OK)
        status = send_order(copies, &order, -1, &why);
    return status == FSDP_OK ? FSDP_OK
                             : fsdp_fail(err, FSDP_ERR_IO,
                                         "the process that copies snapshots takes no order: %s", why.message);
}

enum fsdp_status copies_begin(struct copies **out, uv_loop_t *loop, const struct copies_seat *seat,
                              const struct segments *own, const struct segments *held,
                              const struct copies_handlers *handlers, struct fsdp_err *err)
{
    struct copies *copies = calloc(1, sizeof *copies);
    enum fsdp_status status;

    *out = NULL;
    if (copies == NULL) {
        put_address(handlers, seat, 0);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    }
    copies->handlers = *handlers;
    copies->seat = *seat;
    copies->own = own;
    snprintf(copies->address, sizeof copies->address, "%s", seat->address);
    copies->seat.address = copies->address;
    status = copies_process_start(&copies->pid, &copies->socket, err);
    if (status == FSDP_OK && uv_poll_init(loop, &copies->poll, copies->socket) != 0) {
        self_process_kill(copies->pid);
        close(copies->socket);
        status = fsdp_fail(err, FSDP_ERR_IO, "its socket cannot be watched");
    }
    if (status != FSDP_OK) {
        put_address(handlers, seat, 0);
        free(copies);
        fsdp_wrap(err, "no process to copy snapshots");
        return status;
    }
    copies->poll.data = copies->say.data = copies;
    copies->n_handles = 2;
    uv_timer_init(loop, &copies->say);
    outbox_init(&copies->orders);
    status = give(copies, own, held, err);
    if (status != FSDP_OK) {
        put_address(handlers, seat, 0);
        copies_stop(copies);
        return status;
    }
    watch(copies);
    *out = copies;
    return FSDP_OK;
}
