#include "agent/arbiter/lead.h"

#include <assert.h>
#include <string.h>

#include "agent/os/deadlines.h"

void lead_init(struct lead *lead, const struct leader_record *self, int64_t now_ms)
{
    *lead = (struct lead){ .self = *self, .role = LEAD_WATCHES, .next_ms = now_ms };
    lead->looked_ms = lead->turned_ms = lead->published_ms = now_ms;
    lead->self.term = lead->self.sequence = 0;
    lead->self.state = LEADER_LEADS;
    lead->self.progress =
        (struct leader_progress){ .generation = -1, .n_restarts_left = UINT32_MAX, .step = -1 };
}

static bool leads(const struct lead *lead)
{
    return lead->role == LEAD_LEADS || lead->role == LEAD_RESIGNS;
}

static bool is_ours(const struct lead *lead, const struct leader_record *record)
{
    return record->term > 0 && record->run == lead->self.run;
}

static bool is_own(const struct lead *lead, const struct leader_record *record)
{
    return is_ours(lead, record) &&
           memcmp(record->identity, lead->self.identity, sizeof record->identity) == 0;
}

/* Returns the lease of the known record's leader, by which the record is judged. */
static int64_t lease_of(const struct lead *lead)
{
    return lead->known.term > 0 ? lead->known.lease_ms : lead->self.lease_ms;
}

static bool take(bool *news)
{
    const bool was = *news;

    *news = false;
    return was;
}

/* Wishes */

static bool is_last(int seat)
{
    return seat < 0 || seat > LEAD_LAST_SEAT;
}

static void move_to(struct lead *lead, const char *host, int port)
{
    memset(lead->self.host, 0, sizeof lead->self.host);
    strncpy(lead->self.host, host, sizeof lead->self.host - 1);
    lead->self.port = port;
}

void lead_first(struct lead *lead, const char *host, int port)
{
    if (lead->role != LEAD_WATCHES)
        return;
    lead->first = true;
    move_to(lead, host, port);
}

void lead_stand(struct lead *lead, int seat, const char *host, int port, int64_t heard_ms, uint64_t let_in,
                int64_t now_ms)
{
    if (lead->role != LEAD_WATCHES)
        return;
    lead->stands = true;
    lead->seat = seat;
    if (heard_ms > lead->heard_ms)
        lead->heard_ms = heard_ms;
    lead->let_in = let_in;
    lead->stood_ms = now_ms;
    if (lead->rests)
        lead->next_ms = now_ms;
    move_to(lead, host, port);
}

void lead_old_is_gone(struct lead *lead, int64_t now_ms)
{
    lead->gone_ms = now_ms;
}

void lead_sit(struct lead *lead, int seat)
{
    const bool rested = lead->rests;
    const int64_t soon_ms = lead->began_ms + lease_of(lead) / LEAD_READS;

    lead->rests = is_last(seat);
    lead->is_early = lead->call != LEAD_NO_CALL;
    if (rested && !lead->rests && lead->next_ms > soon_ms)
        lead->next_ms = soon_ms; /* a spare has a seat: the next read was put off for a lease */
}

static void watch_again(struct lead *lead)
{
    lead->role = LEAD_WATCHES;
    lead->self.state = LEADER_LEADS;
    lead->hold_ms = lead->contact_ms = 0;
}

void lead_withdraw(struct lead *lead)
{
    if (take(&lead->began))
        watch_again(lead);
    lead->first = lead->stands = lead->first_saw_a_leader = false;
    lead->ripe_ms = lead->gone_ms = 0;
}

void lead_publish(struct lead *lead, const struct leader_progress *progress, int64_t now_ms)
{
    if (lead->role != LEAD_LEADS)
        return;
    lead->self.progress = *progress;
    lead->published_ms = now_ms;
    lead->dirty = true;
}

void lead_move(struct lead *lead, const char *host, int port)
{
    if (lead->role != LEAD_LEADS)
        return;
    move_to(lead, host, port);
    lead->dirty = true;
}

void lead_go_on(struct lead *lead, bool unlocked)
{
    if (lead->role != LEAD_LEADS || (lead->self.goes_on && lead->self.unlocked == unlocked))
        return;
    lead->self.goes_on = lead->dirty = true;
    lead->self.unlocked = unlocked;
}

/* Only a record that certainly was written counts, because other agents act on what they read. */
void lead_in_contact_until(struct lead *lead, int64_t until_ms)
{
    if (leads(lead) && lead->known.goes_on && lead->known.sequence > 0)
        lead->contact_ms = until_ms;
}

static void resign(struct lead *lead, enum leader_state state, int exit_status)
{
    if (lead->role != LEAD_LEADS)
        return;
    lead->role = LEAD_RESIGNS;
    lead->self.state = state;
    lead->self.exit_status = exit_status;
    lead->dirty = true;
}

void lead_resign(struct lead *lead, int exit_status)
{
    resign(lead, LEADER_ENDED, exit_status);
}

void lead_leave(struct lead *lead)
{
    resign(lead, LEADER_LEFT, 0);
}

/* Time */

/*
 * May the leader go on without the store, whatever this agent has heard? Not if that leader has let this
 * agent in, in its current term. In an earlier term does not count, because words of an earlier leader may
 * arrive late.
 */
static bool may_go_on(const struct lead *lead)
{
    return lead->known.goes_on && lead->known.sequence > 0 && lead->known.state == LEADER_LEADS &&
           lead->let_in != lead->known.term && !is_own(lead, &lead->known);
}

/* Is it known that the leader's process has ended, whatever its record says? */
static bool is_gone(const struct lead *lead)
{
    return lead->gone_ms > 0 && !lead->known.unlocked;
}

int64_t lead_patience_ms(const struct lead *lead)
{
    const bool waits = may_go_on(lead) && !is_gone(lead);

    if (lead->first && !waits && !is_own(lead, &lead->known))
        return LEAD_MEMBERS * lease_of(lead);
    return LEASE_END_MS(lease_of(lead)) + (waits ? LEAD_CONTACT * lease_of(lead) : 0);
}

static bool is_stale(const struct lead *lead)
{
    return lead->known.term > 0 && lead->read_ms >= lead->quiet_ms + lead_patience_ms(lead);
}

/*
 * May this agent claim at all? The host by the endpoint may begin a run. An agent that stands may only
 * continue a run that it has seen.
 */
static bool may_claim(const struct lead *lead)
{
    const struct leader_record *known = &lead->known;

    if (lead->role != LEAD_WATCHES || !lead->has_read)
        return false;
    if (lead->first && (known->term == 0 || known->state == LEADER_ENDED))
        return true;
    if (lead->stands && is_ours(lead, known) && (known->state == LEADER_LEFT || known->state == LEADER_SWEPT))
        return true;
    if (!is_stale(lead))
        return false;
    return lead->first || (lead->stands && is_ours(lead, known) && known->state == LEADER_LEADS &&
                           lead->read_ms >= lead->heard_ms + LEASE_END_MS(lease_of(lead)));
}

static int64_t claims_at_ms(const struct lead *lead)
{
    const int seat = lead->first ? 0 : is_last(lead->seat) ? LEAD_LAST_SEAT : lead->seat;
    const int64_t at_ms = lead->ripe_ms + seat * lease_of(lead) / LEAD_SEATS;

    return at_ms > lead->failed_until_ms ? at_ms : lead->failed_until_ms;
}

/* Returns until when only this agent may write records of its term. */
static int64_t term_until_ms(const struct lead *lead)
{
    const int64_t last_ms = lead->hold_ms + (LEAD_CONTACT - 1) * lead->self.lease_ms;
    const int64_t contact_ms = lead->contact_ms < last_ms ? lead->contact_ms : last_ms;

    return lead->hold_ms > contact_ms ? lead->hold_ms : contact_ms;
}

/*
 * Once the record may say that the run is over, another agent may lead at once, perhaps before this one has
 * the store's answer.
 */
int64_t lead_holds_until_ms(const struct lead *lead)
{
    return lead->role == LEAD_LEADS ? term_until_ms(lead) : 0;
}

/* Stops leading. Members may have heard from this leader until its hold was over. */
static void depose(struct lead *lead, int64_t now_ms)
{
    const int64_t until_ms = term_until_ms(lead) < now_ms ? term_until_ms(lead) : now_ms;

    if (until_ms - lead->self.lease_ms > lead->heard_ms)
        lead->heard_ms = until_ms - lead->self.lease_ms;
    watch_again(lead);
    lead->deposed = !lead->began;
    if (!take(&lead->began))
        return;
    lead->first = lead->was_first;
    lead->stands = lead->stood;
}

void lead_look(struct lead *lead, int64_t now_ms)
{
    const int64_t still_ms = now_ms - lead->looked_ms - lease_of(lead) / LEAD_STALL;

    if (still_ms > 0)
        lead->quiet_ms += still_ms;
    lead->looked_ms = now_ms;
    if (leads(lead) && now_ms >= term_until_ms(lead))
        depose(lead, now_ms);
    if (!may_claim(lead))
        lead->ripe_ms = 0;
    else if (lead->ripe_ms == 0)
        lead->ripe_ms = now_ms;
}

void lead_turned(struct lead *lead, int64_t now_ms)
{
    lead->turned_ms = now_ms;
}

/* News */

enum lead_news lead_news(struct lead *lead)
{
    if (take(&lead->began))
        return LEAD_BEGAN;
    if (take(&lead->deposed))
        return LEAD_DEPOSED;
    if (take(&lead->follow))
        return LEAD_FOLLOW;
    return take(&lead->ended) ? LEAD_ENDED : LEAD_NO_NEWS;
}

bool lead_has_news(const struct lead *lead)
{
    return lead->began || lead->deposed || lead->follow || lead->ended;
}

/* Calls */

/* Has the loop turned recently enough that a claim, or a leader's write, may begin? */
static bool may_claim_now(const struct lead *lead, int64_t now_ms)
{
    return now_ms - lead->turned_ms <= lease_of(lead) / LEAD_STALL;
}

static bool may_write_now(const struct lead *lead, int64_t now_ms)
{
    return now_ms - lead->turned_ms <= LEAD_CONTACT * lead->self.lease_ms;
}

static enum lead_call call_that_is_due(const struct lead *lead, int64_t now_ms)
{
    const bool is_due = now_ms >= lead->next_ms;

    if (lead->call != LEAD_NO_CALL || lead->role == LEAD_OVER)
        return LEAD_NO_CALL;
    if (leads(lead))
        return (is_due || lead->dirty) && may_write_now(lead, now_ms) ? LEAD_RENEW : LEAD_NO_CALL;
    if (lead->ripe_ms > 0 && now_ms >= claims_at_ms(lead) && may_claim_now(lead, now_ms))
        return LEAD_CLAIM;
    return is_due ? LEAD_READ : LEAD_NO_CALL;
}

/*
 * Returns when the progress in the known record was published, or an earlier time, because the record may
 * have been seen late.
 */
static int64_t known_since_ms(const struct lead *lead)
{
    return lead->seen_ms - INT64_C(1000) * lead->known.progress.published_s;
}

static uint32_t seconds_since(int64_t then_ms, int64_t now_ms)
{
    return now_ms > then_ms ? (uint32_t)((now_ms - then_ms) / 1000) : 0;
}

/* Puts all that is known of the run into the claim, because the claimer may die before it writes a record. */
static void prepare_claim(struct lead *lead, int64_t now_ms)
{
    const uint64_t term = lead->known.term + 1;

    if (lead->self.term != term)
        lead->claim_ms = now_ms;
    lead->self.term = term;
    lead->self.sequence = 0;
    if (is_ours(lead, &lead->known) && lead->known.state != LEADER_ENDED) {
        lead->self.progress = lead->known.progress;
        lead->published_ms = known_since_ms(lead);
    }
    lead->self.unlocked = false;
    lead->self.goes_on = lead->known.term == 0 || lead->known.state == LEADER_ENDED;
}

enum lead_call lead_next(struct lead *lead, struct leader_record *record, int64_t now_ms)
{
    const enum lead_call call = call_that_is_due(lead, now_ms);

    if (call == LEAD_NO_CALL)
        return LEAD_NO_CALL;
    if (call == LEAD_CLAIM)
        prepare_claim(lead, now_ms);
    if (call == LEAD_RENEW) {
        lead->self.sequence++;
        lead->dirty = false;
    }
    lead->call = call;
    lead->is_early = false;
    lead->began_ms = now_ms;
    lead->self.progress.published_s = seconds_since(lead->published_ms, now_ms);
    *record = lead->asked = lead->self;
    return call;
}

/* Answers */

/*
 * Returns how long the known leader may have gone on without the store. A claim that is made now has waited
 * until then.
 */
static int64_t went_on_until_ms(const struct lead *lead, int64_t now_ms)
{
    const int64_t last_ms = lead->seen_ms + LEAD_CONTACT * lease_of(lead);
    const int64_t until_ms = last_ms < now_ms ? last_ms : now_ms;

    if (!may_go_on(lead))
        return 0;
    return is_gone(lead) && lead->gone_ms < until_ms ? lead->gone_ms : until_ms;
}

/*
 * Returns until when ranks of earlier leaders may run. The longest lease that was seen counts, because leases
 * may have differed. A leader that left had no ranks; the leaders before it held until it took its term at
 * the latest.
 */
static int64_t fence_of(const struct lead *lead, int64_t now_ms)
{
    const int64_t held_ms = lead->known.state == LEADER_LEFT ? lead->term_ms : lead->seen_ms;
    const int64_t last_ms = held_ms > lead->heard_ms ? held_ms : lead->heard_ms;
    const int64_t usual_ms = last_ms + lead->longest_ms, longer_ms = went_on_until_ms(lead, now_ms);
    const int64_t fence_ms = (longer_ms > usual_ms ? longer_ms : usual_ms) + LEASE_FENCE_MS(lead->longest_ms);

    if (lead->known.term == 0 || lead->known.state == LEADER_ENDED)
        return lead->fence_ms;
    return fence_ms > lead->fence_ms ? fence_ms : lead->fence_ms;
}

/*
 * Takes over what a record says. If a claim cannot be read, only its term is known; all else stays as it was.
 */
static void know(struct lead *lead, const struct leader_record *record, int64_t now_ms)
{
    static const unsigned char no_identity[SESSION_IDENTITY_BYTES];
    const bool is_nameless = memcmp(record->identity, no_identity, sizeof no_identity) == 0;

    if (record->term > lead->known.term) {
        lead->fence_ms = fence_of(lead, now_ms);
        lead->term_ms = now_ms;
    }
    if (is_nameless && lead->known.term == 0)
        lead->known = lead->self;
    if (!is_nameless)
        lead->known = *record;
    else
        lead->known.state = LEADER_LEADS;
    memcpy(lead->known.identity, record->identity, sizeof no_identity);
    lead->known.term = record->term;
    lead->known.sequence = record->sequence;
    lead->seen_ms = lead->quiet_ms = now_ms;
    lead->saw_a_leader |= is_ours(lead, &lead->known) && lead->known.state != LEADER_ENDED;
    if (lead->known.lease_ms > lead->longest_ms)
        lead->longest_ms = lead->known.lease_ms;
}

/*
 * Takes a record that was read. It has changed if it is later than the known one. The first record that this
 * agent sees may be old. A claim is no sign of life, because its owner may have died since.
 */
static void notice(struct lead *lead, const struct leader_record *record, int64_t now_ms)
{
    const bool has_changed = lead->has_read;

    lead->has_read = true;
    if (!leader_record_is_later(record, &lead->known))
        return;
    know(lead, record, now_ms);
    lead->ripe_ms = 0;
    if (has_changed && is_ours(lead, record) && !is_own(lead, record) && record->sequence > 0 &&
        record->state == LEADER_LEADS && (record->term > lead->told_term || lead->first)) {
        lead->told_term = record->term;
        lead->follow = true;
        lead->followed = *record;
        lead->first = false;
        lead->gone_ms = 0;
    }
}

/*
 * Looks whether the run is over. Only a run counts in which this agent took part, or whose end the host by
 * the endpoint met when it came. A record of an earlier run says nothing.
 */
static void look_for_the_end(struct lead *lead)
{
    const bool came_in_time = lead->first
                                  ? lead->first_saw_a_leader
                                  : lead->saw_a_leader && lead->stands && lead->read_ms >= lead->stood_ms;
    const bool took_part = lead->told_term > 0 || came_in_time;

    if (lead->role != LEAD_WATCHES || !took_part || !is_ours(lead, &lead->known) ||
        lead->known.state != LEADER_ENDED)
        return;
    lead->role = LEAD_OVER;
    lead->ended = true;
}

/*
 * This agent got the term by a call that began at `since_ms`. Others may have seen the claim since then, so
 * the hold counts from then. If that is over already, or the agent no longer wants to lead, its claim becomes
 * stale like any other.
 */
static void got_term(struct lead *lead, int64_t since_ms, int64_t now_ms)
{
    if ((!lead->first && !lead->stands) || now_ms >= since_ms + lead->self.lease_ms) {
        notice(lead, &lead->asked, now_ms);
        return;
    }
    lead->before = lead->known;
    lead->before.progress.published_s = seconds_since(known_since_ms(lead), now_ms);
    lead->fence_until_ms = fence_of(lead, now_ms);
    know(lead, &lead->asked, now_ms);
    lead->role = LEAD_LEADS;
    lead->told_term = lead->self.term;
    lead->hold_ms = since_ms + lead->self.lease_ms;
    lead->was_first = lead->first;
    lead->stood = lead->stands;
    lead_withdraw(lead);
    lead->dirty = lead->began = true;
}

/* A write of this agent has succeeded. If it leads, it still holds, because lead_look() was called before. */
static void wrote(struct lead *lead, int64_t now_ms)
{
    const int64_t hold_ms = lead->began_ms + lead->self.lease_ms;

    notice(lead, &lead->asked, now_ms);
    if (!leads(lead))
        return;
    if (hold_ms > lead->hold_ms)
        lead->hold_ms = hold_ms;
    if (lead->asked.state == LEADER_LEADS)
        return;
    lead->role = LEAD_OVER;
    lead->hold_ms = lead->contact_ms = 0;
    lead->ended = true;
}

static int64_t pause_after(const struct lead *lead, enum lead_call call, enum arbiter_answer answer)
{
    if (call == LEAD_RENEW && answer == ARBITER_DONE)
        return lease_of(lead) / LEAD_RENEWS;
    return lead->rests && !lead->is_early && !lead->first && !lead->stands ? lease_of(lead)
                                                                           : lease_of(lead) / LEAD_READS;
}

void lead_answered(struct lead *lead, enum arbiter_answer answer, const struct leader_record *record,
                   int64_t now_ms)
{
    const enum lead_call call = lead->call;
    const bool was_lost = call == LEAD_CLAIM && answer == ARBITER_TAKEN && is_own(lead, record) &&
                          record->term == lead->asked.term;

    assert(call != LEAD_NO_CALL);
    lead_look(lead, now_ms);
    lead->call = LEAD_NO_CALL;
    lead->next_ms = pause_after(lead, call, answer) + (answer == ARBITER_FAILED ? now_ms : lead->began_ms);
    if (answer == ARBITER_FAILED) {
        lead->failed_until_ms = lead->next_ms;
        return;
    }
    if (call == LEAD_READ) {
        lead->has_read |= answer == ARBITER_NONE;
        lead->read_ms = lead->began_ms;
        lead->first_saw_a_leader |=
            lead->first && answer != ARBITER_NONE && is_ours(lead, record) && record->state == LEADER_LEADS;
    }
    if (call == LEAD_CLAIM && answer == ARBITER_DONE)
        got_term(lead, lead->began_ms, now_ms);
    else if (was_lost)
        got_term(lead, lead->claim_ms, now_ms);
    else if (call == LEAD_RENEW && answer == ARBITER_DONE)
        wrote(lead, now_ms);
    else if (answer != ARBITER_NONE)
        notice(lead, record, now_ms);
    if (answer == ARBITER_DEPOSED && leads(lead))
        depose(lead, now_ms);
    look_for_the_end(lead);
    lead_look(lead, now_ms);
}

int64_t lead_due_ms(const struct lead *lead)
{
    int64_t due_ms = lead->looked_ms + lease_of(lead) / LEAD_READS;

    if (leads(lead) && term_until_ms(lead) < due_ms)
        due_ms = term_until_ms(lead);
    if (lead->call != LEAD_NO_CALL || lead->role == LEAD_OVER ||
        (leads(lead) && !may_write_now(lead, lead->looked_ms)))
        return due_ms;
    if (lead->next_ms < due_ms || (leads(lead) && lead->dirty))
        due_ms = leads(lead) && lead->dirty ? lead->looked_ms : lead->next_ms;
    if (lead->ripe_ms > 0 && may_claim_now(lead, lead->looked_ms) && claims_at_ms(lead) < due_ms)
        due_ms = claims_at_ms(lead);
    return due_ms;
}
