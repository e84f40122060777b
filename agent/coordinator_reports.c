#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/coordinator_impl.h"

static bool is_current(const struct coordinator *coordinator, int generation)
{
    return generation == coordinator->generation &&
           (coordinator->state == CS_UP || coordinator->state == CS_CLEARING);
}

static bool add_death(struct coordinator *coordinator, const struct death *death)
{
    if (coordinator->n_deaths == coordinator->deaths_capacity) {
        size_t capacity = coordinator->deaths_capacity == 0 ? 16 : coordinator->deaths_capacity * 2;
        struct death *deaths = realloc(coordinator->deaths, capacity * sizeof *deaths);

        if (deaths == NULL)
            return false;
        coordinator->deaths = deaths;
        coordinator->deaths_capacity = capacity;
    }
    coordinator->deaths[coordinator->n_deaths++] = *death;
    return true;
}

/* Which is the first cause now that another death was added, of which `detail` (may be NULL) is known? */
static void take_cause(struct coordinator *coordinator, const struct errors_detail *detail)
{
    const int cause = first_cause_find(coordinator->deaths, coordinator->n_deaths);

    if (cause == coordinator->cause)
        return;
    /* Time orders them totally, so that a new first cause is always the one that was just added. */
    coordinator->cause = cause;
    if (detail != NULL)
        errors_detail_copy(&coordinator->detail, detail);
    else
        memset(&coordinator->detail, 0, sizeof coordinator->detail);
}

bool coordinator_report_death(struct coordinator *coordinator, const struct death *death)
{
    if (!add_death(coordinator, death))
        return false;
    take_cause(coordinator, NULL);
    return true;
}

void coordinator_exited(struct coordinator *coordinator, int node, int generation, const struct death *death,
                        const struct errors_detail *detail)
{
    if (!is_current(coordinator, generation) || !add_death(coordinator, death))
        return;
    coordinator->deaths[coordinator->n_deaths - 1].node_rank = coordinator->roster.nodes[node].node_rank;
    coordinator->deaths[coordinator->n_deaths - 1].phase = coordinator_phase_of(coordinator, node, death);
    take_cause(coordinator, detail);
    if (death->kind != DEATH_NONE && !first_cause_is_consequence(death)) {
        coordinator_post(coordinator, CE_FAILED);
        coordinator_run(coordinator);
    }
}

void coordinator_stopped(struct coordinator *coordinator, int node, int generation)
{
    if (!is_current(coordinator, generation) || !coordinator_in_play(coordinator, node))
        return;
    coordinator->nodes[node].stopped = true;
    coordinator_judge_if_down(coordinator);
    coordinator_run(coordinator);
}

void coordinator_event(struct coordinator *coordinator, int node, int generation, int rank, const char *json,
                       size_t length)
{
    struct fsdp_err err = { 0 };

    (void)node;
    if (coordinator->services.events != NULL &&
        events_relay(coordinator->services.events, generation, rank, json, length, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: an event of rank %d was dropped: %s", rank,
                    err.message);
}

void coordinator_record(struct coordinator *coordinator, int node, int generation, const char *event,
                        const struct events_field *fields)
{
    (void)node;
    coordinator_write_event(coordinator, generation, event, fields);
}

void coordinator_put(struct coordinator *coordinator, int node, int generation, const char *key,
                     const void *value, size_t size_bytes)
{
    if (!is_current(coordinator, generation))
        return;
    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (i != node && coordinator_in_play(coordinator, i))
            coordinator->nodes[i].ops->put(coordinator->nodes[i].member, generation, key, value, size_bytes);
}

void coordinator_saved(struct coordinator *coordinator, int node, int generation, int rank,
                       const struct fsdp_link_saved *saved, int manifest_fd)
{
    (void)node;
    save_take(coordinator->save, (uint32_t)generation, rank, saved, manifest_fd);
}
