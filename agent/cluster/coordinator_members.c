#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/wire/endpoint.h"

enum {
    /* Nodes that are started together come one after another: one new generation for all of them. */
    SETTLE_MS = 1000,
    SETTLE_AT_MOST_MS = 5000,
    NAMES_BYTES = 1200
};

static uint64_t now_ms(const struct coordinator *coordinator)
{
    return uv_now(coordinator->services.loop);
}

static bool is_elastic(const struct coordinator *coordinator)
{
    return coordinator->roster.min_nodes < coordinator->roster.max_nodes;
}

static const char *name_of(const struct coordinator *coordinator, int node, char *out)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];

    return roster_name(out, at->who.host, at->address);
}

/* --- the clock ------------------------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

/* One timer for whatever is due first. */
static void arm(struct coordinator *coordinator)
{
    const uint64_t due[] = { coordinator->gather_until_ms, coordinator->last_call_ms,
                             coordinator->change_ms };
    uint64_t first = 0, now = now_ms(coordinator);

    if (coordinator->timer == NULL)
        return;
    for (size_t i = 0; i < sizeof due / sizeof *due; i++)
        if (due[i] != 0 && (first == 0 || due[i] < first))
            first = due[i];
    if (first == 0)
        uv_timer_stop(coordinator->timer);
    else
        uv_timer_start(coordinator->timer, on_timer, first > now ? first - now : 0, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void coordinator_close_timer(struct coordinator *coordinator)
{
    if (coordinator->timer != NULL)
        uv_close((uv_handle_t *)coordinator->timer, on_timer_closed);
    coordinator->timer = NULL;
}

/* --- enough of them? ------------------------------------------------------------------------------------------------ */

/* Who is there, and which ranks that were asked for by number are not. */
static void describe_absence(const struct coordinator *coordinator, char *out, size_t size)
{
    const struct roster *roster = &coordinator->roster;
    char name[ROSTER_NAME_BYTES];
    bool numbered = true;
    int length, n = 0;

    length = snprintf(out, size, "here %s", roster_n_present(roster) == 1 ? "is" : "are");
    for (int i = 0; i < roster->capacity && length < (int)size - 100; i++) {
        if (!roster->nodes[i].present)
            continue;
        numbered = numbered && roster->nodes[i].who.node_rank >= 0;
        length += snprintf(out + length, size - (size_t)length, "%s%.80s", n++ == 0 ? " " : ", ",
                           name_of(coordinator, i, name));
    }
    for (int rank = 0, missing = 0; numbered && rank < roster->max_nodes && length < (int)size - 40; rank++) {
        bool here = false;

        for (int i = 0; i < roster->capacity; i++)
            here = here || (roster->nodes[i].present && roster->nodes[i].who.node_rank == rank);
        if (!here)
            length += snprintf(out + length, size - (size_t)length, "%s %d",
                               missing++ == 0 ? "; missing node" : "", rank);
    }
}

static void give_up(struct coordinator *coordinator)
{
    const double seconds = (double)coordinator->config->join_timeout_ms / 1000.0;
    char words[COORDINATOR_LINE_BYTES], who[COORDINATOR_LINE_BYTES - 300];

    describe_absence(coordinator, who, sizeof who);
    if (coordinator->roster.seated)
        snprintf(words, sizeof words,
                 "a node was lost, and no other came within %.0f s: %d of %d nodes are left; %s", seconds,
                 roster_n_present(&coordinator->roster), coordinator->roster.min_nodes, who);
    else
        snprintf(words, sizeof words, "%d of %d nodes came within %.0f s; %s",
                 roster_n_present(&coordinator->roster), coordinator->roster.min_nodes, seconds, who);
    coordinator_end_with(coordinator, coordinator->roster.seated ? FSDP_EXIT_LINK : FSDP_EXIT_PEER,
                         coordinator->roster.seated ? ERRORS_NODE : ERRORS_WORLD, words);
    coordinator_post(coordinator, CE_NEVER);
    coordinator_run(coordinator);
}

void coordinator_gather(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;
    const uint64_t now = now_ms(coordinator);

    if (coordinator->nodes[COORDINATOR_SELF].ops == NULL)
        return;
    if (coordinator->gather_until_ms == 0)
        coordinator->gather_until_ms = now + (uint64_t)coordinator->config->join_timeout_ms;
    if (!roster_enough(roster)) {
        coordinator->last_call_ms = 0;
    } else if (coordinator->last_call_ms == 0) {
        coordinator->last_call_ms = now + (uint64_t)coordinator->config->last_call_timeout_ms;
    }
    /* Whoever ran before runs again at once: a last call is only for the first forming. */
    if (roster_full(roster) ||
        (roster_enough(roster) &&
         (roster->seated || now >= coordinator->last_call_ms || now >= coordinator->gather_until_ms))) {
        coordinator->gather_until_ms = coordinator->last_call_ms = 0;
        coordinator_post(coordinator, CE_GATHERED);
    }
    arm(coordinator);
}

/* --- a change while it runs ----------------------------------------------------------------------------------------- */

void coordinator_ask_to_leave(struct coordinator *coordinator)
{
    const struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_SAVE_AND_STOP, .stop_after_step = -1 };

    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator_in_play(coordinator, i))
            coordinator->nodes[i].ops->notify(coordinator->nodes[i].member, &notice);
}

/* The generation ends, for another with other members. Our own trainer saves its step first. */
static void change(struct coordinator *coordinator, bool save)
{
    if (coordinator->changing)
        return;
    coordinator->changing = true;
    if (save || coordinator->config->job_json != NULL)
        coordinator_ask_to_leave(coordinator);
    else
        coordinator_post(coordinator, CE_CHANGE);
}

/* A rank has ended, well or not, or all are to. The job may go on in another generation. */
static bool is_ending(const struct coordinator *coordinator)
{
    const bool up = coordinator->state == CS_UP || coordinator->state == CS_CLEARING;

    return up &&
           (coordinator->n_deaths > 0 || coordinator->stop_signal != 0 || coordinator->notice_signal != 0);
}

/* A world that is ending is not disturbed for those that have just come. */
static bool may_change(const struct coordinator *coordinator)
{
    return coordinator->state == CS_UP && !coordinator->changing && !is_ending(coordinator) &&
           roster_has_newcomers(&coordinator->roster);
}

static void schedule_change(struct coordinator *coordinator)
{
    const uint64_t now = now_ms(coordinator);

    if (!may_change(coordinator))
        return;
    if (coordinator->change_ms == 0)
        coordinator->change_at_most_ms = now + SETTLE_AT_MOST_MS;
    coordinator->change_ms = roster_full(&coordinator->roster) ? now : now + SETTLE_MS;
    if (coordinator->change_ms > coordinator->change_at_most_ms)
        coordinator->change_ms = coordinator->change_at_most_ms;
    arm(coordinator);
}

static void on_timer(uv_timer_t *timer)
{
    struct coordinator *coordinator = timer->data;
    const uint64_t now = now_ms(coordinator);

    if (coordinator->change_ms != 0 && now >= coordinator->change_ms) {
        coordinator->change_ms = 0;
        if (may_change(coordinator))
            change(coordinator, false);
    }
    if (coordinator->state == CS_GATHERING) {
        if (now >= coordinator->gather_until_ms && !roster_enough(&coordinator->roster)) {
            give_up(coordinator);
            return;
        }
        coordinator_gather(coordinator);
    }
    arm(coordinator);
    coordinator_run(coordinator);
}

/* --- who comes ------------------------------------------------------------------------------------------------------ */

int coordinator_capacity(const struct coordinator *coordinator)
{
    return coordinator->roster.capacity;
}

void coordinator_set_address(struct coordinator *coordinator, const char *address)
{
    struct roster_node *self = &coordinator->roster.nodes[COORDINATOR_SELF];

    snprintf(self->from, sizeof self->from, "%.63s", address);
    if (self->who.address[0] == '\0')
        snprintf(self->address, sizeof self->address, "%s", address);
    for (int i = 0; i < coordinator->roster.capacity; i++) {
        struct roster_node *node = &coordinator->roster.nodes[i];

        if (i != COORDINATOR_SELF && node->present && node->who.address[0] == '\0' &&
            endpoint_is_loopback(node->from))
            memcpy(node->address, self->address, sizeof node->address);
    }
}

int coordinator_admit(struct coordinator *coordinator, const struct proto_join *join, const char *address,
                      struct proto_refused *refused)
{
    if (coordinator->state == CS_ENDED) {
        refused->status = coordinator_too_late(coordinator, refused->words);
        return -1;
    }
    if (!roster_judge(&coordinator->roster, join, address, refused))
        return -1;
    return roster_add(&coordinator->roster, join, address);
}

enum proto_wait coordinator_wait_of(const struct coordinator *coordinator, int node)
{
    (void)node;
    if (coordinator->state == CS_GATHERING || coordinator->state == CS_PREPARING)
        return PROTO_WAIT_FORMING;
    if (is_ending(coordinator))
        return PROTO_WAIT_ENDING;
    return roster_has_newcomers(&coordinator->roster) ? PROTO_WAIT_RUNNING : PROTO_WAIT_SPARE;
}

void coordinator_attach(struct coordinator *coordinator, int node, const struct coordinator_member *ops,
                        void *member)
{
    coordinator->nodes[node] = (struct coordinator_node){
        .ops = ops, .member = member, .stopped = true, .late = is_ending(coordinator)
    };
    if (coordinator->state == CS_GATHERING)
        coordinator_gather(coordinator);
    else
        schedule_change(coordinator);
    coordinator_run(coordinator);
}

/* --- who goes ------------------------------------------------------------------------------------------------------- */

/* Its part was done: nothing is missing without it. */
static bool had_ended_well(const struct coordinator *coordinator, int node)
{
    if (!coordinator->nodes[node].stopped)
        return false;
    for (size_t i = 0; i < coordinator->n_deaths; i++)
        if (coordinator->deaths[i].node_rank == coordinator->roster.nodes[node].node_rank &&
            coordinator->deaths[i].kind != DEATH_NONE)
            return false;
    return true;
}

/* Of the generation: its ranks failed, all at once, when it was heard of last. */
static void lost_while_up(struct coordinator *coordinator, int node, int64_t silent_ms, const char *words)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];
    struct death death = { .kind = DEATH_NODE,
                           .rank = -1,
                           .local_rank = -1,
                           .node_rank = at->node_rank,
                           .step = -1,
                           .phase = -1,
                           .when_ns = coordinator->services.os->now_ns(coordinator->services.os->arg) -
                                      silent_ms * 1000000 };

    snprintf(death.host, sizeof death.host, "%.64s", at->who.host);
    snprintf(death.words, sizeof death.words, "node %d at %.64s: %.150s", at->node_rank, at->address, words);
    coordinator_report_death(coordinator, &death);
    coordinator_post(coordinator, CE_FAILED);
}

/* Between two generations: where the number of nodes is fixed it counts as a failure of the next one. */
static void lost_between(struct coordinator *coordinator, int node, const char *words)
{
    const bool spent = coordinator->n_restarts >= coordinator->config->max_restarts;
    char line[COORDINATOR_LINE_BYTES], name[ROSTER_NAME_BYTES];

    snprintf(line, sizeof line, "node %d, %s, was lost: %s", coordinator->roster.nodes[node].node_rank,
             name_of(coordinator, node, name), words);
    if (!is_elastic(coordinator) && spent) {
        coordinator_end_with(coordinator, FSDP_EXIT_LINK, ERRORS_NODE, line);
        coordinator_post(coordinator, coordinator->state == CS_GATHERING ? CE_NEVER : CE_REFUSED);
        return;
    }
    coordinator->n_restarts += !is_elastic(coordinator);
    console_say(coordinator->services.console, "fsdprun: %s; waiting for another", line);
    if (coordinator->state == CS_GATHERING)
        coordinator_gather(coordinator);
}

void coordinator_lost(struct coordinator *coordinator, int node, int64_t silent_ms, const char *words)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];
    const bool up = coordinator->state == CS_UP || coordinator->state == CS_CLEARING;
    char name[ROSTER_NAME_BYTES];

    if (!at->present || coordinator->state == CS_ENDED)
        return;
    roster_remove(&coordinator->roster, node);
    name_of(coordinator, node, name);
    if (up && at->active && !(at->leaving && coordinator->state == CS_CLEARING) &&
        !had_ended_well(coordinator, node)) {
        lost_while_up(coordinator, node, silent_ms, words);
    } else if (!up && at->seat >= 0) {
        lost_between(coordinator, node, words);
    } else {
        console_say(coordinator->services.console, "fsdprun: %s %s: %s", name,
                    at->active ? "is gone, after its ranks had ended" : "no longer waits", words);
        if (coordinator->state == CS_GATHERING)
            coordinator_gather(coordinator);
    }
    coordinator_run(coordinator);
    coordinator_judge_if_down(coordinator);
    coordinator_run(coordinator);
}

static void let_go(struct coordinator *coordinator, int node)
{
    struct coordinator_node *at = &coordinator->nodes[node];
    struct coordinator_end end = { .node = -1,
                                   .status = at->leave_saved ? FSDP_EXIT_NOTICE : 128 + at->leave_signal };
    char line[96], name[32];

    end.line = line;
    if (at->leave_saved)
        snprintf(line, sizeof line, "left on notice; the others go on");
    else
        snprintf(line, sizeof line, "stopped by %s; the others go on",
                 errors_signal_name(at->leave_signal, name));
    at->ops->finish(at->member, &end);
    roster_remove(&coordinator->roster, node);
}

void coordinator_part(struct coordinator *coordinator)
{
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator->roster.nodes[i].present && coordinator->roster.nodes[i].leaving)
            let_go(coordinator, i);
    for (int i = 0; i < coordinator->roster.capacity; i++)
        coordinator->nodes[i].late = false;
    roster_clear(&coordinator->roster);
    coordinator->changing = false;
    coordinator->change_ms = 0;
}

void coordinator_leave(struct coordinator *coordinator, int node, int signal, bool now, bool save)
{
    struct roster_node *at = &coordinator->roster.nodes[node];
    char name[ROSTER_NAME_BYTES], by[32];

    if (at->leaving && !now)
        return; /* it is on its way */
    if (!roster_can_spare(&coordinator->roster, node) || at->leaving) {
        if (save)
            coordinator_notice(coordinator, signal);
        else if (!at->leaving)
            coordinator_stop(coordinator, signal, now);
        return;
    }
    at->leaving = true;
    coordinator->nodes[node].leave_signal = signal;
    coordinator->nodes[node].leave_saved = save;
    console_say(coordinator->services.console, "fsdprun: %s leaves (%s)", name_of(coordinator, node, name),
                errors_signal_name(signal, by));
    if (coordinator->state == CS_UP && at->active)
        change(coordinator, save);
    else if (coordinator->state != CS_CLEARING || !at->active)
        let_go(coordinator, node);
    coordinator_run(coordinator);
}
