#include <stdio.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/os/deadlines.h"
#include "agent/record/rundir.h"
#include "agent/wire/endpoint.h"

/* Nodes that join */

int coordinator_capacity(const struct coordinator *coordinator)
{
    return coordinator->roster.capacity;
}

/* Returns whether the node came over loopback and named no address. Then it has the address of this host. */
static bool is_guest(const struct roster_node *node)
{
    return node->who.address[0] == '\0' && endpoint_is_loopback(node->from);
}

void coordinator_set_address(struct coordinator *coordinator, const char *address)
{
    struct roster_node *self = &coordinator->roster.nodes[COORDINATOR_SELF];

    if (strcmp(self->from, address) == 0)
        return; /* no change, which is the usual case: most nodes reach this host at one address */
    snprintf(self->from, sizeof self->from, "%.63s", address);
    if (self->who.address[0] == '\0')
        snprintf(self->address, sizeof self->address, "%s", address);
    for (int i = 0; coordinator->has_guests && i < coordinator->roster.capacity; i++)
        if (i != COORDINATOR_SELF && coordinator->roster.nodes[i].present &&
            is_guest(&coordinator->roster.nodes[i]))
            memcpy(coordinator->roster.nodes[i].address, self->address, sizeof self->address);
}

int coordinator_find(const struct coordinator *coordinator, const unsigned char agent[PROTO_IDENTITY_BYTES])
{
    return roster_find(&coordinator->roster, agent);
}

int coordinator_admit(struct coordinator *coordinator, const struct proto_join *join, const char *address,
                      struct proto_refused *refused)
{
    struct roster *roster = &coordinator->roster;
    int node;

    if (coordinator->state == CS_ENDED) {
        refused->status = coordinator_too_late(coordinator->status, coordinator->line, refused->words);
        return -1;
    }
    if (!roster_judge(roster, join, address, refused))
        return -1;
    node = roster_add(roster, join, address);
    if (!coordinator_is_up(coordinator) && join->last_generation >= coordinator->generation)
        coordinator->generation = join->last_generation + 1; /* it was led by another one */
    coordinator_came(coordinator, join->last_generation, join->last_node_rank);
    if (is_guest(&roster->nodes[node])) {
        coordinator->has_guests = true;
        memcpy(roster->nodes[node].address, roster->nodes[COORDINATOR_SELF].address,
               sizeof roster->nodes[node].address);
    }
    coordinator->nodes[node].generation = coordinator_forget_away(coordinator, node);
    coordinator_hold(coordinator, node);
    coordinator_take_unkilled(coordinator, node, join->n_unkilled);
    return node;
}

void coordinator_welcome(const struct coordinator *coordinator, int node, struct proto_welcome *welcome)
{
    const uint64_t until_ms = coordinator->nodes[node].held_until_ms;
    const struct proto_join *self = &coordinator->roster.nodes[COORDINATOR_SELF].who;

    memcpy(welcome->host, self->host, sizeof welcome->host);
    welcome->term = coordinator->services.lead.term;
    memcpy(welcome->identity, self->identity, sizeof welcome->identity);
    memcpy(welcome->run, coordinator->roster.run, sizeof welcome->run);
    if (coordinator->services.rundir != NULL)
        welcome->first_attempt = rundir_first_attempt(coordinator->services.rundir);
    if (coordinator_is_ending(coordinator)) {
        welcome->wait = PROTO_WAIT_ENDING;
    } else if (coordinator->nodes[node].n_unkilled > 0) {
        welcome->wait = PROTO_WAIT_UNKILLED;
    } else if (until_ms != 0) {
        welcome->wait = coordinator->nodes[node].slow ? PROTO_WAIT_SLOW : PROTO_WAIT_QUARANTINE;
        welcome->seconds = (int)((until_ms - coordinator_now_ms(coordinator) + 999) / 1000);
    } else if (coordinator->state == CS_GATHERING || coordinator->state == CS_PREPARING) {
        welcome->wait = PROTO_WAIT_FORMING;
    } else {
        welcome->wait = roster_has_newcomers(&coordinator->roster) ? PROTO_WAIT_RUNNING : PROTO_WAIT_SPARE;
    }
}

void coordinator_attach(struct coordinator *coordinator, int node, coordinator_tell *tell, void *member)
{
    struct coordinator_node *at = &coordinator->nodes[node];

    *at = (struct coordinator_node){ .coordinator = coordinator,
                                     .tell = tell,
                                     .member = member,
                                     .stopped = true,
                                     .late = coordinator_is_ending(coordinator),
                                     .held_until_ms = at->held_until_ms,
                                     .needed_ms = at->needed_ms,
                                     .slow = at->slow,
                                     .n_unkilled = at->n_unkilled,
                                     .said_unkilled = at->said_unkilled,
                                     .generation = at->generation,
                                     .held = coordinator->roster.nodes[node].who.held };
    coordinator_forget_entries(coordinator, node);
    coordinator_tell_ended(coordinator, node);
    coordinator_consider(coordinator);
    coordinator_run(coordinator);
}

/* Nodes that leave or are lost */

/* Takes the node out of the roster. */
static void drop(struct coordinator *coordinator, int node)
{
    if (coordinator_in_play(coordinator, node))
        coordinator->n_up -= !coordinator->nodes[node].stopped;
    coordinator->nodes[node].n_unkilled = 0;
    coordinator->nodes[node].said_unkilled = false;
    coordinator_release(coordinator, node);
    quarantine_gone(&coordinator->quarantine, node);
    roster_remove(&coordinator->roster, node);
}

/* Returns whether all ranks of the node had ended well, so that the job does not need the node any more. */
static bool had_ended_well(const struct coordinator *coordinator, int node)
{
    return coordinator->nodes[node].stopped && coordinator->nodes[node].n_failed == 0;
}

/*
 * Handles a node that is lost while the generation runs. Its ranks count as failed at the time when the node
 * was last heard of.
 */
static void lost_while_up(struct coordinator *coordinator, int node, int64_t silent_ms, const char *words)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];
    const bool first = !coordinator->node_lost;
    struct death death = { .kind = DEATH_NODE,
                           .rank = -1,
                           .local_rank = -1,
                           .node_rank = at->node_rank,
                           .step = -1,
                           .phase = -1,
                           .when_ns = coordinator_now_ns(coordinator) - silent_ms * 1000000 };

    snprintf(death.host, sizeof death.host, "%.64s", at->who.host);
    snprintf(death.words, sizeof death.words, "node %d at %.64s: %.150s", at->node_rank, at->address, words);
    coordinator_report_death(coordinator, &death);
    coordinator_detect(coordinator);
    coordinator->node_lost = true;
    if (first && coordinator->state == CS_CLEARING)
        /* the nodes are stopping already; the loss of a node shortens the grace period */
        coordinator_clear(coordinator);
    coordinator_post(coordinator, CE_FAILED);
}

/*
 * Handles a node that is lost between two generations. If the number of nodes is fixed, the loss counts as a
 * failure, as if it had happened in the next generation.
 */
static void lost_between(struct coordinator *coordinator, int node, const char *words)
{
    const int64_t now_ns = coordinator_now_ns(coordinator);
    char line[COORDINATOR_LINE_BYTES], name[ROSTER_NAME_BYTES];

    snprintf(line, sizeof line, "node %d, %s, was lost: %s", coordinator->roster.nodes[node].node_rank,
             coordinator_name_of(coordinator, node, name), words);
    if (!coordinator_is_elastic(coordinator) && budget_spent(&coordinator->budget, now_ns)) {
        coordinator_add_window(coordinator, line, sizeof line);
        coordinator_end_with(coordinator, FSDP_EXIT_LINK, ERRORS_NODE, line);
        coordinator_post(coordinator, coordinator->state == CS_GATHERING ? CE_NEVER : CE_REFUSED);
        return;
    }
    if (!coordinator_is_elastic(coordinator))
        budget_take(&coordinator->budget, now_ns);
    console_say(coordinator->services.console, "fsdprun: %s; waiting for another", line);
    if (coordinator->state == CS_GATHERING)
        coordinator_gather(coordinator);
}

/* Counts the loss of a node, and notes it for the agent that leads next. */
static void strike(struct coordinator *coordinator, int node)
{
    quarantine_lost(&coordinator->quarantine, node, &coordinator->roster.nodes[node],
                    (int64_t)coordinator_now_ms(coordinator));
    coordinator_publish(coordinator);
}

bool coordinator_may_grant(const struct coordinator *coordinator)
{
    const struct coordinator_lead *lead = &coordinator->services.lead;

    return lead->holds == NULL || lead->holds(lead->arg);
}

void coordinator_granted(struct coordinator *coordinator, int node, int64_t ago_ns)
{
    const uint64_t granted_ms = (uint64_t)(coordinator_now_ns(coordinator) - ago_ns) / 1000000 + 1;

    if (granted_ms > coordinator->nodes[node].granted_ms)
        coordinator->nodes[node].granted_ms = granted_ms; /* rounded up */
}

void coordinator_fenced(struct coordinator *coordinator, int node, int generation, int64_t ago_ms)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];

    if (!coordinator_is_up(coordinator) || generation != coordinator->generation ||
        !coordinator_in_play(coordinator, node) || coordinator->nodes[node].stopped)
        return;
    if (coordinator_is_elastic(coordinator) && !at->leaving && node != COORDINATOR_SELF) {
        strike(coordinator, node);
        coordinator_hold(coordinator, node);
    }
    lost_while_up(coordinator, node, ago_ms,
                  node == COORDINATOR_SELF
                      ? "its agent stood still for too long, and its ranks were killed"
                      : "it had no answer from the coordinator for too long, and its ranks were killed");
    coordinator_run(coordinator);
}

/*
 * Returns for how long no beat of the node was answered. If ranks of other nodes failed in that time, the
 * reason may be that this node's ranks were gone.
 */
static int64_t unanswered_ms(const struct coordinator *coordinator, int node)
{
    const uint64_t heard_ms = coordinator->nodes[node].granted_ms, now_ms = coordinator_now_ms(coordinator);

    return heard_ms == 0 || heard_ms > now_ms ? 0 : (int64_t)(now_ms - heard_ms);
}

void coordinator_gave_up(struct coordinator *coordinator, int node)
{
    coordinator_lost(coordinator, node, unanswered_ms(coordinator, node),
                     "it has given up its link, and comes again");
}

void coordinator_swept(struct coordinator *coordinator, int node)
{
    const int64_t silent_ms = unanswered_ms(coordinator, node);

    coordinator->nodes[node].granted_ms = 0;
    coordinator_unfence(coordinator, coordinator->roster.nodes[node].who.identity);
    coordinator_lost(coordinator, node, silent_ms, "its supervision ended, and its ranks were killed");
    coordinator_left(coordinator, node);
}

void coordinator_agent_swept(struct coordinator *coordinator, const unsigned char agent[PROTO_IDENTITY_BYTES])
{
    coordinator_forget_agent(coordinator, agent);
    coordinator_refuse(coordinator, agent);
    if (!coordinator_unfence(coordinator, agent) || coordinator->state != CS_GATHERING)
        return;
    coordinator_gather(coordinator);
    coordinator_run(coordinator);
}

void coordinator_lost(struct coordinator *coordinator, int node, int64_t silent_ms, const char *words)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];
    const bool up = coordinator_is_up(coordinator);
    char name[ROSTER_NAME_BYTES];

    if (!at->present || coordinator->state == CS_ENDED)
        return;
    if (up && at->active)
        coordinator_fence(coordinator, node);
    if (coordinator_is_elastic(coordinator) && at->seat >= 0 && !at->leaving &&
        !(up && had_ended_well(coordinator, node)))
        strike(coordinator, node);
    coordinator_note_away(coordinator, node);
    drop(coordinator, node);
    coordinator_name_of(coordinator, node, name);
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
    coordinator_store_lost(coordinator, node);
    coordinator_run(coordinator);
    coordinator_judge_if_down(coordinator);
    coordinator_run(coordinator);
}

bool coordinator_hand_over(const struct coordinator *coordinator, struct coordinator_past *past)
{
    const struct rundir *rundir = coordinator->services.rundir;

    *past = (struct coordinator_past){ .progress = coordinator_progress(coordinator),
                                       .node_rank = coordinator->roster.nodes[COORDINATOR_SELF].node_rank,
                                       .last_step = -1,
                                       .first_attempt = rundir == NULL ? 0 : rundir_first_attempt(rundir) };
    memcpy(past->run, coordinator->roster.run, sizeof past->run);
    past->held = coordinator->nodes[COORDINATOR_SELF].held;
    return coordinator_is_elastic(coordinator) || past->progress.n_restarts_left > 0;
}

void coordinator_depose(struct coordinator *coordinator, const char *words)
{
    if (coordinator->state == CS_ENDED)
        return;
    coordinator->deposed = coordinator->stop_now = true;
    coordinator->services.events = NULL;
    coordinator->services.write_errors = NULL;
    for (int i = COORDINATOR_SELF + 1; i < coordinator->roster.capacity; i++)
        if (coordinator->roster.nodes[i].present) {
            drop(coordinator, i);
            coordinator_store_lost(coordinator, i);
        }
    coordinator_end_with(coordinator, FSDP_EXIT_LINK, ERRORS_NODE, words);
    coordinator_post(coordinator, CE_STOP);
    coordinator_run(coordinator);
    if (coordinator->state == CS_CLEARING)
        coordinator_clear(coordinator); /* the generation may be stopping already, in its grace period */
    coordinator_judge_if_down(coordinator);
    coordinator_run(coordinator);
}

static void let_go(struct coordinator *coordinator, int node)
{
    struct coordinator_node *at = &coordinator->nodes[node];
    struct coordinator_end end = { .node = -1,
                                   .status = at->leave_saved ? FSDP_EXIT_NOTICE : 128 + at->leave_signal };
    char name[32];

    if (at->leave_saved)
        snprintf(end.line, sizeof end.line, "left on notice; the others go on");
    else
        snprintf(end.line, sizeof end.line, "stopped by %s; the others go on",
                 errors_signal_name(at->leave_signal, name));
    at->tell(at->member, PROTO_FINISH, coordinator->generation, &end);
    coordinator_note_away(coordinator, node); /* a cut may keep that from it */
    drop(coordinator, node);
    coordinator_store_lost(coordinator, node);
}

void coordinator_part(struct coordinator *coordinator)
{
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator->roster.nodes[i].present && coordinator->roster.nodes[i].leaving)
            let_go(coordinator, i);
    for (int i = 0; i < coordinator->roster.capacity; i++)
        coordinator->nodes[i].late = false;
    coordinator_tell_unkilled(coordinator);
    roster_clear(&coordinator->roster);
    coordinator->changing = false;
    coordinator->change_ms = coordinator->leave_until_ms = 0;
}

void coordinator_leave(struct coordinator *coordinator, int node, int signal, bool now, bool save)
{
    struct roster_node *at = &coordinator->roster.nodes[node];
    char name[ROSTER_NAME_BYTES], by[32];

    if (at->leaving && !now)
        return; /* the node is leaving already */
    if (coordinator->config->signals_for_all || !roster_can_spare(&coordinator->roster, node) ||
        at->leaving) {
        if (save)
            coordinator_notice(coordinator, signal);
        else if (!at->leaving)
            coordinator_stop(coordinator, signal, now);
        return;
    }
    roster_leave(&coordinator->roster, node);
    coordinator->nodes[node].leave_signal = signal;
    coordinator->nodes[node].leave_saved = save;
    console_say(coordinator->services.console, "fsdprun: %s leaves (%s)",
                coordinator_name_of(coordinator, node, name), errors_signal_name(signal, by));
    if (coordinator->state == CS_UP && at->active)
        coordinator_change(coordinator, save);
    else if (coordinator->state != CS_CLEARING || !at->active)
        let_go(coordinator, node);
    coordinator_run(coordinator);
}
