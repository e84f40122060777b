/*
 * agent/rendezvous/pulse_*.h: the threads of a member's beats, and of the leader who answers them, and the
 * datagrams. These pass in half of the histories, are lost or late, come twice, and in any order. A thread
 * stands still with its process, but goes on while only the loop is busy.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/deadlines.h"
#include "agent/rendezvous/pulse_listener.h"
#include "agent/rendezvous/pulse_sender.h"
#include "tests/sim/sim.h"

enum { DOUBLES_ONE_IN = 10 };

struct pulse_listener {
    struct pulse_listener *next;
    struct process *process;
    int port;
    bool closed, has_lead;
    struct pulse_lead lead;
    struct pulse_book book;
};

static struct pulse_listener *listeners; /* of all processes; none is freed */

struct pulse_sender {
    struct process *process;
    const struct lease *lease;
    struct pulse_aim aim;
    bool aims, over;
    uint64_t n_aims;
    struct pulse_news news;
    int64_t told_ns, turned_ms;
};

/* A datagram on its way. */
struct letter {
    struct pulse_sender *sender;
    uint64_t n_aims;
    struct pulse pulse;
    struct pulse_listener *listener;
};

/* Puts a letter on its way, and now and then a copy of it. None is freed. */
static void post(const struct letter *letter, const struct host *from, const struct host *to,
                 void (*take)(void *what, uint64_t number))
{
    int64_t delay_ns;

    do {
        struct letter *copy = malloc(sizeof *copy);

        *copy = *letter;
        if (sim_net_passes(from, to, &delay_ns))
            sim_at(sim_now + delay_ns, take, copy, 0);
    } while (sim_one_in(SIM_PULSES, DOUBLES_ONE_IN));
}

static bool stands_still(const struct process *process)
{
    return sim_now < process->host->stalled_until && !process->host->busy;
}

static int64_t now_ms(const struct pulse_sender *sender)
{
    return sim_clock_of(sender->process->host) / MS;
}

/* The coordinator's end */

/* What the thread does now and then, and the loop when it turns. */
static void keep(struct pulse_listener *listener)
{
    const int64_t now_ns = sim_clock_of(listener->process->host);
    int64_t until_ns;

    if (!listener->has_lead || !pulse_book_turns(&listener->book, now_ns))
        return;
    until_ns = pulse_book_contact_until_ns(&listener->book, now_ns);
    listener->process->none_stands_until = sim_now + until_ns - now_ns;
    listener->lead.keep(listener->lead.arg, until_ns);
}

static void on_tick(void *what, uint64_t number)
{
    struct pulse_listener *listener = what;

    if (listener->closed || !listener->process->alive)
        return;
    if (stands_still(listener->process)) {
        sim_at(listener->process->host->stalled_until + 1, on_tick, what, number);
        return;
    }
    sim_current = listener->process;
    keep(listener);
    sim_current = NULL;
    sim_at(sim_now + listener->book.lease_ms * MS / LEASE_BEATS, on_tick, what, number);
}

struct pulse_listener *pulse_listener_create(int64_t lease_ms, const unsigned char *key)
{
    struct pulse_listener *listener = calloc(1, sizeof *listener);

    (void)key;
    listener->process = sim_current;
    pulse_book_init(&listener->book, lease_ms, sim_clock_of(sim_current->host));
    listener->next = listeners;
    listeners = listener;
    return listener;
}

bool pulse_listener_bind(struct pulse_listener *listener, const struct sockaddr *address)
{
    listener->port = ntohs(((const struct sockaddr_in *)address)->sin_port);
    return true;
}

bool pulse_listener_serve(struct pulse_listener *listener, const struct pulse_lead *lead)
{
    listener->has_lead = lead != NULL;
    if (lead != NULL)
        listener->lead = *lead;
    sim_at(sim_now, on_tick, listener, 0);
    return true;
}

void pulse_listener_destroy(struct pulse_listener *listener)
{
    listener->closed = true;
}

void pulse_listener_admit(struct pulse_listener *listener, struct pulse_member *member,
                          const unsigned char session[SESSION_IDENTITY_BYTES])
{
    pulse_book_add(&listener->book, member, session);
}

void pulse_listener_heard(struct pulse_listener *listener, struct pulse_member *member, int64_t heard_ns)
{
    (void)listener;
    pulse_book_heard(member, heard_ns);
}

void pulse_listener_turn(struct pulse_listener *listener, int64_t away_ns)
{
    pulse_book_turned(&listener->book, away_ns, sim_clock_of(listener->process->host));
    keep(listener);
}

struct pulse_told pulse_listener_told(struct pulse_listener *listener, struct pulse_member *member)
{
    (void)listener;
    return member->told;
}

struct pulse_told pulse_listener_forget(struct pulse_listener *listener, struct pulse_member *member)
{
    pulse_book_remove(&listener->book, member);
    return member->told;
}

static void take_answer(void *what, uint64_t number)
{
    struct letter *letter = what;
    struct pulse_sender *sender = letter->sender;

    if (!sender->process->alive || sender->over || sender->n_aims != letter->n_aims)
        return;
    if (stands_still(sender->process)) {
        sim_at(sender->process->host->stalled_until + 1, take_answer, what, number);
        return;
    }
    if (memcmp(letter->pulse.session, sender->aim.session, sizeof letter->pulse.session) != 0)
        return;
    lease_extend(sender->lease, letter->pulse.sent_ns, letter->pulse.lease_ms);
    sender->news.came_ms = now_ms(sender);
    if (letter->pulse.answered_ns > sender->news.answered_ns)
        sender->news.answered_ns = letter->pulse.answered_ns;
}

static void arrive(void *what, uint64_t number);

/* On the coordinator's thread. */
static void take_question(struct letter *letter)
{
    struct pulse_listener *listener = letter->listener;
    const struct process *process = listener->process;
    struct pulse answer;
    bool holds, answers;

    if (stands_still(process)) {
        sim_at(process->host->stalled_until + 1, arrive, letter, 0);
        return;
    }
    sim_current = listener->process;
    holds = !listener->has_lead || listener->lead.holds(listener->lead.arg);
    answers = pulse_book_take(&listener->book, &letter->pulse, holds, sim_clock_of(process->host), &answer);
    sim_current = NULL;
    if (answers && sim_plan.arbiter && !sim_leads(process))
        sim_violated("who answers leads", "n%d does not", process->host->number);
    letter->pulse = answer;
    if (answers)
        post(letter, process->host, letter->sender->process->host, take_answer);
}

static void arrive(void *what, uint64_t number)
{
    struct letter *letter = what;
    const struct sockaddr_in *to = (const struct sockaddr_in *)&letter->sender->aim.to;
    const struct host *host = &sim_hosts[(ntohl(to->sin_addr.s_addr) & 0xff) - 1];

    (void)number;
    for (struct pulse_listener *at = listeners; at != NULL; at = at->next)
        if (!at->closed && at->process->alive && at->process->host == host &&
            at->port == ntohs(to->sin_port)) {
            letter->listener = at;
            take_question(letter);
            return;
        }
}

/* The member's end */

static void ask(const struct pulse_sender *sender)
{
    const struct sockaddr_in *to = (const struct sockaddr_in *)&sender->aim.to;
    struct letter letter = { .sender = (struct pulse_sender *)sender, .n_aims = sender->n_aims };

    letter.pulse.sent_ns = sim_clock_of(sender->process->host);
    letter.pulse.answered_ns =
        sender->told_ns > sender->news.answered_ns ? sender->told_ns : sender->news.answered_ns;
    memcpy(letter.pulse.session, sender->aim.session, sizeof letter.pulse.session);
    if (sim_plan.pulses)
        post(&letter, sender->process->host, &sim_hosts[(ntohl(to->sin_addr.s_addr) & 0xff) - 1], arrive);
}

static void on_pace(void *what, uint64_t n_aims)
{
    struct pulse_sender *sender = what;

    if (!sender->process->alive || sender->over || !sender->aims || sender->n_aims != n_aims)
        return;
    if (stands_still(sender->process)) {
        sim_at(sender->process->host->stalled_until + 1, on_pace, what, n_aims);
        return;
    }
    if (now_ms(sender) - sender->turned_ms <= sender->aim.patience_ms)
        ask(sender);
    sim_at(sim_now + sender->aim.pace_ms * MS, on_pace, what, n_aims);
}

struct pulse_sender *pulse_sender_create(const struct lease *lease, const unsigned char *key)
{
    struct pulse_sender *sender = calloc(1, sizeof *sender);

    (void)key;
    sender->process = sim_current;
    sender->lease = lease;
    return sender;
}

void pulse_sender_destroy(struct pulse_sender *sender)
{
    if (sender != NULL)
        sender->over = true;
}

struct pulse_news pulse_sender_aim(struct pulse_sender *sender, const struct pulse_aim *aim)
{
    struct pulse_news news = { 0 };

    if (sender == NULL)
        return news;
    news = sender->news;
    if (aim != NULL && sender->aims && memcmp(aim, &sender->aim, sizeof *aim) == 0)
        return news;
    if (aim == NULL || !sender->aims || memcmp(aim->session, sender->aim.session, sizeof aim->session) != 0) {
        sender->news = (struct pulse_news){ 0 };
        sender->told_ns = 0;
    }
    sender->aims = aim != NULL;
    if (aim != NULL)
        sender->aim = *aim;
    sender->turned_ms = now_ms(sender);
    sender->n_aims++;
    if (aim != NULL)
        sim_at(sim_now, on_pace, sender, sender->n_aims);
    return news;
}

struct pulse_news pulse_sender_turn(struct pulse_sender *sender, int64_t answered_ns)
{
    sender->turned_ms = now_ms(sender);
    if (sender->aims && answered_ns > sender->told_ns)
        sender->told_ns = answered_ns;
    return sender->news;
}
