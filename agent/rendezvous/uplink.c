/*
 * The line itself: this node meets the others, is let in, loses its coordinator, joins again, and ends.
 */
#include "agent/rendezvous/uplink_impl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/deadlines.h"
#include "shard_runtime/core/clock.h"

/* How the run ends on this node */

void uplink_finish(struct uplink *uplink)
{
    if (uplink->finished)
        return;
    uplink->finished = true;
    lease_bequeath(uplink->lease, NULL, 0); /* it leaves in order */
    uplink->tell(uplink->member, PROTO_FINISH, uplink->generation, &uplink->end);
}

void uplink_stop_ranks(struct uplink *uplink, const struct proto_stop *how)
{
    uplink->tell(uplink->member, PROTO_STOP, uplink->generation, how);
}

void uplink_end_with(struct uplink *uplink, const struct coordinator_end *end, bool lost)
{
    if (uplink->ending || uplink->finished)
        return;
    uplink->ending = true;
    uplink->end = *end;
    errors_detail_copy(&uplink->end.detail, &end->detail);
    if (uplink->up)
        uplink_stop_ranks(uplink, &(struct proto_stop){ .signal = SIGTERM, .lost = lost });
    else
        uplink_finish(uplink);
}

void uplink_end_alone(struct uplink *uplink, int status, const char *line)
{
    struct coordinator_end end = { .status = status, .node = -1 };

    snprintf(end.line, sizeof end.line, "%s", line);
    uplink_end_with(uplink, &end, true);
}

void uplink_end_wrong(struct uplink *uplink, const struct fsdp_err *why)
{
    char words[COORDINATOR_LINE_BYTES];

    snprintf(words, sizeof words, "%.200s, which hosts, does not talk as it should: %s", uplink->host,
             why->message);
    uplink_end_alone(uplink, FSDP_EXIT_LINK, words);
}

void uplink_end_stopped(struct uplink *uplink, int signal)
{
    char line[64], name[32];

    snprintf(line, sizeof line, "stopped by %s", errors_signal_name(signal, name));
    uplink_end_alone(uplink, 128 + signal, line);
}

/* What the meeting says */

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
    uplink_end_pulses(uplink);
    uplink->answered_ns = 0;
    uplink->can_lead = false;
    uplink->past.lost_ns = 0;
    /* a new session: the coordinator knows only of answers that it gives from now on */
    lease_clear(uplink->lease);
    uplink_begin_to_ask(uplink);
    if (uplink->config->quiet)
        return;
    n = snprintf(words, sizeof words, "%s hosts, at %s; %s", welcome->host, address, waits[welcome->wait]);
    if (welcome->wait == PROTO_WAIT_QUARANTINE || welcome->wait == PROTO_WAIT_SLOW)
        snprintf(words + n, sizeof words - (size_t)n, " %d s", welcome->seconds);
    uplink->handlers.note(uplink->member, words);
}

static void on_failed(void *arg, int status, const char *words)
{
    uplink_end_alone(arg, status, words);
}

static void on_note(void *arg, const char *words)
{
    struct uplink *uplink = arg;

    uplink->handlers.note(uplink->member, words);
}

/* The coordinator is lost */

bool uplink_may_stand(const struct uplink *uplink)
{
    return uplink->handlers.may_stand != NULL && uplink->handlers.may_stand(uplink->member);
}

void uplink_note_loss(struct uplink *uplink)
{
    struct coordinator_past *past = &uplink->past;

    if (past->lost_ns != 0)
        return;
    past->lost_ns = clock_boot_ns();
    past->heard_ns = uplink->heard_ms != 0 ? uplink->heard_ms * 1000000 : past->lost_ns;
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

void uplink_join_again(struct uplink *uplink)
{
    uplink->again = false;
    uplink->generation = -1;
    uplink->bears_loss = true;
    uplink->tell(uplink->member, PROTO_CLOSE, uplink->past.progress.generation, NULL);
    uplink_drop_held(uplink);
    uv_timer_stop(uplink->beat);
    meeting_again(uplink->meeting, uplink->past.progress.generation, uplink->past.node_rank);
    if (uplink->leads)
        meeting_lead(uplink->meeting);
    else if (uplink_may_stand(uplink))
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
    const bool again = (why->status == FSDP_ERR_PEER || uplink_may_stand(uplink)) && uplink->bears_loss &&
                       why->status != FSDP_ERR_MISMATCH;
    char line[COORDINATOR_LINE_BYTES];

    uplink_end_pulses(uplink);
    if (again && uplink->asked != 0) {
        uplink_end_stopped(uplink, uplink->asked);
        return;
    }
    snprintf(line, sizeof line, "the link to the coordinator, %.200s, was lost: %s%s", uplink->host,
             why->message,
             !again       ? ""
             : uplink->up ? "; this node ends its ranks and joins again"
                          : "; this node joins again");
    if (!again) {
        uplink_end_alone(uplink, FSDP_EXIT_LINK, line);
        return;
    }
    if (uplink->ending || uplink->finished)
        return;
    uplink_note_loss(uplink);
    uplink->handlers.note(uplink->member, line);
    uplink->again = uplink->up;
    if (uplink->up)
        uplink_stop_ranks(uplink, &(struct proto_stop){ .signal = SIGTERM, .lost = true });
    else
        uplink_join_again(uplink);
}

/* What the run says */

void uplink_lead(struct uplink *uplink)
{
    if (uplink->ending || uplink->finished || uplink->leads)
        return;
    uplink->leads = true;
    uplink_end_pulses(uplink);
    uplink_note_loss(uplink);
    if (uplink->up && !uplink->again)
        /* the node that it joined again is no leader any more: stop as if the coordinator were lost */
        uplink_stop_ranks(uplink, &(struct proto_stop){ .signal = SIGTERM, .now = true, .lost = true });
    uplink->again = uplink->up;
    if (!uplink->up)
        meeting_lead(uplink->meeting);
}

void uplink_follow(struct uplink *uplink, const char *host, int port)
{
    if (!uplink->leads)
        meeting_follow(uplink->meeting, host, port);
}

void uplink_over(struct uplink *uplink, int exit_status)
{
    char words[96];

    if (meeting_is_member(uplink->meeting))
        return;
    snprintf(words, sizeof words, "the job ended with status %d while this node had lost its link to it",
             exit_status);
    uplink_end_alone(uplink, exit_status, exit_status == 0 ? "" : words);
}

void uplink_past(const struct uplink *uplink, struct coordinator_past *past)
{
    *past = uplink->past;
}

void uplink_keep_identity(struct uplink *uplink, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    meeting_keep_identity(uplink->meeting, identity);
}

void uplink_rejoin(struct uplink *uplink, const struct coordinator_past *past, const char *host)
{
    uplink->past = *past;
    meeting_set_held(uplink->meeting, &past->held);
    uplink_note_loss(uplink);
    snprintf(uplink->host, sizeof uplink->host, "the one after this node");
    meeting_resume(uplink->meeting, past->run, host);
    uplink_join_again(uplink);
}

/* Opening and closing */

void uplink_swept(struct uplink *uplink)
{
    if (uplink->up)
        meeting_send(uplink->meeting, PROTO_SWEPT, (uint32_t)uplink->generation, NULL);
}

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
                                              .message = uplink_take,
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
    uplink_drop_held(uplink);
    free(uplink);
}
