#include "agent/watch/hang_verdict.h"

#include <stdlib.h>
#include <string.h>

#include "agent/watch/hang_graph.h"

enum { AGAIN_MOST_NS = 1000000000 };

struct judge {
    struct hang_graph graph;
    int stuck; /* the sink that best fits rule 1 so far; -1: none */
    /* from now until some rank that excuses the others is silent beyond its bound; AGAIN_MOST_NS at most */
    int64_t again_ns;
    bool excused; /* there is a sink that may still go on, or one about which nothing is known */
};

/* Sinks */

static int worth(const struct hang_rank *row)
{
    if (hang_is_stopped(row))
        return 0;
    if (row->state == 'D')
        return 1;
    if (hang_is_held(row))
        return 2;
    if (row->pass == FSDP_PHASE_START || row->pass == FSDP_PHASE_OPEN)
        return 3;
    return row->queued || !hang_is_waiting(row) ? 4 : 5;
}

static uint64_t n_begun(const struct hang_rank *row)
{
    uint64_t n = 0;

    for (int g = 0; g < row->n_groups; g++)
        n += row->groups[g].begun;
    return n;
}

static bool is_blamed_before(const struct hang_rank *a, const struct hang_rank *b)
{
    if (worth(a) != worth(b))
        return worth(a) < worth(b);
    if (a->step != b->step)
        return a->step < b->step;
    if (n_begun(a) != n_begun(b))
        return n_begun(a) < n_begun(b);
    if (a->silent_ns != b->silent_ns)
        return a->silent_ns > b->silent_ns;
    return a->rank < b->rank;
}

static void wait_until_silent(struct judge *judge, const struct hang_rank *row)
{
    const int64_t left_ns = row->bound_ns - row->silent_ns;

    judge->excused = true;
    if (row->answered && row->bound_ns > 0 && left_ns < judge->again_ns)
        judge->again_ns = left_ns > 0 ? left_ns : 0;
}

static void take_sink(struct judge *judge, const struct hang_rank *row)
{
    const bool left = row->answered && hang_is_inside(row) && !hang_is_stopped(row) && !hang_is_held(row) &&
                      hang_group_of(row)->name[0] != '\0';
    const int moving = left ? hang_graph_inside(&judge->graph, row)->moving : -1;

    if (!hang_is_suspect(row))
        wait_until_silent(judge, row);
    else if (moving >= 0)
        wait_until_silent(judge, &judge->graph.rows[moving]);
    else if (judge->stuck < 0 || is_blamed_before(row, &judge->graph.rows[judge->stuck]))
        judge->stuck = row->rank;
}

static void follow_all(struct judge *judge)
{
    for (int r = 0; r < judge->graph.n; r++)
        if (hang_is_suspect(&judge->graph.rows[r]))
            hang_graph_push(&judge->graph, r);
    while (judge->graph.at < judge->graph.n_queued) {
        const struct hang_rank *row = &judge->graph.rows[judge->graph.queue[judge->graph.at++]];

        if (!hang_graph_follow(&judge->graph, row))
            take_sink(judge, row);
    }
}

/* Circles */

/*
 * Orders ranks inside collectives by group, number, kind and size. So ranks in equal calls are neighbours.
 * Other ranks come last.
 */
static int compare_calls(const void *a, const void *b)
{
    const struct hang_rank *x = *(const struct hang_rank *const *)a, *y = *(const struct hang_rank *const *)b;
    int names;

    if (hang_is_inside(x) != hang_is_inside(y))
        return hang_is_inside(x) ? -1 : 1;
    if (hang_is_inside(x)) {
        if ((names = strcmp(hang_group_of(x)->name, hang_group_of(y)->name)) != 0)
            return names;
        if (x->sequence != y->sequence)
            return x->sequence < y->sequence ? -1 : 1;
        if ((names = strcmp(x->kind, y->kind)) != 0)
            return names;
        if (x->size_bytes != y->size_bytes)
            return x->size_bytes < y->size_bytes ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/*
 * Names two ranks whose calls differ: one whose call is made by the fewest ranks, and one whose call is made
 * by the most.
 */
static void name_mismatch(const struct judge *judge, const struct hang_rank **calls, int n,
                          struct hang_verdict *verdict)
{
    int least = judge->graph.n + 1, most = 0;

    verdict->kind = HANG_MISMATCH;
    for (int i = 0, alike; i < n; i += alike) {
        for (alike = 1; i + alike < n && hang_call_alike(calls[i], calls[i + alike]);)
            alike++;
        if (alike < least || (alike == least && calls[i]->rank < verdict->ranks[0])) {
            least = alike;
            verdict->ranks[0] = calls[i]->rank;
        }
    }
    for (int i = 0, alike; i < n; i += alike) {
        for (alike = 1; i + alike < n && hang_call_alike(calls[i], calls[i + alike]);)
            alike++;
        if (calls[i]->rank != verdict->ranks[0] && alike > most) {
            most = alike;
            verdict->ranks[1] = calls[i]->rank;
        }
    }
    verdict->n_ranks = most > 0 ? 2 : 1;
}

/*
 * Names the two ends of a broken link. The first is, among ranks that miss bytes, the one that misses bytes
 * of the fewest ranks.
 */
static bool name_link(struct judge *judge, struct hang_verdict *verdict)
{
    const struct hang_rank *best = NULL;

    for (int i = 0; i < judge->graph.n_queued; i++) {
        const struct hang_rank *row = &judge->graph.rows[judge->graph.queue[i]];

        if (row->peer < 0 || row->peer >= judge->graph.n || !hang_is_inside(row) ||
            hang_graph_push_late(&judge->graph, row))
            continue; /* a member that has not begun the collective: its bytes are missing for that reason */
        if (best == NULL || row->n_missing < best->n_missing ||
            (row->n_missing == best->n_missing && row->rank < best->rank))
            best = row;
    }
    if (best == NULL)
        return false;
    verdict->kind = HANG_LINK;
    verdict->ranks[0] = best->rank < best->peer ? best->rank : best->peer;
    verdict->ranks[1] = best->rank < best->peer ? best->peer : best->rank;
    verdict->n_ranks = 2;
    return true;
}

/* The verdict */

static bool all_silent(struct judge *judge)
{
    for (int i = 0; i < judge->graph.n_queued; i++)
        if (!hang_is_suspect(&judge->graph.rows[judge->graph.queue[i]]))
            wait_until_silent(judge, &judge->graph.rows[judge->graph.queue[i]]);
    return !judge->excused;
}

static int list_calls(const struct judge *judge, const struct hang_rank **calls, const bool *of)
{
    int n = 0;

    for (int r = 0; r < judge->graph.n; r++)
        if (judge->graph.rows[r].answered && judge->graph.rows[r].live &&
            hang_is_inside(&judge->graph.rows[r]) && (of == NULL || of[r]))
            calls[n++] = &judge->graph.rows[r];
    qsort(calls, (size_t)n, sizeof *calls, compare_calls);
    return n;
}

static void decide(struct judge *judge, const struct hang_rank **calls, struct hang_verdict *verdict)
{
    if (judge->graph.n_queued == 0)
        return;
    if (judge->stuck >= 0) {
        verdict->kind = HANG_STUCK;
        verdict->ranks[0] = judge->stuck;
        verdict->n_ranks = 1;
    } else if (judge->graph.mismatch >= 0 ||
               (!judge->excused && all_silent(judge) && !name_link(judge, verdict))) {
        name_mismatch(judge, calls, list_calls(judge, calls, judge->graph.seen), verdict);
    }
    if (verdict->kind == HANG_NONE)
        verdict->again_ns = judge->again_ns > 0 ? judge->again_ns : 1;
}

static void count_waiters(const struct judge *judge, const struct hang_rank **calls,
                          struct hang_verdict *verdict)
{
    const int n = list_calls(judge, calls, NULL);

    for (int i = 0, alike; i < n; i += alike) {
        int n_waiters = 0, first = -1;

        for (alike = 0; i + alike < n && hang_in_same(calls[i], calls[i + alike]); alike++) {
            const int rank = calls[i + alike]->rank;

            if (rank == verdict->ranks[0] || (verdict->n_ranks > 1 && rank == verdict->ranks[1]))
                continue;
            n_waiters++;
            if (first < 0)
                first = rank;
        }
        if (n_waiters > verdict->n_waiters) {
            verdict->n_waiters = n_waiters;
            verdict->waiter = first;
        }
    }
}

bool hang_verdict_reach(struct hang_verdict *verdict, const struct hang_rank *rows, int n)
{
    struct judge judge = { .stuck = -1, .again_ns = AGAIN_MOST_NS };
    const struct hang_rank **calls = calloc((size_t)n + 1, sizeof *calls);
    const bool has_memory = hang_graph_init(&judge.graph, rows, n) && calls != NULL;

    *verdict = (struct hang_verdict){ .ranks = { -1, -1 }, .waiter = -1 };
    if (has_memory) {
        follow_all(&judge);
        decide(&judge, calls, verdict);
        if (verdict->kind != HANG_NONE)
            count_waiters(&judge, calls, verdict);
    }
    hang_graph_fini(&judge.graph);
    free(calls);
    return has_memory;
}
