#include "agent/cluster/nodes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/detail_proto.h"
#include "agent/cluster/identity.h"
#include "agent/cluster/uplink.h"

struct remote {
    struct nodes *nodes;
    int node;
    int generation; /* of the last START */
};

struct nodes {
    const struct agent_config *config;
    struct coordinator *coordinator;
    struct console *console;
    struct rendezvous *rendezvous;
    struct remote remotes[]; /* by the coordinator's numbers; the first is this node and unused */
};

static void send_text(struct remote *remote, enum proto_type type, char *text)
{
    if (text != NULL)
        rendezvous_send(remote->nodes->rendezvous, remote->node, type, (uint32_t)remote->generation, text,
                        strlen(text));
    free(text);
}

/* --- what the coordinator tells a node ------------------------------------------------------------------------ */

static void remote_form(void *member, const struct world_plan *plan)
{
    struct remote *remote = member;
    struct proto_start start = { .restart_count = plan->restart_count,
                                 .world_size = plan->world_size,
                                 .first_rank = plan->first_rank,
                                 .n_nodes = plan->n_nodes,
                                 .node_rank = plan->node_rank,
                                 .role_rank = plan->role_rank,
                                 .role_world_size = plan->role_world_size,
                                 .master_port = plan->master_port,
                                 .first_attempt = plan->first_attempt,
                                 .resume_step = plan->resume_step };

    snprintf(start.master_address, sizeof start.master_address, "%.255s", plan->master_address);
    snprintf(start.node_address, sizeof start.node_address, "%.255s", plan->node_address);
    memcpy(start.token, plan->token, sizeof start.token);
    remote->generation = plan->generation;
    send_text(remote, PROTO_START, proto_write_start(&start));
}

static void remote_stop(void *member, int signal, bool now)
{
    send_text(member, PROTO_STOP, proto_write_number(signal | (now ? PROTO_STOP_NOW : 0)));
}

static void remote_forward(void *member, int signal)
{
    send_text(member, PROTO_FORWARD, proto_write_number(signal));
}

static void remote_notify(void *member, const struct fsdp_link_notice *notice)
{
    send_text(member, PROTO_NOTICE, proto_write_number(notice->stop_after_step));
}

static void remote_publish(void *member, const struct fsdp_link_published *published)
{
    send_text(member, PROTO_PUBLISHED, proto_write_published(published));
}

static void remote_put(void *member, int generation, const char *key, const void *value, size_t size_bytes)
{
    struct remote *remote = member;
    const size_t key_bytes = strlen(key) + 1;
    char *payload = malloc(key_bytes + size_bytes);

    if (payload == NULL)
        return; /* the rank that waits for it is stopped as a hang; nothing better can be done without memory */
    memcpy(payload, key, key_bytes);
    if (size_bytes > 0)
        memcpy(payload + key_bytes, value, size_bytes);
    rendezvous_send(remote->nodes->rendezvous, remote->node, PROTO_PUT, (uint32_t)generation, payload,
                    key_bytes + size_bytes);
    free(payload);
}

static void remote_finish(void *member, const struct coordinator_end *end)
{
    struct proto_finish finish = { .status = end->status, .node = end->node, .code = end->code };

    snprintf(finish.words, sizeof finish.words, "%s", end->line);
    detail_to_proto(&finish.detail, end->detail);
    send_text(member, PROTO_FINISH, proto_write_finish(&finish));
}

static const struct coordinator_member remote_member = {
    .form = remote_form,
    .stop = remote_stop,
    .forward = remote_forward,
    .notify = remote_notify,
    .publish = remote_publish,
    .put = remote_put,
    .finish = remote_finish,
};

/* --- what a node reports ---------------------------------------------------------------------------------------- */

static enum fsdp_status take_exited(struct nodes *nodes, int node, const struct frame *frame,
                                    struct fsdp_err *err)
{
    struct proto_exited exited;
    struct errors_detail detail;
    struct death death;
    enum fsdp_status status = proto_read_exited(&exited, frame->payload, frame->size, err);

    if (status != FSDP_OK)
        return status;
    if (exited.kind > DEATH_STUCK)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "an exit of kind %u", exited.kind);
    if (exited.age_ns < 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "an exit that is yet to come");
    death = (struct death){ .kind = (enum death_kind)exited.kind,
                            .rank = exited.rank,
                            .local_rank = exited.local_rank,
                            .node_rank = node,
                            .pid = exited.pid,
                            .code = exited.code,
                            .sent_signal = exited.sent_signal,
                            .killed = exited.killed != 0,
                            .age_ns = exited.age_ns,
                            .oom_kill = exited.oom_kill != 0,
                            .step = exited.step,
                            .phase = exited.phase,
                            .when_ns = agent_os_linux.now_ns(agent_os_linux.arg) };
    snprintf(death.host, sizeof death.host, "%.*s", (int)sizeof death.host - 1, exited.host);
    snprintf(death.words, sizeof death.words, "%.*s", (int)sizeof death.words - 1, exited.words);
    coordinator_exited(nodes->coordinator, node, (int)frame->generation, &death,
                       detail_from_proto(&detail, &exited.detail) ? &detail : NULL);
    return FSDP_OK;
}

static enum fsdp_status take_saved(struct nodes *nodes, int node, const struct frame *frame,
                                   struct fsdp_err *err)
{
    struct fsdp_link_saved saved;
    int rank;
    enum fsdp_status status = proto_read_saved(&saved, &rank, frame->payload, frame->size, err);

    if (status == FSDP_OK)
        coordinator_saved(nodes->coordinator, node, (int)frame->generation, rank, &saved, -1);
    return status;
}

static enum fsdp_status take_put(struct nodes *nodes, int node, const struct frame *frame,
                                 struct fsdp_err *err)
{
    const char *key;
    const void *value;
    size_t size_bytes;
    enum fsdp_status status = proto_read_put(&key, &value, &size_bytes, frame->payload, frame->size, err);

    if (status == FSDP_OK)
        coordinator_put(nodes->coordinator, node, (int)frame->generation, key, value, size_bytes);
    return status;
}

static enum fsdp_status take_event(struct nodes *nodes, int node, const struct frame *frame,
                                   struct fsdp_err *err)
{
    const char *json;
    size_t length;
    int rank;
    enum fsdp_status status = proto_read_event(&rank, &json, &length, frame->payload, frame->size, err);

    if (status == FSDP_OK)
        coordinator_event(nodes->coordinator, node, (int)frame->generation, rank, json, length);
    return status;
}

static enum fsdp_status take_ask_stop(struct nodes *nodes, int node, const struct frame *frame,
                                      struct fsdp_err *err)
{
    int64_t asked;
    enum fsdp_status status = proto_read_number(&asked, frame->payload, frame->size, err);
    const int signal = (int)(asked & UPLINK_ASK_SIGNAL);

    if (status != FSDP_OK)
        return status;
    if (asked < 0 || asked > (UPLINK_ASK_SIGNAL | UPLINK_ASK_NOW | UPLINK_ASK_SAVE | UPLINK_ASK_FORWARD) ||
        signal == 0 || signal >= NSIG)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "asked to stop by signal %lld", (long long)asked);
    if ((asked & UPLINK_ASK_FORWARD) != 0)
        coordinator_forward(nodes->coordinator, signal);
    else
        coordinator_leave(nodes->coordinator, node, signal, (asked & UPLINK_ASK_NOW) != 0,
                          (asked & UPLINK_ASK_SAVE) != 0);
    return FSDP_OK;
}

static void on_message(void *arg, int node, const struct frame *frame)
{
    struct nodes *nodes = arg;
    struct fsdp_err err = { 0 };
    enum fsdp_status status = FSDP_OK;

    switch (frame->type) {
    case PROTO_EXITED:
        status = take_exited(nodes, node, frame, &err);
        break;
    case PROTO_STOPPED:
        coordinator_stopped(nodes->coordinator, node, (int)frame->generation);
        break;
    case PROTO_SAVED:
        status = take_saved(nodes, node, frame, &err);
        break;
    case PROTO_PUT:
        status = take_put(nodes, node, frame, &err);
        break;
    case PROTO_EVENT:
        status = take_event(nodes, node, frame, &err);
        break;
    case PROTO_ASK_STOP:
        status = take_ask_stop(nodes, node, frame, &err);
        break;
    default:
        status = fsdp_fail(&err, FSDP_ERR_FORMAT, "a message of type %u (%s)", frame->type,
                           proto_name(frame->type));
    }
    if (status != FSDP_OK) { /* it holds the secret and talks nonsense: another build, or worse */
        rendezvous_drop(nodes->rendezvous, node);
        coordinator_lost(nodes->coordinator, node, 0, err.message);
    }
}

/* --- who comes and goes ------------------------------------------------------------------------------------------- */

static int on_judge(void *arg, const struct proto_join *join, const char *address,
                    struct proto_refused *refused)
{
    struct nodes *nodes = arg;

    return coordinator_admit(nodes->coordinator, join, address, refused);
}

static void on_joined(void *arg, int node)
{
    struct nodes *nodes = arg;
    struct proto_join self;
    struct proto_welcome welcome = { .wait = (int)coordinator_wait_of(nodes->coordinator, node) };

    identity_fill(&self, nodes->config);
    memcpy(welcome.host, self.host, sizeof welcome.host);
    nodes->remotes[node] = (struct remote){ .nodes = nodes, .node = node };
    send_text(&nodes->remotes[node], PROTO_WELCOME, proto_write_welcome(&welcome));
    coordinator_set_address(nodes->coordinator, rendezvous_address(nodes->rendezvous));
    coordinator_attach(nodes->coordinator, node, &remote_member, &nodes->remotes[node]);
}

static void on_lost(void *arg, int node, int64_t silent_ms, const char *words)
{
    struct nodes *nodes = arg;

    coordinator_lost(nodes->coordinator, node, silent_ms, words);
}

static void on_note(void *arg, const char *words)
{
    struct nodes *nodes = arg;

    console_say(nodes->console, "fsdprun: %s", words);
}

enum fsdp_status nodes_create(struct nodes **out, const struct agent_config *config,
                              struct rendezvous *rendezvous, struct coordinator *coordinator,
                              struct console *console, struct fsdp_err *err)
{
    static const struct rendezvous_handlers handlers = { on_judge, on_joined, on_message, on_lost, on_note };
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
    status = rendezvous_serve(rendezvous, capacity, &handlers, nodes, err);
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

void nodes_destroy(struct nodes *nodes)
{
    if (nodes == NULL)
        return;
    rendezvous_destroy(nodes->rendezvous); /* it calls nobody from here on */
    free(nodes);
}
