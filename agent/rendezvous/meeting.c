#include "agent/rendezvous/meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/rendezvous/identity.h"
#include "agent/rendezvous/own_address.h"
#include "agent/wire/lookup.h"
#include "agent/wire/tls.h"

enum {
    FIRST_PAUSE_MS = 100,
    LONGEST_PAUSE_MS = 2000, /* longest pause between two rounds; a round tries every address */
    TELL_AFTER_MS = 5000,
    ANY_PORT = 9 /* port for looking up a server's address when no connection to it is made */
};

struct meeting {
    uv_loop_t *loop;
    const struct agent_config *config;
    struct meeting_handlers handlers;
    void *arg;
    /*
     * Where the nodes meet. Port 0: there is no endpoint, and `host` is a server (etcd) that shows this node
     * its own address.
     */
    struct endpoint endpoint;
    /* address of the leader that the arbiter named last; port 0: it has named none */
    struct endpoint leader;
    unsigned n_rounds; /* rounds since the arbiter named it; even rounds dial that address */
    /* listens in case this node comes to lead; NULL: this node makes no such offer */
    struct rendezvous *offer;
    struct proto_join self;
    int joined_unkilled; /* self.n_unkilled of the last JOIN */
    struct session_config sessions;
    unsigned char key[TLS_KEY_BYTES];

    struct lookup *lookup;               /* the lookup of the endpoint's name while it runs; else NULL */
    uv_timer_t timer;                    /* runs until the next round is due */
    struct endpoint_addresses addresses; /* addresses of the current round */
    struct endpoint_addresses served;    /* the addresses at which this node has reached its coordinator */
    unsigned char coordinator[PROTO_IDENTITY_BYTES]; /* of the last WELCOME */
    struct session_pool *pool;                       /* NULL until this node dials for the first time */
    struct session *session;                         /* of the current round; NULL: none */

    /* when the meeting began and must end; deadline 0: no limit, because this node was let in before */
    uint64_t began_ms, deadline_ms;
    /* since then, no round has met a process that listens; 0: the last round met one */
    uint64_t refused_ms;
    int64_t pause_ms;
    bool welcomed, bound, over, destroyed, told;
    bool again; /* this node was a member of a coordinator, and they have lost each other */
    /* this node has made an offer since then, so the arbiter may give it the lead, or name another leader */
    bool stands;
    /* the process that answered belongs to another job or program, so more waiting is useless */
    bool fatal;
    unsigned char run[PROTO_IDENTITY_BYTES]; /* of the last WELCOME */
    char address[PROTO_TEXT_BYTES];          /* where other nodes reach this one; empty: it is not known */
    char host[PROTO_TEXT_BYTES], last_words[FSDP_ERR_MESSAGE_BYTES + 64];
};

static void begin_round(struct meeting *meeting);
static void on_timer(uv_timer_t *timer);

static void fail(struct meeting *meeting, int status, const char *words)
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
        fail(meeting, FSDP_EXIT_PEER, why);
        return;
    }
    snprintf(words, sizeof words, "the link to the coordinator, %.200s, was lost for good: %s", meeting->host,
             why);
    fail(meeting, FSDP_EXIT_LINK, words);
}

static bool has_endpoint(const struct meeting *meeting)
{
    return meeting->endpoint.port != 0;
}

/* Without an endpoint, a node must know where it is reached before it offers to host. */
static bool looks_for_itself(const struct meeting *meeting)
{
    return !has_endpoint(meeting) && meeting->address[0] == '\0';
}

/*
 * Returns the address that the current round dials. Port 0: none, because the arbiter has not named a leader
 * yet.
 */
static const struct endpoint *place(const struct meeting *meeting)
{
    if (!has_endpoint(meeting))
        return &meeting->leader;
    return meeting->leader.port != 0 && meeting->n_rounds % 2 == 0 ? &meeting->leader : &meeting->endpoint;
}

static const char *endpoint_name(const struct meeting *meeting, char *out)
{
    if (place(meeting)->port == 0)
        snprintf(out, ENDPOINT_TEXT_BYTES, "any node that leads");
    else
        endpoint_text(out, place(meeting)->host, place(meeting)->port);
    return out;
}

/* Rounds through the addresses */

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

static void end_round(struct meeting *meeting, bool tell_now)
{
    uint64_t now = uv_now(meeting->loop);
    uint64_t pause = (uint64_t)jittered(meeting->pause_ms);

    if (meeting->over || meeting->destroyed)
        return;
    if (meeting->fatal) {
        fail_unanswered(meeting, meeting->last_words);
        return;
    }
    if (tell_now || now - meeting->began_ms >= TELL_AFTER_MS)
        tell_once(meeting);
    meeting->n_rounds++;
    if (now + pause > meeting->deadline_ms)
        pause = meeting->deadline_ms > now ? meeting->deadline_ms - now : 0;
    meeting->pause_ms =
        meeting->pause_ms * 8 / 5 < LONGEST_PAUSE_MS ? meeting->pause_ms * 8 / 5 : LONGEST_PAUSE_MS;
    uv_timer_start(&meeting->timer, on_timer, pause, 0);
}

/* The session with the node that hosts */

static void on_opened(void *arg, struct session *session)
{
    struct meeting *meeting = arg;
    const uint64_t now = uv_now(meeting->loop);

    uv_timer_start(&meeting->timer, on_timer, meeting->deadline_ms > now ? meeting->deadline_ms - now : 0, 0);
    meeting->joined_unkilled = meeting->self.n_unkilled;
    rendezvous_tell(session, PROTO_JOIN, 0, &meeting->self);
}

static void on_note(void *arg, const char *words)
{
    const struct meeting *meeting = arg;

    meeting->handlers.note(meeting->arg, words);
}

static void begin_anew(struct meeting *meeting)
{
    meeting->welcomed = meeting->told = false;
    meeting->pause_ms = FIRST_PAUSE_MS;
    meeting->began_ms = uv_now(meeting->loop);
    meeting->deadline_ms = meeting->began_ms + (uint64_t)meeting->config->join_timeout_ms;
}

/* The session ended after WELCOME but before any generation began: this node meets the others again. */
static void meet_again(struct meeting *meeting, const char *why)
{
    char words[FSDP_ERR_MESSAGE_BYTES + PROTO_TEXT_BYTES + 96];

    snprintf(words, sizeof words, "the link to %.200s was lost before the world was formed (%s)",
             meeting->host, why);
    meeting->handlers.note(meeting->arg, words);
    begin_anew(meeting);
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
    begin_anew(meeting);
    uv_timer_start(&meeting->timer, on_timer, 0, 0);
}

/*
 * Returns whether the coordinator's process has ended. It listens as long as it lives. So if a host refuses
 * connections for a whole lease, the coordinator there is gone, and a member of it need not wait, unless it
 * stands for the lead. Only addresses at which this node has reached the coordinator count, because other
 * addresses of the same name may never have led to it.
 */
static bool coordinator_is_gone(struct meeting *meeting, const struct fsdp_err *why)
{
    const uint64_t now = uv_now(meeting->loop);

    if (why->status != FSDP_ERR_NOT_FOUND)
        meeting->refused_ms = 0;
    else if (meeting->refused_ms == 0)
        meeting->refused_ms = now;
    return meeting->again && !meeting->stands && meeting->refused_ms != 0 &&
           now - meeting->refused_ms >= (uint64_t)meeting->config->lease_ms;
}

/* Notes the coordinator's address, which may have changed since the session began. */
static void remember(struct meeting *meeting, const struct session *session)
{
    if (meeting->welcomed && session != NULL && session_served(session) != NULL)
        endpoint_add(&meeting->served, session_served(session));
}

static void on_ended(void *arg, struct session *session, const struct fsdp_err *why)
{
    struct meeting *meeting = arg;

    meeting->session = NULL;
    if (meeting->over)
        return;
    remember(meeting, session);
    snprintf(meeting->last_words, sizeof meeting->last_words, "%s", why->message);
    /*
     * With an arbiter, a coordinator that is lost before a world has formed gets a successor. So this node
     * goes on waiting.
     */
    if (meeting->bound || (meeting->welcomed && meeting->handlers.offers != NULL)) {
        meeting->over = true;
        meeting->handlers.lost(meeting->arg, why);
        return;
    }
    if (meeting->welcomed)
        meet_again(meeting, why->message);
    meeting->fatal = why->status == FSDP_ERR_MISMATCH || why->status == FSDP_ERR_FORMAT ||
                     coordinator_is_gone(meeting, why);
    end_round(meeting, false);
}

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
        end_round(meeting, false);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct meeting *meeting = timer->data;

    if (uv_now(meeting->loop) >= meeting->deadline_ms)
        give_up(meeting);
    else
        begin_round(meeting);
}

static void end_offer(struct meeting *meeting)
{
    rendezvous_destroy(meeting->offer);
    meeting->offer = NULL;
}

/* The answer of the node that hosts */

static void take_refused(struct meeting *meeting, const struct frame *frame)
{
    union proto_message message;
    struct proto_refused *refused = &message.refused;
    char words[PROTO_WORDS_BYTES + 64];

    if (proto_decode(PROTO_REFUSED, &message, frame->payload, frame->size, NULL) != FSDP_OK)
        *refused = (struct proto_refused){ .status = FSDP_EXIT_PEER, .words = "no reason was given" };
    /* Status 0 is not a refusal: the job is complete, and did not need this node. */
    snprintf(words, sizeof words, "%s%s",
             refused->status == 0 ? "" : "this node was refused: ", refused->words);
    fail(meeting, refused->status & 0xff, words);
}

/* Ends the session because the process at the other end does not talk as it should. */
static void end_alone(struct meeting *meeting, const struct fsdp_err *why)
{
    session_drop(meeting->session);
    on_ended(meeting, NULL, why);
}

static void take_welcome(struct meeting *meeting, const struct frame *frame)
{
    union proto_message message;
    struct fsdp_err err = { 0 };

    if (proto_decode(PROTO_WELCOME, &message, frame->payload, frame->size, &err) != FSDP_OK) {
        end_alone(meeting, &err);
        return;
    }
    meeting->welcomed = true;
    if (memcmp(meeting->coordinator, message.welcome.identity, sizeof meeting->coordinator) != 0)
        meeting->served.n = 0;
    memcpy(meeting->coordinator, message.welcome.identity, sizeof meeting->coordinator);
    remember(meeting, meeting->session);
    end_offer(meeting);
    if (meeting->config->local_address == NULL)
        session_address(meeting->session, true, meeting->address, sizeof meeting->address);
    meeting->deadline_ms = 0;
    uv_timer_stop(&meeting->timer);
    snprintf(meeting->host, sizeof meeting->host, "%s", message.welcome.host);
    memcpy(meeting->run, message.welcome.run, sizeof meeting->run);
    if (meeting->self.n_unkilled != meeting->joined_unkilled)
        meeting_set_unkilled(meeting, meeting->self.n_unkilled); /* it has changed since JOIN */
    meeting->handlers.welcomed(meeting->arg, &message.welcome, session_name(meeting->session));
}

static void on_frame(void *arg, struct session *session, const struct frame *frame)
{
    struct meeting *meeting = arg;
    struct fsdp_err err = { 0 };

    (void)session;
    if (meeting->over)
        return;
    if (frame->type == PROTO_REFUSED) {
        take_refused(meeting, frame);
    } else if (frame->type == PROTO_WELCOME && !meeting->welcomed) {
        take_welcome(meeting, frame);
    } else if (!meeting->welcomed) {
        fsdp_fail(&err, FSDP_ERR_FORMAT, "its first message is no welcome of ours");
        end_alone(meeting, &err);
    } else {
        meeting->bound = true;
        meeting->handlers.message(meeting->arg, frame);
    }
}

/* Which node hosts */

/*
 * Returns whether this node may host. Rank 0 of a trainer's job must be on the node of the coordinator. So a
 * node that was given another node rank leaves hosting to the node with rank 0.
 */
static bool may_host(const struct agent_config *config)
{
    if (config->hosting != AGENT_HOST_AUTO)
        return config->hosting == AGENT_HOST_YES;
    return config->job_json == NULL || config->node_rank <= 0;
}

/* Returns whether nodes on other hosts can reach the endpoint. A loopback endpoint serves this host alone. */
static bool is_open_to_others(const struct meeting *meeting)
{
    return !endpoint_is_loopback(has_endpoint(meeting) ? meeting->endpoint.host : meeting->address);
}

/*
 * Starts to listen if this node has the endpoint's address, and so becomes the host. It listens on every
 * address of the node. The node itself may know its name as 127.0.1.1 (Debian's /etc/hosts), but other nodes
 * know another address for that name.
 */
static enum fsdp_status listen_here(struct meeting *meeting, struct rendezvous **out, struct fsdp_err *err)
{
    struct endpoint_addresses every;

    if (!is_open_to_others(meeting))
        return rendezvous_listen(out, meeting->loop, &meeting->addresses, &meeting->sessions, err);
    if (meeting->config->hosting != AGENT_HOST_YES && !endpoint_is_here(&meeting->addresses))
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no address of this host");
    endpoint_wildcard(&every, meeting->endpoint.port);
    return rendezvous_listen(out, meeting->loop, &every, &meeting->sessions, err);
}

/* Ends the meeting: this node hosts. It serves other nodes on the listener of its offer. */
static void end_as_host(struct meeting *meeting)
{
    struct rendezvous *rendezvous = meeting->offer;
    char name[ENDPOINT_TEXT_BYTES], where[ENDPOINT_TEXT_BYTES + 64];

    meeting->over = true;
    meeting->offer = NULL;
    uv_timer_stop(&meeting->timer);
    snprintf(where, sizeof where, "%s%s",
             endpoint_text(
                 name, meeting->again || !has_endpoint(meeting) ? meeting->address : meeting->endpoint.host,
                 rendezvous_port(rendezvous)),
             is_open_to_others(meeting) ? " (on every address of this node)" : "");
    meeting->handlers.hosts(meeting->arg, rendezvous, where);
}

/* Tells the arbiter that this node could host, at address `host`. */
static void offer(struct meeting *meeting, const char *host)
{
    if (!meeting->handlers.offers(meeting->arg, host, rendezvous_port(meeting->offer)))
        meeting->over = true;
}

/*
 * Tries to become the host. Returns true if this node hosts now, or listens and waits for the arbiter's
 * decision.
 */
static bool become_host(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status = listen_here(meeting, &meeting->offer, &err);

    if (status == FSDP_OK) {
        uv_timer_stop(&meeting->timer);
        if (meeting->handlers.offers == NULL)
            end_as_host(meeting);
        else
            offer(meeting, meeting->endpoint.host);
        return true;
    }
    if (status != FSDP_ERR_BUSY && status != FSDP_ERR_NOT_FOUND)
        snprintf(meeting->last_words, sizeof meeting->last_words, "cannot listen: %s", err.message);
    else if (meeting->config->hosting == AGENT_HOST_YES)
        snprintf(meeting->last_words, sizeof meeting->last_words, "another process listens there");
    return false;
}

/*
 * Returns whether this node may host because it has the endpoint. Once there was a leader, only the arbiter
 * decides who is next.
 */
static bool hosts_by_endpoint(const struct meeting *meeting)
{
    return has_endpoint(meeting) && !meeting->again && meeting->leader.port == 0 && may_host(meeting->config);
}

/*
 * Does the address of this round belong to this node's own offer? Dialling it must be avoided: if this node
 * came to lead at that moment, it would let itself in as another node.
 */
static bool leads_here(const struct meeting *meeting)
{
    const struct endpoint *to = place(meeting);

    if (meeting->offer == NULL || to->port != rendezvous_port(meeting->offer))
        return false;
    if (!is_open_to_others(meeting))
        return strcmp(to->host, meeting->address) == 0;
    return endpoint_is_here(&meeting->addresses) ||
           (to == &meeting->endpoint && meeting->config->hosting == AGENT_HOST_YES);
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
    end_round(meeting, true);
}

static void on_looked_up(void *arg, struct addrinfo *found, const char *why)
{
    struct meeting *meeting = arg;
    const char *name = looks_for_itself(meeting) ? meeting->endpoint.host : place(meeting)->host;

    meeting->lookup = NULL;
    endpoint_collect(&meeting->addresses, found);
    if (found != NULL)
        freeaddrinfo(found);
    if (meeting->over)
        return;
    if (meeting->addresses.n == 0 && !(meeting->config->hosting == AGENT_HOST_YES && has_endpoint(meeting) &&
                                       is_open_to_others(meeting))) {
        snprintf(meeting->last_words, sizeof meeting->last_words, "the name %s cannot be resolved: %s", name,
                 why != NULL ? why : "it has no address");
        end_round(meeting, true);
    } else if (looks_for_itself(meeting)) {
        take_own_address(meeting);
    } else if (hosts_by_endpoint(meeting) && become_host(meeting)) {
        return;
    } else if (hosts_by_endpoint(meeting) && meeting->config->hosting == AGENT_HOST_YES) {
        end_round(meeting, false);
    } else if (leads_here(meeting)) {
        snprintf(meeting->last_words, sizeof meeting->last_words, "no other node leads yet");
        end_round(meeting, false);
    } else {
        dial(meeting);
    }
}

static void look_up(struct meeting *meeting, const char *host, int port)
{
    const uint64_t now = uv_now(meeting->loop),
                   left = meeting->deadline_ms > now ? meeting->deadline_ms - now : 1;
    struct fsdp_err err = { 0 };
    char digits[16];

    snprintf(digits, sizeof digits, "%d", port);
    if (lookup_begin(&meeting->lookup, meeting->loop, host, digits,
                     left < LOOKUP_WITHIN_MS ? left : LOOKUP_WITHIN_MS, on_looked_up, meeting,
                     &err) == FSDP_OK)
        return;
    snprintf(meeting->last_words, sizeof meeting->last_words, "%s", err.message);
    end_round(meeting, true);
}

/* Where an arbiter says who leads */

/* Ends what this round has begun, if the round has not led to a coordinator. */
static void end_attempt(struct meeting *meeting)
{
    lookup_cancel(meeting->lookup);
    meeting->lookup = NULL;
    if (meeting->session != NULL)
        session_drop(meeting->session);
    meeting->session = NULL;
}

/* Listens at `port` of this node's own address; port 0: at any free port. */
static enum fsdp_status offer_at(struct meeting *meeting, int port, struct fsdp_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct endpoint_addresses at;
    struct addrinfo *found = NULL;
    char digits[16];

    snprintf(digits, sizeof digits, "%d", port);
    endpoint_wildcard(&at, port);
    if (!is_open_to_others(meeting) && getaddrinfo(meeting->address, digits, &hints, &found) == 0) {
        endpoint_collect(&at, found);
        freeaddrinfo(found);
    }
    return rendezvous_listen(&meeting->offer, meeting->loop, &at, &meeting->sessions, err);
}

/*
 * Makes an offer to host, if there is no endpoint and this node was never let in. It does so even while it
 * dials a leader that the arbiter named, because that leader may be gone. Returns false if the meeting is
 * over.
 */
static bool offer_without_endpoint(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };

    if (meeting->again || meeting->offer != NULL || !may_host(meeting->config))
        return true;
    if (offer_at(meeting, 0, &err) == FSDP_OK)
        offer(meeting, meeting->address);
    else
        snprintf(meeting->last_words, sizeof meeting->last_words, "cannot listen: %s", err.message);
    return !meeting->over;
}

static void begin_round(struct meeting *meeting)
{
    meeting->fatal = false;
    if (looks_for_itself(meeting)) {
        own_address_server(meeting->endpoint.host, meeting->config->etcd, meeting->n_rounds);
        look_up(meeting, meeting->endpoint.host, ANY_PORT);
    } else if (!has_endpoint(meeting) && !offer_without_endpoint(meeting)) {
        return;
    } else if (place(meeting)->port == 0) {
        if (meeting->last_words[0] == '\0')
            snprintf(meeting->last_words, sizeof meeting->last_words, "the etcd names none yet");
        end_round(meeting, false);
    } else {
        look_up(meeting, place(meeting)->host, place(meeting)->port);
    }
}

enum fsdp_status meeting_offer(struct meeting *meeting, const char **host, int *port, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    if (meeting->offer == NULL)
        status = has_endpoint(meeting) ? offer_at(meeting, meeting->endpoint.port, NULL) : FSDP_ERR_NOT_FOUND;
    if (status != FSDP_OK)
        status = offer_at(meeting, 0, err);
    if (status != FSDP_OK)
        return status;
    meeting->stands = true;
    *host = meeting->address;
    *port = rendezvous_port(meeting->offer);
    return FSDP_OK;
}

void meeting_lead(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };
    const char *at;
    int port;

    end_attempt(meeting);
    if (meeting->offer == NULL && meeting_offer(meeting, &at, &port, &err) != FSDP_OK)
        fail(meeting, FSDP_EXIT_LINK, err.message);
    else
        end_as_host(meeting);
}

/*
 * Another node leads. A session that exists with it is kept: its coordinator may have let this node in a
 * moment ago.
 */
void meeting_follow(struct meeting *meeting, const char *host, int port)
{
    const struct endpoint dialled = *place(meeting);

    if (endpoint_init(&meeting->leader, host, port, NULL) != FSDP_OK)
        meeting->leader.port = 0;
    if (meeting->over || meeting->welcomed || meeting->leader.port == 0)
        return;
    end_offer(meeting);
    meeting->n_rounds = 0;
    if (meeting->session != NULL && dialled.port == port && strcmp(dialled.host, meeting->leader.host) == 0)
        return;
    end_attempt(meeting);
    meeting->pause_ms = FIRST_PAUSE_MS;
    uv_timer_start(&meeting->timer, on_timer, 0, 0);
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
    meeting->sessions = (struct session_config){
        .job = identity_job(config),
        .lease_ms = config->lease_ms,
        .n_expected = config->n_nodes - 1,
        .handlers = { .opened = on_opened, .frame = on_frame, .ended = on_ended, .note = on_note },
        .arg = meeting
    };
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
    meeting->began_ms = uv_now(loop);
    meeting->deadline_ms = meeting->began_ms + (uint64_t)config->join_timeout_ms;
    meeting->pause_ms = FIRST_PAUSE_MS;
    meeting->timer.data = meeting;
    uv_timer_init(loop, &meeting->timer);
    uv_timer_start(&meeting->timer, on_timer, 0, 0);
    *out = meeting;
    return FSDP_OK;
}

void meeting_keep_identity(struct meeting *meeting, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    memcpy(meeting->self.identity, identity, sizeof meeting->self.identity);
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
    end_offer(meeting);
    lookup_cancel(meeting->lookup);
    meeting->lookup = NULL;
    if (meeting->session != NULL)
        session_leave(meeting->session);
    session_pool_close(meeting->pool);
    uv_close((uv_handle_t *)&meeting->timer, on_timer_closed);
}

void meeting_send(struct meeting *meeting, enum proto_type type, uint32_t generation, const void *message)
{
    if (meeting_is_member(meeting))
        rendezvous_tell(meeting->session, type, generation, message);
}

void meeting_set_unkilled(struct meeting *meeting, int n)
{
    meeting->self.n_unkilled = n;
    meeting_send(meeting, PROTO_UNKILLED, 0, &(struct proto_unkilled){ n });
}

void meeting_set_held(struct meeting *meeting, const struct restore_steps *held)
{
    meeting->self.held = *held;
}

bool meeting_is_member(const struct meeting *meeting)
{
    return meeting->welcomed && meeting->session != NULL;
}

bool meeting_will(const struct meeting *meeting, struct swept_will *will)
{
    if (!meeting_is_member(meeting) || session_served(meeting->session) == NULL)
        return false;
    *will = (struct swept_will){ .coordinator = *session_served(meeting->session) };
    memcpy(will->agent, meeting->self.identity, sizeof will->agent);
    return true;
}

bool meeting_aim(const struct meeting *meeting, struct pulse_aim *aim)
{
    if (!meeting_is_member(meeting) || session_served(meeting->session) == NULL)
        return false;
    aim->to = *session_served(meeting->session);
    memcpy(aim->session, session_identity(meeting->session), sizeof aim->session);
    return true;
}

void meeting_pulse(struct meeting *meeting, int64_t ago_ms)
{
    if (meeting_is_member(meeting))
        session_pulse(meeting->session, ago_ms);
}

const unsigned char *meeting_key(const struct meeting *meeting)
{
    return meeting->sessions.key;
}
