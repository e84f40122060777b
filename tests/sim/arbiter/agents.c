#include <stdio.h>
#include <string.h>

#include "agent/arbiter/leader_swept.h"
#include "tests/sim/arbiter/model.h"

struct host hosts[HOSTS];
struct life lives[LIVES];
int n_lives;
struct life *speaker;
bool cut[HOSTS][HOSTS];

int sim_speaker(void)
{
    return speaker == NULL ? -1 : speaker->host;
}

int64_t lease_ns(void)
{
    return plan.lease_ms * MS;
}

int64_t clock_ms(const struct life *life)
{
    const struct host *host = &hosts[life->host];

    return host->offset_ms + (int64_t)((double)sim_now * host->rate) / MS;
}

int64_t time_of(const struct life *life, int64_t ms)
{
    return sim_now + (int64_t)((double)((ms - clock_ms(life)) * MS) / hosts[life->host].rate);
}

bool is_still(const struct life *life)
{
    return hosts[life->host].still_until > sim_now;
}

bool is_busy(const struct life *life)
{
    return hosts[life->host].busy_until > sim_now;
}

bool leads_now(const struct life *life)
{
    return life->alive && lead_holds_until_ms(&life->lead) > clock_ms(life);
}

/* What an agent does with what it learns. */

static void stand(struct life *life)
{
    if (life->stands_ns < 0) {
        life->stands_ns = sim_now;
        sim_trace("stands");
    }
    lead_stand(&life->lead, life->host, "host", life->host, life->heard_ms, life->let_in, clock_ms(life));
}

/* It cannot take the place that it got, and ends. */
static void leave(struct life *life)
{
    if (life->stands_ns < 0 || plan.gentle || plan.calm || !sim_one_in(SIM_LEAVES, 6))
        return;
    sim_trace("leaves the lead to another");
    life->leaves = true;
    lead_leave(&life->lead);
}

static void take(struct life *life, enum lead_news news)
{
    check_news(life, news);
    switch (news) {
    case LEAD_BEGAN:
        leave(life);
        life->follows = 0;
        life->has_led = true;
        life->unlocked = life->stands_ns >= 0 && sim_one_in(SIM_AGENTS, 2);
        life->stands_ns = -1;
        memset(life->reached_ms, 0, sizeof life->reached_ms);
        memset(life->has_let_in, 0, sizeof life->has_let_in);
        break;
    case LEAD_DEPOSED:
        life->alive = !life->leaves;
        if (life->alive)
            stand(life);
        break;
    case LEAD_FOLLOW:
        life->follows = life->lead.followed.term;
        lead_sit(&life->lead, plan.some_rest && life->host > 1 ? -1 : life->host);
        break;
    case LEAD_ENDED:
        life->over = true;
        life->alive = !life->leaves;
        break;
    case LEAD_NO_NEWS:
        break;
    }
}

static void on_turn(void *what, uint64_t number)
{
    struct life *life = what;

    if (!life->alive || life->n_turns != number)
        return;
    if (is_still(life)) {
        sim_at(hosts[life->host].still_until + sim_between(SIM_AGENTS, 0, MS), on_turn, life, number);
        return;
    }
    speaker = life;
    agent_turn(life);
}

void agent_turn(struct life *life)
{
    const int64_t now_ms = clock_ms(life);
    struct leader_record record;
    enum lead_news news;
    enum lead_call call;

    if (!is_busy(life))
        lead_turned(&life->lead, now_ms);
    lead_look(&life->lead, now_ms);
    while (!is_busy(life) && (news = lead_news(&life->lead)) != LEAD_NO_NEWS)
        take(life, news);
    call = lead_next(&life->lead, &record, now_ms);
    if (call != LEAD_NO_CALL)
        call_begin(life, call, &record);
    sim_at(time_of(life, lead_due_ms(&life->lead) + 1), on_turn, life, ++life->n_turns);
    check();
}

/* The guard of a leader that was killed, at one moment: a claim may come before and after it. */

static enum arbiter_answer guard_reads(struct arbiter_store *store, struct leader_record *out,
                                       struct fsdp_err *err)
{
    (void)store, (void)err;
    *out = store_read();
    return out->term > 0 ? ARBITER_DONE : ARBITER_NONE;
}

static enum arbiter_answer guard_writes(struct arbiter_store *store, const struct leader_record *record,
                                        struct leader_record *newer, struct fsdp_err *err)
{
    (void)store, (void)err;
    return store_write(record, newer);
}

static void guard_speaks(void *what, uint64_t number)
{
    static const struct arbiter_store_ops ops = { .read = guard_reads, .renew = guard_writes };
    struct arbiter_store store = { &ops };
    const struct life *life = what;
    struct leader_will will = { .generation = 0 };

    (void)number;
    memcpy(will.agent, life->lead.self.identity, sizeof will.agent);
    sim_trace("the guard of life %d writes: %d", life->number,
              (int)leader_swept_say(&store, RUN, &will, NULL));
}

void agent_die(struct life *life)
{
    if (life->alive && life->lead.role == LEAD_LEADS && !plan.gentle && sim_one_in(SIM_LEAVES, 2))
        sim_at(sim_now + sim_between(SIM_LEAVES, MS, lease_ns()), guard_speaks, life, 0);
    speaker = life;
    sim_trace("dies");
    life->alive = false;
    check();
}

/* Messages: each member sends beats to its leader, which answers while it holds. */

struct message {
    struct life *from, *to;
    int64_t number; /* of a beat: the term; else when the leader sent its answer, by its clock */
};

static struct message messages[1 << 20];
static uint64_t n_messages;

static void send_message(const struct message *message, void (*arrive)(void *what, uint64_t number))
{
    struct message *slot = &messages[n_messages++ % (1 << 20)];

    if (cut[message->from->host][message->to->host] || sim_one_in(SIM_NET, plan.drops_one_in))
        return;
    *slot = *message;
    sim_at(sim_now + sim_between(SIM_NET, MS / 10, 5 * MS), arrive, slot, 0);
}

/* Who stands still reads his messages when he runs again. */
static bool waits(const struct message *message, void (*arrive)(void *what, uint64_t number))
{
    if (message->to->alive && is_still(message->to))
        sim_at(hosts[message->to->host].still_until + 1, arrive, (void *)message, 0);
    speaker = message->to;
    return !message->to->alive || is_still(message->to);
}

/* A leader's thread speaks for a loop that has turned lately. */
static bool answers(const struct life *life)
{
    return leads_now(life) && clock_ms(life) - life->lead.turned_ms <= LEAD_CONTACT * plan.lease_ms;
}

static bool leads_term(struct life *life, uint64_t term)
{
    return answers(life) && life->lead.self.term == term;
}

/* At the leader: that member has received what was sent then. */
static void on_receipt(void *what, uint64_t number)
{
    struct message *message = what;
    struct life *leader = message->to;
    int64_t least_ms = INT64_MAX;

    (void)number;
    if (waits(message, on_receipt) || !answers(leader))
        return;
    if (message->number > leader->reached_ms[message->from->number])
        leader->reached_ms[message->from->number] = message->number;
    for (int i = 0; i < n_lives; i++)
        if (leader->has_let_in[i] && leader->reached_ms[i] < least_ms)
            least_ms = leader->reached_ms[i];
    if (sim_one_in(SIM_AGENTS, 20)) /* of one that took over: a generation has formed */
        lead_go_on(&leader->lead, leader->unlocked);
    if (least_ms > 0)
        lead_in_contact_until(&leader->lead, least_ms + plan.lease_ms);
    check();
}

/* At a member: its leader has answered. */
static void on_beat_answer(void *what, uint64_t number)
{
    struct message *message = what;
    struct life *member = message->to;
    struct message receipt = { member, message->from, message->number };

    (void)number;
    if (waits(message, on_beat_answer) || leads_now(member) ||
        member->follows != message->from->lead.self.term)
        return;
    member->heard_ms = clock_ms(member);
    member->let_in = member->follows;
    if (member->stands_ns >= 0) {
        sim_trace("is a member again");
        member->stands_ns = -1;
        lead_withdraw(&member->lead);
    }
    send_message(&receipt, on_receipt);
}

/* At the leader: a member of this term asks. */
static void on_beat(void *what, uint64_t number)
{
    struct message *message = what;
    struct message answer = { message->to, message->from, clock_ms(message->to) };

    (void)number;
    if (waits(message, on_beat) || !leads_term(message->to, (uint64_t)message->number))
        return;
    message->to->has_let_in[message->from->number] = true;
    send_message(&answer, on_beat_answer);
}

/* Ten times in a lease. One that has no leader yet dials the endpoint's host. */
static void on_time_to_beat(void *what, uint64_t number)
{
    struct life *life = what, *leader;

    (void)number;
    if (!life->alive || life->over)
        return;
    sim_at((is_still(life) ? hosts[life->host].still_until : sim_now) + lease_ns() / 10, on_time_to_beat,
           life, 0);
    speaker = life;
    if (is_still(life) || leads_now(life))
        return;
    if (life->follows == 0 && !is_busy(life) && life->host < plan.n_hosts && hosts[0].life != NULL &&
        leads_now(hosts[0].life))
        life->follows = hosts[0].life->lead.self.term;
    leader = owners[life->follows];
    if (leader != NULL && leader != life)
        send_message(&(struct message){ life, leader, (int64_t)life->follows }, on_beat);
    if (life->heard_ms > 0 && life->stands_ns < 0 && !is_busy(life) &&
        clock_ms(life) - life->heard_ms >= plan.lease_ms) {
        stand(life);
        agent_turn(life);
    }
}

/* What a lock would say that the first leader has taken. */
static bool none_of_the_old_runs(void)
{
    for (int i = 0; i < n_lives; i++)
        if (lives[i].alive && lives[i].has_led && !lives[i].unlocked)
            return false;
    return true;
}

void agent_start(int host)
{
    const bool is_first = host == 0 || host >= plan.n_hosts;
    struct leader_record self = { .run = RUN, .lease_ms = plan.lease_ms };
    struct life *life = &lives[n_lives];

    if (n_lives == LIVES)
        sim_violated("a history has few lives", "%d", n_lives);
    snprintf((char *)self.identity, sizeof self.identity, "life %d", n_lives);
    *life = (struct life){ .number = n_lives++, .host = host, .alive = true, .stands_ns = -1 };
    hosts[host].life = speaker = life;
    sim_trace("starts: life %d", life->number);
    lead_init(&life->lead, &self, clock_ms(life));
    if (is_first && none_of_the_old_runs() && sim_one_in(SIM_FAULTS, 2))
        lead_old_is_gone(&life->lead, clock_ms(life));
    if (is_first)
        lead_first(&life->lead, "host", host);
    agent_turn(life);
    on_time_to_beat(life, 0);
}
