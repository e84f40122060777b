/*
 * This node before it leads: it claims the lead, or waits for it.
 *   1. The node that has the endpoint claims the lead when it meets the others, and coordinates when it has
 *      it.
 *   2. A member whose coordinator is lost, and whose ranks are gone, stands. It coordinates when the lead
 *      comes to it, or follows the one to which it came.
 *
 * The uplink says when: these are its handlers.
 */
#include <string.h>

#include "agent/arbiter/lead.h"
#include "agent/rendezvous/identity.h"
#include "agent/run/run_lead_impl.h"
#include "shard_runtime/core/exit_status.h"

enum {
    WAIT_LOOK_MS = 1000,
    /*
     * How many leases the host by the endpoint waits at most for another leader's record to become stale. One
     * that still changes then is of a run that lives. With the lock of the run directory, fewer leases
     * suffice.
     */
    WAIT_LEASES = LEAD_CONTACT + 3,
    WAIT_LEASES_LOCKED = 3,
    /* the least time for which a server (NFS) keeps the locks of a host that is silent */
    LOCK_STAYS_MS = 30000
};

void run_lead_end_wait(struct run *run)
{
    if (run->lead.waited_ms >= 0)
        uv_timer_stop(run->lead.tick);
    run->lead.waited_ms = -1;
}

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
        run_lead_end_wait(run);
        snprintf(words, sizeof words, "another live job, which %s leads, has the %s %.500s", where,
                 run->config->arbiter == AGENT_ARBITER_ETCD ? "run id" : "run directory",
                 run->config->arbiter == AGENT_ARBITER_ETCD ? run->config->run_id : run->config->run_dir);
        run_refuse(run, FSDP_EXIT_CONFIG, words);
    } else if (!has_endpoint(run) && lead->locked_out &&
               lead->waited_ms > WAIT_LEASES * run->config->lease_ms) {
        run_lead_end_wait(run);
        (void)rundir_lock(run->rundir, true, &err);
        run_refuse(run, FSDP_EXIT_CONFIG, err.message);
    } else if (lead->waited_ms >= run->config->join_timeout_ms) {
        run_lead_end_wait(run);
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

    run_lead_end_wait(run);
    run->lead.let_in = term;
    memcpy(run->lead.leader, identity, sizeof run->lead.leader);
    run_lead_want_lock(run, false);
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

void run_lead_handlers(const struct run *run, struct uplink_handlers *handlers)
{
    if (run->lead.arbiter == NULL)
        return;
    handlers->offers = on_offers;
    handlers->joined = on_joined;
    handlers->may_stand = may_stand;
    handlers->stands = on_stands;
}
