#include "agent/watch/hang_life.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "agent/record/first_cause.h"
#include "agent/watch/hang_graph.h"

enum {
    SAMPLES = 4,
    BUSY = 20 /* a twentieth of a core */,
    WORK_LEAST = 8,
    PATIENCE = 9,
    NEWS = 3,
    /*
     * worth() of a rank that is still starting; what is known of a rank of this worth or more proves little
     */
    WORTH_STARTING = 3,
    LINES = 32,
    NS_PER_S = 1000000000
};
static const int64_t START_NS = 60000000000, AGAIN_NS = 1000000000;

int64_t hang_life_bound(const struct hang_life *life)
{
    return life->shown || life->limit_ns > START_NS ? life->limit_ns : START_NS;
}

bool hang_life_takes_weak(const struct hang_life *life, int64_t now_ns)
{
    return (now_ns - life->shown_ns) / PATIENCE < hang_life_bound(life);
}

bool hang_life_wants_news(const struct hang_life *life, int64_t now_ns, int64_t asked_ns)
{
    const int64_t bound_ns = hang_life_bound(life);

    return life->limit_ns > 0 && (now_ns - life->shown_ns) / NEWS > bound_ns && now_ns - asked_ns > bound_ns;
}

bool hang_life_wants_sample(const struct hang_life *life, const struct hang_sample *sample, int64_t now_ns)
{
    const int64_t every_ns = life->limit_ns / SAMPLES;

    return now_ns - life->shown_ns >= every_ns && now_ns - sample->taken_ns >= every_ns;
}

bool hang_life_works(struct hang_sample *sample, int64_t now_ns, const struct process_usage *usage)
{
    const struct process_usage before = sample->usage;
    const int64_t passed_ns = now_ns - sample->taken_ns;
    const bool first = sample->taken_ns == 0;

    *sample = (struct hang_sample){ now_ns, *usage };
    if (first || passed_ns <= 0)
        return false;
    if (usage->cpu_ns < before.cpu_ns || usage->work < before.work)
        /* a descendant has ended: its counts are gone, and its end is a sign of life */
        return true;
    return (usage->cpu_ns - before.cpu_ns) * BUSY >= (uint64_t)passed_ns &&
           usage->work - before.work >= WORK_LEAST;
}

/* The judge */

static int worth(const struct hang_rank *row)
{
    if (row->state == 'T' || row->state == 't' || row->state == 'Z')
        return 0;
    if (row->state == 'D')
        return 1;
    if (row->hearts)
        return 2;
    return row->pass == PROGRAM_STARTING ? WORTH_STARTING : 4;
}

/*
 * Does the rank wait for other ranks, as far as is known? Its Python stack shows that. Without one, its
 * progress page does: the rank is inside a collective, and nothing holds it there.
 */
static bool waits(const struct hang_rank *row)
{
    return row->python ? row->waits : hang_is_waiting(row) && !row->queued && !hang_is_held(row);
}

/*
 * The lines of source at which ranks stand, and how many ranks stand at each. Only ranks with a known stack
 * count.
 */
struct lines {
    int n;
    struct {
        const char *line;
        int n_ranks;
    } of[LINES];
};

static int *count_of(struct lines *lines, const char *line)
{
    for (int i = 0; i < lines->n; i++)
        if (strcmp(lines->of[i].line, line) == 0)
            return &lines->of[i].n_ranks;
    if (lines->n == LINES)
        return NULL;
    lines->of[lines->n].line = line;
    lines->of[lines->n].n_ranks = 0;
    return &lines->of[lines->n++].n_ranks;
}

static void count_lines(struct lines *lines, const struct hang_rank *rows, int n)
{
    lines->n = 0;
    for (int r = 0; r < n; r++) {
        int *count = rows[r].live && rows[r].python ? count_of(lines, rows[r].layer) : NULL;

        if (count != NULL)
            ++*count;
    }
}

/*
 * Returns how many ranks stand at the same line as this one. If its line is not known, returns the number of
 * all.
 */
static int n_alike(struct lines *lines, const struct hang_rank *row)
{
    const int *count = row->python ? count_of(lines, row->layer) : NULL;

    return count != NULL && *count > 0 ? *count : INT_MAX;
}

/*
 * Orders ranks by who is to blame first. Silences are compared in whole seconds, because samples are about
 * that far apart.
 */
static bool is_blamed_before(const struct hang_rank *a, const struct hang_rank *b, struct lines *lines)
{
    if (worth(a) != worth(b))
        return worth(a) < worth(b);
    if (waits(a) != waits(b))
        return waits(b);
    if (n_alike(lines, a) != n_alike(lines, b))
        return n_alike(lines, a) < n_alike(lines, b);
    if (a->silent_ns / NS_PER_S != b->silent_ns / NS_PER_S)
        return a->silent_ns > b->silent_ns;
    return a->rank < b->rank;
}

int64_t hang_life_shown(const struct hang_rank *rows, int n, int64_t store_ns)
{
    int64_t shown_ns = store_ns;

    for (int r = 0; r < n; r++) {
        const bool watched = rows[r].live && rows[r].shown_ns != 0;

        if (!rows[r].answered || (rows[r].live && !watched && rows[r].bound_ns == 0))
            return -1;
        if (watched && rows[r].shown_ns < shown_ns)
            shown_ns = rows[r].shown_ns;
    }
    return shown_ns;
}

void hang_life_share(struct hang_rank *rows, int n, int64_t shown_ns)
{
    for (int r = 0; r < n; r++)
        if (!rows[r].hearts && rows[r].silent_ns > shown_ns)
            rows[r].silent_ns = shown_ns;
}

/* Does the rank wait for others, while another rank that does not wait gives weak signs? */
static bool is_excused(const struct hang_rank *culprit, const struct hang_rank *rows, int n)
{
    for (int r = 0; r < n && waits(culprit); r++)
        if (rows[r].live && (rows[r].python || !rows[r].program) && !waits(&rows[r]) &&
            rows[r].silent_ns <= rows[r].bound_ns)
            return true;
    return false;
}

/*
 * Has the rank been silent for so long that it seems stuck, but not for its whole limit? Then it is not known
 * whether it stopped before the others or after them, because its weak signs are a sample apart.
 */
static bool is_undecided(const struct hang_rank *row)
{
    return row->live && !row->hearts && row->silent_ns <= row->bound_ns && row->silent_ns > row->bound_ns / 2;
}

void hang_life_judge(struct hang_verdict *verdict, const struct hang_rank *rows, int n, int64_t store_ns)
{
    const int64_t shown_ns = hang_life_shown(rows, n, store_ns);
    const struct hang_rank *culprit = NULL;
    bool undecided = false;
    struct lines lines;

    *verdict = (struct hang_verdict){ .ranks = { -1, -1 }, .waiter = -1 };
    count_lines(&lines, rows, n);
    if (shown_ns < 0)
        verdict->again_ns = AGAIN_NS;
    for (int r = 0; r < n && shown_ns >= 0; r++) {
        const struct hang_rank *row = &rows[r];

        undecided = undecided || is_undecided(row);
        if (!row->live || row->bound_ns <= 0 || row->silent_ns <= row->bound_ns)
            continue;
        if (!row->hearts && shown_ns <= row->bound_ns)
            verdict->again_ns = AGAIN_NS;
        else if (culprit == NULL || is_blamed_before(row, culprit, &lines))
            culprit = row;
    }
    if (culprit != NULL && worth(culprit) >= WORTH_STARTING && (undecided || is_excused(culprit, rows, n))) {
        verdict->again_ns = AGAIN_NS;
        return;
    }
    if (culprit == NULL)
        return;
    verdict->kind = HANG_STUCK;
    verdict->ranks[0] = culprit->rank;
    verdict->n_ranks = 1;
    verdict->again_ns = 0;
}
