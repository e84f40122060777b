#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"

static bool is_current(const struct coordinator *coordinator, int generation)
{
    return generation == coordinator->generation && coordinator_is_up(coordinator);
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

/* Compares the death that was just added with the first cause so far. `detail` (may be NULL) describes it. */
static void take_cause(struct coordinator *coordinator, const struct errors_detail *detail)
{
    const struct death *death = &coordinator->deaths[coordinator->n_deaths - 1],
                       *cause = coordinator->cause < 0 ? NULL : &coordinator->deaths[coordinator->cause];

    if (!first_cause_is_better(death, cause))
        return;
    coordinator->cause = (int)coordinator->n_deaths - 1;
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

static int number_of(const struct coordinator_node *node)
{
    return (int)(node - node->coordinator->nodes);
}

/*
 * Looks whether the guard has killed the ranks of this node, because its agent stood still for too long. The
 * agent may lead all the same, because its hold on the lead may have been renewed a moment after the ranks'
 * lease ended.
 */
static void look_at_own_lease(struct coordinator *coordinator)
{
    const struct lease *lease = coordinator->services.lease;

    if (lease != NULL && coordinator->state == CS_UP && lease_is_over(lease))
        coordinator_fenced(coordinator, COORDINATOR_SELF, coordinator->generation, lease_over_ms(lease));
}

static void report_exited(void *to, int generation, const struct death *death,
                          const struct errors_detail *detail)
{
    struct coordinator *coordinator = ((struct coordinator_node *)to)->coordinator;
    const int node = number_of(to);

    if (node == COORDINATOR_SELF)
        look_at_own_lease(coordinator); /* first, because the end of the lease is the cause of what follows */
    if (!is_current(coordinator, generation) || !add_death(coordinator, death))
        return;
    coordinator->deaths[coordinator->n_deaths - 1].node_rank = coordinator->roster.nodes[node].node_rank;
    coordinator->deaths[coordinator->n_deaths - 1].phase = coordinator_phase_of(coordinator, node, death);
    coordinator->nodes[node].n_failed += death->kind != DEATH_NONE;
    take_cause(coordinator, detail);
    if (death->kind != DEATH_NONE && !first_cause_is_consequence(death)) {
        coordinator_detect(coordinator);
        coordinator_post(coordinator, CE_FAILED);
        coordinator_run(coordinator);
    }
}

/*
 * Names the nodes that take part: "n0", "n0 or n1", ... The sums over all ranks do not show which node
 * computed wrongly.
 */
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
    const struct leader_divergence diverged = coordinator->diverged;
    char hosts[512], which[48] = "", rank[16] = "null";

    if (diverged.world_size == 0 || step < diverged.step)
        return;
    coordinator->diverged = (struct leader_divergence){ 0 };
    if (coordinator->world_size != diverged.world_size)
        /* with another world size, sums are rounded differently, which alone may explain the result */
        return;
    if (diverged.rank >= 0) {
        snprintf(hosts, sizeof hosts, "%s", diverged.host);
        snprintf(which, sizeof which, ", where rank %d ran,", diverged.rank);
        snprintf(rank, sizeof rank, "%d", diverged.rank);
    } else {
        name_hosts(coordinator, hosts, sizeof hosts);
    }
    console_say(coordinator->services.console,
                "fsdprun: step %lld diverged in generation %d and passed in generation %d: the hardware of "
                "%s%s may be faulty (memory, CPU, GPU)",
                (long long)diverged.step, diverged.generation, coordinator->generation, hosts, which);
    coordinator_note(coordinator, "suspect_hardware",
                     (struct events_field[]){
                         EVENT_INT("step", diverged.step), EVENT_INT("diverged_in", diverged.generation),
                         EVENT_JSON("rank", rank), EVENT_TEXT("hosts", hosts), EVENT_END });
}

void coordinator_take_divergence(struct coordinator *coordinator, const struct verdict_run *run)
{
    struct death *cause = run->cause >= 0 ? &coordinator->deaths[run->cause] : NULL;

    if (cause == NULL || !run->job)
        return;
    if (!first_cause_is_divergence(cause)) {
        /* the rank failed for another reason than the divergence, and at a later step or the same */
        coordinator_passed(coordinator, cause->step);
        return;
    }
    if (verdict_diverged_again(run)) {
        snprintf(cause->words, sizeof cause->words,
                 "it did so at this step in generation %d too: the job is the cause, not the hardware",
                 coordinator->diverged.generation);
        return;
    }
    coordinator_passed(coordinator, cause->step - 1);
    coordinator->diverged = (struct leader_divergence){
        .step = cause->step,
        .generation = run->generation,
        .world_size = run->world_size,
        .rank = cause->phase == FSDP_PHASE_DIVERGED_ALONE ? cause->rank : -1,
    };
    snprintf(coordinator->diverged.host, sizeof coordinator->diverged.host, "%s", cause->host);
}

void coordinator_take_recurrence(struct coordinator *coordinator, struct verdict_run *run)
{
    struct death *cause = run->cause >= 0 ? &coordinator->deaths[run->cause] : NULL;
    char own[sizeof cause->words];

    if (cause == NULL || !run->job)
        return;
    run->n_same = recurrence_count(&coordinator->recurrence, cause);
    if (run->n_same < RECURRENCE_LIMIT)
        return;
    snprintf(own, sizeof own, "%.200s", cause->words[0] != '\0' ? cause->words : run->detail->message);
    recurrence_words(&coordinator->recurrence, own, cause->words, sizeof cause->words);
}

static void report_held(void *to, int generation, const struct restore_steps *held)
{
    struct coordinator_node *node = to;

    if (!is_current(node->coordinator, generation) ||
        !coordinator_in_play(node->coordinator, number_of(node)))
        return;
    node->held = *held;
}

static void report_stopped(void *to, int generation)
{
    struct coordinator_node *node = to;
    struct coordinator *coordinator = node->coordinator;

    if (coordinator->services.lease != NULL && number_of(node) == COORDINATOR_SELF)
        lease_end(coordinator->services.lease);
    if (!is_current(coordinator, generation) || !coordinator_in_play(coordinator, number_of(node)))
        return;
    node->generation = generation;
    coordinator->n_up -= !node->stopped;
    node->stopped = true;
    coordinator_judge_if_down(coordinator);
    coordinator_run(coordinator);
}

static void report_unkilled(void *to, int n)
{
    const struct coordinator_node *node = to;

    coordinator_take_unkilled(node->coordinator, number_of(node), n);
    if (node->tell == NULL)
        return; /* this node has taken over the lead, and will be attached in a moment */
    coordinator_consider(node->coordinator);
    coordinator_run(node->coordinator);
}

static void report_event(void *to, int generation, int rank, const char *json, size_t length)
{
    struct coordinator *coordinator = ((struct coordinator_node *)to)->coordinator;
    struct fsdp_err err = { 0 };

    if (coordinator->services.events != NULL &&
        events_relay(coordinator->services.events, generation, rank, json, length, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: an event of rank %d was dropped: %s", rank,
                    err.message);
    if (is_current(coordinator, generation))
        coordinator_time_line(coordinator, rank, json, length);
}

static void report_record(void *to, int generation, const char *event, const struct events_field *fields)
{
    struct coordinator *coordinator = ((struct coordinator_node *)to)->coordinator;

    coordinator_write_event(coordinator, generation, event, fields);
    if (is_current(coordinator, generation))
        coordinator_time_event(coordinator, -1, event, -1);
}

static void report_saved(void *to, int generation, int rank, const struct fsdp_link_saved *saved,
                         int manifest_fd)
{
    const struct coordinator_node *node = to;

    save_take(node->coordinator->save, (uint32_t)generation, rank, saved, manifest_fd);
}

static void report_put(void *to, int generation, const char *key, const void *value, size_t size_bytes)
{
    const struct coordinator_node *node = to;

    if (is_current(node->coordinator, generation))
        coordinator_put(node->coordinator, number_of(node), key, value, size_bytes);
}

static void report_want(void *to, int generation, const char *key)
{
    const struct coordinator_node *node = to;

    if (is_current(node->coordinator, generation))
        coordinator_want(node->coordinator, number_of(node), key);
}

static void report_asked(void *to, int signal, enum reporter_ask how)
{
    const struct coordinator_node *node = to;
    struct coordinator *coordinator = node->coordinator;

    if (how == REPORTER_FORWARD)
        coordinator_forward(coordinator, signal);
    else if (number_of(node) != COORDINATOR_SELF)
        coordinator_leave(coordinator, number_of(node), signal, how == REPORTER_STOP_NOW,
                          how == REPORTER_SAVE);
    else if (how == REPORTER_SAVE)
        coordinator_notice(coordinator, signal);
    else
        coordinator_stop(coordinator, signal, how == REPORTER_STOP_NOW);
}

struct reporter coordinator_reporter(struct coordinator *coordinator, int node)
{
    return (struct reporter){ .to = &coordinator->nodes[node],
                              .exited = report_exited,
                              .explained = coordinator_report_explained,
                              .held = report_held,
                              .entry = coordinator_report_entry,
                              .stopped = report_stopped,
                              .unkilled = report_unkilled,
                              .event = report_event,
                              .record = report_record,
                              .saved = report_saved,
                              .suspects = coordinator_report_suspects,
                              .rank = coordinator_report_rank,
                              .pace = coordinator_report_pace,
                              .put = report_put,
                              .want = report_want,
                              .store = coordinator_report_store,
                              .asked = report_asked };
}
