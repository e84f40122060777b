#include "agent/members/timeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void timeline_detect(struct timeline *timeline, int64_t now_ns)
{
    if (timeline->detected_ns == 0)
        timeline->detected_ns = now_ns;
}

/* Sets the mean time of a step in the generation that ran, if it did more than one. */
static void measure_pace(struct timeline *timeline, const struct timeline_failure *failure)
{
    const int64_t n_steps = failure->step - timeline->first_step;
    const int64_t spent_ns = failure->when_ns - timeline->first_step_ns - timeline->saving_ns;

    if (timeline->first_step_ns != 0 && n_steps > 0 && spent_ns > 0)
        timeline->step_s = (double)spent_ns * 1e-9 / (double)n_steps;
}

void timeline_restart(struct timeline *timeline, int generation, const struct timeline_failure *failure,
                      int64_t now_ns)
{
    timeline_detect(timeline, now_ns);
    measure_pace(timeline, failure);
    timeline->open = true;
    timeline->generation = generation;
    timeline->failure = *failure;
    /*
     * The failure that was reported first need not have happened first, but no failure happened before it was
     * detected.
     */
    if (failure->when_ns > timeline->detected_ns)
        timeline->failure.when_ns = timeline->detected_ns;
    if (failure->when_ns < 0)
        timeline->failure.when_ns = 0; /* a node may report any age */
    for (int i = 0; i < TIMELINE_N; i++)
        timeline->at_ns[i] = -1;
    timeline->at_ns[TIMELINE_DETECTED] = timeline->detected_ns;
    timeline->at_ns[TIMELINE_STOPPED] = now_ns;
    timeline->resume_step = -1;
}

void timeline_form(struct timeline *timeline, int world_size, int64_t resume_step, int64_t fenced_ns,
                   int64_t now_ns)
{
    const int64_t stopped_ns = timeline->at_ns[TIMELINE_STOPPED];

    timeline->at_ns[TIMELINE_FENCED] = fenced_ns > stopped_ns ? fenced_ns : stopped_ns;
    timeline->at_ns[TIMELINE_FORMED] = now_ns;
    timeline->resume_step = resume_step;
    timeline->world_size = world_size;
    timeline->n_spawned = 0;
    timeline->detected_ns = timeline->first_step_ns = timeline->saving_ns = 0;
}

bool timeline_event(struct timeline *timeline, int rank, const char *event, int64_t step, int64_t now_ns)
{
    int64_t *at_ns = timeline->at_ns;

    if (rank < 0 && strcmp(event, "spawn") == 0) {
        if (++timeline->n_spawned == timeline->world_size)
            at_ns[TIMELINE_SPAWNED] = now_ns;
        return timeline->open && !timeline->job && timeline->n_spawned == timeline->world_size;
    }
    if (rank != 0 || !timeline->job || timeline->first_step_ns != 0)
        return false;
    if (strcmp(event, "resume") == 0 && at_ns[TIMELINE_RESUMED] < 0) {
        at_ns[TIMELINE_RESUMED] = now_ns;
        if (step >= 0)
            /* the step is older than that of timeline_form() if the checkpoint of that one was damaged */
            timeline->resume_step = step;
    }
    if (strcmp(event, "first_step") != 0 || step < 0)
        return false;
    at_ns[TIMELINE_FIRST_STEP] = timeline->first_step_ns = now_ns;
    timeline->first_step = step;
    return timeline->open;
}

void timeline_saved(struct timeline *timeline, int64_t blocked_ns)
{
    if (timeline->first_step_ns != 0)
        timeline->saving_ns += blocked_ns;
}

/* Returns how many steps are computed again, or -1 if that is unknown. */
static int64_t lost_steps(const struct timeline *timeline)
{
    const int64_t from = timeline->resume_step < 0 ? 0 : timeline->resume_step;

    if (timeline->failure.step < 0 || timeline->at_ns[TIMELINE_FORMED] < 0)
        return -1;
    return timeline->failure.step > from ? timeline->failure.step - from : 0;
}

static struct events_field whole(const char *key, int64_t value, bool known)
{
    return known ? EVENT_INT(key, value) : EVENT_JSON(key, "null");
}

static double lost_s(const struct timeline *timeline)
{
    return (double)lost_steps(timeline) * timeline->step_s;
}

void timeline_fields(const struct timeline *timeline, struct events_field fields[TIMELINE_FIELDS])
{
    static const char *const names[TIMELINE_N] = {
        [TIMELINE_DETECTED] = "detected_ms",     [TIMELINE_STOPPED] = "stopped_ms",
        [TIMELINE_FENCED] = "fenced_ms",         [TIMELINE_FORMED] = "formed_ms",
        [TIMELINE_SPAWNED] = "spawned_ms",       [TIMELINE_RESUMED] = "resumed_ms",
        [TIMELINE_FIRST_STEP] = "first_step_ms",
    };
    const int64_t lost = lost_steps(timeline);
    int n = 0;

    fields[n++] = EVENT_TEXT("reason", timeline->failure.reason);
    fields[n++] = whole("rank", timeline->failure.rank, timeline->failure.rank >= 0);
    for (int i = 0; i < TIMELINE_N; i++)
        fields[n++] = whole(names[i], (timeline->at_ns[i] - timeline->failure.when_ns) / 1000000,
                            timeline->at_ns[i] >= 0);
    fields[n++] = whole("resume_step", timeline->resume_step, timeline->resume_step >= 0);
    fields[n++] = whole("lost_steps", lost, lost >= 0);
    fields[n++] = lost == 0 || (lost > 0 && timeline->step_s > 0) ? EVENT_REAL("lost_s", lost_s(timeline))
                                                                  : EVENT_JSON("lost_s", "null");
    fields[n] = EVENT_END;
}

void timeline_words(const struct timeline *timeline, char *out, size_t size)
{
    static const char *const names[TIMELINE_N] = {
        [TIMELINE_DETECTED] = "detected",     [TIMELINE_STOPPED] = "stopped", [TIMELINE_FENCED] = "fenced",
        [TIMELINE_FORMED] = "formed",         [TIMELINE_SPAWNED] = "spawned", [TIMELINE_RESUMED] = "loaded",
        [TIMELINE_FIRST_STEP] = "first step",
    };
    const int64_t *at_ns = timeline->at_ns, lost = lost_steps(timeline);
    int64_t before = timeline->failure.when_ns;
    size_t n;

    n = (size_t)snprintf(out, size, "training again after %.2f s",
                         (double)(at_ns[TIMELINE_FIRST_STEP] - before) * 1e-9);
    for (int i = 0; i < TIMELINE_N && n < size; i++) {
        if (at_ns[i] < 0)
            continue;
        n += (size_t)snprintf(out + n, size - n, "%s%.2f %s", i == 0 ? " (" : ", ",
                              (double)(at_ns[i] - before) * 1e-9, names[i]);
        before = at_ns[i];
    }
    if (n < size)
        n += (size_t)snprintf(out + n, size - n, ")");
    if (n < size && lost > 0)
        n += (size_t)snprintf(out + n, size - n, "; %" PRId64 " step%s", lost, lost == 1 ? "" : "s");
    if (n < size && lost > 0 && timeline->step_s > 0)
        n += (size_t)snprintf(out + n, size - n, " (%.3g s)", lost_s(timeline));
    if (n < size && lost > 0)
        snprintf(out + n, size - n, lost == 1 ? " is repeated" : " are repeated");
}
