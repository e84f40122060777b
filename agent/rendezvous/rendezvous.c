#include "agent/rendezvous/rendezvous.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pulse_listener.h"

enum { MAX_NOTES = 50 /* a node that comes again and again must not fill a log */ };

struct node {
    struct session *session; /* NULL: the node is not there */
    int64_t pulse_ns;        /* when the newest pulse of that session was sent, by the node's clock */
};

struct rendezvous {
    struct session_pool *pool;
    int n_listeners;
    struct pulse_listener *pulses[ENDPOINT_MAX_ADDRESSES];
    int n_pulses;
    struct rendezvous_handlers handlers;
    void *arg;
    int capacity;
    struct node *nodes; /* (capacity) */
    int n_notes;
    char address[64];
};

/* The last thing that a function does: the handler may destroy the rendezvous. */
static void note(struct rendezvous *rendezvous, const char *words)
{
    char line[PROTO_WORDS_BYTES + 256];

    if (rendezvous->handlers.note == NULL || rendezvous->n_notes == MAX_NOTES)
        return;
    snprintf(line, sizeof line, "%s%s", words,
             ++rendezvous->n_notes == MAX_NOTES ? " (further refused nodes are not reported)" : "");
    rendezvous->handlers.note(rendezvous->arg, line);
}

/* Nodes that connect */

void rendezvous_tell(struct session *session, enum proto_type type, uint32_t generation, const void *message)
{
    size_t size_bytes = 0;
    char *payload = message == NULL ? NULL : proto_encode(type, message, &size_bytes);

    if (payload != NULL || message == NULL)
        session_send(session, (uint16_t)type, generation, payload, size_bytes);
    free(payload);
}

static void refuse(struct rendezvous *rendezvous, struct session *session,
                   const struct proto_refused *refused)
{
    char words[PROTO_WORDS_BYTES + 32];

    rendezvous_tell(session, PROTO_REFUSED, 0, refused);
    snprintf(words, sizeof words, "a node was refused: %s", refused->words);
    session_leave(session);
    note(rendezvous, words);
}

/*
 * Stores the address at which a node has reached this host. A loopback address works on this host alone, so
 * it never replaces an address that other hosts can use.
 */
static void learn_address(struct rendezvous *rendezvous, const struct session *session)
{
    char address[sizeof rendezvous->address];

    session_address(session, true, address, sizeof address);
    if (!endpoint_is_loopback(address) || endpoint_is_loopback(rendezvous->address))
        memcpy(rendezvous->address, address, sizeof address);
}

static void take_join(struct rendezvous *rendezvous, struct session *session, const struct frame *frame)
{
    struct proto_refused refused = { 0 };
    union proto_message message;
    char address[64], words[160];
    int number;

    if (rendezvous->handlers.judge == NULL) {
        session_drop(session);
        return;
    }
    if (frame->type != PROTO_JOIN ||
        proto_decode(PROTO_JOIN, &message, frame->payload, frame->size, NULL) != FSDP_OK) {
        snprintf(words, sizeof words,
                 "a connection from %s was dropped: its first message is no join of ours",
                 session_name(session));
        session_drop(session);
        note(rendezvous, words);
        return;
    }
    session_address(session, false, address, sizeof address);
    if (!session_is_of(session, message.join.identity)) {
        refused.status = FSDP_EXIT_CONFIG;
        snprintf(refused.words, sizeof refused.words,
                 "%.80s (%s) names another identity than its connection has proven; it runs fsdprun %.63s",
                 message.join.host, address, message.join.version);
        refuse(rendezvous, session, &refused);
        return;
    }
    number = rendezvous->handlers.judge(rendezvous->arg, &message.join, address, &refused);
    if (number < 0) {
        refuse(rendezvous, session, &refused);
        return;
    }
    if (rendezvous->nodes[number].session != NULL)
        session_leave(rendezvous->nodes[number].session);
    rendezvous->nodes[number].session = session;
    rendezvous->nodes[number].pulse_ns = 0;
    session_set_data(session, &rendezvous->nodes[number]);
    session_admit(session);
    learn_address(rendezvous, session);
    rendezvous->handlers.joined(rendezvous->arg, number);
}

static void on_frame(void *arg, struct session *session, const struct frame *frame)
{
    struct rendezvous *rendezvous = arg;
    const struct node *node = session_data(session);

    if (node == NULL)
        take_join(rendezvous, session, frame);
    else
        rendezvous->handlers.message(rendezvous->arg, (int)(node - rendezvous->nodes), frame);
}

static void on_ended(void *arg, struct session *session, const struct fsdp_err *why)
{
    struct rendezvous *rendezvous = arg;
    struct node *node = session_data(session);
    char words[FSDP_ERR_MESSAGE_BYTES + 128];

    if (node == NULL) {
        if (why->status == FSDP_OK)
            return;
        snprintf(words, sizeof words, "a connection from %s was dropped: %s", session_name(session),
                 why->message);
        note(rendezvous, words);
        return;
    }
    node->session = NULL;
    rendezvous->handlers.lost(rendezvous->arg, (int)(node - rendezvous->nodes), session_silent_ms(session),
                              why);
}

static void on_note(void *arg, const char *words)
{
    const struct rendezvous *rendezvous = arg;

    if (rendezvous->handlers.note != NULL)
        rendezvous->handlers.note(rendezvous->arg, words);
}

static void on_swept(void *arg, const unsigned char agent[SESSION_IDENTITY_BYTES])
{
    const struct rendezvous *rendezvous = arg;

    if (rendezvous->handlers.swept != NULL)
        rendezvous->handlers.swept(rendezvous->arg, agent);
}

static void on_refused(void *arg, const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    const struct rendezvous *rendezvous = arg;

    if (rendezvous->handlers.restored != NULL)
        rendezvous->handlers.restored(rendezvous->arg, identity);
}

/* One that was sent before another that has come is late, or a stranger sends it again. */
static bool on_pulse(void *arg, const struct pulse *question, struct pulse *answer)
{
    const struct rendezvous *rendezvous = arg;
    struct session *session = session_pool_find(rendezvous->pool, question->session);
    struct node *node = session == NULL ? NULL : session_data(session);
    struct proto_beat beat = { .sent_ns = question->sent_ns, .answered_ns = question->answered_ns };

    if (node == NULL || node->session != session || question->sent_ns <= node->pulse_ns)
        return false;
    node->pulse_ns = question->sent_ns;
    session_pulse(session);
    if (rendezvous->handlers.pulse == NULL ||
        !rendezvous->handlers.pulse(rendezvous->arg, (int)(node - rendezvous->nodes), &beat))
        return false;
    answer->answered_ns = beat.answered_ns;
    answer->lease_ms = beat.lease_ms;
    return true;
}

/* Opening the listeners */

static void listen_for_pulses(struct rendezvous *rendezvous, uv_loop_t *loop,
                              const struct sockaddr_storage *address, const unsigned char *key)
{
    struct sockaddr_storage at = *address;
    const in_port_t port = htons((in_port_t)session_pool_port(rendezvous->pool));
    struct pulse_listener *listener;

    if (at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&at)->sin6_port = port;
    else
        ((struct sockaddr_in *)&at)->sin_port = port;
    listener = pulse_listen(loop, (const struct sockaddr *)&at, key, on_pulse, rendezvous);
    if (listener != NULL)
        rendezvous->pulses[rendezvous->n_pulses++] = listener;
}

/*
 * Stores the address that we listen on. If we listen on every address, none can be named before a node has
 * connected, so loopback is stored for the time being.
 */
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

/*
 * Listens on all addresses that belong to this host. The first of them decides: if it is free, this node
 * hosts; if it is in use, another process hosts. Further addresses are used if they are free.
 */
static enum fsdp_status listen_on_all(struct rendezvous *rendezvous, uv_loop_t *loop,
                                      const struct endpoint_addresses *addresses, const unsigned char *key,
                                      struct fsdp_err *err)
{
    enum fsdp_status status = fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no address of this host");

    for (int i = 0; i < addresses->n; i++) {
        struct fsdp_err why = { 0 };
        const enum fsdp_status one =
            session_pool_listen(rendezvous->pool, (const struct sockaddr *)&addresses->of[i], &why);

        if (one == FSDP_OK && rendezvous->n_listeners++ == 0) {
            keep_address(rendezvous, &addresses->of[i]);
            status = FSDP_OK;
        }
        if (one == FSDP_OK)
            listen_for_pulses(rendezvous, loop, &addresses->of[i], key);
        if (one == FSDP_OK || one == FSDP_ERR_NOT_FOUND || rendezvous->n_listeners > 0)
            continue;
        /*
         * A host without IPv6 returns other errors for IPv6 addresses. So the search goes on, and only
         * EADDRINUSE ends it.
         */
        status = fsdp_fail(err, one, "%s", why.message);
        if (one == FSDP_ERR_BUSY)
            return status;
    }
    return status;
}

enum fsdp_status rendezvous_listen(struct rendezvous **out, uv_loop_t *loop,
                                   const struct endpoint_addresses *addresses,
                                   const struct session_config *sessions, struct fsdp_err *err)
{
    struct rendezvous *rendezvous = calloc(1, sizeof *rendezvous);
    struct session_config config = *sessions;
    enum fsdp_status status;

    *out = NULL;
    if (rendezvous == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the rendezvous");
    config.handlers = (struct session_handlers){ NULL, on_frame, on_ended, on_note, on_swept, on_refused };
    config.arg = rendezvous;
    status = session_pool_create(&rendezvous->pool, loop, true, &config, err);
    if (status == FSDP_OK)
        status = listen_on_all(rendezvous, loop, addresses, sessions->key, err);
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

void rendezvous_destroy(struct rendezvous *rendezvous)
{
    if (rendezvous == NULL)
        return;
    for (int i = 0; i < rendezvous->n_pulses; i++)
        pulse_listener_close(rendezvous->pulses[i]);
    for (int i = 0; i < rendezvous->capacity; i++)
        if (rendezvous->nodes[i].session != NULL)
            session_leave(rendezvous->nodes[i].session);
    session_pool_close(rendezvous->pool);
    free(rendezvous->nodes);
    free(rendezvous);
}

/* Sending */

void rendezvous_send(struct rendezvous *rendezvous, int node, enum proto_type type, uint32_t generation,
                     const void *message)
{
    if (rendezvous->nodes[node].session != NULL)
        rendezvous_tell(rendezvous->nodes[node].session, type, generation, message);
}

void rendezvous_drop(struct rendezvous *rendezvous, int node)
{
    struct session *session = rendezvous->nodes[node].session;

    rendezvous->nodes[node].session = NULL;
    if (session != NULL)
        session_drop(session);
}

const char *rendezvous_address(const struct rendezvous *rendezvous)
{
    return rendezvous->address;
}

int rendezvous_port(const struct rendezvous *rendezvous)
{
    return session_pool_port(rendezvous->pool);
}
