#include "agent/cluster/uplink.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/detail_proto.h"
#include "agent/cluster/meeting.h"

enum { LINE_BYTES = 1024 };

struct uplink {
    const struct agent_config *config;
    const struct coordinator_member *ops;
    struct uplink_handlers handlers;
    void *member;
    struct meeting *meeting;
    char host[PROTO_TEXT_BYTES]; /* of the coordinator */
    int generation;              /* of the last START; -1: none yet */
    bool up;                     /* workers of it may be alive here */
    bool ending;                 /* the line is gone: finish when they are not */
    bool finished;
    char line[LINE_BYTES];
    struct coordinator_end end; /* what it ends with; its line and detail stand here */
    struct errors_detail detail;
};

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void finish(struct uplink *uplink)
{
    if (uplink->finished)
        return;
    uplink->finished = true;
    uplink->ops->finish(uplink->member, &uplink->end);
}

/* Over, once nothing runs here any more; what does is stopped. Lines and detail of `end` are copied. */
static void end_with(struct uplink *uplink, const struct coordinator_end *end)
{
    if (uplink->ending || uplink->finished)
        return;
    uplink->ending = true;
    uplink->end = *end;
    snprintf(uplink->line, sizeof uplink->line, "%s", end->line);
    uplink->end.line = uplink->line;
    if (end->detail != NULL) {
        errors_detail_copy(&uplink->detail, end->detail);
        uplink->end.detail = &uplink->detail;
    }
    if (uplink->up)
        uplink->ops->stop(uplink->member, SIGTERM, false);
    else
        finish(uplink);
}

/* There is no coordinator any more, or not yet. */
static void end_alone(struct uplink *uplink, int status, const char *line)
{
    end_with(uplink, &(struct coordinator_end){ .status = status, .line = line, .node = -1 });
}

/* --- what the coordinator says -------------------------------------------------------------------------------------- */

static enum fsdp_status take_start(struct uplink *uplink, const struct frame *frame, struct fsdp_err *err)
{
    const struct agent_config *config = uplink->config;
    struct world_plan plan = { 0 };
    struct proto_start start;
    enum fsdp_status status = proto_read_start(&start, frame->payload, frame->size, err);

    if (status != FSDP_OK)
        return status;
    if (uplink->up || start.world_size < 1 || start.first_rank < 0 ||
        start.first_rank > start.world_size - config->n_workers || start.node_rank < 0 ||
        start.node_rank >= start.n_nodes || start.first_attempt < 0 || start.role_rank < 0 || start.role_world_size < 1 ||
        start.role_rank > start.role_world_size - config->n_workers)
        return fsdp_fail(
            err, FSDP_ERR_FORMAT,
            "a generation that cannot be: ranks from %d of %d on node %d of %d, from %d of %d in its role",
            start.first_rank, start.world_size, start.node_rank, start.n_nodes, start.role_rank,
            start.role_world_size);
    plan.generation = (int)frame->generation;
    plan.restart_count = start.restart_count;
    plan.world_size = start.world_size;
    plan.first_rank = start.first_rank;
    plan.n_nodes = start.n_nodes;
    plan.node_rank = start.node_rank;
    plan.role_rank = start.role_rank;
    plan.role_world_size = start.role_world_size;
    plan.first_attempt = start.first_attempt;
    plan.resume_step = start.resume_step;
    plan.master_port = start.master_port;
    snprintf(plan.master_address, sizeof plan.master_address, "%s", start.master_address);
    snprintf(plan.node_address, sizeof plan.node_address, "%s", start.node_address);
    memcpy(plan.token, start.token, sizeof plan.token);
    uplink->generation = plan.generation;
    uplink->up = true;
    uplink->ops->form(uplink->member, &plan);
    return FSDP_OK;
}

static enum fsdp_status take_put(struct uplink *uplink, const struct frame *frame, struct fsdp_err *err)
{
    const char *key;
    const void *value;
    size_t size_bytes;
    enum fsdp_status status = proto_read_put(&key, &value, &size_bytes, frame->payload, frame->size, err);

    if (status == FSDP_OK)
        uplink->ops->put(uplink->member, (int)frame->generation, key, value, size_bytes);
    return status;
}

static enum fsdp_status take_published(struct uplink *uplink, const struct frame *frame, struct fsdp_err *err)
{
    struct fsdp_link_published published;
    enum fsdp_status status = proto_read_published(&published, frame->payload, frame->size, err);

    if (status == FSDP_OK)
        uplink->ops->publish(uplink->member, &published);
    return status;
}

static enum fsdp_status take_finish(struct uplink *uplink, const struct frame *frame, struct fsdp_err *err)
{
    struct proto_finish finished;
    struct errors_detail detail;
    enum fsdp_status status = proto_read_finish(&finished, frame->payload, frame->size, err);

    if (status == FSDP_OK) /* with nothing running here this is the end at once */
        end_with(uplink, &(struct coordinator_end){
                             .status = finished.status & 0xff,
                             .line = finished.words,
                             .node = finished.node,
                             .code = finished.code,
                             .detail = detail_from_proto(&detail, &finished.detail) ? &detail : NULL });
    return status;
}

static enum fsdp_status take_stop(struct uplink *uplink, int64_t number, struct fsdp_err *err)
{
    const int signal = (int)(number & PROTO_STOP_SIGNAL);

    if (number < 0 || number > (PROTO_STOP_SIGNAL | PROTO_STOP_NOW) || signal >= NSIG)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "told to stop by signal %lld", (long long)number);
    uplink->ops->stop(uplink->member, signal, (number & PROTO_STOP_NOW) != 0);
    return FSDP_OK;
}

static enum fsdp_status take_forward(struct uplink *uplink, int64_t number, struct fsdp_err *err)
{
    if (number <= 0 || number >= NSIG)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "told to pass on signal %lld", (long long)number);
    uplink->ops->forward(uplink->member, (int)number);
    return FSDP_OK;
}

static void on_message(void *arg, const struct frame *frame)
{
    struct uplink *uplink = arg;
    struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_SAVE_AND_STOP };
    struct fsdp_err err = { 0 };
    enum fsdp_status status = FSDP_OK;
    int64_t number;
    char words[LINE_BYTES];

    if (uplink->ending || uplink->finished)
        return;
    if (frame->type != PROTO_START && frame->type != PROTO_FINISH &&
        (!uplink->up || frame->generation != (uint32_t)uplink->generation))
        return; /* about a generation that is over here */
    switch (frame->type) {
    case PROTO_START:
        status = take_start(uplink, frame, &err);
        break;
    case PROTO_PUT:
        status = take_put(uplink, frame, &err);
        break;
    case PROTO_STOP:
        if ((status = proto_read_number(&number, frame->payload, frame->size, &err)) == FSDP_OK)
            status = take_stop(uplink, number, &err);
        break;
    case PROTO_FORWARD:
        if ((status = proto_read_number(&number, frame->payload, frame->size, &err)) == FSDP_OK)
            status = take_forward(uplink, number, &err);
        break;
    case PROTO_NOTICE:
        if ((status = proto_read_number(&notice.stop_after_step, frame->payload, frame->size, &err)) ==
            FSDP_OK)
            uplink->ops->notify(uplink->member, &notice);
        break;
    case PROTO_PUBLISHED:
        status = take_published(uplink, frame, &err);
        break;
    case PROTO_FINISH:
        status = take_finish(uplink, frame, &err);
        break;
    default:
        status = fsdp_fail(&err, FSDP_ERR_FORMAT, "a message of type %u (%s)", frame->type,
                           proto_name(frame->type));
    }
    if (status != FSDP_OK) {
        snprintf(words, sizeof words, "%.200s, which hosts, does not talk as it should: %s", uplink->host,
                 err.message);
        end_alone(uplink, FSDP_EXIT_LINK, words);
    }
}

static void on_hosts(void *arg, struct rendezvous *rendezvous, const char *where)
{
    struct uplink *uplink = arg;

    uplink->handlers.hosts(uplink->member, rendezvous, where);
}

static void on_welcomed(void *arg, const struct proto_welcome *welcome, const char *address)
{
    static const char *const waits[] = {
        [PROTO_WAIT_FORMING] = "waiting for the world to form",
        [PROTO_WAIT_RUNNING] = "the world runs, and will be formed anew with this node",
        [PROTO_WAIT_SPARE] = "the world is full: waiting as a spare",
        [PROTO_WAIT_ENDING] = "the world is ending: this node takes part only if it starts again",
    };
    struct uplink *uplink = arg;
    char words[PROTO_TEXT_BYTES + 200];

    memcpy(uplink->host, welcome->host, sizeof uplink->host);
    if (uplink->config->quiet)
        return;
    snprintf(words, sizeof words, "%s hosts, at %s; %s", welcome->host, address,
             waits[welcome->wait >= 0 && welcome->wait <= PROTO_WAIT_ENDING ? welcome->wait : 0]);
    uplink->handlers.note(uplink->member, words);
}

static void on_failed(void *arg, int status, const char *words)
{
    end_alone(arg, status, words);
}

static void on_lost(void *arg, const char *words)
{
    struct uplink *uplink = arg;
    char line[LINE_BYTES];

    snprintf(line, sizeof line, "the link to the coordinator, %.200s, was lost: %s", uplink->host, words);
    end_alone(uplink, FSDP_EXIT_LINK, line);
}

static void on_note(void *arg, const char *words)
{
    struct uplink *uplink = arg;

    uplink->handlers.note(uplink->member, words);
}

/* --- what happens here ---------------------------------------------------------------------------------------------- */

static void send_text(struct uplink *uplink, enum proto_type type, int generation, char *text)
{
    if (text != NULL && !uplink->ending)
        meeting_send(uplink->meeting, type, (uint32_t)generation, text, strlen(text));
    free(text);
}

void uplink_exited(struct uplink *uplink, int generation, const struct death *death,
                   const struct errors_detail *detail)
{
    struct proto_exited exited = { .kind = (uint32_t)death->kind,
                                   .rank = death->rank,
                                   .local_rank = death->local_rank,
                                   .pid = death->pid,
                                   .code = death->code,
                                   .sent_signal = death->sent_signal,
                                   .killed = death->killed,
                                   .age_ns = death->age_ns,
                                   .oom_kill = death->oom_kill,
                                   .step = death->step,
                                   .phase = death->phase };

    snprintf(exited.host, sizeof exited.host, "%s", death->host);
    snprintf(exited.words, sizeof exited.words, "%s", death->words);
    detail_to_proto(&exited.detail, detail);
    send_text(uplink, PROTO_EXITED, generation, proto_write_exited(&exited));
}

void uplink_stopped(struct uplink *uplink, int generation)
{
    uplink->up = false;
    if (uplink->ending)
        finish(uplink);
    else
        meeting_send(uplink->meeting, PROTO_STOPPED, (uint32_t)generation, NULL, 0);
}

void uplink_event(struct uplink *uplink, int generation, int rank, const char *json, size_t length)
{
    size_t size_bytes;
    char *payload = proto_write_event(rank, json, length, &size_bytes);

    if (payload != NULL && !uplink->ending)
        meeting_send(uplink->meeting, PROTO_EVENT, (uint32_t)generation, payload, size_bytes);
    free(payload);
}

void uplink_record(struct uplink *uplink, int generation, const char *event,
                   const struct events_field *fields)
{
    char line[EVENTS_LINE_BYTES];
    const size_t length = events_format(line, sizeof line, 0, generation, event, fields);

    if (length > 0)
        uplink_event(uplink, generation, -1, line, length - 1); /* the coordinator puts its own time in */
}

void uplink_saved(struct uplink *uplink, int generation, int rank, const struct fsdp_link_saved *saved)
{
    send_text(uplink, PROTO_SAVED, generation, proto_write_saved(saved, rank));
}

void uplink_put(struct uplink *uplink, int generation, const char *key, const void *value, size_t size_bytes)
{
    const size_t key_bytes = strlen(key) + 1;
    char *payload = malloc(key_bytes + size_bytes);

    if (payload == NULL || uplink->ending) {
        free(payload);
        return;
    }
    memcpy(payload, key, key_bytes);
    if (size_bytes > 0)
        memcpy(payload + key_bytes, value, size_bytes);
    meeting_send(uplink->meeting, PROTO_PUT, (uint32_t)generation, payload, key_bytes + size_bytes);
    free(payload);
}

/* --- the user's signals --------------------------------------------------------------------------------------------- */

static void ask(struct uplink *uplink, int64_t what)
{
    const int signal = (int)(what & UPLINK_ASK_SIGNAL);
    char line[64], name[32];

    if (meeting_is_member(uplink->meeting) && uplink->generation >= 0) {
        send_text(uplink, PROTO_ASK_STOP, uplink->generation, proto_write_number(what));
        return;
    }
    snprintf(line, sizeof line, "stopped by %s", errors_signal_name(signal, name));
    end_alone(uplink, 128 + signal, line);
}

void uplink_stop(struct uplink *uplink, int signal, bool now)
{
    if (now && uplink->up)
        uplink->ops->stop(uplink->member, signal,
                          true); /* ours at once; the others when the coordinator hears of it */
    ask(uplink, signal | (now ? UPLINK_ASK_NOW : 0));
}

void uplink_forward(struct uplink *uplink, int signal)
{
    if (uplink->up && !uplink->ending)
        ask(uplink, signal | UPLINK_ASK_FORWARD);
}

void uplink_notice(struct uplink *uplink, int signal)
{
    ask(uplink, signal | UPLINK_ASK_SAVE);
}

/* --- opening and closing -------------------------------------------------------------------------------------------- */

enum fsdp_status uplink_create(struct uplink **out, uv_loop_t *loop, const struct agent_config *config,
                               const struct coordinator_member *ops, const struct uplink_handlers *handlers,
                               void *member, struct fsdp_err *err)
{
    static const struct meeting_handlers meeting = { on_hosts, on_welcomed, on_message,
                                                     on_lost,  on_failed,   on_note };
    struct uplink *uplink = calloc(1, sizeof *uplink);
    enum fsdp_status status;

    *out = NULL;
    if (uplink == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    uplink->config = config;
    uplink->ops = ops;
    uplink->handlers = *handlers;
    uplink->member = member;
    uplink->generation = -1;
    status = meeting_create(&uplink->meeting, loop, config, &meeting, uplink, err);
    if (status != FSDP_OK) {
        free(uplink);
        return status;
    }
    *out = uplink;
    return FSDP_OK;
}

void uplink_destroy(struct uplink *uplink)
{
    if (uplink == NULL)
        return;
    meeting_destroy(uplink->meeting);
    free(uplink);
}
