#include <cjson/cJSON.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/json.h"

void coordinator_detect(struct coordinator *coordinator)
{
    timeline_detect(&coordinator->timeline, coordinator_now_ns(coordinator));
}

static const char *reason_of(enum death_kind kind)
{
    switch (kind) {
    case DEATH_SIGNAL:
        return "signal";
    case DEATH_SPAWN:
        return "spawn";
    case DEATH_HANG:
    case DEATH_STUCK:
        return "hang";
    case DEATH_NODE:
        return "node";
    case DEATH_NONE:
    case DEATH_EXIT:
        break;
    }
    return "exit";
}

void coordinator_begin_timeline(struct coordinator *coordinator, int generation)
{
    const struct death *cause = coordinator->cause >= 0 ? &coordinator->deaths[coordinator->cause] : NULL;
    struct timeline *timeline = &coordinator->timeline;
    struct timeline_failure failure = { .reason = "membership", .rank = -1, .step = -1 };

    coordinator_write_timeline(coordinator);
    coordinator_detect(coordinator);
    failure.when_ns = timeline->detected_ns;
    if (cause != NULL && !(coordinator->changing && first_cause_is_consequence(cause))) {
        failure.reason = reason_of(cause->kind);
        failure.rank = cause->rank;
        failure.when_ns = cause->when_ns - (cause->kind == DEATH_HANG ? cause->silent_ns : cause->age_ns);
    }
    for (size_t i = 0; i < coordinator->n_deaths; i++)
        if (coordinator->deaths[i].step > failure.step)
            failure.step = coordinator->deaths[i].step;
    timeline_restart(timeline, generation, &failure, coordinator_now_ns(coordinator));
}

void coordinator_continue_timeline(struct coordinator *coordinator, const struct coordinator_past *past)
{
    const int64_t ahead_ns = coordinator_now_ns(coordinator) - clock_boot_ns();
    const struct timeline_failure failure = {
        .reason = "node", .rank = -1, .when_ns = past->heard_ns + ahead_ns, .step = past->last_step
    };

    timeline_detect(&coordinator->timeline, past->lost_ns + ahead_ns);
    timeline_restart(&coordinator->timeline, coordinator->generation, &failure,
                     (past->stopped_ns > past->lost_ns ? past->stopped_ns : past->lost_ns) + ahead_ns);
}

void coordinator_form_timeline(struct coordinator *coordinator)
{
    struct timeline *timeline = &coordinator->timeline;

    timeline->job = coordinator->config->job_json != NULL;
    /* after a take-over a member may have given the generation another number */
    timeline->generation = coordinator->generation;
    timeline_form(timeline, coordinator->world_size, coordinator->resume_step,
                  (int64_t)coordinator_fenced_until_ms(coordinator) * 1000000,
                  coordinator_now_ns(coordinator));
}

void coordinator_write_timeline(struct coordinator *coordinator)
{
    struct timeline *timeline = &coordinator->timeline;
    struct events_field fields[TIMELINE_FIELDS];

    if (!timeline->open)
        return;
    timeline->open = false;
    timeline_fields(timeline, fields);
    coordinator_write_event(coordinator, timeline->generation, "timeline", fields);
}

void coordinator_time_event(struct coordinator *coordinator, int rank, const char *event, int64_t step)
{
    struct timeline *timeline = &coordinator->timeline;
    char words[320];

    if (!timeline_event(timeline, rank, event, step, coordinator_now_ns(coordinator)))
        return;
    coordinator_write_timeline(coordinator);
    if (!timeline->job || coordinator->config->quiet)
        return;
    timeline_words(timeline, words, sizeof words);
    console_say(coordinator->services.console, "fsdprun: %s", words);
}

/*
 * Prints the line about a checkpoint that the ranks passed over. It is the same as for one that this agent
 * passed over before the generation began.
 */
static void say_skipped(const struct coordinator *coordinator, const cJSON *object, const cJSON *step)
{
    const char *reason = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "reason"));

    if (reason != NULL && cJSON_IsNumber(step))
        console_say(coordinator->services.console,
                    "fsdprun: event=checkpoint_skipped step=%.0f reason=\"%s\"", step->valuedouble, reason);
}

void coordinator_time_line(struct coordinator *coordinator, int rank, const char *json, size_t length)
{
    const cJSON *step;
    const char *event;
    cJSON *object;

    /* only events of rank 0 and of agents count, and those of agents only in a restart */
    if (rank > 0 || (rank < 0 && !coordinator->timeline.open))
        return;
    object = json_parse_object(json, length);
    event = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "event"));
    step = cJSON_GetObjectItemCaseSensitive(object, "step");
    if (event != NULL && rank == 0 && strcmp(event, "checkpoint_skipped") == 0)
        say_skipped(coordinator, object, step);
    if (event != NULL)
        coordinator_time_event(coordinator, rank, event,
                               cJSON_IsNumber(step) && step->valuedouble >= 0 && step->valuedouble < 9e15
                                   ? (int64_t)step->valuedouble
                                   : -1);
    cJSON_Delete(object);
}
