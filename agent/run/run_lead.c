/*
 * Who leads the run, where an arbiter says so (agent/arbiter/arbiter.h):
 *   1. The node that has the endpoint claims the lead, and coordinates when it has it.
 *   2. A member whose coordinator is lost, and whose ranks are gone, stands. It coordinates when the lead
 *      comes to it, or follows the one to which it came.
 *   3. A leader publishes how far the run has come, keeps the lease of its own node, and acts only while it
 *      holds. One that is deposed ends its ranks, without a word to the others, and becomes a member that has
 *      lost its coordinator.
 *   4. At the end of the run the leader resigns.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/arbiter/lead.h"
#include "agent/arbiter/leader_swept.h"
#include "agent/os/deadlines.h"
#include "agent/rendezvous/identity.h"
#include "agent/run/run_impl.h"
#include "agent/run/run_store.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/require.h"

enum {
    WAIT_LOOK_MS = 1000,
    /*
     * How many leases the host by the endpoint waits at most for another leader's record to become stale. One
     * that still changes then is of a run that lives. With the lock of the run directory, fewer leases
     * suffice.
     */
    WAIT_LEASES = LEAD_CONTACT + 3,
    WAIT_LEASES_LOCKED = 3,
    /* how long a node that takes over waits for its run directory, in ticks of a quarter of a lease */
    OPEN_TICKS = 8,
    /* the least time for which a server (NFS) keeps the locks of a host that is silent */
    LOCK_STAYS_MS = 30000
};

/* The leader */

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

static void end_lead(struct run *run, const char *words)
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

/*
 * Returns whether this leader has the lock that a host by the endpoint tries when it is started again. The
 * first leader has it. One that took over may still wait for it. With an etcd, each node may have a run
 * directory of its own, so the lock shows nothing.
 */
static bool has_lock(const struct run *run)
{
    return !run->lead.takes_over || (run->config->arbiter == AGENT_ARBITER_DIRECTORY && run->rundir != NULL &&
                                     !run->lead.locking && rundir_lock_fd(run->rundir) > 0);
}

/* Timers run before libuv polls. So a leader that stood still checks its lead before it reads any message. */
static void on_tick(uv_timer_t *timer)
{
    struct run *run = timer->data;

    if (run->coordinator == NULL || !run->lead.leads)
        return;
    /* once a generation has formed, agents of the leader before are not waited for any more */
    if (coordinator_has_formed(run->coordinator))
        arbiter_go_on(run->lead.arbiter, !has_lock(run));
    nodes_turn(run->nodes);
    keep(run, coordinator_in_contact_until_ms(run->coordinator) * 1000000);
    if (!holds(run))
        end_lead(run, "the record of who leads could not be renewed in time");
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

/* The lock of the run directory */

static void change_lock(struct disk_job *job)
{
    struct run_lead *lead = (struct run_lead *)((char *)job - offsetof(struct run_lead, lock));

    if (lead->did_lock)
        (void)rundir_lock(lead->rundir, false, NULL);
    else
        rundir_unlock(lead->rundir);
}

static void submit_lock(struct run *run);

static void on_lock_changed(struct disk_job *job)
{
    struct run *run = (struct run *)((char *)job - offsetof(struct run, lead.lock));

    run->lead.locking = false;
    if (run->lead.did_lock != run->lead.wants_lock)
        submit_lock(run);
}

static void submit_lock(struct run *run)
{
    struct run_lead *lead = &run->lead;

    lead->locking = true;
    lead->rundir = run->rundir;
    lead->did_lock = lead->wants_lock;
    lead->lock = (struct disk_job){ .work = change_lock, .done = on_lock_changed };
    disk_submit(run->disk, &lead->lock);
}

/*
 * Has the lock of the run directory taken if it is free (`wanted`), or released. The disk's thread does it,
 * and nothing waits for that.
 */
static void want_lock(struct run *run, bool wanted)
{
    run->lead.wants_lock = wanted;
    if (run->rundir != NULL && !run->lead.locking)
        submit_lock(run);
}

/* What the arbiter says */

/* Ends the wait for the lead. */
static void end_wait(struct run *run)
{
    if (run->lead.waited_ms >= 0)
        uv_timer_stop(run->lead.tick);
    run->lead.waited_ms = -1;
}

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

/*
 * Fills in the past of the run: what the lost leader published, or what this node saw itself, whichever is
 * newer.
 */
static void find_past(struct run *run, const struct leader_record *before)
{
    struct leader_progress *progress = &run->lead.past.progress, seen;

    uplink_past(run->uplink, &run->lead.past);
    if (before == NULL)
        return;
    seen = *progress;
    run->lead.past.swept = before->state == LEADER_SWEPT && before->progress.generation >= seen.generation;
    *progress = before->progress;
    if (progress->generation < seen.generation)
        progress->generation = seen.generation;
    else if (progress->generation > seen.generation)
        run->lead.past.last_step = -1; /* this node was not in it */
    run->lead.past.took_part = progress->generation == seen.generation;
    add_restarts(progress, seen.n_restarts, (uint32_t)run->config->max_restarts);
}

/*
 * What a node that takes over opens in the run directory. The disk's thread opens it. If the loop waited for
 * the disk, this node could take no signal and print nothing, although its record is still renewed.
 */

static struct run *run_of_open(struct disk_job *job)
{
    return (struct run *)((char *)job - offsetof(struct run, lead.open));
}

static void do_open(struct disk_job *job)
{
    struct run *run = run_of_open(job);
    struct run_lead *lead = &run->lead;

    fsdp_err_clear(&lead->open_err);
    if (rundir_begin(run->rundir, &lead->open_err) != FSDP_OK)
        return;
    (void)rundir_lock(run->rundir, false, NULL); /* the arbiter's term counts, see rundir.h */
    (void)events_open(&lead->events, rundir_fd(run->rundir), "events.jsonl", &lead->open_err);
}

static void on_open(struct disk_job *job)
{
    struct run *run = run_of_open(job);
    struct run_lead *lead = &run->lead;
    const bool wanted = lead->leads && !run->refused && run->ending == RUN_GOES_ON && run->uplink != NULL;

    lead->opening = false;
    if (wanted)
        uv_timer_stop(lead->tick);
    if (!wanted) {
        events_close(lead->events);
        lead->events = NULL;
    } else if (lead->open_err.status != FSDP_OK) {
        run_refuse(run, exit_status_of(lead->open_err.status), lead->open_err.message);
    } else {
        uplink_lead(run->uplink);
    }
}

/*
 * Counts the time that the disk takes in ticks of the loop. If the loop itself stood still, that counts as
 * one tick only.
 */
static void on_opening(uv_timer_t *timer)
{
    struct run *run = timer->data;
    const bool waits = run->lead.opening && run->lead.leads;
    char words[RUN_LINE_BYTES];

    if (waits && --run->lead.open_ticks > 0)
        return;
    uv_timer_stop(timer);
    if (!waits)
        return;
    snprintf(words, sizeof words, "this node cannot take over: the run directory %.500s does not answer",
             run->config->run_dir);
    run_refuse(run, FSDP_EXIT_IO, words);
}

/* Opens the run directory on the disk's thread. When it is open, the node takes over. */
static void open_for_lead(struct run *run)
{
    struct run_lead *lead = &run->lead;
    struct fsdp_err err = { 0 };
    const enum fsdp_status status = run_name_directory(run, &err);

    if (status != FSDP_OK) {
        run_refuse(run, exit_status_of(status), err.message);
        return;
    }
    lead->open_ticks = OPEN_TICKS;
    uv_timer_start(lead->tick, on_opening, (uint64_t)(run->config->lease_ms / 4),
                   (uint64_t)(run->config->lease_ms / 4));
    if (lead->opening)
        return; /* since an earlier lead */
    lead->opening = true;
    lead->open = (struct disk_job){ .work = do_open, .done = on_open };
    disk_submit(run->disk, &lead->open);
}

void run_lead_take_directory(struct run *run)
{
    run->events = run->lead.events;
    run->lead.events = NULL;
    if (run->config->run_dir_named)
        rundir_set_first_attempt(run->rundir, run->lead.past.first_attempt);
}

static const char *loss_of(const struct leader_record *before)
{
    if (before != NULL && before->state == LEADER_LEFT)
        return "could not take the lead";
    return before != NULL && before->state == LEADER_SWEPT
               ? "was killed, and its guard has said that no process of it is left"
               : "is lost";
}

static void on_leads(void *arg, uint64_t term, const struct leader_record *before, int64_t fence_until_ms)
{
    struct run *run = arg;
    char host[LEADER_HOST_BYTES + 64] = "its leader";

    if (run->uplink == NULL || run->ending != RUN_GOES_ON)
        return;
    end_wait(run);
    run->lead.leads = true;
    run->lead.term = term;
    run->lead.fence_until_ms = fence_until_ms;
    if (run->lead.takes_over) {
        find_past(run, before);
        run->job_written = run->lead.past.progress.generation >= 0;
        if (before != NULL)
            snprintf(host, sizeof host, "%.250s:%d", before->host, before->port);
        run_say(run, "this node leads the job from now on (term %llu); %s %s", (unsigned long long)term, host,
                loss_of(before));
    }
    if (run->lead.takes_over && run->config->run_dir != NULL)
        open_for_lead(run);
    else
        uplink_lead(run->uplink);
}

static void on_follow(void *arg, const struct leader_record *record)
{
    struct run *run = arg;

    end_wait(run);
    if (run->uplink != NULL)
        uplink_follow(run->uplink, record->host, record->port);
}

static void on_ended(void *arg, const struct leader_record *record)
{
    struct run *run = arg;
    char words[PROTO_WORDS_BYTES];
    const bool waits = run->lead.waited_ms >= 0;

    end_wait(run);
    run->lead.over = true;
    run->lead.exit_status = record->exit_status;
    if (waits) { /* this node waited to lead, but the run had ended just as it came */
        const int status = coordinator_too_late(record->exit_status, NULL, words);

        run_refuse(run, status, words);
    } else if (run->uplink != NULL && run->lead.takes_over &&
               !run->lead.resigns) /* else it is this node's own word */
        uplink_over(run->uplink, record->exit_status);
    run_lead_answered(run);
}

static void on_deposed(void *arg, const char *words)
{
    struct run *run = arg;

    run->lead.over = run->lead.resigns;
    end_lead(run, words);
    run_lead_answered(run);
}

static void on_note(void *arg, const char *words)
{
    run_say(arg, "%s", words);
}

/* What the uplink says */

static bool has_endpoint(const struct run *run)
{
    return run->config->rendezvous_host != NULL;
}

/*
 * Claims the lead of a run without an endpoint, in which every node may claim. If nodes share a run
 * directory, only the one that has its lock claims, because the leader needs the lock. The lock proves
 * nothing about an older leader, because that may have used another directory.
 */
static void claim_with_lock(struct run *run)
{
    struct run_lead *lead = &run->lead;

    /* the store may answer another node, which would need the lock to claim */
    if (!arbiter_answers(lead->arbiter)) {
        arbiter_withdraw(lead->arbiter);
        if (run->rundir != NULL)
            rundir_unlock(run->rundir);
        return;
    }
    lead->locked_out = run->rundir != NULL && rundir_lock(run->rundir, true, NULL) == FSDP_ERR_BUSY;
    if (!lead->locked_out)
        arbiter_claim_first(lead->arbiter, lead->host, lead->port);
}

/*
 * The host by the endpoint waits for the lead as long as another leader's record may still change, or the
 * arbiter does not answer. If the run has no endpoint, the node also waits for the lock of the run directory.
 */
static void on_wait(uv_timer_t *timer)
{
    struct run *run = timer->data;
    struct run_lead *lead = &run->lead;
    const struct leader_record *record = arbiter_record(lead->arbiter);
    char where[ENDPOINT_TEXT_BYTES], words[2 * RUN_LINE_BYTES];
    struct fsdp_err err = { 0 };

    lead->waited_ms += WAIT_LOOK_MS;
    if (!has_endpoint(run))
        claim_with_lock(run);
    if (record != NULL)
        endpoint_text(where, record->host, record->port);
    if (record != NULL && record->run != identity_job(run->config) &&
        lead->waited_ms > (lead->locked_out ? WAIT_LEASES_LOCKED : WAIT_LEASES) * record->lease_ms) {
        end_wait(run);
        snprintf(words, sizeof words, "another live job, which %s leads, has the %s %.500s", where,
                 run->config->arbiter == AGENT_ARBITER_ETCD ? "run id" : "run directory",
                 run->config->arbiter == AGENT_ARBITER_ETCD ? run->config->run_id : run->config->run_dir);
        run_refuse(run, FSDP_EXIT_CONFIG, words);
    } else if (!has_endpoint(run) && lead->locked_out &&
               lead->waited_ms > WAIT_LEASES * run->config->lease_ms) {
        end_wait(run);
        (void)rundir_lock(run->rundir, true, &err);
        run_refuse(run, FSDP_EXIT_CONFIG, err.message);
    } else if (lead->waited_ms >= run->config->join_timeout_ms) {
        end_wait(run);
        run_refuse(run, FSDP_EXIT_PEER, "the arbiter did not say who leads");
    }
}

/*
 * Takes the lock of the run directory, and keeps it until this node follows another leader. Returns true if
 * that proves that the process of the last leader has ended. It proves it because a living leader stops after
 * ten leases without the store, and no lock server gives its lock away in that time (LOCK_STAYS_MS).
 */
static bool old_is_gone(struct run *run)
{
    const enum fsdp_status status =
        run->rundir == NULL ? FSDP_ERR_NOT_FOUND : rundir_lock(run->rundir, true, NULL);

    run->lead.locked_out = status == FSDP_ERR_BUSY;
    return status == FSDP_OK && run->config->lease_ms * LEAD_CONTACT <= LOCK_STAYS_MS;
}

static bool on_offers(void *member, const char *host, int port)
{
    struct run *run = member;
    struct fsdp_err err = { 0 };
    const enum fsdp_status status = run_open_directory(run, &err);

    if (status != FSDP_OK) {
        run_refuse(run, exit_status_of(status), err.message);
        return false;
    }
    snprintf(run->lead.host, sizeof run->lead.host, "%s", host);
    run->lead.port = port;
    run->lead.waited_ms = 0;
    uv_timer_start(run->lead.tick, on_wait, WAIT_LOOK_MS, WAIT_LOOK_MS);
    if (!has_endpoint(run)) {
        claim_with_lock(run);
        return true;
    }
    if (old_is_gone(run))
        arbiter_old_is_gone(run->lead.arbiter);
    arbiter_claim_first(run->lead.arbiter, host, port);
    return true;
}

static void on_joined(void *member, const unsigned char identity[PROTO_IDENTITY_BYTES], uint64_t term)
{
    struct run *run = member;

    end_wait(run);
    run->lead.let_in = term;
    memcpy(run->lead.leader, identity, sizeof run->lead.leader);
    want_lock(run, false);
    arbiter_withdraw(run->lead.arbiter);
    arbiter_sit(run->lead.arbiter, -1);
}

static bool may_stand(void *member)
{
    const struct run *run = member;

    return run->lead.term > 0 || arbiter_has_seen(run->lead.arbiter, run->lead.leader);
}

static void on_stands(void *member, int seat, const char *host, int port, int64_t heard_ms)
{
    struct run *run = member;

    if (run->lead.over) {
        /* the arbiter reported the end of the run before the link was lost */
        uplink_over(run->uplink, run->lead.exit_status);
        return;
    }
    run->lead.takes_over = true;
    snprintf(run->lead.host, sizeof run->lead.host, "%s", host);
    run->lead.port = port;
    arbiter_stand(run->lead.arbiter, seat, host, port, heard_ms, run->lead.let_in);
}

/* Opening and closing */

void run_lead_handlers(const struct run *run, struct uplink_handlers *handlers)
{
    if (run->lead.arbiter == NULL)
        return;
    handlers->offers = on_offers;
    handlers->joined = on_joined;
    handlers->may_stand = may_stand;
    handlers->stands = on_stands;
}

enum fsdp_status run_lead_open(struct run *run, struct fsdp_err *err)
{
    static const struct arbiter_handlers handlers = { on_leads, on_follow, on_ended, on_deposed, on_note };
    const struct agent_config *config = run->config;
    struct arbiter_spec spec = { .run = identity_job(config), .lease_ms = config->lease_ms };
    struct run_lead *lead = &run->lead;

    if (config->arbiter == AGENT_ARBITER_NONE ||
        (config->arbiter == AGENT_ARBITER_DIRECTORY && config->job_json == NULL && !config->run_dir_named))
        return FSDP_OK;
    lead->waited_ms = -1;
    (void)!getrandom(lead->identity, sizeof lead->identity, 0);
    memcpy(spec.identity, lead->identity, sizeof spec.identity);
    OK_OR_RETURN(run_store_open(&spec.store, config, err));
    lead->tick = calloc(1, sizeof *lead->tick);
    if (lead->tick == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    uv_timer_init(run->loop, lead->tick);
    lead->tick->data = run;
    return arbiter_create(&lead->arbiter, run->loop, &spec, &handlers, run, err);
}

void run_lead_sit(struct run *run, int node_rank)
{
    if (run->lead.arbiter != NULL && run->coordinator == NULL)
        arbiter_sit(run->lead.arbiter, node_rank);
}

void run_lead_lock(struct run *run)
{
    if (run->lead.takes_over && run->coordinator != NULL)
        want_lock(run, true);
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

/*
 * This node was to take the place of a lost leader and cannot, or its run ends: it gives up the lead, so that
 * another node may claim it.
 */
void run_lead_resign(struct run *run, int exit_status)
{
    if (!run->lead.leads)
        return;
    uv_timer_stop(run->lead.tick);
    lease_bequeath(run->lease, NULL, 0);
    run->lead.leads = false;
    run->lead.resigns = true;
    run->lead.over = false;
    if (run->lead.takes_over && (run->refused || run->coordinator == NULL))
        arbiter_leave(run->lead.arbiter);
    else
        arbiter_resign(run->lead.arbiter, exit_status);
}

bool run_lead_is_over(const struct run *run)
{
    return run->lead.arbiter == NULL ||
           ((run->lead.over || !run->lead.resigns) && arbiter_rest(run->lead.arbiter));
}

void run_lead_wait(struct run *run)
{
    if (run->lead.over || !run->lead.resigns)
        arbiter_when_idle(run->lead.arbiter, run_lead_answered, run);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void run_lead_close(struct run *run)
{
    if (run->lead.tick != NULL)
        uv_close((uv_handle_t *)run->lead.tick, on_timer_closed);
    arbiter_destroy(run->lead.arbiter);
    run->lead.tick = NULL;
    run->lead.arbiter = NULL;
}
