#include "agent/cluster/meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/cluster/identity.h"
#include "agent/wire/lookup.h"
#include "agent/wire/tls.h"

enum {
    STAGGER_MS = 250, /* before the next address is tried beside the last (RFC 8305, section 8) */
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 2000, /* between two rounds through the addresses */
    TELL_AFTER_MS = 5000
};

struct meeting {
    uv_loop_t *loop;
    const struct agent_config *config;
    struct meeting_handlers handlers;
    void *arg;
    struct endpoint endpoint;
    struct proto_join self;
    struct peer_config peers;
    unsigned char key[TLS_KEY_BYTES];

    struct lookup *lookup;               /* of the endpoint's name, while it is looked up; else NULL */
    uv_timer_t timer;                    /* the next address, or the next round */
    struct endpoint_addresses addresses; /* of this round */
    int n_tried;
    struct peer *attempts[ENDPOINT_MAX_ADDRESSES];
    struct peer *peer; /* the one that opened first; NULL: none has */
    int n_peers;       /* connections whose closed() is still to come */

    uint64_t began_ms, deadline_ms; /* deadline 0: none, we are in */
    int64_t pause_ms;
    bool welcomed, bound, over, destroyed, timer_open, told;
    bool fatal; /* what answered will not be ours by waiting */
    char host[PROTO_TEXT_BYTES], last_words[FSDP_ERR_MESSAGE_BYTES + 64];
};

static void begin_round(struct meeting *meeting);
static void on_timer(uv_timer_t *timer);

static void free_when_done(struct meeting *meeting)
{
    if (!meeting->destroyed || meeting->timer_open || meeting->n_peers > 0)
        return;
    explicit_bzero(meeting->key, sizeof meeting->key);
    free(meeting);
}

static void fail(struct meeting *meeting, int status, const char *words)
{
    if (meeting->over || meeting->destroyed)
        return;
    meeting->over = true;
    uv_timer_stop(&meeting->timer);
    meeting->handlers.failed(meeting->arg, status, words);
}

static const char *endpoint_name(const struct meeting *meeting, char *out)
{
    return endpoint_text(out, meeting->endpoint.host, meeting->endpoint.port);
}

/* --- rounds --------------------------------------------------------------------------------------------------------- */

static void give_up(struct meeting *meeting)
{
    char words[FSDP_ERR_MESSAGE_BYTES + ENDPOINT_TEXT_BYTES + 160], where[ENDPOINT_TEXT_BYTES];

    snprintf(words, sizeof words, "no answer from %s for %.0f s (%s)", endpoint_name(meeting, where),
             (double)meeting->config->join_timeout_ms / 1000.0,
             meeting->last_words[0] != '\0' ? meeting->last_words : "it did not let this node in");
    fail(meeting, FSDP_EXIT_PEER, words);
}

/* Between half of it and one and a half: nodes that were started together do not knock together. */
static int64_t jittered(int64_t pause_ms)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return pause_ms;
    return pause_ms / 2 + (int64_t)(random % (uint32_t)(pause_ms + 1));
}

static void tell_once(struct meeting *meeting)
{
    char words[sizeof meeting->last_words + ENDPOINT_TEXT_BYTES + 64], where[ENDPOINT_TEXT_BYTES];

    if (meeting->told)
        return;
    meeting->told = true;
    snprintf(words, sizeof words, "waiting for %s, up to %.0f s (%s)", endpoint_name(meeting, where),
             (double)meeting->config->join_timeout_ms / 1000.0, meeting->last_words);
    meeting->handlers.note(meeting->arg, words);
}

static void end_round(struct meeting *meeting, bool tell_now)
{
    uint64_t now = uv_now(meeting->loop);
    uint64_t pause = (uint64_t)jittered(meeting->pause_ms);

    if (meeting->over || meeting->destroyed)
        return;
    if (meeting->fatal) {
        fail(meeting, FSDP_EXIT_PEER, meeting->last_words);
        return;
    }
    if (tell_now || now - meeting->began_ms >= TELL_AFTER_MS)
        tell_once(meeting);
    if (now + pause > meeting->deadline_ms)
        pause = meeting->deadline_ms > now ? meeting->deadline_ms - now : 0;
    meeting->pause_ms =
        meeting->pause_ms * 8 / 5 < LONGEST_PAUSE_MS ? meeting->pause_ms * 8 / 5 : LONGEST_PAUSE_MS;
    meeting->addresses.n = meeting->n_tried = 0;
    uv_timer_start(&meeting->timer, on_timer, pause, 0);
}

/* --- connecting ----------------------------------------------------------------------------------------------------- */

static bool none_is_open(const struct meeting *meeting)
{
    for (int i = 0; i < ENDPOINT_MAX_ADDRESSES; i++)
        if (meeting->attempts[i] != NULL)
            return false;
    return true;
}

static void try_next(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };
    const int i = meeting->n_tried++;

    if (peer_connect(&meeting->attempts[i], meeting->loop, (const struct sockaddr *)&meeting->addresses.of[i],
                     &meeting->peers, &err) == FSDP_OK)
        meeting->n_peers++;
    else
        snprintf(meeting->last_words, sizeof meeting->last_words, "%s", err.message);
    if (meeting->n_tried < meeting->addresses.n)
        uv_timer_start(&meeting->timer, on_timer, STAGGER_MS, 0);
    else if (none_is_open(meeting))
        end_round(meeting, false);
}

static void on_timer(uv_timer_t *timer)
{
    struct meeting *meeting = timer->data;

    if (meeting->peer == NULL && meeting->n_tried < meeting->addresses.n)
        try_next(meeting);
    else if (uv_now(meeting->loop) >= meeting->deadline_ms)
        give_up(meeting);
    else
        begin_round(meeting);
}

static void on_opened(void *arg, struct peer *peer)
{
    struct meeting *meeting = arg;
    char *text;

    if (meeting->destroyed || meeting->over || meeting->peer != NULL) {
        peer_close(peer, NULL); /* another address was faster */
        return;
    }
    meeting->peer = peer;
    meeting->n_tried = meeting->addresses.n; /* no further ones */
    uv_timer_start(
        &meeting->timer, on_timer,
        meeting->deadline_ms > uv_now(meeting->loop) ? meeting->deadline_ms - uv_now(meeting->loop) : 0, 0);
    for (int i = 0; i < ENDPOINT_MAX_ADDRESSES; i++) {
        if (meeting->attempts[i] != NULL && meeting->attempts[i] != peer)
            peer_close(meeting->attempts[i], NULL);
        meeting->attempts[i] = NULL;
    }
    peer_admit(peer);
    text = proto_write_join(&meeting->self);
    if (text != NULL)
        peer_send(peer, PROTO_JOIN, 0, text, strlen(text));
    free(text);
}

static void on_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    struct meeting *meeting = arg;
    const bool ours = peer == meeting->peer;
    bool attempt = ours;
    char words[FSDP_ERR_MESSAGE_BYTES + PROTO_TEXT_BYTES + 96];

    meeting->n_peers--;
    for (int i = 0; i < ENDPOINT_MAX_ADDRESSES; i++)
        if (meeting->attempts[i] == peer) {
            meeting->attempts[i] = NULL;
            attempt = true;
        }
    if (ours)
        meeting->peer = NULL;
    if (meeting->destroyed) {
        free_when_done(meeting);
        return;
    }
    if (meeting->over || !attempt)
        return;
    if (ours && meeting->bound) {
        meeting->over = true;
        meeting->handlers.lost(meeting->arg, why->message);
        return;
    }
    if (ours && meeting->welcomed) {
        snprintf(words, sizeof words, "the link to %.200s was lost before the world was formed (%s)",
                 meeting->host, why->message);
        meeting->handlers.note(meeting->arg, words);
        meeting->welcomed = false;
        meeting->pause_ms = FIRST_PAUSE_MS;
        meeting->began_ms = uv_now(meeting->loop);
        meeting->deadline_ms = meeting->began_ms + (uint64_t)meeting->config->join_timeout_ms;
    }
    if (!meeting->fatal)
        snprintf(meeting->last_words, sizeof meeting->last_words, "%s", why->message);
    if (why->status == FSDP_ERR_MISMATCH || why->status == FSDP_ERR_FORMAT)
        meeting->fatal = true;
    if (meeting->peer == NULL && none_is_open(meeting) && meeting->n_tried == meeting->addresses.n)
        end_round(meeting, false);
}

/* --- the answer ------------------------------------------------------------------------------------------------------ */

static void take_refused(struct meeting *meeting, const struct frame *frame)
{
    struct proto_refused refused;
    char words[PROTO_WORDS_BYTES + 64];

    if (proto_read_refused(&refused, frame->payload, frame->size, NULL) != FSDP_OK)
        refused = (struct proto_refused){ .status = FSDP_EXIT_PEER, .words = "no reason was given" };
    /* Status 0: the job is complete. That this node was not needed is no refusal. */
    snprintf(words, sizeof words, "%s%s",
             refused.status == 0 ? "" : "this node was refused: ", refused.words);
    fail(meeting, refused.status & 0xff, words);
}

static void take_welcome(struct meeting *meeting, const struct frame *frame)
{
    struct proto_welcome welcome;
    struct fsdp_err err = { 0 };

    if (proto_read_welcome(&welcome, frame->payload, frame->size, &err) != FSDP_OK) {
        peer_close(meeting->peer, &err);
        return;
    }
    meeting->welcomed = true;
    meeting->deadline_ms = 0;
    uv_timer_stop(&meeting->timer);
    snprintf(meeting->host, sizeof meeting->host, "%s", welcome.host);
    meeting->handlers.welcomed(meeting->arg, &welcome, peer_name(meeting->peer));
}

static void on_frame(void *arg, struct peer *peer, const struct frame *frame)
{
    struct meeting *meeting = arg;
    struct fsdp_err err = { 0 };

    if (meeting->destroyed || meeting->over || peer != meeting->peer)
        return;
    if (frame->type == PROTO_REFUSED) {
        take_refused(meeting, frame);
    } else if (frame->type == PROTO_WELCOME && !meeting->welcomed) {
        take_welcome(meeting, frame);
    } else if (!meeting->welcomed) {
        fsdp_fail(&err, FSDP_ERR_FORMAT, "its first message is no welcome of ours");
        peer_close(peer, &err);
    } else {
        meeting->bound = true;
        meeting->handlers.message(meeting->arg, frame);
    }
}

/* --- who hosts ------------------------------------------------------------------------------------------------------- */

/* Rank 0 of a job of ours stays with the coordinator: a node that was given another rank leaves that to it. */
static bool may_host(const struct agent_config *config)
{
    if (config->hosting != AGENT_HOST_AUTO)
        return config->hosting == AGENT_HOST_YES;
    return config->job_json == NULL || config->node_rank <= 0;
}

/* Loopback is for this host alone; wherever else nodes may come from, they reach this host by some address of it. */
static bool is_open_to_others(const struct meeting *meeting)
{
    return !endpoint_is_loopback(meeting->endpoint.host);
}

/*
 * The node that has the endpoint's address hosts. It listens on every address: its own name for itself may be 127.0.1.1
 * (Debian's /etc/hosts), at which the other nodes, who know another address for that name, do not reach it.
 */
static enum fsdp_status listen_here(struct meeting *meeting, struct rendezvous **out, struct fsdp_err *err)
{
    struct endpoint_addresses every;

    if (!is_open_to_others(meeting))
        return rendezvous_listen(out, meeting->loop, &meeting->addresses, &meeting->peers, err);
    if (meeting->config->hosting != AGENT_HOST_YES && !endpoint_is_here(&meeting->addresses))
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no address of this host");
    endpoint_wildcard(&every, meeting->endpoint.port);
    return rendezvous_listen(out, meeting->loop, &every, &meeting->peers, err);
}

/* True: this node hosts, and the meeting is over for it. */
static bool become_host(struct meeting *meeting)
{
    struct rendezvous *rendezvous;
    struct fsdp_err err = { 0 };
    char name[ENDPOINT_TEXT_BYTES], where[ENDPOINT_TEXT_BYTES + 64];
    enum fsdp_status status = listen_here(meeting, &rendezvous, &err);

    if (status == FSDP_OK) {
        meeting->over = true;
        uv_timer_stop(&meeting->timer);
        snprintf(where, sizeof where, "%s%s", endpoint_name(meeting, name),
                 is_open_to_others(meeting) ? " (on every address of this node)" : "");
        meeting->handlers.hosts(meeting->arg, rendezvous, where);
        return true;
    }
    if (status != FSDP_ERR_BUSY && status != FSDP_ERR_NOT_FOUND)
        snprintf(meeting->last_words, sizeof meeting->last_words, "cannot listen: %s", err.message);
    else if (meeting->config->hosting == AGENT_HOST_YES)
        snprintf(meeting->last_words, sizeof meeting->last_words, "another process listens there");
    return false;
}

static void on_looked_up(void *arg, struct addrinfo *found, const char *why)
{
    struct meeting *meeting = arg;

    meeting->lookup = NULL;
    endpoint_collect(&meeting->addresses, found);
    if (found != NULL)
        freeaddrinfo(found);
    if (meeting->over)
        return;
    meeting->n_tried = 0;
    if (meeting->addresses.n == 0 &&
        !(meeting->config->hosting == AGENT_HOST_YES && is_open_to_others(meeting))) {
        snprintf(meeting->last_words, sizeof meeting->last_words, "the name %s cannot be resolved: %s",
                 meeting->endpoint.host, why != NULL ? why : "it has no address");
        end_round(meeting, true);
    } else if (may_host(meeting->config) && become_host(meeting)) {
        return;
    } else if (meeting->config->hosting == AGENT_HOST_YES) {
        end_round(meeting, false);
    } else {
        try_next(meeting);
    }
}

static void begin_round(struct meeting *meeting)
{
    const uint64_t now = uv_now(meeting->loop),
                   left = meeting->deadline_ms > now ? meeting->deadline_ms - now : 1;
    struct fsdp_err err = { 0 };
    char port[16];

    meeting->fatal = false;
    snprintf(port, sizeof port, "%d", meeting->endpoint.port);
    if (lookup_begin(&meeting->lookup, meeting->loop, meeting->endpoint.host, port,
                     left < LOOKUP_WITHIN_MS ? left : LOOKUP_WITHIN_MS, on_looked_up, meeting,
                     &err) == FSDP_OK)
        return;
    snprintf(meeting->last_words, sizeof meeting->last_words, "%s", err.message);
    end_round(meeting, true);
}

/* --- opening and closing ---------------------------------------------------------------------------------------------- */

enum fsdp_status meeting_create(struct meeting **out, uv_loop_t *loop, const struct agent_config *config,
                                const struct meeting_handlers *handlers, void *arg, struct fsdp_err *err)
{
    struct meeting *meeting = calloc(1, sizeof *meeting);
    enum fsdp_status status;

    *out = NULL;
    if (meeting == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to meet other nodes");
    meeting->loop = loop;
    meeting->config = config;
    meeting->handlers = *handlers;
    meeting->arg = arg;
    peer_config_init(&meeting->peers);
    meeting->peers.job = identity_job(config);
    meeting->peers.handlers = (struct peer_handlers){ NULL, on_opened, on_frame, on_closed };
    meeting->peers.arg = meeting;
    identity_fill(&meeting->self, config);
    status = endpoint_init(&meeting->endpoint, config->rendezvous_host, config->rendezvous_port, err);
    if (status == FSDP_OK && config->secret != NULL) {
        status = tls_derive_key(meeting->key, config->secret, config->secret_bytes, config->run_id, err);
        meeting->peers.key = meeting->key;
    }
    if (status != FSDP_OK) {
        free(meeting);
        return status;
    }
    uv_update_time(loop);
    meeting->began_ms = uv_now(loop);
    meeting->deadline_ms = meeting->began_ms + (uint64_t)config->join_timeout_ms;
    meeting->pause_ms = FIRST_PAUSE_MS;
    meeting->timer.data = meeting;
    uv_timer_init(loop, &meeting->timer);
    meeting->timer_open = true;
    uv_timer_start(&meeting->timer, on_timer, 0, 0);
    *out = meeting;
    return FSDP_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct meeting *meeting = handle->data;

    meeting->timer_open = false;
    free_when_done(meeting);
}

void meeting_destroy(struct meeting *meeting)
{
    if (meeting == NULL || meeting->destroyed)
        return;
    meeting->destroyed = true;
    lookup_cancel(meeting->lookup);
    meeting->lookup = NULL;
    for (int i = 0; i < ENDPOINT_MAX_ADDRESSES; i++)
        if (meeting->attempts[i] != NULL)
            peer_close(meeting->attempts[i], NULL);
    if (meeting->peer != NULL)
        peer_close(meeting->peer, NULL);
    uv_close((uv_handle_t *)&meeting->timer, on_timer_closed);
}

void meeting_send(struct meeting *meeting, enum proto_type type, uint32_t generation, const void *payload,
                  size_t size_bytes)
{
    if (meeting->peer != NULL && meeting->welcomed)
        peer_send(meeting->peer, (uint16_t)type, generation, payload, size_bytes);
}

bool meeting_is_member(const struct meeting *meeting)
{
    return meeting->welcomed && meeting->peer != NULL;
}
