/*
 * This node as the leader. It publishes how far the run has come, keeps the lease of its own node, and acts
 * only while it holds the lead. If it is deposed, it ends its ranks, without a word to the others, and
 * becomes a member that has lost its coordinator.
 */
#include <string.h>

#include "agent/arbiter/leader_swept.h"
#include "agent/os/deadlines.h"
#include "agent/run/run_lead_impl.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"

static bool holds(void *arg)
{
    const struct run *run = arg;

    return clock_boot_ms() < arbiter_holds_until_ms(run->lead.arbiter);
}

/*
 * Publishes the leader's progress. First the guard gets what it needs to report that this node is swept, so
 * that it has that before any node is told of the generation.
 */
static void publish(void *arg, const struct leader_progress *progress)
{
    const struct run *run = arg;
    struct leader_will will = { .generation = progress->generation,
                                .n_nodes = progress->n_nodes,
                                .node_rank = progress->node_rank };

    memcpy(will.agent, run->lead.identity, sizeof will.agent);
    lease_bequeath(run->lease, &will, sizeof will);
    arbiter_publish(run->lead.arbiter, progress);
}

/*
 * Extends the lease of this node's ranks. They may run as long as the ranks of a member whose beat was
 * answered when the last renewal of the record began.
 */
static void extend_lease(const struct run *run, int64_t until_ms)
{
    const int64_t lease_ms = run->config->lease_ms;

    lease_extend(run->lease, (until_ms - lease_ms) * 1000000, LEASE_RANKS_MS(lease_ms));
}

/*
 * Renews the lead, if this node holds it, and with it the lease of its own ranks. Any thread may call it,
 * because the loop may be busy.
 */
static void keep(void *arg, int64_t contact_until_ns)
{
    const struct run *run = arg;

    arbiter_in_contact_until(run->lead.arbiter, contact_until_ns / 1000000);
    if (holds(arg))
        extend_lease(run, arbiter_holds_until_ms(run->lead.arbiter));
}

const struct pulse_lead *run_lead_pulses(struct run *run, struct pulse_lead *out)
{
    *out = (struct pulse_lead){ holds, keep, run };
    return run->lead.arbiter == NULL ? NULL : out;
}

void run_lead_end(struct run *run, const char *words)
{
    struct run_lead *lead = &run->lead;
    struct nodes *nodes = run->nodes;
    char line[RUN_LINE_BYTES];

    if (lead->opening)
        lead->leads = false;
    if (!lead->leads || run->coordinator == NULL)
        return;
    lead->leads = false;
    lease_bequeath(run->lease, NULL, 0);
    uv_timer_stop(lead->tick);
    run->nodes = NULL;
    lead->steps_down = coordinator_hand_over(run->coordinator, &lead->past);
    snprintf(line, sizeof line, "this node led the job, and may not lead it any more: %.600s%s", words,
             lead->steps_down ? "; it ends its ranks and joins again" : "");
    if (lead->steps_down)
        run_say(run, "%s", line);
    coordinator_depose(run->coordinator, line);
    nodes_destroy(nodes);
}

/* Timers run before libuv polls. So a leader that stood still checks its lead before it reads any message. */
static void on_tick(uv_timer_t *timer)
{
    struct run *run = timer->data;

    if (run->coordinator == NULL || !run->lead.leads)
        return;
    /* once a generation has formed, agents of the leader before are not waited for any more */
    if (coordinator_has_formed(run->coordinator))
        arbiter_go_on(run->lead.arbiter, !run_lead_has_lock(run));
    nodes_turn(run->nodes);
    keep(run, coordinator_in_contact_until_ms(run->coordinator) * 1000000);
    if (!holds(run))
        run_lead_end(run, "the record of who leads could not be renewed in time");
}

void run_lead_begin(struct run *run, struct rendezvous *rendezvous, struct coordinator_services *services)
{
    struct run_lead *lead = &run->lead;
    const uint64_t pace_ms = (uint64_t)run->config->lease_ms / LEASE_BEATS;
    const int64_t fence_ms = lead->fence_until_ms - clock_boot_ms();

    if (lead->arbiter == NULL)
        return;
    services->past = lead->takes_over ? &lead->past : NULL;
    if (lead->fence_until_ms != 0)
        services->fence_ms = fence_ms > 0 ? fence_ms : 1;
    services->lead = (struct coordinator_lead){ lead->term, holds, publish, run };
    events_lead(services->events, lead->term);
    services->lease = run->lease;
    if (lead->port != rendezvous_port(rendezvous))
        arbiter_move(lead->arbiter, lead->host, rendezvous_port(rendezvous));
    lease_clear(run->lease);
    extend_lease(run, arbiter_holds_until_ms(lead->arbiter));
    uv_timer_start(lead->tick, on_tick, pace_ms, pace_ms);
}

/* A leader that was deposed becomes a member again */

static void on_step_down(uv_timer_t *timer);

static void on_idle(void *arg)
{
    const struct run *run = arg;

    on_step_down(run->lead.tick);
}

static void become_member(struct run *run)
{
    struct run_lead *lead = &run->lead;
    const struct leader_record *record = arbiter_record(lead->arbiter);
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    lead->steps_down = false;
    if (lead->stopped_by != 0) {
        run_stop_before_start(run, lead->stopped_by);
        return;
    }
    status = run_meet(run, &err);
    if (status != FSDP_OK) {
        run_refuse(run, exit_status_of(status), err.message);
        return;
    }
    if (run->world != NULL)
        world_report_to(run->world, &run->reporter);
    memcpy(lead->leader, lead->identity, sizeof lead->leader);
    if (record != NULL && memcmp(record->identity, lead->identity, sizeof lead->identity) != 0)
        uplink_follow(run->uplink, record->host, record->port);
    uplink_rejoin(run->uplink, &lead->past, lead->host);
}

/* Waits until no thread uses what belongs to the coordinator, and then becomes a member. */
static void on_step_down(uv_timer_t *timer)
{
    struct run *run = timer->data;

    if (!disk_is_idle(run->disk)) {
        disk_when_idle(run->disk, on_idle, run);
        return;
    }
    if (!coordinator_destroy(run->coordinator)) {
        coordinator_when_idle(run->coordinator, on_idle, run);
        return;
    }
    run->coordinator = NULL;
    run->reporter.to = NULL;
    run_close_as_coordinator(run);
    become_member(run);
}

bool run_lead_steps_down(const struct run *run)
{
    if (run->lead.steps_down)
        uv_timer_start(run->lead.tick, on_step_down, 0, 0);
    return run->lead.steps_down;
}
