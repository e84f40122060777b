/* Compares what the ranks of a job spend, and reports stragglers. See agent/members/stragglers.h. */
#include <stdio.h>
#include <stdlib.h>

#include "agent/cluster/coordinator_impl.h"

void coordinator_pace_begin(struct coordinator *coordinator)
{
    struct pacing *pacing = &coordinator->pacing;
    struct fsdp_err err = { 0 };

    if (coordinator->config->job_json == NULL)
        return;
    if (pacing->n_said != coordinator->world_size) { /* the ranks are others */
        free(pacing->said);
        pacing->said = calloc((size_t)coordinator->world_size, sizeof *pacing->said);
        pacing->n_said = pacing->said != NULL ? coordinator->world_size : 0;
    }
    if (stragglers_begin(&pacing->stragglers, coordinator->world_size, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: %s", err.message);
}

void coordinator_pace_fini(struct coordinator *coordinator)
{
    stragglers_fini(&coordinator->pacing.stragglers);
    free(coordinator->pacing.said);
    coordinator->pacing.said = NULL;
}

/* With --straggler restart: for how long the node of a straggler takes no part. */
enum { SET_ASIDE_S = 3600 };

/* Prints the straggler's line, once for each rank of a run. Returns whether it printed it. */
static bool say(struct coordinator *coordinator, const char *host, const struct straggler_news *news)
{
    static const char *const does[] = {
        [STRAGGLER_NONE] = "",
        [STRAGGLER_COMPUTE] = "computes slowly",
        [STRAGGLER_DATA] = "waits for its data",
        [STRAGGLER_IDLE] = "stands still at times",
    };
    struct pacing *pacing = &coordinator->pacing;

    if (coordinator->config->quiet || news->rank >= pacing->n_said || pacing->said[news->rank])
        return false;
    pacing->said[news->rank] = true;
    console_say(coordinator->services.console,
                "fsdprun: rank %d (%s) %s, and the other ranks wait for it: %.1f ms of its own in each step, "
                "the median of %d ranks is %.1f ms",
                news->rank, host, does[news->class], news->own_s * 1e3, coordinator->world_size,
                news->median_s * 1e3);
    return true;
}

/* Forms the world again without the node of a straggler, if the job can do without the node. */
static void set_aside(struct coordinator *coordinator, int node, int rank, bool says)
{
    char name[ROSTER_NAME_BYTES];

    if (coordinator->roster.nodes[node].held ||
        coordinator_set_aside(coordinator, node, rank, SET_ASIDE_S * INT64_C(1000)) || !says)
        return;
    coordinator_name_of(coordinator, node, name);
    console_say(coordinator->services.console, "fsdprun: --straggler restart: %s stays, because %s", name,
                node == COORDINATOR_SELF ? "it hosts" : "no other node can take its place");
}

static void report(struct coordinator *coordinator, int node, const struct straggler_news *news)
{
    const char *host = coordinator->roster.nodes[node].who.host;
    const bool over = news->class == STRAGGLER_NONE;
    bool says;

    coordinator_note(
        coordinator, over ? "straggler_over" : "straggler",
        (struct events_field[]){ EVENT_INT("rank", news->rank), EVENT_TEXT("host", host),
                                 EVENT_INT("step", news->step), EVENT_REAL("own_s", news->own_s),
                                 EVENT_REAL("median_s", news->median_s), EVENT_REAL("step_s", news->step_s),
                                 over ? EVENT_END : EVENT_TEXT("class", straggler_class_name(news->class)),
                                 EVENT_END });
    if (over)
        return;
    says = say(coordinator, host, news);
    if (coordinator->config->straggler_restart)
        set_aside(coordinator, node, news->rank, says);
}

/* Returns the node of a rank of the generation; -1: that node is gone. */
static int node_of(const struct coordinator *coordinator, int rank)
{
    for (int i = 0; i < coordinator->roster.capacity; i++) {
        const struct roster_node *node = &coordinator->roster.nodes[i];

        if (node->active && rank >= node->first_rank && rank - node->first_rank < node->who.n_workers)
            return i;
    }
    return -1;
}

void coordinator_report_pace(void *to, int generation, const struct pace *pace)
{
    const struct coordinator_node *node = to;
    struct coordinator *coordinator = node->coordinator;
    const struct roster_node *at = &coordinator->roster.nodes[node - coordinator->nodes];
    const struct straggler_news *news;
    int n;

    if (generation != coordinator->generation || coordinator->state != CS_UP || !at->active ||
        coordinator_is_ending(coordinator) || pace->rank < at->first_rank ||
        pace->rank - at->first_rank >= at->who.n_workers)
        return;
    n = stragglers_take(&coordinator->pacing.stragglers, pace, &news);
    for (int i = 0; i < n; i++) {
        const int where = node_of(coordinator, news[i].rank);

        if (where >= 0)
            report(coordinator, where, &news[i]);
    }
    coordinator_run(coordinator);
}
