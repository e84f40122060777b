#include "agent/cluster/rendezvous.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/wire/tls.h"

enum { MAX_NOTES = 50 /* a port scanner must not fill a log */ };

struct node {
    struct peer *peer; /* NULL: not here */
};

struct rendezvous {
    uv_loop_t *loop;
    uv_timer_t linger;
    struct peer_config peers;
    unsigned char key[TLS_KEY_BYTES];
    struct peer_listener *listeners[ENDPOINT_MAX_ADDRESSES];
    int n_listeners;
    struct rendezvous_handlers handlers;
    void *arg;
    int capacity;
    struct node *nodes; /* (capacity) */
    int n_peers;        /* connections whose closed() is still to come */
    int n_notes;
    bool destroyed, timer_closed;
    char address[64];
};

static void on_timer_closed(uv_handle_t *handle)
{
    struct rendezvous *rendezvous = handle->data;

    free(rendezvous->nodes);
    explicit_bzero(rendezvous->key, sizeof rendezvous->key);
    free(rendezvous);
}

static void end_if_alone(struct rendezvous *rendezvous)
{
    if (rendezvous->destroyed && rendezvous->n_peers == 0 && !rendezvous->timer_closed) {
        rendezvous->timer_closed = true;
        uv_close((uv_handle_t *)&rendezvous->linger, on_timer_closed);
    }
}

static void note(struct rendezvous *rendezvous, const char *words)
{
    if (rendezvous->n_notes++ < MAX_NOTES)
        rendezvous->handlers.note(rendezvous->arg, words);
    if (rendezvous->n_notes == MAX_NOTES)
        rendezvous->handlers.note(rendezvous->arg, "further strangers at the endpoint are not told of");
}

/* --- who comes ------------------------------------------------------------------------------------------------------ */

static void refuse(struct rendezvous *rendezvous, struct peer *peer, const struct proto_refused *refused)
{
    char words[PROTO_WORDS_BYTES + 32];
    char *text = proto_write_refused(refused);

    if (text != NULL)
        peer_send(peer, PROTO_REFUSED, 0, text, strlen(text));
    free(text);
    snprintf(words, sizeof words, "a node was refused: %s", refused->words);
    note(rendezvous, words);
    peer_close(peer, NULL);
}

/* Where a node has reached us. Loopback leads here from this host alone: an address that others know is kept instead. */
static void learn_address(struct rendezvous *rendezvous, const struct peer *peer)
{
    char address[sizeof rendezvous->address];

    peer_address(peer, true, address, sizeof address);
    if (!endpoint_is_loopback(address) || endpoint_is_loopback(rendezvous->address))
        memcpy(rendezvous->address, address, sizeof address);
}

static void take_join(struct rendezvous *rendezvous, struct peer *peer, const struct frame *frame)
{
    struct proto_refused refused = { 0 };
    struct proto_join join;
    struct fsdp_err err = { 0 };
    char address[64];
    int number;

    if (frame->type != PROTO_JOIN || proto_read_join(&join, frame->payload, frame->size, &err) != FSDP_OK) {
        fsdp_fail(&err, FSDP_ERR_FORMAT, "its first message is no join of ours");
        peer_close(peer, &err);
        return;
    }
    peer_address(peer, false, address, sizeof address);
    number = rendezvous->handlers.judge(rendezvous->arg, &join, address, &refused);
    if (number < 0) {
        refuse(rendezvous, peer, &refused);
        return;
    }
    rendezvous->nodes[number].peer = peer;
    peer_set_data(peer, &rendezvous->nodes[number]);
    peer_admit(peer);
    learn_address(rendezvous, peer);
    rendezvous->handlers.joined(rendezvous->arg, number);
}

static void on_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    struct rendezvous *rendezvous = arg;
    const struct node *node = peer_data(peer);

    if (rendezvous->destroyed)
        return;
    if (node == NULL)
        take_join(rendezvous, peer, frame);
    else if (node->peer == peer)
        rendezvous->handlers.message(rendezvous->arg, (int)(node - rendezvous->nodes), frame);
}

static void on_accepted(void *arg, struct peer *peer)
{
    struct rendezvous *rendezvous = arg;

    (void)peer;
    rendezvous->n_peers++;
}

static void on_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct rendezvous *rendezvous = arg;
    struct node *node = peer_data(peer);
    char words[FSDP_ERR_MESSAGE_BYTES + 128];

    rendezvous->n_peers--;
    if (rendezvous->destroyed) {
        if (node != NULL && node->peer == peer)
            node->peer = NULL;
        end_if_alone(rendezvous);
        return;
    }
    if (node == NULL && why->status != FSDP_OK && rendezvous->nodes != NULL) {
        snprintf(words, sizeof words, "a connection from %s was dropped: %s", peer_name(peer), why->message);
        note(rendezvous, words);
    }
    if (node != NULL && node->peer == peer) {
        node->peer = NULL;
        rendezvous->handlers.lost(rendezvous->arg, (int)(node - rendezvous->nodes), peer_silent_ms(peer),
                                  why->message);
    }
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

/* Where we listen on every address none of them can be named before a node has come by it: loopback stands for it. */
static void keep_address(struct rendezvous *rendezvous, const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    const bool every = address->ss_family == AF_INET ? v4->sin_addr.s_addr == htonl(INADDR_ANY)
                                                     : IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);

    if (every)
        snprintf(rendezvous->address, sizeof rendezvous->address, "127.0.0.1");
    else
        uv_ip_name((const struct sockaddr *)address, rendezvous->address, sizeof rendezvous->address);
}

/* The first address that is ours decides: who has it hosts. The others are listened on where they are free. */
static enum fsdp_status listen_on_all(struct rendezvous *rendezvous,
                                      const struct endpoint_addresses *addresses, struct fsdp_err *err)
{
    enum fsdp_status status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no address of this host");

    for (int i = 0; i < addresses->n; i++) {
        struct fsdp_err why = { 0 };
        const enum fsdp_status one =
            peer_listen(&rendezvous->listeners[rendezvous->n_listeners], rendezvous->loop,
                        (const struct sockaddr *)&addresses->of[i], &rendezvous->peers, &why);

        if (one == FSDP_OK && rendezvous->n_listeners++ == 0) {
            keep_address(rendezvous, &addresses->of[i]);
            status = FSDP_OK;
        }
        if (one == FSDP_OK || one == FSDP_ERR_NOT_FOUND || rendezvous->n_listeners > 0)
            continue;
        /* A host without IPv6 refuses its addresses in other ways: only EADDRINUSE ends the search. */
        status = fsdp_fail(err, one, "%s", why.message);
        if (one == FSDP_ERR_BUSY)
            return status;
    }
    return status;
}

enum fsdp_status rendezvous_listen(struct rendezvous **out, uv_loop_t *loop,
                                   const struct endpoint_addresses *addresses,
                                   const struct peer_config *peers, struct fsdp_err *err)
{
    struct rendezvous *rendezvous = calloc(1, sizeof *rendezvous);
    enum fsdp_status status;

    *out = NULL;
    if (rendezvous == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the rendezvous");
    rendezvous->loop = loop;
    rendezvous->peers = *peers;
    if (peers->key != NULL) {
        memcpy(rendezvous->key, peers->key, sizeof rendezvous->key);
        rendezvous->peers.key = rendezvous->key;
    }
    rendezvous->peers.handlers = (struct peer_handlers){ on_accepted, NULL, on_frame, on_closed };
    rendezvous->peers.arg = rendezvous;
    uv_timer_init(loop, &rendezvous->linger);
    rendezvous->linger.data = rendezvous;
    status = listen_on_all(rendezvous, addresses, err);
    if (status != FSDP_OK) {
        rendezvous_destroy(rendezvous);
        return status;
    }
    *out = rendezvous;
    return FSDP_OK;
}

enum fsdp_status rendezvous_serve(struct rendezvous *rendezvous, int capacity,
                                  const struct rendezvous_handlers *handlers, void *arg, struct fsdp_err *err)
{
    rendezvous->nodes = calloc((size_t)capacity, sizeof *rendezvous->nodes);
    if (rendezvous->nodes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", capacity);
    rendezvous->capacity = capacity;
    rendezvous->handlers = *handlers;
    rendezvous->arg = arg;
    return FSDP_OK;
}

/* --- closing -------------------------------------------------------------------------------------------------------- */

static void close_all(struct rendezvous *rendezvous)
{
    for (int i = 0; i < rendezvous->capacity; i++)
        if (rendezvous->nodes[i].peer != NULL)
            peer_close(rendezvous->nodes[i].peer, NULL);
}

static void on_linger(uv_timer_t *timer)
{
    close_all(timer->data);
}

/* We do not close first: with bytes unread on our side that would reset the connection, and take back from the other
 * what it has not read yet. */
void rendezvous_destroy(struct rendezvous *rendezvous)
{
    if (rendezvous == NULL || rendezvous->destroyed)
        return;
    rendezvous->destroyed = true;
    for (int i = 0; i < rendezvous->n_listeners; i++)
        peer_listener_close(rendezvous->listeners[i]);
    if (rendezvous->n_peers > 0)
        uv_timer_start(&rendezvous->linger, on_linger, RENDEZVOUS_LINGER_MS, 0);
    end_if_alone(rendezvous);
}

/* --- talking -------------------------------------------------------------------------------------------------------- */

void rendezvous_send(struct rendezvous *rendezvous, int node, enum proto_type type, uint32_t generation,
                     const void *payload, size_t size_bytes)
{
    if (rendezvous->nodes[node].peer != NULL)
        peer_send(rendezvous->nodes[node].peer, (uint16_t)type, generation, payload, size_bytes);
}

void rendezvous_drop(struct rendezvous *rendezvous, int node)
{
    struct peer *peer = rendezvous->nodes[node].peer;

    rendezvous->nodes[node].peer = NULL;
    if (peer != NULL)
        peer_close(peer, NULL);
}

const char *rendezvous_address(const struct rendezvous *rendezvous)
{
    return rendezvous->address;
}
