#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/cluster/coordinator_impl.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/shardfile/commit.h"

/*
 * Returns whether the job exports its model and has no export of this step yet. An export with its final name
 * is complete, because the trainer renames it last.
 */
static bool lacks_export(const struct agent_config *config, int64_t step)
{
    char name[COMMIT_NAME_BYTES], path[RUNDIR_PATH_BYTES];
    int n;

    if (!config->exports)
        return false;
    commit_step_name(step, name);
    n = snprintf(path, sizeof path, "%s/export/%s", config->run_dir, name);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) < 0;
}

/*
 * Decides how the job continues, given the step of the newest checkpoint, if there is one. If the run must
 * end, also stores its status and its last line.
 */
static enum coordinator_event weigh_resume(struct coordinator *coordinator, int64_t step,
                                           const struct fsdp_err *err)
{
    const struct agent_config *config = coordinator->config;
    const bool job = config->job_json != NULL;
    char words[COORDINATOR_LINE_BYTES];

    if (coordinator->state == CS_ENDED)
        return CE_PREPARED;
    if (err->status == FSDP_ERR_CONFIG) {
        coordinator_end_with(coordinator, FSDP_EXIT_CONFIG, ERRORS_CONFIG, err->message);
        return CE_REFUSED;
    }
    if (err->status != FSDP_OK) {
        snprintf(words, sizeof words, "no checkpoint to go on from: %s", err->message);
        coordinator_end_with(coordinator, exit_status_of(err->status), ERRORS_IO, words);
        return CE_REFUSED;
    }
    if (!job || coordinator->generation > 0 || step < 0)
        return CE_PREPARED;
    if (config->resume_never) {
        snprintf(words, sizeof words, "%s has a checkpoint of step %lld, and checkpoint.resume is never",
                 config->run_dir, (long long)step);
        coordinator_end_with(coordinator, FSDP_EXIT_CONFIG, ERRORS_CONFIG, words);
        return CE_REFUSED;
    }
    if ((uint64_t)step >= config->total_steps && !lacks_export(config, step)) {
        if (!config->quiet)
            console_say(coordinator->services.console, "fsdprun: %s is complete: it has its %llu steps",
                        config->run_dir, (unsigned long long)config->total_steps);
        coordinator_end_with(coordinator, 0, 0, "");
        return CE_REFUSED;
    }
    return CE_PREPARED;
}

static void fill_random(unsigned char *bytes, size_t size)
{
    size_t filled = 0;

    while (filled < size) {
        ssize_t n = getrandom(bytes + filled, size - filled, 0);

        if (n > 0)
            filled += (size_t)n;
        else if (errno != EINTR)
            abort(); /* a predictable key is worse than no run */
    }
}

/*
 * Ends preparing: everything is ready for a generation, unless nodes have left meanwhile, or `err` says that
 * it cannot begin.
 */
static void end_preparing(struct coordinator *coordinator, const struct fsdp_err *err)
{
    enum coordinator_event event = CE_PREPARED;

    if (coordinator->state == CS_PREPARING &&
        (!roster_enough(&coordinator->roster) || !coordinator_may_form(coordinator))) {
        event = CE_FAILED;
    } else if (coordinator->state == CS_PREPARING && err->status != FSDP_OK) {
        coordinator_end_with(coordinator, FSDP_EXIT_PEER, ERRORS_WORLD, err->message);
        event = CE_REFUSED;
    }
    coordinator_post(coordinator, event);
    coordinator_run(coordinator);
}

static void on_marked(struct coordinator *coordinator, const struct fsdp_err *err)
{
    if (coordinator->state == CS_PREPARING && err->status == FSDP_OK && roster_enough(&coordinator->roster))
        coordinator_open_store(coordinator, end_preparing);
    else
        end_preparing(coordinator, err);
}

static void on_prepared(void *arg, int64_t step, const struct fsdp_err *err)
{
    struct coordinator *coordinator = arg;
    enum coordinator_event event = weigh_resume(coordinator, step, err);

    coordinator->resume_step = step;
    if (coordinator->memory_step.step < step)
        coordinator->memory_step.step = -1;
    if (event == CE_PREPARED && coordinator->state == CS_PREPARING) {
        fill_random(coordinator->token, sizeof coordinator->token);
        coordinator_mark(coordinator, on_marked);
        return;
    }
    coordinator_post(coordinator, event);
    coordinator_run(coordinator);
}

void coordinator_prepare(struct coordinator *coordinator)
{
    coordinator_find_memory_step(coordinator);
    /*
     * a coordinator that took over does not know what is on the disk, but the ranks need that if loading from
     * memory fails
     */
    if (coordinator->memory_step.step < 0 || (coordinator->took_over && !coordinator->has_formed) ||
        coordinator->memory_step.step < save_known_step(coordinator->save) ||
        !save_settle(coordinator->save, on_prepared, coordinator))
        save_prepare(coordinator->save, on_prepared, coordinator);
}

/*
 * Returns a port that is free now, for a run without a store in the agent. Another process may take the port
 * before rank 0 does.
 */
static int free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;

    if (fd < 0)
        return 0;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

static void form_node(struct coordinator *coordinator, int number, struct world_plan *plan)
{
    const struct roster_node *node = &coordinator->roster.nodes[number];

    plan->node_rank = node->node_rank;
    plan->first_rank = node->first_rank;
    plan->role_rank = node->role_rank;
    plan->role_world_size = node->role_world_size;
    plan->memory_from = coordinator->nodes[number].source < 0
                            ? -1
                            : coordinator->roster.nodes[coordinator->nodes[number].source].node_rank;
    snprintf(plan->node_address, sizeof plan->node_address, "%s", node->address);
    coordinator->nodes[number].tell(coordinator->nodes[number].member, PROTO_START, plan->generation, plan);
}

void coordinator_form(struct coordinator *coordinator)
{
    struct roster *roster = &coordinator->roster;
    struct world_plan plan = { .generation = coordinator->generation,
                               .restart_count = coordinator->budget.n_restarts,
                               .resume_step = coordinator->resume_step,
                               .lease_ms = coordinator->config->lease_ms,
                               .term = coordinator->services.lead.term,
                               .bears_loss = coordinator_bears_loss(coordinator) };
    const struct rundir *rundir = coordinator->services.rundir;

    plan.first_attempt = rundir == NULL ? 0 : rundir_first_attempt(rundir);
    roster_seat(roster);
    coordinator_find_memory(coordinator, &plan);
    plan.n_nodes = roster->n_nodes;
    plan.world_size = coordinator->world_size = roster->world_size;
    coordinator_choose_entry(coordinator, &plan);
    coordinator_expect(coordinator);
    coordinator_tell_all_ended(coordinator);
    coordinator->n_deaths = 0;
    coordinator->node_lost = false;
    coordinator->has_formed = true;
    coordinator->cause = -1;
    free(coordinator->hang);
    coordinator->hang = NULL;
    coordinator_forget_keys(coordinator);
    coordinator_hang_begin(coordinator);
    coordinator_pace_begin(coordinator);
    snprintf(plan.master_address, sizeof plan.master_address, "%s", coordinator_master_address(coordinator));
    plan.master_port = coordinator->place.is_open              ? coordinator->place.port
                       : coordinator->config->master_port != 0 ? coordinator->config->master_port
                                                               : free_port();
    memcpy(plan.token, coordinator->token, sizeof plan.token);
    coordinator->progress.generation = plan.generation;
    coordinator->progress.n_nodes = plan.n_nodes;
    coordinator->progress.node_rank =
        roster->nodes[COORDINATOR_SELF].active ? roster->nodes[COORDINATOR_SELF].node_rank : -1;
    /* before any node is told of the generation, as agent/arbiter/leader_swept.h requires */
    coordinator_publish(coordinator);
    save_begin(coordinator->save, (uint32_t)plan.generation, plan.world_size, plan.resume_step);
    coordinator->n_up = roster->n_nodes;
    coordinator_form_timeline(coordinator);
    coordinator_survival_begin(coordinator);
    for (int i = 0; i < roster->capacity; i++) {
        coordinator->nodes[i].stopped = false;
        coordinator->nodes[i].n_failed = 0;
        coordinator->nodes[i].held.world_size = 0;
    }
    if (coordinator->services.lease != NULL && coordinator_in_play(coordinator, COORDINATOR_SELF))
        lease_begin(coordinator->services.lease, plan.generation);
    /*
     * Node 0 is this node. It comes last, because its workers are started within the call, and the other
     * nodes should not wait for that.
     */
    for (int i = roster->capacity - 1; i >= 0; i--)
        if (coordinator_in_play(coordinator, i))
            form_node(coordinator, i, &plan);
}

void coordinator_clear(struct coordinator *coordinator)
{
    const struct proto_stop stop = { .signal = coordinator->stop_signal,
                                     .now = coordinator->stop_now,
                                     .lost = coordinator->node_lost };

    coordinator_tell_all(coordinator, -1, PROTO_STOP, &stop);
}
