/*
 * The rounds in which this node looks for the others. A round looks up a name, and dials its addresses,
 * unless this node hosts there. After a pause the next one follows, until the time is over.
 */
#include "agent/rendezvous/meeting_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/rendezvous/identity.h"
#include "agent/rendezvous/own_address.h"

enum {
    LONGEST_PAUSE_MS = 2000, /* longest pause between two rounds; a round tries every address */
    TELL_AFTER_MS = 5000,
    ANY_PORT = 9 /* port for looking up a server's address when no connection to it is made */
};

static void begin_round(struct meeting *meeting);

/* The end without a coordinator */

void meeting_fail(struct meeting *meeting, int status, const char *words)
{
    if (meeting->over || meeting->destroyed)
        return;
    meeting->over = true;
    uv_timer_stop(&meeting->timer);
    meeting->handlers.failed(meeting->arg, status, words);
}

/* Ends the meeting with a failure: no coordinator has let this node in, and none will. */
static void fail_unanswered(struct meeting *meeting, const char *why)
{
    char words[FSDP_ERR_MESSAGE_BYTES + ENDPOINT_TEXT_BYTES + PROTO_TEXT_BYTES + 200];

    if (!meeting->again) {
        meeting_fail(meeting, FSDP_EXIT_PEER, why);
        return;
    }
    snprintf(words, sizeof words, "the link to the coordinator, %.200s, was lost for good: %s", meeting->host,
             why);
    meeting_fail(meeting, FSDP_EXIT_LINK, words);
}

/* Where the round leads */

bool meeting_has_endpoint(const struct meeting *meeting)
{
    return meeting->endpoint.port != 0;
}

/* Without an endpoint, a node must know where it is reached before it offers to host. */
static bool looks_for_itself(const struct meeting *meeting)
{
    return !meeting_has_endpoint(meeting) && meeting->address[0] == '\0';
}

const struct endpoint *meeting_place(const struct meeting *meeting)
{
    if (!meeting_has_endpoint(meeting))
        return &meeting->leader;
    return meeting->leader.port != 0 && meeting->n_rounds % 2 == 0 ? &meeting->leader : &meeting->endpoint;
}

static const char *endpoint_name(const struct meeting *meeting, char *out)
{
    if (meeting_place(meeting)->port == 0)
        snprintf(out, ENDPOINT_TEXT_BYTES, "any node that leads");
    else
        endpoint_text(out, meeting_place(meeting)->host, meeting_place(meeting)->port);
    return out;
}

/* The time */

uint64_t meeting_left_ms(const struct meeting *meeting)
{
    const uint64_t now = uv_now(meeting->loop);

    return meeting->deadline_ms > now ? meeting->deadline_ms - now : 0;
}

void meeting_begin_anew(struct meeting *meeting)
{
    meeting->welcomed = meeting->told = false;
    meeting->pause_ms = MEETING_FIRST_PAUSE_MS;
    meeting->began_ms = uv_now(meeting->loop);
    meeting->deadline_ms = meeting->began_ms + (uint64_t)meeting->config->join_timeout_ms;
}

static void give_up(struct meeting *meeting)
{
    char words[FSDP_ERR_MESSAGE_BYTES + ENDPOINT_TEXT_BYTES + 160], where[ENDPOINT_TEXT_BYTES];

    snprintf(words, sizeof words, "no answer from %s for %.0f s (%s)", endpoint_name(meeting, where),
             (double)meeting->config->join_timeout_ms / 1000.0,
             meeting->last_words[0] != '\0' ? meeting->last_words : "it did not let this node in");
    fail_unanswered(meeting, words);
}

/*
 * Returns a random pause between 0.5 and 1.5 times `pause_ms`, so that nodes that were started together do
 * not all connect at the same moment.
 */
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

void meeting_end_round(struct meeting *meeting, bool tell_now)
{
    const uint64_t left = meeting_left_ms(meeting);
    uint64_t pause = (uint64_t)jittered(meeting->pause_ms);

    if (meeting->over || meeting->destroyed)
        return;
    if (meeting->fatal) {
        fail_unanswered(meeting, meeting->last_words);
        return;
    }
    if (tell_now || uv_now(meeting->loop) - meeting->began_ms >= TELL_AFTER_MS)
        tell_once(meeting);
    meeting->n_rounds++;
    if (pause > left)
        pause = left;
    meeting->pause_ms =
        meeting->pause_ms * 8 / 5 < LONGEST_PAUSE_MS ? meeting->pause_ms * 8 / 5 : LONGEST_PAUSE_MS;
    uv_timer_start(&meeting->timer, meeting_on_timer, pause, 0);
}

void meeting_on_timer(uv_timer_t *timer)
{
    struct meeting *meeting = timer->data;

    if (uv_now(meeting->loop) >= meeting->deadline_ms)
        give_up(meeting);
    else
        begin_round(meeting);
}

/* A round */

/* Dials the addresses of this round. If none answers, the session ends. */
static void dial(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };

    endpoint_prefer(&meeting->addresses, &meeting->served);
    if ((meeting->pool == NULL &&
         session_pool_create(&meeting->pool, meeting->loop, false, &meeting->sessions, &err) != FSDP_OK) ||
        session_dial(&meeting->session, meeting->pool, meeting->self.identity, &meeting->addresses, &err) !=
            FSDP_OK) {
        snprintf(meeting->last_words, sizeof meeting->last_words, "%s", err.message);
        meeting_end_round(meeting, false);
    }
}

/*
 * Finds the address at which other nodes reach this one: the one from which it reaches a server that they use
 * too.
 */
static void take_own_address(struct meeting *meeting)
{
    char address[ENDPOINT_HOST_BYTES];

    if (own_address_towards(address, &meeting->addresses, meeting->endpoint.host)) {
        snprintf(meeting->address, sizeof meeting->address, "%s", address);
        begin_round(meeting);
        return;
    }
    snprintf(meeting->last_words, sizeof meeting->last_words, "no route leads to %s", meeting->endpoint.host);
    meeting_end_round(meeting, true);
}

static void on_looked_up(void *arg, struct addrinfo *found, const char *why)
{
    struct meeting *meeting = arg;
    const char *name = looks_for_itself(meeting) ? meeting->endpoint.host : meeting_place(meeting)->host;

    meeting->lookup = NULL;
    endpoint_collect(&meeting->addresses, found);
    if (found != NULL)
        freeaddrinfo(found);
    if (meeting->over)
        return;
    if (meeting->addresses.n == 0 && !(meeting->config->hosting == AGENT_HOST_YES &&
                                       meeting_has_endpoint(meeting) && meeting_is_open_to_others(meeting))) {
        snprintf(meeting->last_words, sizeof meeting->last_words, "the name %s cannot be resolved: %s", name,
                 why != NULL ? why : "it has no address");
        meeting_end_round(meeting, true);
    } else if (looks_for_itself(meeting)) {
        take_own_address(meeting);
    } else if (meeting_hosts_by_endpoint(meeting) && meeting_become_host(meeting)) {
        return;
    } else if (meeting_hosts_by_endpoint(meeting) && meeting->config->hosting == AGENT_HOST_YES) {
        meeting_end_round(meeting, false);
    } else if (meeting_leads_here(meeting)) {
        snprintf(meeting->last_words, sizeof meeting->last_words, "no other node leads yet");
        meeting_end_round(meeting, false);
    } else {
        dial(meeting);
    }
}

static void look_up(struct meeting *meeting, const char *host, int port)
{
    uint64_t within_ms = meeting_left_ms(meeting);
    struct fsdp_err err = { 0 };
    char digits[16];

    if (within_ms == 0)
        within_ms = 1;
    if (within_ms > LOOKUP_WITHIN_MS)
        within_ms = LOOKUP_WITHIN_MS;
    snprintf(digits, sizeof digits, "%d", port);
    if (lookup_begin(&meeting->lookup, meeting->loop, host, digits, within_ms, on_looked_up, meeting, &err) ==
        FSDP_OK)
        return;
    snprintf(meeting->last_words, sizeof meeting->last_words, "%s", err.message);
    meeting_end_round(meeting, true);
}

static void begin_round(struct meeting *meeting)
{
    meeting->fatal = false;
    if (looks_for_itself(meeting)) {
        own_address_server(meeting->endpoint.host, meeting->config->etcd, meeting->n_rounds);
        look_up(meeting, meeting->endpoint.host, ANY_PORT);
    } else if (!meeting_has_endpoint(meeting) && !meeting_offer_without_endpoint(meeting)) {
        return;
    } else if (meeting_place(meeting)->port == 0) {
        if (meeting->last_words[0] == '\0')
            snprintf(meeting->last_words, sizeof meeting->last_words, "the etcd names none yet");
        meeting_end_round(meeting, false);
    } else {
        look_up(meeting, meeting_place(meeting)->host, meeting_place(meeting)->port);
    }
}

void meeting_end_attempt(struct meeting *meeting)
{
    lookup_cancel(meeting->lookup);
    meeting->lookup = NULL;
    if (meeting->session != NULL)
        session_drop(meeting->session);
    meeting->session = NULL;
}

/* Opening and closing */

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
    meeting->sessions = (struct session_config){ .job = identity_job(config),
                                                 .lease_ms = config->lease_ms,
                                                 .n_expected = config->n_nodes - 1,
                                                 .handlers = meeting_session_handlers,
                                                 .arg = meeting };
    identity_fill(&meeting->self, config);
    memcpy(meeting->address, meeting->self.address, sizeof meeting->address);
    status = config->rendezvous_host == NULL
                 ? FSDP_OK
                 : endpoint_init(&meeting->endpoint, config->rendezvous_host, config->rendezvous_port, err);
    if (status == FSDP_OK && config->secret != NULL) {
        status = tls_derive_key(meeting->key, config->secret, config->secret_bytes, config->run_id, err);
        meeting->sessions.key = meeting->key;
    }
    if (status != FSDP_OK) {
        free(meeting);
        return status;
    }
    uv_update_time(loop);
    meeting_begin_anew(meeting);
    meeting->timer.data = meeting;
    uv_timer_init(loop, &meeting->timer);
    uv_timer_start(&meeting->timer, meeting_on_timer, 0, 0);
    *out = meeting;
    return FSDP_OK;
}

void meeting_keep_identity(struct meeting *meeting, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    memcpy(meeting->self.identity, identity, sizeof meeting->self.identity);
}

void meeting_resume(struct meeting *meeting, const unsigned char run[PROTO_IDENTITY_BYTES], const char *host)
{
    memcpy(meeting->run, run, sizeof meeting->run);
    if (meeting->address[0] == '\0')
        snprintf(meeting->address, sizeof meeting->address, "%s", host);
}

void meeting_again(struct meeting *meeting, int last_generation, int last_node_rank)
{
    meeting->bound = meeting->over = false;
    meeting->again = true;
    meeting->stands = false;
    meeting->refused_ms = 0;
    meeting->n_rounds = 0;
    meeting->self.last_generation = last_generation;
    meeting->self.last_node_rank = last_node_rank;
    memcpy(meeting->self.lost_by, meeting->run, sizeof meeting->self.lost_by);
    meeting_begin_anew(meeting);
    uv_timer_start(&meeting->timer, meeting_on_timer, 0, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct meeting *meeting = handle->data;

    explicit_bzero(meeting->key, sizeof meeting->key);
    free(meeting);
}

void meeting_destroy(struct meeting *meeting)
{
    if (meeting == NULL || meeting->destroyed)
        return;
    meeting->destroyed = meeting->over = true;
    meeting_end_offer(meeting);
    lookup_cancel(meeting->lookup);
    meeting->lookup = NULL;
    if (meeting->session != NULL)
        session_leave(meeting->session);
    session_pool_close(meeting->pool);
    uv_close((uv_handle_t *)&meeting->timer, on_timer_closed);
}
