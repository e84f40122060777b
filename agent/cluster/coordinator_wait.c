#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"

enum {
    /*
     * Nodes that start together arrive one after another. The coordinator waits for this time after each
     * arrival, so that all of them come into the same new generation.
     */
    SETTLE_MS = 1000,
    SETTLE_AT_MOST_MS = 5000,
    /*
     * Each node stops its own ranks at the end of the grace. The coordinator waits this much longer before it
     * tells them to: a node whose agent stands still must not hold up the change.
     */
    LEAVE_SLACK_MS = 1000,
    LEAD_LOOK_MS = 100 /* how long until the next look whether this agent may lead again */
};

/* The timer */

static void on_timer(uv_timer_t *timer);

void coordinator_arm(struct coordinator *coordinator)
{
    const uint64_t due[] = { coordinator->gather_until_ms,
                             coordinator->last_call_ms,
                             coordinator->change_ms,
                             coordinator->leave_until_ms,
                             coordinator_held_ms(coordinator),
                             coordinator->search.until_ms,
                             coordinator->search.show_until_ms,
                             coordinator->survival_ms,
                             coordinator->mark == NULL ? 0 : coordinator->mark_look_ms };
    uint64_t first = 0, now = coordinator_now_ms(coordinator);

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

/* Waiting for enough nodes */

/*
 * Lists the nodes that are present. If all of them asked for a node rank by number, also lists the node ranks
 * that are missing.
 */
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
                           coordinator_name_of(coordinator, i, name));
    }
    for (int rank = 0, missing = 0; numbered && rank < roster->max_nodes && length < (int)size - 40; rank++)
        if (roster_holder(roster, rank) == NULL)
            length += snprintf(out + length, size - (size_t)length, "%s %d",
                               missing++ == 0 ? "; missing node" : "", rank);
}

/* Adds the first node that is held back because of processes that do not end. */
static void add_unkilled(const struct coordinator *coordinator, char *out, size_t size)
{
    const size_t length = strlen(out);
    char name[ROSTER_NAME_BYTES];

    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator->nodes[i].n_unkilled > 0) {
            snprintf(out + length, size - length, "; processes of %.80s cannot be killed",
                     coordinator_name_of(coordinator, i, name));
            return;
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
    add_unkilled(coordinator, words, sizeof words);
    coordinator_end_with(coordinator, coordinator->roster.seated ? FSDP_EXIT_LINK : FSDP_EXIT_PEER,
                         coordinator->roster.seated ? ERRORS_NODE : ERRORS_WORLD, words);
    coordinator_post(coordinator, CE_NEVER);
    coordinator_run(coordinator);
}

/*
 * The nodes are there. The generation may begin once ranks of lost nodes must have ended, because two
 * generations never run at the same time (agent/os/lease.h).
 */
static void gathered(struct coordinator *coordinator, uint64_t now_ms)
{
    uint64_t fenced_until_ms = coordinator_fenced_until_ms(coordinator);

    if (fenced_until_ms <= now_ms && !coordinator_may_form(coordinator))
        fenced_until_ms = now_ms + LEAD_LOOK_MS;
    if (fenced_until_ms > now_ms) {
        coordinator->last_call_ms = fenced_until_ms;
        if (coordinator->gather_until_ms < fenced_until_ms)
            coordinator->gather_until_ms = fenced_until_ms;
        return;
    }
    coordinator->gather_until_ms = coordinator->last_call_ms = 0;
    coordinator_post(coordinator, CE_GATHERED);
}

void coordinator_gather(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;
    const uint64_t now = coordinator_now_ms(coordinator);

    if (coordinator->nodes[COORDINATOR_SELF].tell == NULL)
        return;
    if (coordinator->gather_until_ms == 0)
        coordinator->gather_until_ms = now + (uint64_t)coordinator->config->join_timeout_ms;
    if (!roster_enough(roster)) {
        coordinator->last_call_ms = 0;
    } else if (coordinator->last_call_ms == 0) {
        coordinator->last_call_ms = now + (uint64_t)coordinator->config->last_call_timeout_ms;
    }
    /*
     * Once a world has been formed, the nodes begin again as soon as they are enough. The last call for more
     * nodes applies only to the first world.
     */
    if (roster_full(roster) ||
        (roster_enough(roster) &&
         (roster->seated || now >= coordinator->last_call_ms || now >= coordinator->gather_until_ms)))
        gathered(coordinator, now);
    coordinator_arm(coordinator);
}

/* Changes of members while the job runs */

void coordinator_ask_to_leave(struct coordinator *coordinator)
{
    const struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_SAVE_AND_STOP, .stop_after_step = -1 };

    coordinator_tell_all(coordinator, -1, PROTO_NOTICE, &notice);
}

void coordinator_change(struct coordinator *coordinator, bool save)
{
    if (coordinator->changing)
        return;
    coordinator->changing = true;
    coordinator_detect(coordinator);
    if (!save && coordinator->config->job_json == NULL) {
        coordinator_post(coordinator, CE_CHANGE);
        return;
    }
    coordinator_ask_to_leave(coordinator);
    coordinator->leave_until_ms =
        coordinator_now_ms(coordinator) + (uint64_t)coordinator->config->grace_ms + LEAVE_SLACK_MS;
    coordinator_arm(coordinator);
}

bool coordinator_restart(struct coordinator *coordinator)
{
    if (coordinator->state != CS_UP || coordinator_is_ending(coordinator))
        return false;
    if (!coordinator->changing) {
        snprintf(coordinator->line, sizeof coordinator->line, "a restart was asked for");
        coordinator_note(coordinator, "restart_asked", NULL);
        coordinator_change(coordinator, false);
    }
    coordinator_run(coordinator);
    return true;
}

/* Stops the ranks that were asked to leave because the nodes change, and have not left in time. */
static void end_leaving(struct coordinator *coordinator)
{
    coordinator->leave_until_ms = 0;
    if (coordinator->state != CS_UP)
        return;
    console_say(coordinator->services.console,
                "fsdprun: the nodes change, and not every rank has left within %.0f s: stopping them",
                (double)coordinator->config->grace_ms / 1000.0);
    coordinator_post(coordinator, CE_CHANGE);
}

bool coordinator_is_ending(const struct coordinator *coordinator)
{
    return coordinator_is_up(coordinator) &&
           (coordinator->n_deaths > 0 || coordinator->stop_signal != 0 || coordinator->notice_signal != 0);
}

/*
 * Returns whether a new generation may be formed to take in waiting nodes. A generation that is ending is not
 * interrupted for that.
 */
static bool may_change(const struct coordinator *coordinator)
{
    return coordinator->state == CS_UP && !coordinator->changing && !coordinator_is_ending(coordinator) &&
           roster_has_newcomers(&coordinator->roster);
}

static void schedule_change(struct coordinator *coordinator)
{
    const uint64_t now = coordinator_now_ms(coordinator);

    if (!may_change(coordinator))
        return;
    if (coordinator->change_ms == 0)
        coordinator->change_at_most_ms = now + SETTLE_AT_MOST_MS;
    coordinator->change_ms = roster_full(&coordinator->roster) ? now : now + SETTLE_MS;
    if (coordinator->change_ms > coordinator->change_at_most_ms)
        coordinator->change_ms = coordinator->change_at_most_ms;
    coordinator_arm(coordinator);
}

static void on_timer(uv_timer_t *timer)
{
    struct coordinator *coordinator = timer->data;
    const uint64_t now = coordinator_now_ms(coordinator);

    if (coordinator->change_ms != 0 && now >= coordinator->change_ms) {
        coordinator->change_ms = 0;
        if (may_change(coordinator))
            coordinator_change(coordinator, false);
    }
    if (coordinator->leave_until_ms != 0 && now >= coordinator->leave_until_ms)
        end_leaving(coordinator);
    coordinator_hang_look(coordinator);
    coordinator_survival_look(coordinator);
    if (coordinator_release_due(coordinator))
        schedule_change(coordinator);
    if (coordinator->state == CS_GATHERING) {
        if (now >= coordinator->gather_until_ms && !roster_enough(&coordinator->roster)) {
            give_up(coordinator);
            return;
        }
        coordinator_gather(coordinator);
    }
    coordinator_mark_look(coordinator);
    coordinator_arm(coordinator);
    coordinator_run(coordinator);
}

void coordinator_consider(struct coordinator *coordinator)
{
    if (coordinator->state == CS_GATHERING)
        coordinator_gather(coordinator);
    else
        schedule_change(coordinator);
    coordinator_arm(coordinator);
}
