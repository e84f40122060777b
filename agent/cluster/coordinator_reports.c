#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"

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

/* Of the nodes that play: "n0", "n0 or n1", ...; the sums do not tell which of them it was. */
static void name_hosts(const struct coordinator *coordinator, char *out, size_t size)
{
    int length = 0;

    out[0] = '\0';
    for (int i = 0; i < coordinator->roster.capacity && length < (int)size; i++)
        if (coordinator->roster.nodes[i].active)
            length += snprintf(out + length, size - (size_t)length, "%s%.64s", length == 0 ? "" : " or ",
                               coordinator->roster.nodes[i].who.host);
}

void coordinator_passed(struct coordinator *coordinator, int64_t step)
{
    const int64_t diverged = coordinator->diverged_step;
    char hosts[512], which[48] = "", rank[16] = "null";

    if (diverged < 0 || step < diverged)
        return;
    coordinator->diverged_step = -1;
    if (coordinator->world_size != coordinator->diverged_world_size)
        return; /* sums are rounded otherwise: that may be the whole difference */
    if (coordinator->diverged_rank >= 0) {
        snprintf(hosts, sizeof hosts, "%s", coordinator->diverged_host);
        snprintf(which, sizeof which, ", where rank %d ran,", coordinator->diverged_rank);
        snprintf(rank, sizeof rank, "%d", coordinator->diverged_rank);
    } else {
        name_hosts(coordinator, hosts, sizeof hosts);
    }
    console_say(coordinator->services.console,
                "fsdprun: step %lld diverged in generation %d and passed in generation %d: the hardware of "
                "%s%s may be faulty (memory, CPU, GPU)",
                (long long)diverged, coordinator->diverged_generation, coordinator->generation, hosts, which);
    coordinator_note(coordinator, "suspect_hardware",
                     (struct events_field[]){ EVENT_INT("step", diverged),
                                              EVENT_INT("diverged_in", coordinator->diverged_generation),
                                              EVENT_JSON("rank", rank), EVENT_TEXT("hosts", hosts),
                                              EVENT_END });
}

void coordinator_take_divergence(struct coordinator *coordinator, const struct verdict_run *run)
{
    struct death *cause = run->cause >= 0 ? &coordinator->deaths[run->cause] : NULL;

    if (cause == NULL || !run->job)
        return;
    if (!first_cause_is_divergence(cause)) {
        coordinator_passed(coordinator, cause->step); /* it died of something else, after that many steps */
        return;
    }
    if (verdict_diverged_again(run)) {
        snprintf(cause->words, sizeof cause->words,
                 "it did so at this step in generation %d too: the job is the cause, not the hardware",
                 coordinator->diverged_generation);
        return;
    }
    coordinator_passed(coordinator, cause->step - 1);
    coordinator->diverged_step = cause->step;
    coordinator->diverged_generation = run->generation;
    coordinator->diverged_world_size = run->world_size;
    coordinator->diverged_rank = cause->phase == FSDP_PHASE_DIVERGED_ALONE ? cause->rank : -1;
    snprintf(coordinator->diverged_host, sizeof coordinator->diverged_host, "%s", cause->host);
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
