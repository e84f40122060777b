#include "agent/rendezvous/rendezvous.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/clock.h"

/* the most lines about refused nodes: one that comes again and again must not fill a log */
enum { MAX_NOTES = 50 };

struct node {
    struct session *session;    /* NULL: the node is not there */
    struct pulse_member pulses; /* of that session; the listener's */
};

struct rendezvous {
    struct session_pool *pool;
    int n_listeners;
    struct pulse_listener *pulses; /* NULL: members do without */
    struct rendezvous_handlers handlers;
    void *arg;
    int capacity;
    struct node *nodes; /* (capacity) */
    int n_notes;
    char address[64];
};

/* Passes a line on. A caller does this last, because the handler may destroy the rendezvous. */
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

/* The session of a node has ended, or ends now: none of its pulses is answered any more. */
static void forget_pulses(struct rendezvous *rendezvous, struct node *node)
{
    const struct pulse_told told = pulse_listener_forget(rendezvous->pulses, &node->pulses);

    if (rendezvous->handlers.told != NULL)
        rendezvous->handlers.told(rendezvous->arg, (int)(node - rendezvous->nodes), &told);
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
    if (rendezvous->nodes[number].session != NULL) {
        session_leave(rendezvous->nodes[number].session);
        (void)pulse_listener_forget(rendezvous->pulses, &rendezvous->nodes[number].pulses);
    }
    rendezvous->nodes[number].session = session;
    pulse_listener_admit(rendezvous->pulses, &rendezvous->nodes[number].pulses, session_identity(session));
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
    forget_pulses(rendezvous, node);
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

/* Pulses */

void rendezvous_turn(struct rendezvous *rendezvous)
{
    const struct rendezvous_handlers *handlers = &rendezvous->handlers;

    pulse_listener_turn(rendezvous->pulses,
                        handlers->away_ns == NULL ? INT64_MAX : handlers->away_ns(rendezvous->arg));
}

/* Before sessions are judged, reads the pulses that came while the loop was busy, so that they count. */
static void on_looks(void *arg)
{
    struct rendezvous *rendezvous = arg;

    if (rendezvous->pulses == NULL)
        return;
    rendezvous_turn(rendezvous);
    for (int i = 0; i < rendezvous->capacity; i++) {
        struct node *node = &rendezvous->nodes[i];
        struct pulse_told told;

        if (node->session == NULL)
            continue;
        told = pulse_listener_told(rendezvous->pulses, &node->pulses);
        if (told.came_ns != 0)
            session_pulse(node->session, (clock_boot_ns() - told.came_ns) / 1000000);
        if (rendezvous->handlers.told != NULL)
            rendezvous->handlers.told(rendezvous->arg, i, &told);
    }
}

void rendezvous_heard(struct rendezvous *rendezvous, int node, int64_t heard_ns)
{
    pulse_listener_heard(rendezvous->pulses, &rendezvous->nodes[node].pulses, heard_ns);
}

/* Opening the listeners */

static void listen_for_pulses(struct rendezvous *rendezvous, const struct sockaddr_storage *address)
{
    struct sockaddr_storage at = *address;
    const in_port_t port = htons((in_port_t)session_pool_port(rendezvous->pool));

    if (at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&at)->sin6_port = port;
    else
        ((struct sockaddr_in *)&at)->sin_port = port;
    (void)pulse_listener_bind(rendezvous->pulses, (const struct sockaddr *)&at);
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
static enum fsdp_status listen_on_all(struct rendezvous *rendezvous,
                                      const struct endpoint_addresses *addresses, struct fsdp_err *err)
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
            listen_for_pulses(rendezvous, &addresses->of[i]);
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
    config.handlers =
        (struct session_handlers){ NULL, on_frame, on_ended, on_note, on_swept, on_refused, on_looks };
    config.arg = rendezvous;
    status = session_pool_create(&rendezvous->pool, loop, true, &config, err);
    if (status == FSDP_OK) {
        rendezvous->pulses = pulse_listener_create(sessions->lease_ms, sessions->key);
        status = listen_on_all(rendezvous, addresses, err);
    }
    if (status != FSDP_OK) {
        rendezvous_destroy(rendezvous);
        return status;
    }
    *out = rendezvous;
    return FSDP_OK;
}

enum fsdp_status rendezvous_serve(struct rendezvous *rendezvous, int capacity,
                                  const struct rendezvous_handlers *handlers, void *arg,
                                  const struct pulse_lead *lead, struct fsdp_err *err)
{
    rendezvous->nodes = calloc((size_t)capacity, sizeof *rendezvous->nodes);
    if (rendezvous->nodes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", capacity);
    rendezvous->capacity = capacity;
    rendezvous->handlers = *handlers;
    rendezvous->arg = arg;
    (void)pulse_listener_serve(rendezvous->pulses, lead);
    return FSDP_OK;
}

void rendezvous_destroy(struct rendezvous *rendezvous)
{
    if (rendezvous == NULL)
        return;
    pulse_listener_destroy(rendezvous->pulses);
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

    if (session == NULL)
        return;
    rendezvous->nodes[node].session = NULL;
    session_drop(session);
    forget_pulses(rendezvous, &rendezvous->nodes[node]);
}

const char *rendezvous_address(const struct rendezvous *rendezvous)
{
    return rendezvous->address;
}

int rendezvous_port(const struct rendezvous *rendezvous)
{
    return session_pool_port(rendezvous->pool);
}
