#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/wire/session_impl.h"
#include "agent/wire/tls.h"
#include "shard_runtime/core/require.h"

enum {
    LOOKS = 30, /* looks at every session per lease; at least one look in LOOK_MS */
    LOOK_MS = 100,
    FINE_LOOKS = 60, /* looks per lease while a session that dials is silent or has no connection */
    MAX_NOTES = 20   /* lines of one kind per hour: a flapping link or a port scanner must not fill a log */
};
static const int64_t hour_ns = INT64_C(3600) * 1000000000;

int64_t session_now_ns(void)
{
    return (int64_t)uv_hrtime();
}

void session_pool_note(struct session_pool *pool, enum session_notes kind, const char *words)
{
    static const char *const enough[] = {
        [SESSION_NOTE_LINK] = "further interrupted links are not reported within this hour",
        [SESSION_NOTE_STRANGER] = "further strangers at the endpoint are not reported within this hour",
    };
    struct session_note_limit *limit = &pool->notes[kind];
    const int64_t now = session_now_ns();

    if (pool->closing || pool->config.handlers.note == NULL)
        return;
    if (now - limit->began_ns >= hour_ns)
        *limit = (struct session_note_limit){ .began_ns = now };
    if (limit->n < MAX_NOTES)
        pool->config.handlers.note(pool->config.arg, words);
    if (++limit->n == MAX_NOTES && !pool->closing)
        pool->config.handlers.note(pool->config.arg, enough[kind]);
}

/* Closing the pool */

static void on_handle_closed(uv_handle_t *handle)
{
    struct session_pool *pool = handle->data;

    if (--pool->n_open > 0)
        return;
    tls_context_destroy(pool->tls);
    session_agents_free(&pool->agents);
    free(pool);
}

/*
 * Closes the listeners and then the handles of a pool that is being closed, as soon as no session, and then
 * no connection, is left.
 */
static void end_if_empty(struct session_pool *pool)
{
    if (!pool->closing || pool->walking || pool->all != NULL)
        return;
    for (int i = 0; i < pool->n_listeners; i++)
        peer_listener_close(pool->listeners[i]);
    pool->n_listeners = 0;
    if (pool->n_peers > 0 || pool->handles_closed)
        return;
    pool->handles_closed = true;
    uv_close((uv_handle_t *)&pool->timer, on_handle_closed);
    uv_close((uv_handle_t *)&pool->idle, on_handle_closed);
    uv_close((uv_handle_t *)&pool->check, on_handle_closed);
}

void session_pool_close(struct session_pool *pool)
{
    struct session *next;

    if (pool == NULL || pool->closing)
        return;
    pool->closing = true;
    for (struct session *session = pool->all; session != NULL; session = next) {
        next = session->next;
        if (!session->leaving && !session->over)
            session_drop(session);
    }
    end_if_empty(pool);
}

/* Sessions of the pool */

static struct session **bucket_of(struct session_pool *pool, const unsigned char *identity)
{
    return &pool->buckets[(identity[0] | (unsigned)identity[1] << 8) % SESSION_BUCKETS];
}

static struct session *find(struct session_pool *pool, const unsigned char *identity)
{
    struct session *session = *bucket_of(pool, identity);

    while (session != NULL && memcmp(session->core.identity, identity, SESSION_IDENTITY_BYTES) != 0)
        session = session->same;
    return session;
}

struct session *session_pool_find(struct session_pool *pool,
                                  const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    struct session *session = find(pool, identity);

    return session == NULL || session->over ? NULL : session;
}

static void on_timer(uv_timer_t *timer);

static void look_later(struct session_pool *pool, bool fine)
{
    int64_t pace_ms = pool->config.lease_ms / (fine ? FINE_LOOKS : LOOKS);

    if (pace_ms > LOOK_MS) /* a sign of life is sent at the first look after it is due */
        pace_ms = LOOK_MS;
    if (!pool->handles_closed)
        uv_timer_start(&pool->timer, on_timer, pace_ms > 0 ? (uint64_t)pace_ms : 1, 0);
}

void session_pool_take_lease(struct session_pool *pool, int64_t lease_ms)
{
    pool->config.lease_ms = pool->peers.unsent_ms = lease_ms;
    look_later(pool, false);
}

static int n_missing(const struct session_pool *pool)
{
    const int n = pool->config.n_expected - pool->n_well;

    return n > 0 ? n : 0;
}

void session_pool_count(struct session *session)
{
    struct session_pool *pool = session->pool;
    const bool well = session->admitted && !session->over && session->core.up && !session->suspect;

    if (session->dials || well == session->counted)
        return;
    session->counted = well;
    pool->n_well += well ? 1 : -1;
    for (int i = 0; i < pool->n_listeners; i++)
        peer_listener_expect(pool->listeners[i], n_missing(pool));
}

struct session *session_make(struct session_pool *pool, const unsigned char identity[SESSION_IDENTITY_BYTES],
                             struct fsdp_err *err)
{
    struct session **bucket = bucket_of(pool, identity);
    struct session *session = calloc(1, sizeof *session);

    if (session == NULL) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a session");
        return NULL;
    }
    session->pool = pool;
    session_core_init(&session->core, identity, pool->config.lease_ms * 1000000, session_now_ns());
    session->core.is_one_of_many = pool->config.n_expected >= SESSION_MANY;
    snprintf(session->name, sizeof session->name, "?");
    session->next = pool->all;
    session->link = &pool->all;
    if (session->next != NULL)
        session->next->link = &session->next;
    pool->all = session;
    session->same = *bucket;
    session->from = bucket;
    if (session->same != NULL)
        session->same->from = &session->same;
    *bucket = session;
    if (!uv_is_active((uv_handle_t *)&pool->timer))
        look_later(pool, false);
    return session;
}

void session_forget(struct session *session)
{
    if (session->from == NULL)
        return;
    *session->from = session->same;
    if (session->same != NULL)
        session->same->from = session->from;
    session->from = NULL;
}

void session_reap(struct session *session)
{
    struct session_pool *pool = session->pool;

    if (!session->over || session->n_peers > 0 || pool->walking)
        return;
    session_forget(session);
    *session->link = session->next;
    if (session->next != NULL)
        session->next->link = session->link;
    session_core_fini(&session->core);
    free(session);
    end_if_empty(pool);
}

/* Time */

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void on_check(uv_check_t *check)
{
    struct session_pool *pool = check->data;
    struct session *next;
    bool fine = false, alive = false;

    uv_idle_stop(&pool->idle);
    uv_check_stop(check);
    if (!pool->closing && pool->config.handlers.looks != NULL)
        pool->config.handlers.looks(pool->config.arg);
    pool->walking = true;
    for (struct session *session = pool->all; session != NULL; session = session->next)
        session_look(session, session_now_ns());
    pool->walking = false;
    for (struct session *session = pool->all; session != NULL; session = next) {
        next = session->next;
        alive = alive || !session->over;
        fine = fine || (session->dials && (session->suspect || !session->core.up));
        session_reap(session);
    }
    if (alive)
        look_later(pool, fine);
}

static void on_timer(uv_timer_t *timer)
{
    struct session_pool *pool = timer->data;

    uv_idle_start(&pool->idle, on_idle);
    uv_check_start(&pool->check, on_check);
}

/* Connections */

static void on_accepted(void *arg, struct peer *peer)
{
    struct session_pool *pool = arg;

    (void)peer;
    pool->n_peers++;
}

static void on_opened(void *arg, struct peer *peer)
{
    (void)arg;
    if (peer_data(peer) != NULL) /* this end has dialled it */
        session_attempt_opened(peer_data(peer), peer);
}

/* Does the session belong to the agent that the connection has proven? */
static bool is_of(const struct session *session, const unsigned char *agent)
{
    if (agent == NULL || !session->proven)
        return agent == NULL && !session->proven;
    return memcmp(session->agent, agent, SESSION_IDENTITY_BYTES) == 0;
}

void session_pool_refuse(struct session_pool *pool, const unsigned char agent[SESSION_IDENTITY_BYTES])
{
    session_agents_refuse(&pool->agents, agent);
    if (pool->config.handlers.refused != NULL)
        pool->config.handlers.refused(pool->config.arg, agent);
}

/* Handles a HELLO that names no session of this pool. */
static void take_unknown(struct session_pool *pool, struct peer *peer, const struct session_hello *hello)
{
    const unsigned char *agent = peer_identity(peer);
    struct session_hello answer;
    struct fsdp_err err = { 0 };
    enum session_verdict verdict = session_agents_judge(&pool->agents, agent, hello, &answer, &err);

    if (verdict == SESSION_NEW && !pool->closing) {
        struct session *session = session_make(pool, hello->identity, &err);

        if (session == NULL) {
            peer_close(peer, &err);
            return;
        }
        session->proven = agent != NULL;
        if (session->proven)
            memcpy(session->agent, agent, SESSION_IDENTITY_BYTES);
        session_take_hello(session, peer, hello);
        return;
    }
    if (verdict == SESSION_BACKWARDS && session_agents_refuses(&pool->agents, agent))
        session_pool_refuse(pool, agent);
    if (verdict == SESSION_NEW)
        answer.verdict = SESSION_GONE;
    answer.lease_ms = (uint32_t)pool->config.lease_ms;
    if (verdict != SESSION_STALE)
        session_write_hello(peer, SESSION_ANSWER, &answer);
    peer_close(peer, &err);
}

/* Handles a guard's message that its agent is gone. Without a key, every sender is believed. */
static void take_swept(struct session_pool *pool, struct peer *peer, const struct frame *frame)
{
    const unsigned char *proven = peer_identity(peer);
    unsigned char agent[SESSION_IDENTITY_BYTES];
    struct fsdp_err err = { 0 };

    if (frame->size != sizeof agent ||
        (pool->tls != NULL && (proven == NULL || memcmp(proven, frame->payload, sizeof agent) != 0))) {
        fsdp_fail(&err, FSDP_ERR_MISMATCH, "it speaks for another agent than it has proven to be");
        peer_close(peer, &err);
        return;
    }
    memcpy(agent, frame->payload, sizeof agent);
    if (proven != NULL)
        session_agents_refuse(&pool->agents, agent);
    peer_close(peer, NULL);
    if (!pool->closing && pool->config.handlers.swept != NULL)
        pool->config.handlers.swept(pool->config.arg, agent);
}

/* Handles the first frame of an accepted connection. */
static void take_first(struct session_pool *pool, struct peer *peer, const struct frame *frame)
{
    struct session_hello hello;
    struct fsdp_err err = { 0 };
    struct session *session;

    if (frame->type == SESSION_SWEPT) {
        take_swept(pool, peer, frame);
        return;
    }
    if (frame->type != SESSION_HELLO)
        fsdp_fail(&err, FSDP_ERR_FORMAT, "its first message is no hello of ours");
    else
        session_hello_read(&hello, frame->payload, frame->size, &err);
    if (err.status != FSDP_OK) {
        peer_close(peer, &err);
        return;
    }
    session = find(pool, hello.identity);
    if (session == NULL) {
        take_unknown(pool, peer, &hello);
    } else if (is_of(session, peer_identity(peer))) {
        session_take_hello(session, peer, &hello);
    } else {
        fsdp_fail(&err, FSDP_ERR_MISMATCH, "it names the session of another agent");
        peer_close(peer, &err);
    }
}

static void on_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    if (peer_data(peer) == NULL)
        take_first(arg, peer, frame);
    else
        session_take_frame(peer_data(peer), peer, frame);
}

static void on_sent(void *arg, struct peer *peer)
{
    struct session *session = peer_data(peer);

    (void)arg;
    if (session != NULL && session->peer == peer)
        session_pump(session);
}

static void on_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct session_pool *pool = arg;
    char words[FSDP_ERR_MESSAGE_BYTES + 128];

    pool->n_peers--;
    if (peer_data(peer) != NULL) {
        session_peer_closed(peer_data(peer), peer, why);
    } else if (why->status != FSDP_OK && !peer_left(peer)) {
        /*
         * No line is written if the other end itself gives the connection up: a node dials several for its
         * session, and keeps one.
         */
        snprintf(words, sizeof words, "a connection from %s was dropped: %s", peer_name(peer), why->message);
        session_pool_note(pool, SESSION_NOTE_STRANGER, words);
    }
    end_if_empty(pool);
}

/* Opening the pool */

enum fsdp_status session_pool_create(struct session_pool **out, uv_loop_t *loop, bool listens,
                                     const struct session_config *config, struct fsdp_err *err)
{
    struct session_pool *pool = calloc(1, sizeof *pool);
    enum fsdp_status status;

    *out = NULL;
    if (pool == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for sessions");
    if (config->key != NULL &&
        (status = tls_context_create(&pool->tls, listens, config->key, err)) != FSDP_OK) {
        free(pool);
        return status;
    }
    pool->loop = loop;
    pool->config = *config;
    pool->config.key = NULL; /* the TLS context has a copy of the key */
    peer_config_init(&pool->peers);
    pool->peers.tls = pool->tls;
    pool->peers.scratch = pool->scratch;
    pool->peers.job = config->job;
    pool->peers.unsent_ms = config->lease_ms;
    pool->peers.handlers = (struct peer_handlers){ on_accepted, on_opened, on_frame, on_sent, on_closed };
    pool->peers.arg = pool;
    uv_timer_init(loop, &pool->timer);
    uv_idle_init(loop, &pool->idle);
    uv_check_init(loop, &pool->check);
    pool->timer.data = pool->idle.data = pool->check.data = pool;
    pool->n_open = 3;
    *out = pool;
    return FSDP_OK;
}

enum fsdp_status session_pool_listen(struct session_pool *pool, const struct sockaddr *address,
                                     struct fsdp_err *err)
{
    OK_OR_RETURN(peer_listen(&pool->listeners[pool->n_listeners], pool->loop, address, &pool->peers, err));
    peer_listener_expect(pool->listeners[pool->n_listeners++], n_missing(pool));
    return FSDP_OK;
}

int session_pool_port(const struct session_pool *pool)
{
    return peer_listener_port(pool->listeners[0]);
}
