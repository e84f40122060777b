#include "agent/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/peer.h"
#include "agent/tls.h"

enum { RETRY_MS = 250 };

struct node {
    struct peer *peer; /* NULL: not here */
    bool joined;
    char host[PROTO_TEXT_BYTES];
    char address[64];
};

struct rendezvous {
    uv_loop_t *loop;
    uv_timer_t timer; /* the join timeout; a member's next attempt */
    struct rendezvous_config config;
    unsigned char key[TLS_KEY_BYTES];
    char host[PROTO_TEXT_BYTES];
    struct sockaddr_storage endpoint;
    struct peer_config peer_config;
    struct peer_listener *listener;
    struct node *nodes; /* (n_nodes); a member uses nodes[0] alone */
    uint64_t deadline_ms;
    int n_joined; /* other nodes that are in */
    int n_peers;  /* connections whose closed() is still to come */
    bool formed, over, destroyed, timer_open;
    char address[64];
    char last_words[FSDP_ERR_MESSAGE_BYTES];
};

static bool is_coordinator(const struct rendezvous *rendezvous)
{
    return rendezvous->config.self.node_rank == 0;
}

static void free_when_done(struct rendezvous *rendezvous)
{
    if (!rendezvous->destroyed || rendezvous->timer_open || rendezvous->n_peers > 0)
        return;
    free(rendezvous->nodes);
    explicit_bzero(rendezvous->key, sizeof rendezvous->key);
    free(rendezvous);
}

static void note(struct rendezvous *rendezvous, const char *words)
{
    if (rendezvous->config.handlers.note != NULL)
        rendezvous->config.handlers.note(rendezvous->config.arg, words);
}

static void fail(struct rendezvous *rendezvous, int status, const char *words)
{
    if (rendezvous->over || rendezvous->destroyed)
        return;
    rendezvous->over = true;
    uv_timer_stop(&rendezvous->timer);
    rendezvous->config.handlers.failed(rendezvous->config.arg, status, words);
}

static void form(struct rendezvous *rendezvous)
{
    rendezvous->formed = true;
    uv_timer_stop(&rendezvous->timer);
    rendezvous->config.handlers.formed(rendezvous->config.arg);
}

/* --- the coordinator judges who may join -------------------------------------------------------------------------- */

static bool judge_join(const struct rendezvous *rendezvous, const struct proto_join *join,
                       struct proto_refused *out)
{
    const struct proto_join *self = &rendezvous->config.self;

    out->status = FSDP_EXIT_CONFIG;
    if (strcmp(join->version, self->version) != 0)
        snprintf(out->words, sizeof out->words, "it runs fsdprun %s, node 0 runs %s", join->version,
                 self->version);
    else if (join->n_nodes != self->n_nodes)
        snprintf(out->words, sizeof out->words, "it was started for %d nodes, node 0 for %d", join->n_nodes,
                 self->n_nodes);
    else if (join->node_rank <= 0 || join->node_rank >= self->n_nodes)
        snprintf(out->words, sizeof out->words, "there is no node rank %d to take among %d nodes",
                 join->node_rank, self->n_nodes);
    else if (rendezvous->nodes[join->node_rank].joined)
        snprintf(out->words, sizeof out->words, "node rank %d is taken by %s", join->node_rank,
                 rendezvous->nodes[join->node_rank].host);
    else if (join->n_workers != self->n_workers)
        snprintf(out->words, sizeof out->words,
                 "it has %d workers, node 0 has %d: the number is the same on every node", join->n_workers,
                 self->n_workers);
    else if (join->what != self->what)
        snprintf(out->words, sizeof out->words,
                 "it runs another job file or other overrides than node 0, or only one of them runs a job");
    else
        return true;
    return false;
}

static void refuse(struct rendezvous *rendezvous, struct peer *peer, const struct proto_join *join,
                   const struct proto_refused *refused)
{
    char words[PROTO_WORDS_BYTES + 2 * PROTO_TEXT_BYTES];
    char *text = proto_write_refused(refused);

    if (text != NULL)
        peer_send(peer, PROTO_REFUSED, 0, text, strlen(text));
    free(text);
    peer_close(peer, NULL);
    snprintf(words, sizeof words, "node %d (%s, %s) was refused: %s", join->node_rank, join->host,
             peer_name(peer), refused->words);
    note(rendezvous, words);
}

static void take_join(struct rendezvous *rendezvous, struct peer *peer, const struct frame *frame)
{
    struct proto_refused refused = { 0 };
    struct proto_join join;
    struct fsdp_err err = { 0 };
    struct node *node;

    if (frame->type != PROTO_JOIN || proto_read_join(&join, frame->payload, frame->size, &err) != FSDP_OK) {
        fsdp_fail(&err, FSDP_ERR_FORMAT, "its first message is no join of ours");
        peer_close(peer, &err);
        return;
    }
    if (!judge_join(rendezvous, &join, &refused)) {
        refuse(rendezvous, peer, &join, &refused);
        return;
    }
    node = &rendezvous->nodes[join.node_rank];
    node->peer = peer;
    node->joined = true;
    snprintf(node->host, sizeof node->host, "%s", join.host);
    peer_set_data(peer, node);
    peer_admit(peer);
    peer_address(peer, false, node->address, sizeof node->address);
    rendezvous->n_joined++;
    if (rendezvous->n_joined == rendezvous->config.self.n_nodes - 1) {
        peer_listener_close(rendezvous->listener);
        rendezvous->listener = NULL;
        form(rendezvous);
    }
}

static void coordinator_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    struct rendezvous *rendezvous = arg;
    const struct node *node = peer_data(peer);

    if (rendezvous->destroyed || rendezvous->over)
        return;
    if (node == NULL)
        take_join(rendezvous, peer, frame);
    else
        rendezvous->config.handlers.message(rendezvous->config.arg, (int)(node - rendezvous->nodes), frame);
}

static void coordinator_accepted(void *arg, struct peer *peer)
{
    struct rendezvous *rendezvous = arg;

    (void)peer;
    rendezvous->n_peers++;
}

static void coordinator_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct rendezvous *rendezvous = arg;
    struct node *node = peer_data(peer);
    char words[FSDP_ERR_MESSAGE_BYTES + 128];

    rendezvous->n_peers--;
    if (rendezvous->destroyed) {
        free_when_done(rendezvous);
        return;
    }
    if (node == NULL && why->status != FSDP_OK) {
        snprintf(words, sizeof words, "a connection from %s was dropped: %s", peer_name(peer), why->message);
        note(rendezvous, words);
    }
    if (node != NULL) {
        node->peer = NULL;
        node->joined = false;
        rendezvous->n_joined--;
        if (rendezvous->formed)
            rendezvous->config.handlers.lost(rendezvous->config.arg, (int)(node - rendezvous->nodes),
                                             why->message);
        else if (!rendezvous->over)
            note(rendezvous, "a node that had joined is gone; waiting for it to come back");
    }
}

/* --- a member connects until it is in ------------------------------------------------------------------------------ */

static void connect_once(struct rendezvous *rendezvous)
{
    struct fsdp_err err = { 0 };

    if (peer_connect(&rendezvous->nodes[0].peer, rendezvous->loop, (struct sockaddr *)&rendezvous->endpoint,
                     &rendezvous->peer_config, &err) == FSDP_OK) {
        rendezvous->n_peers++;
        return;
    }
    fail(rendezvous, FSDP_EXIT_PEER, err.message);
}

static void member_opened(void *arg, struct peer *peer)
{
    struct rendezvous *rendezvous = arg;
    char *text;

    if (rendezvous->destroyed)
        return;
    text = proto_write_join(&rendezvous->config.self);
    peer_admit(peer);
    peer_address(peer, true, rendezvous->address, sizeof rendezvous->address);
    rendezvous->nodes[0].joined = true;
    rendezvous->n_joined = 1;
    if (text != NULL)
        peer_send(peer, PROTO_JOIN, 0, text, strlen(text));
    free(text);
}

static void member_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    struct rendezvous *rendezvous = arg;
    struct proto_refused refused;
    char words[PROTO_WORDS_BYTES + 64];

    (void)peer;
    if (rendezvous->destroyed || rendezvous->over)
        return;
    if (frame->type == PROTO_REFUSED) {
        if (proto_read_refused(&refused, frame->payload, frame->size, NULL) != FSDP_OK)
            refused = (struct proto_refused){ .status = FSDP_EXIT_PEER, .words = "no reason was given" };
        snprintf(words, sizeof words, "node 0 refused this node: %s", refused.words);
        fail(rendezvous, refused.status, words);
        return;
    }
    if (!rendezvous->formed)
        form(rendezvous); /* the first word after our join: we are in */
    rendezvous->config.handlers.message(rendezvous->config.arg, 0, frame);
}

static void member_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct rendezvous *rendezvous = arg;

    (void)peer;
    rendezvous->n_peers--;
    rendezvous->nodes[0].peer = NULL;
    rendezvous->nodes[0].joined = false;
    rendezvous->n_joined = 0;
    if (rendezvous->destroyed) {
        free_when_done(rendezvous);
        return;
    }
    if (rendezvous->over)
        return;
    if (rendezvous->formed) {
        rendezvous->over = true;
        rendezvous->config.handlers.lost(rendezvous->config.arg, 0, why->message);
    } else if (why->status == FSDP_ERR_MISMATCH || why->status == FSDP_ERR_FORMAT) {
        fail(rendezvous, FSDP_EXIT_PEER,
             why->message); /* another secret or program will not change by waiting */
    } else {
        snprintf(rendezvous->last_words, sizeof rendezvous->last_words, "%s", why->message);
    }
}

/* --- time ---------------------------------------------------------------------------------------------------------- */

static void give_up(struct rendezvous *rendezvous)
{
    const int n_nodes = rendezvous->config.self.n_nodes;
    char words[FSDP_ERR_MESSAGE_BYTES + PROTO_TEXT_BYTES + 160];
    int length;

    if (!is_coordinator(rendezvous)) {
        snprintf(words, sizeof words, "no answer from node 0 at %s:%d for %.0f s (%s)", rendezvous->host,
                 rendezvous->config.port, (double)rendezvous->config.join_timeout_ms / 1000.0,
                 rendezvous->last_words[0] != '\0' ? rendezvous->last_words : "it waits for other nodes");
        fail(rendezvous, FSDP_EXIT_PEER, words);
        return;
    }
    length = snprintf(words, sizeof words, "%d of %d nodes came within %.0f s; missing node",
                      rendezvous->n_joined + 1, n_nodes, (double)rendezvous->config.join_timeout_ms / 1000.0);
    for (int i = 1; i < n_nodes && length < (int)sizeof words - 24; i++)
        if (!rendezvous->nodes[i].joined)
            length += snprintf(words + length, sizeof words - (size_t)length, " %d", i);
    fail(rendezvous, FSDP_EXIT_PEER, words);
}

static void on_timer(uv_timer_t *timer)
{
    struct rendezvous *rendezvous = timer->data;

    if (rendezvous->config.self.n_nodes == 1)
        form(rendezvous);
    else if (uv_now(rendezvous->loop) >= rendezvous->deadline_ms)
        give_up(rendezvous);
    else if (!is_coordinator(rendezvous) && rendezvous->nodes[0].peer == NULL)
        connect_once(rendezvous);
}

/* --- opening and closing ------------------------------------------------------------------------------------------- */

static enum fsdp_status resolve(struct rendezvous *rendezvous, struct fsdp_err *err)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    uv_getaddrinfo_t request;
    char port[16];
    int status;

    snprintf(port, sizeof port, "%d", rendezvous->config.port);
    status = uv_getaddrinfo(rendezvous->loop, &request, NULL, rendezvous->host, port, &hints);
    if (status < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "rendezvous host %s: %s", rendezvous->host,
                         uv_strerror(status));
    memcpy(&rendezvous->endpoint, request.addrinfo->ai_addr, request.addrinfo->ai_addrlen);
    if (is_coordinator(rendezvous))
        uv_ip_name(request.addrinfo->ai_addr, rendezvous->address, sizeof rendezvous->address);
    uv_freeaddrinfo(request.addrinfo);
    return FSDP_OK;
}

static void configure_peers(struct rendezvous *rendezvous)
{
    static const struct peer_handlers coordinator = { coordinator_accepted, NULL, coordinator_frame,
                                                      coordinator_closed };
    static const struct peer_handlers member = { NULL, member_opened, member_frame, member_closed };

    peer_config_init(&rendezvous->peer_config);
    rendezvous->peer_config.key = rendezvous->config.key == NULL ? NULL : rendezvous->key;
    rendezvous->peer_config.job = rendezvous->config.job;
    rendezvous->peer_config.handlers = is_coordinator(rendezvous) ? coordinator : member;
    rendezvous->peer_config.arg = rendezvous;
}

static enum fsdp_status begin(struct rendezvous *rendezvous, struct fsdp_err *err)
{
    enum fsdp_status status;

    if (rendezvous->config.self.n_nodes == 1) {
        uv_timer_start(&rendezvous->timer, on_timer, 0, 0);
        return FSDP_OK;
    }
    status = resolve(rendezvous, err);
    if (status == FSDP_OK && is_coordinator(rendezvous)) {
        status = peer_listen(&rendezvous->listener, rendezvous->loop,
                             (struct sockaddr *)&rendezvous->endpoint, &rendezvous->peer_config, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "listening on %s:%d", rendezvous->host, rendezvous->config.port);
    }
    if (status == FSDP_OK)
        uv_timer_start(&rendezvous->timer, on_timer, is_coordinator(rendezvous) ? RETRY_MS : 0, RETRY_MS);
    return status;
}

enum fsdp_status rendezvous_create(struct rendezvous **out, uv_loop_t *loop,
                                   const struct rendezvous_config *config, struct fsdp_err *err)
{
    struct rendezvous *rendezvous = calloc(1, sizeof *rendezvous);
    enum fsdp_status status;

    *out = NULL;
    if (rendezvous == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the rendezvous");
    rendezvous->loop = loop;
    rendezvous->config = *config;
    rendezvous->nodes = calloc((size_t)config->self.n_nodes, sizeof *rendezvous->nodes);
    if (rendezvous->nodes == NULL) {
        free(rendezvous);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", config->self.n_nodes);
    }
    if (config->key != NULL)
        memcpy(rendezvous->key, config->key, sizeof rendezvous->key);
    snprintf(rendezvous->host, sizeof rendezvous->host, "%s", config->host == NULL ? "" : config->host);
    snprintf(rendezvous->address, sizeof rendezvous->address, "127.0.0.1");
    snprintf(rendezvous->nodes[config->self.node_rank].host, PROTO_TEXT_BYTES, "%s", config->self.host);
    configure_peers(rendezvous);
    uv_update_time(loop);
    rendezvous->deadline_ms = uv_now(loop) + (uint64_t)config->join_timeout_ms;
    uv_timer_init(loop, &rendezvous->timer);
    rendezvous->timer.data = rendezvous;
    rendezvous->timer_open = true;
    status = begin(rendezvous, err);
    if (status != FSDP_OK) {
        rendezvous_destroy(rendezvous);
        return status;
    }
    *out = rendezvous;
    return FSDP_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct rendezvous *rendezvous = handle->data;

    rendezvous->timer_open = false;
    free_when_done(rendezvous);
}

void rendezvous_destroy(struct rendezvous *rendezvous)
{
    if (rendezvous == NULL || rendezvous->destroyed)
        return;
    rendezvous->destroyed = true;
    peer_listener_close(rendezvous->listener);
    for (int i = 0; i < rendezvous->config.self.n_nodes; i++)
        if (rendezvous->nodes[i].peer != NULL)
            peer_close(rendezvous->nodes[i].peer, NULL);
    uv_close((uv_handle_t *)&rendezvous->timer, on_timer_closed);
}

void rendezvous_send(struct rendezvous *rendezvous, int node, enum proto_type type, uint32_t generation,
                     const void *payload, size_t size_bytes)
{
    if (rendezvous->nodes[node].peer != NULL)
        peer_send(rendezvous->nodes[node].peer, (uint16_t)type, generation, payload, size_bytes);
}

void rendezvous_broadcast(struct rendezvous *rendezvous, enum proto_type type, uint32_t generation,
                          const void *payload, size_t size_bytes)
{
    for (int i = 0; i < rendezvous->config.self.n_nodes; i++)
        rendezvous_send(rendezvous, i, type, generation, payload, size_bytes);
}

const char *rendezvous_host(const struct rendezvous *rendezvous, int node)
{
    return rendezvous->nodes[node].host[0] != '\0' ? rendezvous->nodes[node].host : "?";
}

const char *rendezvous_address(const struct rendezvous *rendezvous)
{
    return rendezvous->address;
}

const char *rendezvous_peer_address(const struct rendezvous *rendezvous, int node)
{
    return rendezvous->nodes[node].address;
}

int rendezvous_n_connected(const struct rendezvous *rendezvous)
{
    return rendezvous->n_joined;
}
