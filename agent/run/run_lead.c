/*
 * Who leads the run, where an arbiter says so (agent/arbiter/arbiter.h). This file takes what the arbiter
 * says, opens it, and gives up the lead at the end of the run. run_lead_impl.h has the other files.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/rendezvous/identity.h"
#include "agent/run/run_lead_impl.h"
#include "agent/run/run_past.h"
#include "agent/run/run_store.h"
#include "shard_runtime/core/require.h"

/* What the arbiter says */

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
    run_lead_end_wait(run);
    run->lead.leads = true;
    run->lead.term = term;
    run->lead.fence_until_ms = fence_until_ms;
    if (run->lead.takes_over) {
        uplink_past(run->uplink, &run->lead.past);
        if (before != NULL)
            run_past_merge(&run->lead.past, before, run->config->max_restarts);
        run->job_written = run->lead.past.progress.generation >= 0;
        if (before != NULL)
            snprintf(host, sizeof host, "%.250s:%d", before->host, before->port);
        run_say(run, "this node leads the job from now on (term %llu); %s %s", (unsigned long long)term, host,
                loss_of(before));
    }
    if (run->lead.takes_over && run->config->run_dir != NULL)
        run_lead_open_directory(run);
    else
        uplink_lead(run->uplink);
}

static void on_follow(void *arg, const struct leader_record *record)
{
    struct run *run = arg;

    run_lead_end_wait(run);
    if (run->uplink != NULL)
        uplink_follow(run->uplink, record->host, record->port);
}

static void on_ended(void *arg, const struct leader_record *record)
{
    struct run *run = arg;
    char words[PROTO_WORDS_BYTES];
    const bool waits = run->lead.waited_ms >= 0;

    run_lead_end_wait(run);
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
    run_lead_end(run, words);
    run_lead_answered(run);
}

static void on_note(void *arg, const char *words)
{
    run_say(arg, "%s", words);
}

/* Opening and closing */

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
