#include "agent/run/run_past.h"

/*
 * Adds n_missed restarts whose times are not known to the times of the last restarts. They count as if they
 * happened now.
 */
static void add_times(struct leader_progress *progress, uint32_t n_missed)
{
    for (uint32_t i = LEADER_RESTARTS; i-- > 0;) {
        const uint32_t age_s = i < n_missed ? 0 : progress->restarts_s[i - n_missed];
        const bool fits = age_s < UINT32_MAX - progress->published_s;

        progress->restarts_s[i] = i < n_missed ? 0 : fits ? age_s + progress->published_s : UINT32_MAX;
    }
    progress->published_s = 0;
}

/*
 * Adds restarts that this node knows from a START message, but that are missing in the record, because the
 * lost leader could not reach the store.
 */
static void add_restarts(struct leader_progress *progress, uint32_t n_seen, uint32_t most)
{
    const uint32_t n_missed = n_seen > progress->n_restarts ? n_seen - progress->n_restarts : 0;

    if (progress->n_restarts_left > most)
        progress->n_restarts_left = most;
    add_times(progress, n_missed);
    progress->n_restarts += n_missed;
    progress->n_restarts_left -= n_missed < progress->n_restarts_left ? n_missed : progress->n_restarts_left;
}

void run_past_merge(struct coordinator_past *past, const struct leader_record *before, int max_restarts)
{
    struct leader_progress *progress = &past->progress, seen = *progress;

    past->swept = before->state == LEADER_SWEPT && before->progress.generation >= seen.generation;
    *progress = before->progress;
    if (progress->generation < seen.generation)
        progress->generation = seen.generation;
    else if (progress->generation > seen.generation)
        past->last_step = -1; /* this node was not in it */
    past->took_part = progress->generation == seen.generation;
    add_restarts(progress, seen.n_restarts, (uint32_t)max_restarts);
}
