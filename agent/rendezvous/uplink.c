#include "agent/rendezvous/uplink.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/rendezvous/meeting.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"

enum { HELD_MAX_BYTES = 64 * 1024 * 1024 };

/* A message that is kept until the lease runs: a START, or a message that came after it. */
struct held {
    struct held *next;
    struct frame frame;
    unsigned char payload[];
};

struct uplink {
    const struct agent_config *config;
    coordinator_tell *tell;
    struct uplink_handlers handlers;
    void *member;
    struct meeting *meeting;
    char host[PROTO_TEXT_BYTES]; /* host name of the coordinator */
    int generation;              /* generation of the last START; -1: none came yet */
    /* what the next coordinator goes on with, if this node takes its place */
    struct coordinator_past past;
    int64_t answered_ns; /* of that coordinator: struct proto_beat */
    int64_t heard_ms;    /* when the last answer to a beat came, by CLOCK_BOOTTIME; 0: none came */
    bool leads;          /* this node was given the lead, and takes it as soon as its workers are gone */
    bool up;             /* workers of `generation` may be alive on this node */
    bool bears_loss;     /* if this node is lost, the job goes on without it, or waits for it */
    bool again;          /* the session is lost, and this node joins again when its workers are gone */
    int asked;           /* the signal by which this node asked to stop; 0: it did not */
    /* this node's part in the run ends: PROTO_FINISH follows when its workers are gone */
    bool ending;
    bool finished;
    const struct lease *lease; /* of this node; borrowed */
    int64_t lease_ms;          /* the lease: our own setting until the coordinator tells its own */
    uv_timer_t *beat;          /* fires LEASE_BEATS times per lease, from the first WELCOME on */
    /* ask for the lease too, on a thread of their own; NULL: there is no such thread */
    struct pulse_sender *pulses;
    bool fenced;   /* the lease is over, and the guard kills the ranks */
    bool can_lead; /* this node has told the coordinator that it can take its place */
    struct held *held, **held_end;
    size_t held_bytes;
    struct coordinator_end end; /* the result that this node ends with */
};

/* How the run ends on this node */

static void finish(struct uplink *uplink)
{
    if (uplink->finished)
        return;
    uplink->finished = true;
    lease_bequeath(uplink->lease, NULL, 0); /* it leaves in order */
    uplink->tell(uplink->member, PROTO_FINISH, uplink->generation, &uplink->end);
}

static void stop(struct uplink *uplink, const struct proto_stop *how)
{
    uplink->tell(uplink->member, PROTO_STOP, uplink->generation, how);
}

/*
 * Ends the run on this node: at once if no worker is alive here, otherwise after its workers were stopped.
 * `lost`: the reason is that the coordinator is lost.
 */
static void end_with(struct uplink *uplink, const struct coordinator_end *end, bool lost)
{
    if (uplink->ending || uplink->finished)
        return;
    uplink->ending = true;
    uplink->end = *end;
    errors_detail_copy(&uplink->end.detail, &end->detail);
    if (uplink->up)
        stop(uplink, &(struct proto_stop){ .signal = SIGTERM, .lost = lost });
    else
        finish(uplink);
}

/*
 * Ends the run on this node with `status` and `line`, without a coordinator: it is gone, or was never found.
 */
static void end_alone(struct uplink *uplink, int status, const char *line)
{
    struct coordinator_end end = { .status = status, .node = -1 };

    snprintf(end.line, sizeof end.line, "%s", line);
    end_with(uplink, &end, true);
}

/* Ends the run on this node because a message of the coordinator is invalid. */
static void end_wrong(struct uplink *uplink, const struct fsdp_err *why)
{
    char words[COORDINATOR_LINE_BYTES];

    snprintf(words, sizeof words, "%.200s, which hosts, does not talk as it should: %s", uplink->host,
             why->message);
    end_alone(uplink, FSDP_EXIT_LINK, words);
}

/* The lease */

static void on_beat(uv_timer_t *timer);
static void take_held(struct uplink *uplink);

static bool may_stand(const struct uplink *uplink)
{
    return uplink->handlers.may_stand != NULL && uplink->handlers.may_stand(uplink->member);
}

static void take_news(struct uplink *uplink, const struct pulse_news *news)
{
    if (news->came_ms > uplink->heard_ms)
        uplink->heard_ms = news->came_ms;
    if (news->answered_ns > uplink->answered_ns)
        uplink->answered_ns = news->answered_ns;
}

/* From now on, answers to pulses no longer extend the lease. */
static void end_pulses(struct uplink *uplink)
{
    const struct pulse_news news = pulse_sender_aim(uplink->pulses, NULL);

    take_news(uplink, &news);
}

/*
 * Aims the pulses at the address where the session reaches the coordinator now. Returns whether a pulse was
 * answered lately.
 */
static bool has_pulses(struct uplink *uplink)
{
    const int64_t pace_ms = uplink->lease_ms / LEASE_BEATS;
    struct pulse_aim aim = { .pace_ms = pace_ms, .patience_ms = PULSE_LEASES * uplink->lease_ms };
    struct pulse_news news;

    if (!meeting_aim(uplink->meeting, &aim))
        return false;
    if (uplink->pulses == NULL)
        uplink->pulses = pulse_sender_create(uplink->lease, meeting_key(uplink->meeting));
    pulse_sender_aim(uplink->pulses, &aim);
    news = pulse_sender_turn(uplink->pulses, uplink->answered_ns);
    take_news(uplink, &news);
    if (news.came_ms != 0)
        meeting_pulse(uplink->meeting, clock_boot_ms() - news.came_ms);
    return news.came_ms > clock_boot_ms() - 2 * pace_ms;
}

/* Leaves the guard what it needs to speak to the coordinator, whose address may have changed. */
static void renew_will(const struct uplink *uplink)
{
    struct swept_will will;

    if (meeting_will(uplink->meeting, &will))
        lease_bequeath(uplink->lease, &will, sizeof will);
}

static void ask_for_lease(struct uplink *uplink)
{
    struct proto_beat beat = { .lease_ms = uplink->lease_ms };

    if (uplink->ending)
        return;
    renew_will(uplink);
    if (!has_pulses(uplink)) {
        beat.sent_ns = clock_boot_ns();
        beat.answered_ns = uplink->answered_ns;
        meeting_send(uplink->meeting, PROTO_BEAT, 0, &beat);
    }
    if (!uplink->can_lead && may_stand(uplink)) {
        uplink->can_lead = true;
        meeting_send(uplink->meeting, PROTO_CAN_LEAD, 0, NULL);
    }
}

static void begin_to_ask(struct uplink *uplink)
{
    const uint64_t pace_ms = (uint64_t)uplink->lease_ms / LEASE_BEATS;

    ask_for_lease(uplink);
    uv_timer_start(uplink->beat, on_beat, pace_ms, pace_ms);
}

/* Notes the time at which the coordinator was lost, unless it is noted already. */
static void note_loss(struct uplink *uplink)
{
    struct coordinator_past *past = &uplink->past;

    if (past->lost_ns != 0)
        return;
    past->lost_ns = clock_boot_ns();
    past->heard_ns = uplink->heard_ms != 0 ? uplink->heard_ms * 1000000 : past->lost_ns;
}

/*
 * Looks whether the lease of the generation is over, because the coordinator has not answered for so long, or
 * this agent stood still. If it is, the guard kills the ranks. The coordinator is told as soon as there is a
 * connection to it, and this node takes part in the next generation. If the session is lost as well, the node
 * joins again.
 */
static bool note_end_of_lease(struct uplink *uplink)
{
    struct proto_fenced fenced;
    char words[COORDINATOR_LINE_BYTES];

    if (!uplink->up || uplink->fenced || !lease_is_over(uplink->lease))
        return false;
    uplink->fenced = true;
    note_loss(uplink);
    fenced.ago_ms = lease_over_ms(uplink->lease);
    meeting_send(uplink->meeting, PROTO_FENCED, (uint32_t)uplink->generation, &fenced);
    snprintf(words, sizeof words,
             "no answer of the coordinator, %.200s, for %.1f s: the ranks of this node are killed",
             uplink->host, (double)uplink->lease_ms / 1000);
    uplink->handlers.note(uplink->member, words);
    return true;
}

static void look_at_lease(struct uplink *uplink)
{
    if (note_end_of_lease(uplink))
        stop(uplink, &(struct proto_stop){ .signal = SIGTERM, .now = true });
}

/* Timers run before libuv polls. So an agent that stood still checks its lease before it reads anything. */
static void on_beat(uv_timer_t *timer)
{
    look_at_lease(timer->data);
    ask_for_lease(timer->data);
    take_held(timer->data);
}

static void hold(struct uplink *uplink, const struct frame *frame)
{
    struct held *held = malloc(sizeof *held + frame->size);

    uplink->held_bytes += frame->size;
    if (held == NULL || uplink->held_bytes > HELD_MAX_BYTES) {
        free(held);
        end_alone(uplink, FSDP_EXIT_LINK, "the coordinator does not answer, but sends more than can be kept");
        return;
    }
    held->next = NULL;
    held->frame = *frame;
    if (frame->size > 0)
        memcpy(held->payload, frame->payload, frame->size);
    held->frame.payload = held->payload;
    *uplink->held_end = held;
    uplink->held_end = &held->next;
}

static void drop_held(struct uplink *uplink)
{
    for (struct held *held = uplink->held; held != NULL; held = uplink->held) {
        uplink->held = held->next;
        free(held);
    }
    uplink->held_end = &uplink->held;
    uplink->held_bytes = 0;
}

static void take_frame(struct uplink *uplink, const struct frame *frame);

/* The lease runs now: handles the messages that were kept for that. */
static void take_held(struct uplink *uplink)
{
    while (uplink->held != NULL && lease_runs(uplink->lease)) {
        struct held *held = uplink->held;

        uplink->held = held->next;
        uplink->held_bytes -= held->frame.size;
        if (uplink->held == NULL)
            uplink->held_end = &uplink->held;
        take_frame(uplink, &held->frame);
        free(held);
    }
}

static void take_answer(struct uplink *uplink, const struct frame *frame)
{
    union proto_message message;
    struct fsdp_err err = { 0 };

    if (proto_decode(PROTO_BEAT, &message, frame->payload, frame->size, &err) != FSDP_OK) {
        end_wrong(uplink, &err);
        return;
    }
    lease_extend(uplink->lease, message.beat.sent_ns, message.beat.lease_ms);
    uplink->heard_ms = clock_boot_ms();
    if (message.beat.answered_ns > uplink->answered_ns)
        uplink->answered_ns = message.beat.answered_ns;
    if (message.beat.lease_ms != uplink->lease_ms) {
        uplink->lease_ms = message.beat.lease_ms;
        begin_to_ask(uplink);
    }
    take_held(uplink);
}

/* Messages from the coordinator */

static enum fsdp_status take_start(struct uplink *uplink, const struct frame *frame, struct world_plan *plan,
                                   struct fsdp_err *err)
{
    const int n_workers = uplink->config->n_workers;

    if (uplink->up || plan->first_rank > plan->world_size - n_workers || plan->node_rank >= plan->n_nodes ||
        plan->role_rank > plan->role_world_size - n_workers)
        return fsdp_fail(
            err, FSDP_ERR_FORMAT,
            "a generation that cannot be: ranks from %d of %d on node %d of %d, from %d of %d in its role",
            plan->first_rank, plan->world_size, plan->node_rank, plan->n_nodes, plan->role_rank,
            plan->role_world_size);
    plan->generation = uplink->generation = (int)frame->generation;
    uplink->past.node_rank = plan->node_rank;
    uplink->past.progress.generation = plan->generation;
    /* a leader that took over may know of fewer restarts, if it was in no generation before */
    if (uplink->past.progress.n_restarts < (uint32_t)plan->restart_count)
        uplink->past.progress.n_restarts = (uint32_t)plan->restart_count;
    uplink->past.progress.step = plan->resume_step;
    uplink->past.lost_ns = uplink->past.stopped_ns = 0;
    uplink->past.held.world_size = 0;
    meeting_set_held(uplink->meeting, &uplink->past.held);
    uplink->past.last_step = -1;
    uplink->bears_loss = plan->bears_loss;
    uplink->up = true;
    lease_begin(uplink->lease, plan->generation);
    uplink->tell(uplink->member, PROTO_START, plan->generation, plan);
    return FSDP_OK;
}

static enum fsdp_status take_message(struct uplink *uplink, const struct frame *frame, struct fsdp_err *err)
{
    union proto_message message;

    if (frame->type == PROTO_SHOW) { /* it has no payload */
        uplink->tell(uplink->member, PROTO_SHOW, uplink->generation, NULL);
        return FSDP_OK;
    }
    if (frame->type == PROTO_CLOSE) {
        uplink->tell(uplink->member, PROTO_CLOSE, (int)frame->generation, NULL);
        return FSDP_OK;
    }
    OK_OR_RETURN(proto_decode(frame->type, &message, frame->payload, frame->size, err));
    switch (frame->type) {
    case PROTO_OPEN:
        uplink->tell(uplink->member, PROTO_OPEN, (int)frame->generation, &message.open);
        return FSDP_OK;
    case PROTO_ENDED:
    case PROTO_ENTRY:
        uplink->tell(uplink->member, (enum proto_type)frame->type, (int)frame->generation, &message);
        return FSDP_OK;
    case PROTO_START:
        return take_start(uplink, frame, &message.start, err);
    case PROTO_FINISH:
        message.finish.status &= 0xff;
        end_with(uplink, &message.finish, false);
        return FSDP_OK;
    case PROTO_NOTICE:
        message.notice.kind = FSDP_NOTICE_SAVE_AND_STOP;
        /* fall through */
    case PROTO_STOP:
    case PROTO_FORWARD:
    case PROTO_PUBLISHED:
    case PROTO_PUT:
    case PROTO_LOOK:
    case PROTO_HUNG:
        uplink->tell(uplink->member, (enum proto_type)frame->type, uplink->generation, &message);
        return FSDP_OK;
    default:
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a message of type %u (%s)", frame->type,
                         proto_name(frame->type));
    }
}

/*
 * Is the message about the generation whose ranks run on this node, and not about a later one or about the
 * run?
 */
static bool needs_ranks(const struct frame *frame)
{
    return frame->type != PROTO_START && frame->type != PROTO_FINISH && frame->type != PROTO_OPEN &&
           frame->type != PROTO_CLOSE && frame->type != PROTO_ENDED && frame->type != PROTO_ENTRY;
}

static void take_frame(struct uplink *uplink, const struct frame *frame)
{
    struct fsdp_err err = { 0 };

    if (uplink->ending || uplink->finished)
        return;
    if (needs_ranks(frame) && (!uplink->up || frame->generation != (uint32_t)uplink->generation))
        return; /* the message concerns a generation that is over on this node */
    if (take_message(uplink, frame, &err) != FSDP_OK)
        end_wrong(uplink, &err);
}

/*
 * Handles a message of the coordinator. A START needs a lease. So it is kept until a beat is answered, and so
 * are all messages after it.
 */
static void on_message(void *arg, const struct frame *frame)
{
    struct uplink *uplink = arg;

    if (frame->type == PROTO_BEAT)
        take_answer(uplink, frame);
    else if (frame->type != PROTO_FINISH && !uplink->ending &&
             (uplink->held != NULL || (frame->type == PROTO_START && !lease_runs(uplink->lease))))
        hold(uplink, frame);
    else
        take_frame(uplink, frame);
}

static bool on_offers(void *arg, const char *host, int port)
{
    struct uplink *uplink = arg;

    return uplink->handlers.offers(uplink->member, host, port);
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
        [PROTO_WAIT_RUNNING] = "the world runs; a new one will be formed with this node",
        [PROTO_WAIT_SPARE] = "the world is full: waiting as a spare",
        [PROTO_WAIT_ENDING] = "the world is ending: this node takes part only if it starts again",
        [PROTO_WAIT_QUARANTINE] = "this node was lost more than once: it takes part again after",
        [PROTO_WAIT_SLOW] = "a rank of this node was slow: it takes part again after",
        [PROTO_WAIT_UNKILLED] = "it takes part again when its processes that cannot be killed have ended",
    };
    struct uplink *uplink = arg;
    char words[PROTO_TEXT_BYTES + 200];
    int n;

    memcpy(uplink->host, welcome->host, sizeof uplink->host);
    memcpy(uplink->past.run, welcome->run, sizeof uplink->past.run);
    uplink->past.first_attempt = welcome->first_attempt;
    if (uplink->handlers.joined != NULL)
        uplink->handlers.joined(uplink->member, welcome->identity, welcome->term);
    end_pulses(uplink);
    uplink->answered_ns = 0;
    uplink->can_lead = false;
    uplink->past.lost_ns = 0;
    /* a new session: the coordinator knows only of answers that it gives from now on */
    lease_clear(uplink->lease);
    begin_to_ask(uplink);
    if (uplink->config->quiet)
        return;
    n = snprintf(words, sizeof words, "%s hosts, at %s; %s", welcome->host, address, waits[welcome->wait]);
    if (welcome->wait == PROTO_WAIT_QUARANTINE || welcome->wait == PROTO_WAIT_SLOW)
        snprintf(words + n, sizeof words - (size_t)n, " %d s", welcome->seconds);
    uplink->handlers.note(uplink->member, words);
}

static void on_failed(void *arg, int status, const char *words)
{
    end_alone(arg, status, words);
}

static void end_stopped(struct uplink *uplink, int signal)
{
    char line[64], name[32];

    snprintf(line, sizeof line, "stopped by %s", errors_signal_name(signal, name));
    end_alone(uplink, 128 + signal, line);
}

/*
 * Tells the caller that this node may take the lead: none of its ranks is left, and the coordinator may be
 * gone for good.
 */
static void stand(struct uplink *uplink)
{
    struct fsdp_err err = { 0 };
    const char *host;
    int port;

    if (meeting_offer(uplink->meeting, &host, &port, &err) == FSDP_OK)
        uplink->handlers.stands(uplink->member, uplink->past.node_rank, host, port, uplink->heard_ms);
    else
        uplink->handlers.note(uplink->member, err.message);
}

/*
 * Joins as a new node: the session is lost, and no process of the generation is left here. What belonged to
 * that generation is dropped.
 */
static void join_again(struct uplink *uplink)
{
    uplink->again = false;
    uplink->generation = -1;
    uplink->bears_loss = true;
    uplink->tell(uplink->member, PROTO_CLOSE, uplink->past.progress.generation, NULL);
    drop_held(uplink);
    uv_timer_stop(uplink->beat);
    meeting_again(uplink->meeting, uplink->past.progress.generation, uplink->past.node_rank);
    if (uplink->leads)
        meeting_lead(uplink->meeting);
    else if (may_stand(uplink))
        stand(uplink);
}

/*
 * The session is lost. The ranks of this node end, because they belong to a generation that the coordinator
 * has given up, or will. Then the node joins again if the coordinator may still live and bears the loss of a
 * node, or if it may have a successor. Otherwise the run ends here.
 */
static void on_lost(void *arg, const struct fsdp_err *why)
{
    struct uplink *uplink = arg;
    /* not if one of the two agents was restored from an earlier state: it is refused for good */
    const bool again = (why->status == FSDP_ERR_PEER || may_stand(uplink)) && uplink->bears_loss &&
                       why->status != FSDP_ERR_MISMATCH;
    char line[COORDINATOR_LINE_BYTES];

    end_pulses(uplink);
    if (again && uplink->asked != 0) {
        end_stopped(uplink, uplink->asked);
        return;
    }
    snprintf(line, sizeof line, "the link to the coordinator, %.200s, was lost: %s%s", uplink->host,
             why->message,
             !again       ? ""
             : uplink->up ? "; this node ends its ranks and joins again"
                          : "; this node joins again");
    if (!again) {
        end_alone(uplink, FSDP_EXIT_LINK, line);
        return;
    }
    if (uplink->ending || uplink->finished)
        return;
    note_loss(uplink);
    uplink->handlers.note(uplink->member, line);
    uplink->again = uplink->up;
    if (uplink->up)
        stop(uplink, &(struct proto_stop){ .signal = SIGTERM, .lost = true });
    else
        join_again(uplink);
}

static void on_note(void *arg, const char *words)
{
    struct uplink *uplink = arg;

    uplink->handlers.note(uplink->member, words);
}

/* Reports from this node to the coordinator */

static void send_message(struct uplink *uplink, enum proto_type type, int generation, const void *message)
{
    if (!uplink->ending)
        meeting_send(uplink->meeting, type, (uint32_t)generation, message);
}

static void report_exited(void *to, int generation, const struct death *death,
                          const struct errors_detail *detail)
{
    struct proto_exited exited = { .death = *death };
    struct uplink *uplink = to;

    if (death->step > uplink->past.last_step)
        uplink->past.last_step = death->step;
    /*
     * before the report: the coordinator should learn that the lease is over before it learns what followed
     */
    look_at_lease(uplink);
    if (detail != NULL)
        errors_detail_copy(&exited.detail, detail);
    send_message(to, PROTO_EXITED, generation, &exited);
}

static void report_explained(void *to, int generation, const char *json, size_t length)
{
    send_message(to, PROTO_EXPLAINED, generation, &(struct proto_explained){ json, length });
}

static void report_held(void *to, int generation, const struct restore_steps *held)
{
    struct uplink *uplink = to;

    uplink->past.held = *held; /* kept for another coordinator, if this one is lost */
    meeting_set_held(uplink->meeting, held);
    if (!uplink->ending && !uplink->again)
        send_message(to, PROTO_HELD, generation, held);
}

static void report_entry(void *to, int generation, const struct snapshot_entry *entry)
{
    const struct uplink *uplink = to;

    if (!uplink->ending && !uplink->again)
        send_message(to, PROTO_ENTRY, generation, entry);
}

static void report_stopped(void *to, int generation)
{
    struct uplink *uplink = to;

    (void)note_end_of_lease(uplink); /* there is nothing left to stop */
    uplink->up = uplink->fenced = false;
    uplink->past.stopped_ns = clock_boot_ns();
    lease_end(uplink->lease);
    if (uplink->ending)
        finish(uplink);
    else if (uplink->again)
        join_again(uplink);
    else
        send_message(uplink, PROTO_STOPPED, generation, NULL);
}

static void report_unkilled(void *to, int n)
{
    const struct uplink *uplink = to;

    meeting_set_unkilled(uplink->meeting, n);
}

static void report_event(void *to, int generation, int rank, const char *json, size_t length)
{
    send_message(to, PROTO_EVENT, generation, &(struct proto_event){ rank, json, length });
}

static void report_record(void *to, int generation, const char *event, const struct events_field *fields)
{
    char line[EVENTS_LINE_BYTES];
    const size_t length = events_format(line, sizeof line, 0, generation, event, fields);

    if (length > 0)
        report_event(to, generation, -1, line, length - 1); /* the coordinator adds its own time */
}

static void report_saved(void *to, int generation, int rank, const struct fsdp_link_saved *saved,
                         int manifest_fd)
{
    if (manifest_fd >= 0)
        close(manifest_fd); /* only rank 0 has a manifest's head, and rank 0 runs on the coordinator's node */
    send_message(to, PROTO_SAVED, generation, &(struct proto_saved){ .rank = rank, .saved = *saved });
}

static void report_suspects(void *to, int generation)
{
    send_message(to, PROTO_SUSPECT, generation, NULL);
}

static void report_rank(void *to, int generation, uint64_t question, const struct hang_rank *rank)
{
    send_message(to, PROTO_RANK, generation, &(struct proto_rank){ .question = question, .rank = *rank });
}

static void report_pace(void *to, int generation, const struct pace *pace)
{
    send_message(to, PROTO_PACE, generation, pace);
}

static void report_put(void *to, int generation, const char *key, const void *value, size_t size_bytes)
{
    send_message(to, PROTO_PUT, generation, &(struct proto_put){ key, value, size_bytes });
}

static void report_want(void *to, int generation, const char *key)
{
    send_message(to, PROTO_WANT, generation, &(struct proto_want){ key });
}

static void report_store(void *to, int generation, const struct reporter_store *store)
{
    send_message(to, PROTO_STORE, generation, store);
}

static void report_asked(void *to, int signal, enum reporter_ask how)
{
    struct uplink *uplink = to;
    const struct proto_ask ask = { .signal = signal, .how = how };

    /* without a coordinator the ranks are ending */
    if (how == REPORTER_FORWARD && (!uplink->up || !meeting_is_member(uplink->meeting)))
        return;
    if (how != REPORTER_FORWARD)
        uplink->asked = signal;
    if (how == REPORTER_STOP_NOW &&
        /*
         * stop this node's workers at once; the coordinator stops those of other nodes when it gets the
         * request
         */
        uplink->up)
        stop(uplink, &(struct proto_stop){ .signal = signal, .now = true });
    if (meeting_is_member(uplink->meeting) && uplink->generation >= 0) {
        send_message(uplink, PROTO_ASK, uplink->generation, &ask);
        return;
    }
    end_stopped(uplink, signal);
}

struct reporter uplink_reporter(struct uplink *uplink)
{
    return (struct reporter){ .to = uplink,
                              .exited = report_exited,
                              .explained = report_explained,
                              .held = report_held,
                              .entry = report_entry,
                              .stopped = report_stopped,
                              .unkilled = report_unkilled,
                              .event = report_event,
                              .record = report_record,
                              .saved = report_saved,
                              .suspects = report_suspects,
                              .rank = report_rank,
                              .pace = report_pace,
                              .put = report_put,
                              .want = report_want,
                              .store = report_store,
                              .asked = report_asked };
}

void uplink_lead(struct uplink *uplink)
{
    if (uplink->ending || uplink->finished || uplink->leads)
        return;
    uplink->leads = true;
    end_pulses(uplink);
    note_loss(uplink);
    if (uplink->up && !uplink->again)
        /* the node that it joined again is no leader any more: stop as if the coordinator were lost */
        stop(uplink, &(struct proto_stop){ .signal = SIGTERM, .now = true, .lost = true });
    uplink->again = uplink->up;
    if (!uplink->up)
        meeting_lead(uplink->meeting);
}

void uplink_keep_identity(struct uplink *uplink, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    meeting_keep_identity(uplink->meeting, identity);
}

void uplink_follow(struct uplink *uplink, const char *host, int port)
{
    if (!uplink->leads)
        meeting_follow(uplink->meeting, host, port);
}

void uplink_rejoin(struct uplink *uplink, const struct coordinator_past *past, const char *host)
{
    uplink->past = *past;
    meeting_set_held(uplink->meeting, &past->held);
    note_loss(uplink);
    snprintf(uplink->host, sizeof uplink->host, "the one after this node");
    meeting_resume(uplink->meeting, past->run, host);
    join_again(uplink);
}

void uplink_over(struct uplink *uplink, int exit_status)
{
    char words[96];

    if (meeting_is_member(uplink->meeting))
        return;
    snprintf(words, sizeof words, "the job ended with status %d while this node had lost its link to it",
             exit_status);
    end_alone(uplink, exit_status, exit_status == 0 ? "" : words);
}

void uplink_past(const struct uplink *uplink, struct coordinator_past *past)
{
    *past = uplink->past;
}

void uplink_swept(struct uplink *uplink)
{
    if (uplink->up)
        meeting_send(uplink->meeting, PROTO_SWEPT, (uint32_t)uplink->generation, NULL);
}

/* Opening and closing */

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

enum fsdp_status uplink_create(struct uplink **out, uv_loop_t *loop, const struct agent_config *config,
                               coordinator_tell *tell, const struct uplink_handlers *handlers, void *member,
                               const struct lease *lease, struct fsdp_err *err)
{
    const struct meeting_handlers meeting = { .hosts = on_hosts,
                                              .offers = handlers->offers == NULL ? NULL : on_offers,
                                              .welcomed = on_welcomed,
                                              .message = on_message,
                                              .lost = on_lost,
                                              .failed = on_failed,
                                              .note = on_note };
    struct uplink *uplink = calloc(1, sizeof *uplink);
    enum fsdp_status status;

    *out = NULL;
    if (uplink == NULL || (uplink->beat = calloc(1, sizeof *uplink->beat)) == NULL) {
        free(uplink);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    }
    uplink->config = config;
    uplink->tell = tell;
    uplink->handlers = *handlers;
    uplink->member = member;
    uplink->lease = lease;
    uplink->lease_ms = LEASE_RANKS_MS(config->lease_ms);
    uplink->held_end = &uplink->held;
    uplink->generation = uplink->past.node_rank = uplink->past.progress.generation = -1;
    uplink->past.progress.step = uplink->past.last_step = -1;
    uplink->bears_loss = true;
    status = meeting_create(&uplink->meeting, loop, config, &meeting, uplink, err);
    if (status != FSDP_OK) {
        free(uplink->beat);
        free(uplink);
        return status;
    }
    uv_timer_init(loop, uplink->beat);
    uplink->beat->data = uplink;
    *out = uplink;
    return FSDP_OK;
}

void uplink_destroy(struct uplink *uplink)
{
    if (uplink == NULL)
        return;
    lease_bequeath(uplink->lease, NULL, 0);
    pulse_sender_destroy(uplink->pulses);
    meeting_destroy(uplink->meeting);
    uv_close((uv_handle_t *)uplink->beat, on_timer_closed);
    drop_held(uplink);
    free(uplink);
}
