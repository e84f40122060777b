/*
 * Asks the nodes what their ranks are doing, when a rank was silent for too long, and names the culprit. See
 * agent/members/hang_leader.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/os/bug.h"
#include "agent/watch/hang_life.h"
#include "agent/watch/hang_verdict.h"

static void post(struct coordinator *coordinator, enum hang_leader_event event);

/*
 * Begins a question to all nodes: no rank has answered it yet. Ranks of nodes on which no rank is left need
 * no answer.
 */
static bool clear_ranks(struct coordinator *coordinator)
{
    struct search *search = &coordinator->search;

    if (search->ranks == NULL)
        search->ranks = calloc((size_t)coordinator->world_size, sizeof *search->ranks);
    if (search->ranks == NULL)
        return false;
    search->question++;
    search->n_missing = coordinator->world_size;
    for (int i = 0; i < coordinator->roster.capacity; i++) {
        const struct roster_node *node = &coordinator->roster.nodes[i];
        const bool stopped = coordinator->nodes[i].stopped;

        for (int r = 0; node->active && r < node->who.n_workers; r++) {
            search->ranks[node->first_rank + r] = (struct hang_rank){
                .rank = node->first_rank + r, .node = node->node_rank, .answered = stopped, .group = -1
            };
            search->n_missing -= stopped;
        }
    }
    return true;
}

static void set_deadline(struct coordinator *coordinator, int64_t ms)
{
    coordinator->search.until_ms = coordinator_now_ms(coordinator) + (uint64_t)ms;
    coordinator_arm(coordinator);
}

static void ask(struct coordinator *coordinator)
{
    const struct search *search = &coordinator->search;
    const struct proto_look look = { .question = search->question + 1,
                                     .shown_ns = search->shown_at_ns == 0
                                                     ? INT64_MAX
                                                     : (int64_t)uv_hrtime() - search->shown_at_ns };

    set_deadline(coordinator, HANG_ASK_MS);
    if (clear_ranks(coordinator))
        coordinator_tell_all(coordinator, -1, PROTO_LOOK, &look);
}

/* Tells the culprit's node which of its ranks hangs. That node reports the hang. */
static void tell_culprit(struct coordinator *coordinator)
{
    struct search *search = &coordinator->search;
    const struct coordinator_node *node = &coordinator->nodes[search->culprit];

    search->show_until_ms = 0;
    if (coordinator_in_play(coordinator, search->culprit))
        node->tell(node->member, PROTO_HUNG, coordinator->generation, &search->hung);
}

/* Asks every node except the culprit's to report what its ranks show. */
static void ask_to_show(struct coordinator *coordinator)
{
    struct search *search = &coordinator->search;

    hang_table_clear(&search->table);
    search->n_silent = 0;
    search->show_until_ms = coordinator_now_ms(coordinator) + HANG_SHOW_MS;
    for (int i = 0; i < coordinator->roster.capacity; i++) {
        struct coordinator_node *node = &coordinator->nodes[i];

        node->shows = i != search->culprit && coordinator_in_play(coordinator, i) && !node->stopped;
        search->n_silent += node->shows;
    }
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator->nodes[i].shows)
            coordinator->nodes[i].tell(coordinator->nodes[i].member, PROTO_SHOW, coordinator->generation,
                                       NULL);
    if (search->n_silent == 0 && search->show_until_ms != 0)
        tell_culprit(coordinator);
    coordinator_arm(coordinator);
}

/*
 * Writes the verdict to events.jsonl. Then asks the other nodes what their ranks show; after that the hang is
 * reported.
 */
static void name_culprit(struct coordinator *coordinator, const struct hang_verdict *verdict)
{
    const struct hang_rank *ranks = coordinator->search.ranks, *culprit = &ranks[verdict->ranks[0]];
    const char *phase = first_cause_phase_name(hang_rank_phase(culprit));

    coordinator->search.hung = (struct proto_hung){ .rank = culprit->rank };
    hang_words(verdict, ranks, coordinator->search.hung.words);
    coordinator_note(
        coordinator, "hang",
        (struct events_field[]){
            EVENT_TEXT("kind", hang_kind_name(verdict->kind)), EVENT_INT("rank", culprit->rank),
            EVENT_TEXT("phase", phase != NULL ? phase : "unknown"),
            culprit->layer[0] != '\0' ? EVENT_TEXT("layer", culprit->layer) : EVENT_JSON("layer", "null"),
            EVENT_INT("step", culprit->step), EVENT_REAL("silent_s", (double)culprit->silent_ns / 1e9),
            EVENT_REAL("bound_s", (double)culprit->bound_ns / 1e9), EVENT_INT("waiters", verdict->n_waiters),
            EVENT_END });
    coordinator->search.culprit = -1;
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator_in_play(coordinator, i) && coordinator->roster.nodes[i].node_rank == culprit->node)
            coordinator->search.culprit = i;
    if (coordinator->search.culprit >= 0)
        ask_to_show(coordinator);
}

/*
 * Keeps the newest strong sign of life that any node has seen. The next question tells all nodes of it,
 * because the ranks of a node that prints nothing would otherwise seem silent for too long.
 */
static void note_shown(struct coordinator *coordinator, int64_t shown_ns)
{
    const int64_t at_ns = (int64_t)uv_hrtime() - shown_ns;

    if (shown_ns >= 0 && shown_ns < INT64_MAX && at_ns > coordinator->search.shown_at_ns)
        coordinator->search.shown_at_ns = at_ns;
}

/*
 * Finds the culprit. Programs without steps are judged by their other signs of life; these count for a
 * watched program with steps too. Returns false if there is no verdict yet, or no memory for it.
 */
static bool reach_verdict(struct coordinator *coordinator, struct hang_verdict *verdict)
{
    struct hang_rank *ranks = coordinator->search.ranks;
    const int n = ranks != NULL ? coordinator->world_size : 0;
    const int64_t store_ns = coordinator_store_idle_ns(coordinator);
    const int64_t shown_ns = hang_life_shown(ranks, n, store_ns);
    bool watched = false, program = false;

    for (int r = 0; r < n; r++) {
        watched = watched || (ranks[r].live && ranks[r].shown_ns != 0);
        program = program || (ranks[r].live && ranks[r].program);
    }
    if (watched)
        note_shown(coordinator, shown_ns);
    if (program) {
        hang_life_judge(verdict, ranks, n, store_ns);
        return true;
    }
    if (watched && shown_ns < 0)
        return false;
    if (watched)
        hang_life_share(ranks, n, shown_ns);
    return n > 0 && hang_verdict_reach(verdict, ranks, n);
}

static void judge(struct coordinator *coordinator)
{
    struct search *search = &coordinator->search;
    struct hang_verdict verdict;

    if (!reach_verdict(coordinator, &verdict)) {
        search->again_ms = HANG_AGAIN_MS;
        post(coordinator, HE_EXCUSED);
    } else if (verdict.kind == HANG_NONE) {
        search->again_ms = verdict.again_ns / 1000000 + 1;
        if (search->again_ms > HANG_AGAIN_MS)
            search->again_ms = HANG_AGAIN_MS;
        post(coordinator, verdict.again_ns == 0 ? HE_CLEAR : HE_EXCUSED);
    } else {
        search->again_ms = HANG_NAMED_MS;
        post(coordinator, HE_NAMED);
        name_culprit(coordinator, &verdict);
    }
}

static void post(struct coordinator *coordinator, enum hang_leader_event event)
{
    enum hang_leader_action action;

    if (!hang_leader_step(&coordinator->search.state, event, &action))
        bug_stop("hang event %d came out of order, in state %d", (int)event, (int)coordinator->search.state);
    if (action == HA_ASK)
        ask(coordinator);
    else if (action == HA_JUDGE)
        judge(coordinator);
    else if (action == HA_PAUSE)
        set_deadline(coordinator, coordinator->search.again_ms);
}

static bool is_over(const struct coordinator *coordinator, uint64_t until_ms)
{
    return until_ms != 0 && coordinator_now_ms(coordinator) >= until_ms;
}

void coordinator_hang_look(struct coordinator *coordinator)
{
    if (is_over(coordinator, coordinator->search.show_until_ms)) {
        coordinator->search.show_until_ms = 0;
        if (coordinator->state == CS_UP)
            tell_culprit(coordinator);
    }
    if (!is_over(coordinator, coordinator->search.until_ms))
        return;
    coordinator->search.until_ms = 0;
    if (coordinator->state == CS_UP)
        post(coordinator, HE_DEADLINE);
}

void coordinator_hang_begin(struct coordinator *coordinator)
{
    enum hang_leader_action action;

    if (coordinator->search.state == HL_UNSET)
        coordinator->search.state = HL_QUIET;
    (void)hang_leader_step(&coordinator->search.state, HE_FORM, &action);
    coordinator->search.until_ms = coordinator->search.show_until_ms = 0;
    coordinator->search.shown_at_ns = 0;
    coordinator->search.culprit = -1;
    coordinator_hang_fini(coordinator);
}

void coordinator_hang_fini(struct coordinator *coordinator)
{
    free(coordinator->search.ranks);
    coordinator->search.ranks = NULL;
    hang_table_clear(&coordinator->search.table);
}

/* Reports of the nodes */

static bool is_current(const struct coordinator *coordinator, int generation)
{
    return generation == coordinator->generation && coordinator->state == CS_UP;
}

void coordinator_report_suspects(void *to, int generation)
{
    struct coordinator *coordinator = ((struct coordinator_node *)to)->coordinator;

    if (!is_current(coordinator, generation))
        return;
    coordinator_hang_look(coordinator); /* a single node has no timer for this, so it looks at once */
    post(coordinator, HE_SUSPECT);
}

void coordinator_report_rank(void *to, int generation, uint64_t question, const struct hang_rank *rank)
{
    const struct coordinator_node *node = to;
    struct coordinator *coordinator = node->coordinator;
    const struct roster_node *at = &coordinator->roster.nodes[node - coordinator->nodes];
    struct search *search = &coordinator->search;

    if (!is_current(coordinator, generation) || question != search->question || search->ranks == NULL ||
        rank->rank < at->first_rank || rank->rank >= at->first_rank + at->who.n_workers ||
        search->ranks[rank->rank].answered)
        return;
    search->ranks[rank->rank] = *rank;
    search->ranks[rank->rank].node = at->node_rank;
    search->ranks[rank->rank].answered = true;
    if (rank->program)
        search->ranks[rank->rank].pass =
            coordinator_phase_of(coordinator, (int)(node - coordinator->nodes),
                                 &(struct death){ .phase = PROGRAM_STARTING, .pid = rank->pid });
    if (--search->n_missing == 0)
        post(coordinator, HE_ANSWERED);
}

/* The report of the culprit's node completes the table: prints it, and keeps it for errors.json. */
static void end_table(struct coordinator *coordinator, const char *json, size_t length)
{
    struct search *search = &coordinator->search;
    char lines[HANG_PRINT_BYTES], *rest;

    coordinator->hang = hang_table_take(&search->table, json, length, search->n_silent, lines);
    if (coordinator->config->quiet)
        return;
    for (char *line = strtok_r(lines, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        console_say(coordinator->services.console, "%s", line);
}

/*
 * Takes a node's report of what its ranks show. A report that comes after the wait is still put into the
 * table, if the report of the culprit's node has not come yet.
 */
void coordinator_report_explained(void *to, int generation, const char *json, size_t length)
{
    struct coordinator_node *node = to;
    struct coordinator *coordinator = node->coordinator;
    struct search *search = &coordinator->search;

    if (generation != coordinator->generation || !coordinator_is_up(coordinator) || coordinator->hang != NULL)
        return;
    if (search->culprit >= 0 && node == &coordinator->nodes[search->culprit]) {
        end_table(coordinator, json, length);
    } else if (node->shows) {
        node->shows = false;
        hang_table_add(&search->table, json, length);
        if (--search->n_silent == 0 && search->show_until_ms != 0)
            tell_culprit(coordinator);
    }
}
