/*
 * The lease of this node: the uplink asks the coordinator for more time, and looks whether the lease is over.
 * A beat is a message of the session that asks; a pulse is a datagram that asks.
 */
#include "agent/rendezvous/uplink_impl.h"

#include <signal.h>
#include <stdio.h>

#include "agent/os/deadlines.h"
#include "shard_runtime/core/clock.h"

/* Asking */

static void on_beat(uv_timer_t *timer);

static void take_news(struct uplink *uplink, const struct pulse_news *news)
{
    if (news->came_ms > uplink->heard_ms)
        uplink->heard_ms = news->came_ms;
    if (news->answered_ns > uplink->answered_ns)
        uplink->answered_ns = news->answered_ns;
}

void uplink_end_pulses(struct uplink *uplink)
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
    if (!uplink->can_lead && uplink_may_stand(uplink)) {
        uplink->can_lead = true;
        meeting_send(uplink->meeting, PROTO_CAN_LEAD, 0, NULL);
    }
}

void uplink_begin_to_ask(struct uplink *uplink)
{
    const uint64_t pace_ms = (uint64_t)uplink->lease_ms / LEASE_BEATS;

    ask_for_lease(uplink);
    uv_timer_start(uplink->beat, on_beat, pace_ms, pace_ms);
}

void uplink_take_answer(struct uplink *uplink, const struct frame *frame)
{
    union proto_message message;
    struct fsdp_err err = { 0 };

    if (proto_decode(PROTO_BEAT, &message, frame->payload, frame->size, &err) != FSDP_OK) {
        uplink_end_wrong(uplink, &err);
        return;
    }
    lease_extend(uplink->lease, message.beat.sent_ns, message.beat.lease_ms);
    uplink->heard_ms = clock_boot_ms();
    if (message.beat.answered_ns > uplink->answered_ns)
        uplink->answered_ns = message.beat.answered_ns;
    if (message.beat.lease_ms != uplink->lease_ms) {
        uplink->lease_ms = message.beat.lease_ms;
        uplink_begin_to_ask(uplink);
    }
    uplink_take_held(uplink);
}

/* The end of the lease */

bool uplink_note_end_of_lease(struct uplink *uplink)
{
    struct proto_fenced fenced;
    char words[COORDINATOR_LINE_BYTES];

    if (!uplink->up || uplink->fenced || !lease_is_over(uplink->lease))
        return false;
    uplink->fenced = true;
    uplink_note_loss(uplink);
    fenced.ago_ms = lease_over_ms(uplink->lease);
    meeting_send(uplink->meeting, PROTO_FENCED, (uint32_t)uplink->generation, &fenced);
    snprintf(words, sizeof words,
             "no answer of the coordinator, %.200s, for %.1f s: the ranks of this node are killed",
             uplink->host, (double)uplink->lease_ms / 1000);
    uplink->handlers.note(uplink->member, words);
    return true;
}

void uplink_look_at_lease(struct uplink *uplink)
{
    if (uplink_note_end_of_lease(uplink))
        uplink_stop_ranks(uplink, &(struct proto_stop){ .signal = SIGTERM, .now = true });
}

/* Timers run before libuv polls. So an agent that stood still checks its lease before it reads anything. */
static void on_beat(uv_timer_t *timer)
{
    uplink_look_at_lease(timer->data);
    ask_for_lease(timer->data);
    uplink_take_held(timer->data);
}
