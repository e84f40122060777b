#include "agent/wire/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/wire/session_impl.h"

enum {
    DIAL_MS = 250, /* time between two dials (RFC 8305, section 8, recommends this for the first ones) */
    /*
     * In the last second of a lease, dials follow each other faster. The promise is that a session survives a
     * cut that is half a second shorter than the lease. Two times together must therefore be less than half a
     * second: that without a sign of life before the cut, and that to the next dial after it.
     */
    LAST_MS = 1000,
    LAST_DIAL_MS = 100,
    DIALS = 12, /* a lease / 12, if that is shorter */
    /* a third of the lease is the time for a handshake, and for the answer to a HELLO */
    ANSWERS = 3,
    MOST_PATIENCE = 4, /* how often the time for the first handshake of a session is doubled at most */
    /* frames are written only while the connection's queue has fewer bytes than this */
    QUEUE_BYTES = 1024 * 1024
};

/* The end of a session */

static void close_attempts(struct session *session)
{
    for (int i = 0; i < session->n_attempts; i++)
        peer_reset(session->attempts[i].peer);
    session->n_attempts = 0;
}

/*
 * Ends the session, and calls ended() with `why` unless that is NULL.
 *   flush  true: send the bytes that were written first; false: reset the connection
 */
static void end(struct session *session, const struct fsdp_err *why, bool flush)
{
    const struct session_config *config = &session->pool->config;
    const struct session_reach reach = session_core_reach(&session->core);

    if (session->over)
        return;
    session->over = true;
    if (session->proven)
        session_agents_end(&session->pool->agents, session->agent, session->core.identity, &reach);
    session_pool_count(session);
    session_forget(session);
    close_attempts(session);
    if (session->peer != NULL && flush)
        peer_close(session->peer, NULL);
    else if (session->peer != NULL)
        peer_reset(session->peer);
    session->peer = NULL;
    if (why != NULL && !session->leaving)
        config->handlers.ended(config->arg, session, why);
}

void session_drop(struct session *session)
{
    end(session, NULL, true);
    session_reap(session);
}

void session_leave(struct session *session)
{
    session->leaving = true;
    session->leave_by_ns = session_now_ns() + session->core.lease_ns * 11 / 10;
    if (!session->opened || session->over ||
        session_core_send(&session->core, SESSION_BYE, 0, NULL, 0, NULL) != FSDP_OK)
        session_drop(session);
    else
        session_pump(session);
}

/* Ends a session if nothing was heard of it for the lease, or if its frames could not be kept. */
static void expire(struct session *session, int64_t now_ns)
{
    struct fsdp_err why = { 0 };
    const int64_t silent_ns = now_ns - session_core_silent_since_ns(&session->core);
    const double silent_s = (double)silent_ns / 1e9;

    if (session->failed || (session->core.ended && silent_ns < session->core.lease_ns))
        why = session->why; /* the other end closed the connection, or takes nothing */
    else if (session->core.up || session->why.status == FSDP_OK)
        fsdp_fail(&why, FSDP_ERR_PEER, "no sign of life for %.1f s", silent_s);
    else
        fsdp_fail(&why, FSDP_ERR_PEER, "%.200s; no sign of life for %.1f s", session->why.message, silent_s);
    if (session->refused && !session->failed)
        why.status = FSDP_ERR_NOT_FOUND;
    end(session, &why, false);
}

/* Sending */

void session_write_hello(struct peer *peer, uint16_t type, const struct session_hello *hello)
{
    unsigned char payload[SESSION_HELLO_BYTES];

    session_hello_write(payload, hello);
    peer_send(peer, &(struct frame){ .type = type, .payload = payload, .size = sizeof payload });
}

void session_pump(struct session *session)
{
    struct frame frame;

    while (session->peer != NULL && peer_queued(session->peer) < QUEUE_BYTES &&
           session_core_next(&session->core, session_now_ns(), &frame))
        peer_send(session->peer, &frame);
}

void session_send(struct session *session, uint16_t type, uint32_t generation, const void *payload,
                  size_t size_bytes)
{
    if (session->over || session->leaving || session->failed)
        return;
    session->failed =
        session_core_send(&session->core, type, generation, payload, size_bytes, &session->why) != FSDP_OK;
    session_pump(session);
}

static void write_ack(struct session *session, int64_t now_ns)
{
    const struct frame ack = session_core_ack(&session->core, now_ns);

    peer_send(session->peer, &ack);
}

/* Dialling */

/*
 * Chooses the address of the next dial. Every second dial goes to an address that has not led to the other
 * end.
 */
static int next_address(const struct session *session)
{
    const int n = session->n_dialled, n_addresses = session->addresses.n;

    if (!session->opened || n_addresses == 1)
        return n % n_addresses;
    return n % 2 == 0 ? 0 : 1 + n / 2 % (n_addresses - 1);
}

/* An attempt to connect is over. `refused`: no process listens there. Otherwise nothing answered. */
static void remove_attempt(struct session *session, int i, bool refused)
{
    const struct session_attempt *attempt = &session->attempts[i];

    session->met = session->met ||
                   (attempt->address < session->addresses.n_known ? !refused : peer_connected(attempt->peer));
    session->n_attempts--;
    memmove(session->attempts + i, session->attempts + i + 1,
            (size_t)(session->n_attempts - i) * sizeof *session->attempts);
}

void session_dial_next(struct session *session, int64_t now_ns)
{
    const int64_t pace_ns = session->core.lease_ns / DIALS, ms = 1000000;
    const bool last = session->opened && session->core.left_ns < LAST_MS * ms;
    const int64_t longest_ns = (last ? LAST_DIAL_MS : DIAL_MS) * ms;
    struct session_pool *pool = session->pool;
    const int address = next_address(session);
    struct peer_config config = pool->peers;
    struct peer *peer;

    session->dial_at_ns = now_ns + (pace_ns < longest_ns ? pace_ns : longest_ns);
    if (session->n_attempts == SESSION_ATTEMPTS) {
        if (peer_connected(session->attempts[0].peer))
            return;
        peer_reset(session->attempts[0].peer);
        remove_attempt(session, 0, false);
    }
    session->n_dialled++;
    config.identity = session->agent;
    if (!session->opened)
        config.handshake_ms <<= pool->patience;
    if (peer_connect(&peer, pool->loop, (const struct sockaddr *)&session->addresses.of[address], &config,
                     &session->why) != FSDP_OK) {
        session->met = true; /* nothing is known of that address */
        return;
    }
    pool->n_peers++;
    session->n_peers++;
    peer_set_data(peer, session);
    session->attempts[session->n_attempts++] = (struct session_attempt){ peer, address, now_ns };
}

/*
 * Does the current connection work in both directions? What arrives proves only one of them. After a cut, the
 * TCP of each end retries at times of its own, and the other end may wait much longer than this one.
 */
static bool works(const struct session *session)
{
    return session->core.up && (!session->suspect || (peer_received(session->peer) != session->n_heard &&
                                                      peer_unacknowledged(session->peer) == 0));
}

void session_attempt_opened(struct session *session, struct peer *peer)
{
    const int64_t now = session_now_ns();
    struct session_hello hello;

    for (int i = 0; i < session->n_attempts; i++)
        if (session->attempts[i].peer == peer) {
            session->current = session->attempts[i].address;
            remove_attempt(session, i, false);
            break;
        }
    if (session->over || works(session) || (session->peer != NULL && !session->core.up)) {
        peer_reset(peer); /* another connection serves, or waits for its answer */
        return;
    }
    close_attempts(session);
    if (!session->opened)
        session->n_dialled = session->addresses.n; /* try no further addresses */
    if (session->peer != NULL)
        /* the old connection is closed: no HELLO was sent on it, and none may be sent now */
        peer_reset(session->peer);
    session->peer = peer;
    session->answer_by_ns = now + session->core.lease_ns / ANSWERS;
    session_core_dial(&session->core, &hello);
    session_write_hello(peer, SESSION_HELLO, &hello);
}

/* Notes the beginning of an interruption: it began with the last sign of life. */
static void note_trouble(struct session *session, int64_t heard_ns)
{
    if (session->trouble_ns == 0)
        session->trouble_ns = heard_ns;
}

/* Reports that the session continues after an interruption. */
static void note_resumed(struct session *session)
{
    const int64_t silent_ns = session_now_ns() - session->trouble_ns;
    char words[FSDP_ERR_MESSAGE_BYTES + 160];

    snprintf(words, sizeof words,
             "the link to %s was interrupted for %.1f s (%.200s) and goes on; %u message%s sent again",
             session->name, (double)silent_ns / 1e9,
             silent_ns < session->core.lease_ns / 4 && session->why.status != FSDP_OK ? session->why.message
                                                                                      : "nothing came",
             session->core.n_replayed, session->core.n_replayed == 1 ? " was" : "s were");
    fsdp_err_clear(&session->why);
    session_pool_note(session->pool, SESSION_NOTE_LINK, words);
}

/* The current connection is the session's from now on: the session begins, or continues. */
static void begin(struct session *session)
{
    const struct session_config *config = &session->pool->config;
    const bool first = !session->opened;

    session->opened = true;
    session->pool->patience = 0; /* the next host may be another one */
    session->suspect = session->refused = false;
    session_pool_count(session);
    session->n_heard = peer_received(session->peer);
    snprintf(session->name, sizeof session->name, "%s", peer_name(session->peer));
    if (first) {
        fsdp_err_clear(&session->why);
        if (config->handlers.opened != NULL)
            config->handlers.opened(config->arg, session);
    } else if (!session->leaving) {
        note_resumed(session);
    }
    session->trouble_ns = 0;
    session_pump(session);
}

/* Takes the answer to the HELLO of the current connection. */
static void take_answer(struct session *session, const struct frame *frame)
{
    const int64_t now = session_now_ns();
    struct sockaddr_storage *addresses = session->addresses.of, served = addresses[session->current];
    struct session_hello answer;
    struct fsdp_err err = { 0 };

    if (frame->type != SESSION_ANSWER)
        fsdp_fail(&err, FSDP_ERR_FORMAT, "its first message is no answer of ours");
    else if (session_hello_read(&answer, frame->payload, frame->size, &err) == FSDP_OK)
        session_core_answered(&session->core, &answer, now, &err);
    if (err.status == FSDP_ERR_FORMAT) {
        peer_close(session->peer, &err);
        return;
    }
    if (err.status != FSDP_OK) {
        end(session, &err, false);
        return;
    }
    addresses[session->current] = addresses[0];
    addresses[0] = served;
    session->current = session->n_dialled = 0;
    peer_admit(session->peer);
    session_pool_take_lease(session->pool, session->core.lease_ns / 1000000);
    begin(session);
}

/* Accepting */

void session_take_hello(struct session *session, struct peer *peer, const struct session_hello *hello)
{
    const int64_t now = session_now_ns(), heard_ns = session_core_silent_since_ns(&session->core);
    const struct session_reach reach = session_core_reach(&session->core);
    const enum session_fit fit = session_fit(&reach, hello);
    struct session_hello answer;
    struct fsdp_err why = { 0 };
    const enum session_verdict verdict = session_core_accept(&session->core, hello, &answer, now);

    if (verdict == SESSION_STALE) {
        peer_close(peer, NULL); /* a later connection of the same session has come first */
        return;
    }
    session_write_hello(peer, SESSION_ANSWER, &answer);
    if (verdict == SESSION_NEW || verdict == SESSION_GO_ON) {
        if (session->peer != NULL)
            /* the other end sends frames that are still on the old connection again on the new one */
            peer_reset(session->peer);
        session->peer = peer;
        session->n_peers++;
        peer_set_data(peer, session);
        if (session->admitted)
            peer_admit(peer);
        note_trouble(session, heard_ns);
        begin(session);
        return;
    }
    peer_close(peer, NULL);
    if (verdict == SESSION_BACKWARDS)
        session_fit_fail(fit, &why);
    if (verdict == SESSION_BACKWARDS && fit == SESSION_THEY_WENT_BACK && session->proven)
        session_pool_refuse(session->pool, session->agent);
    end(session, verdict == SESSION_BACKWARDS ? &why : NULL, false);
    session_reap(session);
}

void session_admit(struct session *session)
{
    session->admitted = true;
    if (session->proven)
        session_agents_begin(&session->pool->agents, session->agent, session->core.identity);
    session_pool_count(session);
    if (session->peer != NULL)
        peer_admit(session->peer);
}

/* Receiving */

void session_take_frame(struct session *session, struct peer *peer, const struct frame *frame)
{
    const struct session_config *config = &session->pool->config;
    struct fsdp_err why = { 0 };

    if (session->over || session->peer != peer)
        return; /* it comes again on the current connection */
    if (!session->core.up) {
        take_answer(session, frame);
        return;
    }
    switch (session_core_take(&session->core, frame, &why)) {
    case SESSION_DELIVER:
        if (!session->leaving)
            config->handlers.frame(config->arg, session, frame);
        break;
    case SESSION_DROP:
        break;
    case SESSION_FAREWELL:
        write_ack(session, session_now_ns());
        snprintf(why.message, sizeof why.message, "has left");
        end(session, &why, true);
        return;
    case SESSION_WRONG:
        end(session, &why, false);
        return;
    }
    if (session->over || session->peer != peer)
        return;
    if (session->leaving && session->core.acked == session->core.sent)
        end(session, NULL, true);
    else if (session_core_ack_is_due(&session->core, session_now_ns()))
        write_ack(session, session_now_ns());
}

/* A connection that is gone */

/*
 * Keeps the reason why a connection failed. While the session has not begun, a reason that no other attempt
 * can change is kept: another secret, or another job. A refused address is the reason only if all addresses
 * refuse.
 */
static void keep_reason(struct session *session, const struct fsdp_err *why)
{
    const enum fsdp_status kept = session->why.status;
    const bool stays = kept == FSDP_ERR_MISMATCH || kept == FSDP_ERR_FORMAT ||
                       (kept != FSDP_OK && why->status == FSDP_ERR_NOT_FOUND);

    if (why->status != FSDP_OK && !session->failed && (session->opened || !stays))
        session->why = *why;
}

/* Ends a session that has not begun, if every address was tried without success. */
static void end_if_none_answers(struct session *session)
{
    struct fsdp_err why = session->why;

    if (!session->dials || session->opened || session->peer != NULL || session->n_attempts > 0 ||
        session->n_dialled != session->addresses.n)
        return;
    if (why.status == FSDP_ERR_PEER && session->addresses.n_known > 0 && !session->met)
        fsdp_fail(&why, FSDP_ERR_NOT_FOUND, "connection refused where it was reached before");
    end(session, &why, false);
}

static void lose_connection(struct session *session, bool ended, const struct fsdp_err *why)
{
    const int64_t now = session_now_ns();

    session->peer = NULL;
    note_trouble(session, session_core_silent_since_ns(&session->core));
    if (ended)
        session_core_closed(&session->core, now);
    else
        session_core_broken(&session->core);
    session_pool_count(session);
    keep_reason(session, why);
    if (!session->dials && !session->admitted)
        end(session, why, false);
    else if (session->dials && session->opened)
        session_dial_next(session, now);
}

/* Did the other host accept the connection, while its process did not answer in time? */
static bool was_unanswered(const struct peer *peer, const struct fsdp_err *why)
{
    return peer_connected(peer) && !peer_left(peer) && why->status == FSDP_ERR_PEER;
}

void session_peer_closed(struct session *session, struct peer *peer, const struct fsdp_err *why)
{
    struct session_pool *pool = session->pool;

    if (session->dials && !session->opened && was_unanswered(peer, why) && pool->patience < MOST_PATIENCE)
        pool->patience++;
    for (int i = 0; i < session->n_attempts; i++)
        if (session->attempts[i].peer == peer) {
            if (session->attempts[i].address == 0)
                session->refused = why->status == FSDP_ERR_NOT_FOUND;
            remove_attempt(session, i, why->status == FSDP_ERR_NOT_FOUND);
            if (!session->opened)
                keep_reason(session, why);
            break;
        }
    if (session->peer == peer)
        lose_connection(session, peer_ended(peer), why);
    end_if_none_answers(session);
    session->n_peers--;
    session_reap(session);
}

/* Time */

/*
 * Is another connection needed besides the current one? Not if only the other process is stopped: its kernel
 * then acknowledges what arrives. After half a lease one is needed all the same, because a proxy may be what
 * acknowledges.
 */
static bool needs_another(const struct session *session)
{
    return session->suspect &&
           (peer_unacknowledged(session->peer) > 0 || session->core.left_ns < session->core.lease_ns / 2);
}

/*
 * Has the other host accepted a connection whose process has not answered yet? It may have thousands of nodes
 * to answer, and each further connection would cost it as much as this one.
 */
static bool is_about_to_open(const struct session *session, int64_t now_ns)
{
    for (int i = 0; i < session->n_attempts; i++)
        if (peer_connected(session->attempts[i].peer) &&
            now_ns - session->attempts[i].dialled_ns < session->core.lease_ns / ANSWERS)
            return true;
    return false;
}

/*
 * Dials if a dial is due. At the beginning each address is dialled once; later, as long as no connection
 * serves.
 */
static void dial_if_due(struct session *session, int64_t now_ns)
{
    const bool waits = session->peer != NULL && !session->core.up; /* for an answer */
    const bool wants = session->core.up  ? needs_another(session)
                       : session->opened ? !waits
                                         : session->n_dialled < session->addresses.n;

    if (session->core.up && !session->suspect) {
        close_attempts(session);
    } else if (waits && session->opened && now_ns >= session->answer_by_ns) {
        peer_reset(session->peer);
        lose_connection(session, false, &(struct fsdp_err){ 0 });
    } else if (wants && now_ns >= session->dial_at_ns && !is_about_to_open(session, now_ns)) {
        session_dial_next(session, now_ns);
    }
    end_if_none_answers(session);
}

void session_look(struct session *session, int64_t now_ns)
{
    enum session_health health;

    if (session->over)
        return;
    if (session->core.up && peer_received(session->peer) != session->n_heard) {
        session->n_heard = peer_received(session->peer);
        session_core_heard(&session->core, now_ns);
    }
    health = session_core_look(&session->core, now_ns);
    if (health == SESSION_SILENT) {
        session->suspect = true;
        note_trouble(session, session_core_silent_since_ns(&session->core));
    } else if (session->suspect && session->core.up && peer_unacknowledged(session->peer) == 0) {
        session->suspect = false;
        session->trouble_ns = 0;
    }
    session_pool_count(session);
    if (session->opened && (health == SESSION_EXPIRED || session->failed ||
                            (session->leaving && now_ns >= session->leave_by_ns))) {
        expire(session, now_ns);
        return;
    }
    if (session->dials)
        dial_if_due(session, now_ns);
    if (session_core_ack_is_due(&session->core, now_ns))
        write_ack(session, now_ns);
}

/* Opening */

enum fsdp_status session_dial(struct session **out, struct session_pool *pool,
                              const unsigned char agent[SESSION_IDENTITY_BYTES],
                              const struct endpoint_addresses *addresses, struct fsdp_err *err)
{
    unsigned char identity[SESSION_IDENTITY_BYTES];

    *out = NULL;
    if (getrandom(identity, sizeof identity, 0) != sizeof identity)
        return fsdp_fail(err, FSDP_ERR_IO, "no random bytes for a session");
    *out = session_make(pool, identity, err);
    if (*out == NULL)
        return FSDP_ERR_NOMEM;
    (*out)->dials = (*out)->admitted = true;
    (*out)->addresses = *addresses;
    memcpy((*out)->agent, agent, SESSION_IDENTITY_BYTES);
    session_dial_next(*out, session_now_ns());
    return FSDP_OK;
}

/* Properties of a session */

void session_set_data(struct session *session, void *data)
{
    session->data = data;
}

void *session_data(const struct session *session)
{
    return session->data;
}

bool session_is_of(const struct session *session, const unsigned char agent[SESSION_IDENTITY_BYTES])
{
    return session->pool->tls == NULL ||
           (session->proven && memcmp(session->agent, agent, SESSION_IDENTITY_BYTES) == 0);
}

const struct sockaddr_storage *session_served(const struct session *session)
{
    return session->dials && session->opened ? &session->addresses.of[0] : NULL;
}

const unsigned char *session_identity(const struct session *session)
{
    return session->core.identity;
}

void session_pulse(struct session *session, int64_t ago_ms)
{
    session_core_pulse(&session->core, ago_ms * 1000000, session_now_ns());
}

int64_t session_silent_ms(const struct session *session)
{
    return (session_now_ns() - session_core_silent_since_ns(&session->core)) / 1000000;
}

const char *session_name(const struct session *session)
{
    return session->name;
}

void session_address(const struct session *session, bool ours, char *out, size_t size)
{
    if (session->peer != NULL)
        peer_address(session->peer, ours, out, size);
    else
        snprintf(out, size, "?");
}
