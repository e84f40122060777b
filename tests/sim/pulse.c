/*
 * agent/rendezvous/pulse_*.h: the thread of a member's beats, and the datagrams. They pass in half of the
 * histories, are lost or late, and come in any order. The thread stands still with its process, but goes on
 * while only the loop is busy.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pulse_listener.h"
#include "agent/rendezvous/pulse_sender.h"
#include "tests/sim/sim.h"

struct pulse_listener {
    struct pulse_listener *next;
    struct process *process;
    int port;
    bool closed;
    pulse_question *question;
    void *arg;
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

static bool stands_still(const struct process *process)
{
    return sim_now < process->host->stalled_until && !process->host->busy;
}

static int64_t now_ms(const struct pulse_sender *sender)
{
    return sim_clock_of(sender->process->host) / MS;
}

/* The coordinator's end */

struct pulse_listener *pulse_listen(uv_loop_t *loop, const struct sockaddr *address, const unsigned char *key,
                                    pulse_question *question, void *arg)
{
    struct pulse_listener *listener = calloc(1, sizeof *listener);

    (void)key;
    *listener = (struct pulse_listener){ .next = listeners,
                                         .process = loop->data,
                                         .port = ntohs(((const struct sockaddr_in *)address)->sin_port),
                                         .question = question,
                                         .arg = arg };
    listeners = listener;
    return listener;
}

void pulse_listener_close(struct pulse_listener *listener)
{
    listener->closed = true;
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

/* In a turn of the coordinator's loop. */
static void take_question(void *arg)
{
    struct letter *letter = arg;
    const struct pulse_listener *listener = letter->listener;
    struct pulse answer = letter->pulse;
    int64_t delay_ns;

    if (listener->closed || !listener->question(listener->arg, &letter->pulse, &answer))
        return;
    letter->pulse = answer;
    if (sim_net_passes(listener->process->host, letter->sender->process->host, &delay_ns))
        sim_at(sim_now + delay_ns, take_answer, letter, 0);
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
            sim_later(at->process, 0, take_question, letter);
            return;
        }
}

/* The member's end */

static void ask(const struct pulse_sender *sender)
{
    const struct sockaddr_in *to = (const struct sockaddr_in *)&sender->aim.to;
    struct letter *letter = calloc(1, sizeof *letter);
    int64_t delay_ns;

    *letter = (struct letter){ .sender = (struct pulse_sender *)sender, .n_aims = sender->n_aims };
    letter->pulse.sent_ns = sim_clock_of(sender->process->host);
    letter->pulse.answered_ns =
        sender->told_ns > sender->news.answered_ns ? sender->told_ns : sender->news.answered_ns;
    memcpy(letter->pulse.session, sender->aim.session, sizeof letter->pulse.session);
    if (sim_plan.pulses &&
        sim_net_passes(sender->process->host, &sim_hosts[(ntohl(to->sin_addr.s_addr) & 0xff) - 1], &delay_ns))
        sim_at(sim_now + delay_ns, arrive, letter, 0);
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
