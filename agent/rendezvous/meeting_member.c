/*
 * The session with the node that hosts: it lets this node in or refuses it, and later the session may be
 * lost. A member speaks to its coordinator through it.
 */
#include "agent/rendezvous/meeting_impl.h"

#include <stdio.h>
#include <string.h>

static void on_opened(void *arg, struct session *session)
{
    struct meeting *meeting = arg;

    uv_timer_start(&meeting->timer, meeting_on_timer, meeting_left_ms(meeting), 0);
    meeting->joined_unkilled = meeting->self.n_unkilled;
    rendezvous_tell(session, PROTO_JOIN, 0, &meeting->self);
}

static void on_note(void *arg, const char *words)
{
    const struct meeting *meeting = arg;

    meeting->handlers.note(meeting->arg, words);
}

/* The end of the session */

/* The session ended after WELCOME but before any generation began: this node meets the others again. */
static void meet_again(struct meeting *meeting, const char *why)
{
    char words[FSDP_ERR_MESSAGE_BYTES + PROTO_TEXT_BYTES + 96];

    snprintf(words, sizeof words, "the link to %.200s was lost before the world was formed (%s)",
             meeting->host, why);
    meeting->handlers.note(meeting->arg, words);
    meeting_begin_anew(meeting);
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
    meeting_end_round(meeting, false);
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
    meeting_fail(meeting, refused->status & 0xff, words);
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
    meeting_end_offer(meeting);
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

const struct session_handlers meeting_session_handlers = {
    .opened = on_opened, .frame = on_frame, .ended = on_ended, .note = on_note
};

/* What a member says and asks */

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
