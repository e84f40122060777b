#include "agent/rendezvous/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "agent/os/deadlines.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"

struct remote {
    struct nodes *nodes;
    int node;
};

struct nodes {
    const struct agent_config *config;
    struct coordinator *coordinator;
    struct console *console;
    struct rendezvous *rendezvous;
    struct remote remotes[]; /* indexed by the coordinator's numbers; entry 0 is this node and unused */
};

/* Sends a message of the coordinator to the node `member`. */
static void tell_remote(void *member, enum proto_type type, int generation, const void *message)
{
    const struct remote *remote = member;

    rendezvous_send(remote->nodes->rendezvous, remote->node, type, (uint32_t)generation, message);
}

/* Passes a message from a node to the coordinator. */
static enum fsdp_status take_message(const struct reporter *to, const struct frame *frame,
                                     struct fsdp_err *err)
{
    const int generation = (int)frame->generation;
    union proto_message message;
    const struct proto_put *put = &message.put;
    const struct proto_event *event = &message.event;
    const struct proto_explained *explained = &message.explained;

    if (frame->type == PROTO_STOPPED) {
        to->stopped(to->to, generation);
        return FSDP_OK;
    }
    if (frame->type == PROTO_SUSPECT) {
        to->suspects(to->to, generation);
        return FSDP_OK;
    }
    OK_OR_RETURN(proto_decode(frame->type, &message, frame->payload, frame->size, err));
    switch (frame->type) {
    case PROTO_PUT:
        to->put(to->to, generation, put->key, put->value, put->value_bytes);
        return FSDP_OK;
    case PROTO_WANT:
        to->want(to->to, generation, message.want.key);
        return FSDP_OK;
    case PROTO_EVENT:
        to->event(to->to, generation, event->rank, event->json, event->length);
        return FSDP_OK;
    case PROTO_EXPLAINED:
        to->explained(to->to, generation, explained->json, explained->length);
        return FSDP_OK;
    case PROTO_EXITED:
        message.exited.death.when_ns = agent_os_linux.now_ns(agent_os_linux.arg);
        to->exited(to->to, generation, &message.exited.death, &message.exited.detail);
        return FSDP_OK;
    case PROTO_SAVED:
        to->saved(to->to, generation, message.saved.rank, &message.saved.saved, -1);
        return FSDP_OK;
    case PROTO_HELD:
        to->held(to->to, generation, &message.held);
        return FSDP_OK;
    case PROTO_ENTRY:
        to->entry(to->to, generation, &message.entry);
        return FSDP_OK;
    case PROTO_RANK:
        to->rank(to->to, generation, message.rank.question, &message.rank.rank);
        return FSDP_OK;
    case PROTO_UNKILLED:
        to->unkilled(to->to, message.unkilled.n);
        return FSDP_OK;
    case PROTO_PACE:
        to->pace(to->to, generation, &message.pace);
        return FSDP_OK;
    case PROTO_STORE:
        to->store(to->to, generation, &message.store);
        return FSDP_OK;
    case PROTO_ASK:
        to->asked(to->to, message.ask.signal, message.ask.how);
        return FSDP_OK;
    default:
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a message of type %u (%s)", frame->type,
                         proto_name(frame->type));
    }
}

/*
 * Makes the answer to a beat, which extends the lease of the node that sent it. Returns false if the beat
 * must not be answered.
 */
static bool grant(const struct nodes *nodes, int node, struct proto_beat *beat)
{
    coordinator_heard(nodes->coordinator, node, beat->answered_ns);
    rendezvous_heard(nodes->rendezvous, node, beat->answered_ns);
    if (!coordinator_may_grant(nodes->coordinator))
        return false;
    beat->answered_ns = clock_boot_ns();
    beat->lease_ms = LEASE_RANKS_MS(nodes->config->lease_ms);
    return true;
}

static void on_told(void *arg, int node, const struct pulse_told *told)
{
    const struct nodes *nodes = arg;

    coordinator_heard(nodes->coordinator, node, told->heard_ns);
    if (told->answered_ns != 0)
        coordinator_granted(nodes->coordinator, node, clock_boot_ns() - told->answered_ns);
}

static int64_t on_away(void *arg)
{
    const struct nodes *nodes = arg;

    return coordinator_away_heard_ns(nodes->coordinator);
}

static enum fsdp_status answer_beat(struct nodes *nodes, int node, const struct frame *frame,
                                    struct fsdp_err *err)
{
    union proto_message message;

    OK_OR_RETURN(proto_decode(PROTO_BEAT, &message, frame->payload, frame->size, err));
    if (!grant(nodes, node, &message.beat))
        return FSDP_OK;
    tell_remote(&nodes->remotes[node], PROTO_BEAT, 0, &message.beat);
    coordinator_granted(nodes->coordinator, node, 0);
    return FSDP_OK;
}

static enum fsdp_status take_fenced(struct nodes *nodes, int node, const struct frame *frame,
                                    struct fsdp_err *err)
{
    union proto_message message;

    OK_OR_RETURN(proto_decode(PROTO_FENCED, &message, frame->payload, frame->size, err));
    coordinator_fenced(nodes->coordinator, node, (int)frame->generation, message.fenced.ago_ms);
    return FSDP_OK;
}

static enum fsdp_status take(struct nodes *nodes, int node, const struct frame *frame, struct fsdp_err *err)
{
    const struct reporter to = coordinator_reporter(nodes->coordinator, node);

    switch (frame->type) {
    case PROTO_BEAT:
        return answer_beat(nodes, node, frame, err);
    case PROTO_FENCED:
        return take_fenced(nodes, node, frame, err);
    case PROTO_CAN_LEAD:
        coordinator_can_lead(nodes->coordinator, node);
        return FSDP_OK;
    default:
        return take_message(&to, frame, err);
    }
}

static void on_message(void *arg, int node, const struct frame *frame)
{
    struct nodes *nodes = arg;
    struct fsdp_err err = { 0 };

    if (frame->type == PROTO_SWEPT) {
        rendezvous_drop(nodes->rendezvous, node);
        coordinator_swept(nodes->coordinator, node);
        return;
    }
    /*
     * The node has the secret, but its message is invalid: it runs another build, or an attacker controls it.
     */
    if (take(nodes, node, frame, &err) != FSDP_OK) {
        rendezvous_drop(nodes->rendezvous, node);
        coordinator_lost(nodes->coordinator, node, 0, err.message);
    }
}

/* Nodes that join and leave */

static int on_judge(void *arg, const struct proto_join *join, const char *address,
                    struct proto_refused *refused)
{
    struct nodes *nodes = arg;
    const int earlier = coordinator_find(nodes->coordinator, join->identity);

    if (coordinator_never_again(nodes->coordinator, join, refused))
        return -1;
    if (earlier >= 0) {
        rendezvous_drop(nodes->rendezvous, earlier);
        coordinator_gave_up(nodes->coordinator, earlier);
    }
    return coordinator_admit(nodes->coordinator, join, address, refused);
}

static void on_joined(void *arg, int node)
{
    struct nodes *nodes = arg;
    struct proto_welcome welcome = { 0 };

    coordinator_welcome(nodes->coordinator, node, &welcome);
    nodes->remotes[node] = (struct remote){ .nodes = nodes, .node = node };
    tell_remote(&nodes->remotes[node], PROTO_WELCOME, 0, &welcome);
    coordinator_set_address(nodes->coordinator, rendezvous_address(nodes->rendezvous));
    coordinator_attach(nodes->coordinator, node, tell_remote, &nodes->remotes[node]);
}

static void on_lost(void *arg, int node, int64_t silent_ms, const struct fsdp_err *why)
{
    struct nodes *nodes = arg;

    coordinator_lost(nodes->coordinator, node, silent_ms, why->message);
    if (why->status == FSDP_OK)
        coordinator_left(nodes->coordinator, node);
}

static void on_restored(void *arg, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    const struct nodes *nodes = arg;

    coordinator_refuse(nodes->coordinator, identity);
}

static void on_swept(void *arg, const unsigned char agent[PROTO_IDENTITY_BYTES])
{
    struct nodes *nodes = arg;
    const int node = coordinator_find(nodes->coordinator, agent);

    if (node >= 0) {
        rendezvous_drop(nodes->rendezvous, node);
        coordinator_swept(nodes->coordinator, node);
    } else {
        coordinator_agent_swept(nodes->coordinator, agent);
    }
}

static void on_note(void *arg, const char *words)
{
    struct nodes *nodes = arg;

    console_say(nodes->console, "fsdprun: %s", words);
}

enum fsdp_status nodes_create(struct nodes **out, const struct agent_config *config,
                              struct rendezvous *rendezvous, struct coordinator *coordinator,
                              struct console *console, const struct pulse_lead *lead, struct fsdp_err *err)
{
    static const struct rendezvous_handlers handlers = { on_judge, on_joined, on_message, on_lost,    on_note,
                                                         on_swept, on_told,   on_away,    on_restored };
    const int capacity = coordinator_capacity(coordinator);
    struct nodes *nodes = calloc(1, sizeof *nodes + (size_t)capacity * sizeof *nodes->remotes);
    enum fsdp_status status;

    *out = NULL;
    if (nodes == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %d nodes", capacity);
        goto fail;
    }
    nodes->config = config;
    nodes->coordinator = coordinator;
    nodes->console = console;
    nodes->rendezvous = rendezvous;
    status = rendezvous_serve(rendezvous, capacity, &handlers, nodes, lead, err);
    if (status != FSDP_OK)
        goto fail;
    coordinator_set_address(coordinator, rendezvous_address(rendezvous));
    *out = nodes;
    return FSDP_OK;
fail:
    rendezvous_destroy(rendezvous);
    free(nodes);
    return status;
}

void nodes_turn(struct nodes *nodes)
{
    if (nodes != NULL)
        rendezvous_turn(nodes->rendezvous);
}

void nodes_destroy(struct nodes *nodes)
{
    if (nodes == NULL)
        return;
    rendezvous_destroy(nodes->rendezvous); /* after this call, the rendezvous calls no handler */
    free(nodes);
}
