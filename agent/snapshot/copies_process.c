#include "agent/snapshot/copies_process.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/snapshot/copy_image.h"
#include "agent/snapshot/copy_room.h"
#include "shard_runtime/core/hide_memory.h"
#include "shard_runtime/core/message.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/self_process.h"
#include "shard_runtime/shardfile/snapshot_wait.h"

static const char role[] = "fsdp-copies";

enum {
    REQUEST_MAGIC = 0x52435346, /* "FSCR" */
    WAIT_MS = 60000,
    AGAIN_MS = 10,
    /*
     * how many connections that have proven nothing may be open, in addition to those of the expected nodes
     */
    STRANGERS = 64,
};

enum fsdp_status copies_process_start(pid_t *pid, int *socket, struct fsdp_err *err)
{
    return self_process_talk(role, pid, socket, err);
}

/* Runs in the process */

enum request_kind { REQUEST_PUSH = 1, REQUEST_FETCH };

struct copy_request {
    uint32_t magic, kind;
    uint32_t index; /* PUSH: the local rank whose snapshots come */
    uint32_t rank, world_size;
    struct snapshot_held want; /* FETCH: which one */
};

enum reply_kind { REPLY_SEND = 1, REPLY_HAVE, REPLY_REFUSE };

struct copy_reply {
    uint32_t kind;
    char words[256]; /* REPLY_REFUSE: why */
};

/* A connection to the listener whose other end has not proven yet that it is of this generation. */
struct stranger {
    struct stranger *next;
    int fd;
    bool dropped; /* another one has its place, and its thread will see that */
};

/*
 * What the threads share. It is complete before the first thread begins, and then only changes under its
 * locks.
 */
static struct {
    struct copies_begin begin;
    struct copy_segment *own, *held; /* (COPIES_RANKS) */
    /* (COPIES_RANKS) one lock for each segment of `held`: only one connection at a time writes to it */
    pthread_mutex_t *busy;
    struct tls_context *client, *server;
    int listener;
    struct copy_room room;
    pthread_mutex_t mutex;      /* over what follows */
    bool failed;                /* COPIES_FAILED was sent */
    struct stranger *strangers; /* newest first */
    unsigned n_strangers;       /* dropped ones do not count */
    unsigned n_fetching;        /* ranks whose fetch is under way */
    enum fsdp_status fetched;
    char fetched_words[FSDP_LINK_WORDS_BYTES];
} all = {
    .room = { .root = "", .mutex = PTHREAD_MUTEX_INITIALIZER },
    .mutex = PTHREAD_MUTEX_INITIALIZER,
    .listener = -1,
};

/* The orders of the threads that connect. */
static struct copies_order push_to, fetch_from;

/* Sends an answer to the agent, which reads answers as they come. If the agent is gone, this process ends. */
static void send_answer(enum copies_answer_kind kind, enum fsdp_status status, int port, const char *words)
{
    struct copies_answer answer = { .kind = kind, .status = (uint32_t)status, .port = port };
    const struct iovec part = { &answer, sizeof answer };

    snprintf(answer.words, sizeof answer.words, "%s", words);
    while (message_send(STDIN_FILENO, &part, 1, NULL, 0) < 0) {
        struct pollfd wait = { .fd = STDIN_FILENO, .events = POLLOUT };

        if (errno != EAGAIN && errno != EWOULDBLOCK)
            _exit(0);
        poll(&wait, 1, -1);
    }
}

static bool begin_thread(void *(*run)(void *), void *arg)
{
    pthread_attr_t detached;
    pthread_t thread;
    int error;

    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &detached, run, arg);
    pthread_attr_destroy(&detached);
    return error == 0;
}

/* Stops copying the snapshots of this node: from now on no worker waits for a copy. */
static void stop_copying(const char *words)
{
    bool first;

    pthread_mutex_lock(&all.mutex);
    first = !all.failed;
    all.failed = true;
    pthread_mutex_unlock(&all.mutex);
    if (!first)
        return;
    for (uint32_t i = 0; i < all.begin.n; i++) {
        snapshot_set_copying(all.own[i].head, false);
        snapshot_wake(all.own[i].head);
    }
    send_answer(COPIES_FAILED, FSDP_ERR_PEER, 0, words);
}

static enum fsdp_status connect_to(struct copy_stream **stream, const struct copies_order *to,
                                   const struct copy_request *request, struct fsdp_err *err)
{
    enum fsdp_status status;
    int fd;

    OK_OR_RETURN(copy_stream_connect(&fd, to->address, to->port, err));
    status = copy_stream_open(stream, fd, all.client, false, COPY_PATIENCE_MS, err);
    if (status != FSDP_OK) {
        close(fd);
        return status;
    }
    return copy_stream_send(*stream, request, sizeof *request, err);
}

/* Sending what the ranks of this node fill */

static enum fsdp_status get_reply(struct copy_stream *stream, enum reply_kind *kind, struct fsdp_err *err)
{
    struct copy_reply reply;

    OK_OR_RETURN(copy_stream_receive(stream, &reply, sizeof reply, err));
    reply.words[sizeof reply.words - 1] = '\0';
    *kind = (enum reply_kind)reply.kind;
    return *kind == REPLY_SEND || *kind == REPLY_HAVE ? FSDP_OK
                                                      : fsdp_fail(err, FSDP_ERR_PEER, "%s", reply.words);
}

/*
 * Copies one snapshot to the other node. If the slot is filled again meanwhile, that newer snapshot is copied
 * next.
 */
static enum fsdp_status push_one(struct copy_stream *stream, const struct copy_segment *own, int slot,
                                 struct fsdp_err *err)
{
    enum reply_kind reply;
    struct copy_offer offer;
    bool sent = true;

    if (!copy_offer_of(&offer, own, slot)) { /* it is being filled again */
        snapshot_wait(own->head, snapshot_changes(own->head), AGAIN_MS);
        return FSDP_OK;
    }
    OK_OR_RETURN(copy_stream_send(stream, &offer, sizeof offer, err));
    OK_OR_RETURN(get_reply(stream, &reply, err));
    if (reply == REPLY_SEND) {
        OK_OR_RETURN(copy_image_send(stream, own, &offer, &sent, err));
        OK_OR_RETURN(get_reply(stream, &reply, err));
    }
    if (!sent)
        return FSDP_OK;
    snapshot_mark_copied(own->head, slot, offer.filling.number);
    snapshot_wake(own->head);
    return FSDP_OK;
}

static void *push(void *arg)
{
    const struct copy_segment *own = arg;
    const uint32_t index = (uint32_t)(own - all.own);
    const struct copy_request request = { .magic = REQUEST_MAGIC,
                                          .kind = REQUEST_PUSH,
                                          .index = index,
                                          .rank = all.begin.first_rank + index,
                                          .world_size = all.begin.world_size };
    struct copy_stream *stream = NULL;
    struct fsdp_err err = { 0 };
    enum fsdp_status status = connect_to(&stream, &push_to, &request, &err);

    while (status == FSDP_OK) {
        const uint32_t changes = snapshot_changes(own->head);
        const int slot = snapshot_uncopied(own->head);

        if (slot < 0)
            snapshot_wait(own->head, changes, WAIT_MS);
        else
            status = push_one(stream, own, slot, &err);
    }
    copy_stream_close(stream);
    stop_copying(err.message);
    return NULL;
}

/* Receiving what another node's ranks fill */

static enum fsdp_status send_reply(struct copy_stream *stream, enum reply_kind kind, const char *words,
                                   struct fsdp_err *err)
{
    struct copy_reply reply = { .kind = kind };

    snprintf(reply.words, sizeof reply.words, "%.*s", (int)sizeof reply.words - 1, words);
    return copy_stream_send(stream, &reply, sizeof reply, err);
}

static enum fsdp_status take_one(struct copy_stream *stream, const struct copy_segment *held,
                                 const struct copy_offer *offer, struct fsdp_err *err)
{
    struct fsdp_err why = { 0 };
    struct copy_claim claim;
    enum fsdp_status status;

    if (copy_has(held, offer))
        return send_reply(stream, REPLY_HAVE, "", err);
    if (!copy_room_take(&all.room, &claim, held, offer))
        return send_reply(stream, REPLY_REFUSE, "the other node has no memory for copies", err);
    status = send_reply(stream, REPLY_SEND, "", &why);
    if (status == FSDP_OK)
        status = copy_image_receive(stream, held, offer, &why);
    copy_room_give(&all.room, &claim);
    if (status == FSDP_ERR_FORMAT)
        return send_reply(stream, REPLY_REFUSE, why.message, err);
    /*
     * FSDP_ERR_MISMATCH: the sender itself has said that its slot was filled again, so there is nothing to
     * refuse
     */
    return status == FSDP_OK || status == FSDP_ERR_MISMATCH
               ? send_reply(stream, REPLY_HAVE, "", err)
               : fsdp_fail(err, status, "%s", why.message); /* not all of the bytes were read */
}

static enum fsdp_status take_pushes(struct copy_stream *stream, const struct copy_request *request,
                                    struct fsdp_err *err)
{
    const struct copy_segment *held = &all.held[request->index];
    enum fsdp_status status = FSDP_OK;

    while (status == FSDP_OK) {
        struct copy_offer offer;

        copy_stream_idle(stream);
        OK_OR_RETURN(copy_stream_receive(stream, &offer, sizeof offer, err));
        if (!copy_offer_is_sound(&offer) || offer.owner.rank != request->rank ||
            offer.owner.world_size != request->world_size)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "no such offer is expected");
        pthread_mutex_lock(&all.busy[request->index]);
        status = take_one(stream, held, &offer, err);
        pthread_mutex_unlock(&all.busy[request->index]);
    }
    return status;
}

/* Finds a snapshot that was asked for, in the own or the held segments. */
static bool find_in(const struct copy_segment *segments, const struct copy_request *request,
                    const struct copy_segment **segment, struct copy_offer *offer)
{
    for (uint32_t i = 0; i < all.begin.n; i++) {
        const struct snapshot_list list =
            snapshot_list_of(segments[i].head, request->rank, request->world_size);

        *segment = &segments[i];
        for (int slot = 0; snapshot_list_has(&list, request->want) && slot < FSDP_SNAPSHOT_SLOTS; slot++)
            if (copy_offer_of(offer, *segment, slot) && offer->filling.step == request->want.step &&
                offer->filling.generation == request->want.generation)
                return true;
    }
    return false;
}

static enum fsdp_status serve_fetch(struct copy_stream *stream, const struct copy_request *request,
                                    struct fsdp_err *err)
{
    const struct copy_segment *segment;
    struct copy_offer offer;
    bool sent;

    if (!find_in(all.held, request, &segment, &offer) && !find_in(all.own, request, &segment, &offer))
        return send_reply(stream, REPLY_REFUSE, "the other node does not have that snapshot any more", err);
    OK_OR_RETURN(send_reply(stream, REPLY_SEND, "", err));
    OK_OR_RETURN(copy_stream_send(stream, &offer, sizeof offer, err));
    OK_OR_RETURN(copy_image_send(stream, segment, &offer, &sent, err));
    copy_stream_idle(stream); /* keep the connection until the other end has read all */
    return FSDP_OK;
}

/* Connections */

/*
 * Gives the newcomer a place. If there are too many strangers, the oldest one loses its own: whoever opens
 * connections and proves nothing keeps no node out.
 */
static void add_stranger(struct stranger *newcomer)
{
    struct stranger *oldest = NULL;

    pthread_mutex_lock(&all.mutex);
    newcomer->next = all.strangers;
    all.strangers = newcomer;
    if (all.n_strangers == 2 * all.begin.n + STRANGERS) {
        for (struct stranger *at = newcomer->next; at != NULL; at = at->next)
            oldest = at->dropped ? oldest : at;
        oldest->dropped = true;
        /* the connection's thread closes the descriptor, after it has taken the connection off this list */
        shutdown(oldest->fd, SHUT_RDWR);
    } else {
        all.n_strangers++;
    }
    pthread_mutex_unlock(&all.mutex);
}

/* It has proven itself, or has not. Returns whether it had its place until now. */
static bool take_off(struct stranger *stranger)
{
    struct stranger **at = &all.strangers;
    bool had_place;

    pthread_mutex_lock(&all.mutex);
    while (*at != stranger)
        at = &(*at)->next;
    *at = stranger->next;
    had_place = !stranger->dropped;
    all.n_strangers -= had_place;
    pthread_mutex_unlock(&all.mutex);
    free(stranger);
    return had_place;
}

static void serve_stream(struct copy_stream *stream)
{
    struct copy_request request;

    if (copy_stream_receive(stream, &request, sizeof request, NULL) != FSDP_OK ||
        request.magic != REQUEST_MAGIC)
        return;
    if (request.kind == REQUEST_FETCH)
        (void)serve_fetch(stream, &request, NULL);
    else if (request.kind == REQUEST_PUSH && request.index < all.begin.n)
        (void)take_pushes(stream, &request, NULL);
}

static void *serve_connection(void *arg)
{
    struct stranger *stranger = arg;
    const int fd = stranger->fd;
    struct copy_stream *stream;
    const enum fsdp_status status = copy_stream_open(&stream, fd, all.server, true, COPY_PATIENCE_MS, NULL);
    const bool had_place = take_off(stranger);

    if (status != FSDP_OK) {
        close(fd);
        return NULL;
    }
    if (had_place)
        serve_stream(stream);
    copy_stream_close(stream);
    return NULL;
}

static void *accept_all(void *arg)
{
    (void)arg;
    for (;;) {
        const int fd = accept4(all.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct stranger *stranger = fd < 0 ? NULL : malloc(sizeof *stranger);

        if (stranger == NULL) { /* out of descriptors, for example */
            if (fd >= 0)
                close(fd);
            poll(NULL, 0, 10);
            continue;
        }
        *stranger = (struct stranger){ .fd = fd };
        add_stranger(stranger);
        if (begin_thread(serve_connection, stranger))
            continue;
        (void)take_off(stranger);
        close(fd);
    }
    return NULL;
}

/* Fetching what the ranks of this node go on from */

static enum fsdp_status fetch_rank(const struct copy_segment *own, struct fsdp_err *err)
{
    const struct copy_request request = { .magic = REQUEST_MAGIC,
                                          .kind = REQUEST_FETCH,
                                          .rank = all.begin.first_rank + (uint32_t)(own - all.own),
                                          .world_size = all.begin.world_size,
                                          .want = all.begin.from };
    struct copy_stream *stream = NULL;
    struct copy_claim claim;
    struct copy_offer offer;
    enum reply_kind reply;
    enum fsdp_status status = connect_to(&stream, &fetch_from, &request, err);

    if (status == FSDP_OK)
        status = get_reply(stream, &reply, err);
    if (status == FSDP_OK)
        status = copy_stream_receive(stream, &offer, sizeof offer, err);
    if (status == FSDP_OK &&
        (!copy_offer_is_sound(&offer) || offer.owner.rank != request.rank ||
         offer.owner.world_size != request.world_size || offer.filling.step != request.want.step ||
         offer.filling.generation != request.want.generation))
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "another snapshot came than the one that was asked for");
    if (status == FSDP_OK && !copy_room_take(&all.room, &claim, own, &offer))
        status = fsdp_fail(err, FSDP_ERR_IO, "there is no memory for it");
    if (status == FSDP_OK) {
        status = copy_image_receive(stream, own, &offer, err);
        copy_room_give(&all.room, &claim);
    }
    copy_stream_close(stream);
    return status;
}

static void end_fetch(enum fsdp_status status, const char *words)
{
    bool last;

    pthread_mutex_lock(&all.mutex);
    if (status != FSDP_OK && all.fetched == FSDP_OK) {
        all.fetched = status;
        snprintf(all.fetched_words, sizeof all.fetched_words, "%s", words);
    }
    last = --all.n_fetching == 0;
    pthread_mutex_unlock(&all.mutex);
    if (last)
        send_answer(COPIES_FETCHED, all.fetched, 0, all.fetched_words);
}

static void *fetch(void *arg)
{
    struct fsdp_err err = { 0 };
    const enum fsdp_status status = fetch_rank(arg, &err);

    end_fetch(status, err.message);
    return NULL;
}

/* Orders */

static enum fsdp_status begin_listening(int *port, struct fsdp_err *err)
{
    struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_addr = in6addr_any };
    struct sockaddr_in narrow = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
    socklen_t length = sizeof address;
    const int no = 0;

    all.listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (all.listener >= 0)
        (void)setsockopt(all.listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (all.listener < 0 || bind(all.listener, (struct sockaddr *)&address, sizeof address) < 0) {
        if (all.listener >= 0) /* a host without IPv6 */
            close(all.listener);
        all.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (all.listener < 0 || bind(all.listener, (struct sockaddr *)&narrow, sizeof narrow) < 0)
            return fsdp_fail(err, FSDP_ERR_IO, "no port for copies of snapshots: %s", strerror(errno));
    }
    if (listen(all.listener, SOMAXCONN) < 0 ||
        getsockname(all.listener, (struct sockaddr *)&address, &length) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "no port for copies of snapshots: %s", strerror(errno));
    *port = ntohs(address.sin6_port); /* the port is at the same place in addresses of IPv4 and IPv6 */
    return begin_thread(accept_all, NULL) ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "no thread for copies");
}

/*
 * Drops all snapshots but the one from which the ranks go on: others belong to a history that is over. A node
 * with another seat than before has another rank's snapshots, and drops them all.
 */
static void keep_only(const struct copy_segment *own, uint32_t rank, const struct copy_segment *held)
{
    const bool is_of_rank = own->head->rank == rank && own->head->world_size == all.begin.world_size;

    snapshot_keep_only(own->head, is_of_rank ? all.begin.from : (struct snapshot_held){ .step = -1 });
    snapshot_keep_only(held->head, all.begin.from);
}

static enum fsdp_status begin(const struct copies_order *order, int *port, struct fsdp_err *err)
{
    unsigned char key[TLS_KEY_BYTES];

    all.begin = order->begin;
    for (uint32_t i = 0; i < all.begin.n; i++) {
        if (all.own[i].head == NULL || all.held[i].head == NULL)
            return fsdp_fail(err, FSDP_ERR_ARG, "not all segments came");
        pthread_mutex_init(&all.busy[i], NULL);
        keep_only(&all.own[i], all.begin.first_rank + i, &all.held[i]);
    }
    OK_OR_RETURN(tls_derive_other(key, all.begin.token, "copies of snapshots", err));
    OK_OR_RETURN(tls_context_create(&all.client, false, key, err));
    OK_OR_RETURN(tls_context_create(&all.server, true, key, err));
    OK_OR_RETURN(begin_listening(port, err));
    for (uint32_t i = 0; i < all.begin.n; i++)
        snapshot_set_copying(all.own[i].head, true);
    return FSDP_OK;
}

static void take_begin(const struct copies_order *order)
{
    struct fsdp_err err = { 0 };
    int port = 0;
    const enum fsdp_status status = begin(order, &port, &err);

    send_answer(COPIES_LISTENS, status, status == FSDP_OK ? port : 0, err.message);
}

static void take_segment(const struct copies_order *order, int fd)
{
    struct copy_segment *segments = order->kind == COPIES_OWN ? all.own : all.held;

    /* A segment that cannot be mapped keeps head NULL, and BEGIN then reports that. */
    if (order->index >= COPIES_RANKS || copy_segment_map(&segments[order->index], fd, NULL) != FSDP_OK)
        close(fd);
}

static void take_order(const struct copies_order *order, int fd)
{
    switch (order->kind) {
    case COPIES_OWN:
    case COPIES_HELD:
        take_segment(order, fd);
        return;
    case COPIES_BEGIN:
        take_begin(order);
        return;
    case COPIES_FETCH:
        fetch_from = *order;
        all.n_fetching = all.begin.n;
        for (uint32_t i = 0; i < all.begin.n; i++)
            if (!begin_thread(fetch, &all.own[i]))
                end_fetch(FSDP_ERR_NOMEM, "no thread to fetch a snapshot");
        return;
    case COPIES_PEER:
        push_to = *order;
        for (uint32_t i = 0; i < all.begin.n; i++)
            if (!begin_thread(push, &all.own[i]))
                stop_copying("no thread to copy snapshots");
        return;
    default:
        _exit(1);
    }
}

static _Noreturn void serve(void)
{
    struct copies_order order;
    struct iovec part = { &order, sizeof order };

    all.own = calloc(COPIES_RANKS, sizeof *all.own);
    all.held = calloc(COPIES_RANKS, sizeof *all.held);
    all.busy = calloc(COPIES_RANKS, sizeof *all.busy);
    if (all.own == NULL || all.held == NULL || all.busy == NULL)
        _exit(1);
    for (;;) {
        struct message_fds came = { .most = 1 };
        const ssize_t n = message_receive(STDIN_FILENO, &part, 1, 0, &came);

        if (n != (ssize_t)sizeof order || order.begin.n > COPIES_RANKS)
            _exit(n == 0 ? 0 : 1); /* the agent closed its end, or is no agent */
        order.address[sizeof order.address - 1] = '\0';
        take_order(&order, came.fds[0]);
    }
}

void copies_process_main(int argc, char **argv)
{
    if (argc != 3 || strcmp(argv[0], role) != 0)
        return;
    self_process_begin(argv[0], argv[2]);
    core_hide_memory(); /* it has a key */
    serve();
}
