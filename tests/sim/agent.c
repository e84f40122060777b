/* One fsdprun, wired from the product's parts as agent/run wires them. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/bug.h"
#include "tests/sim/sim.h"

enum { PORT = 29400 };
struct host sim_hosts[SIM_HOSTS];

/* Ends of the product that need no model */

void console_say(struct console *console, const char *format, ...)
{
    char words[600];
    va_list args;

    (void)console;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    sim_trace("says: %s", words);
}

void bug_stop(const char *format, ...)
{
    char words[300];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    sim_violated("no bug", "%s", words);
}

/* The life of a process */

static void on_note(void *member, const char *words)
{
    (void)member;
    sim_trace("says: %s", words);
}

static void on_hosts(void *member, struct rendezvous *rendezvous, const char *where)
{
    static struct fsdp_io io;
    struct process *process = member;
    const struct coordinator_services services = { .loop = &process->loop, .os = &agent_os_linux, .io = &io };
    struct fsdp_err err = { 0 };

    sim_trace("hosts at %s", where);
    uplink_destroy(process->uplink);
    process->uplink = NULL;
    if (coordinator_create(&process->coordinator, &process->config, &services, &err) != FSDP_OK ||
        nodes_create(&process->nodes, &process->config, rendezvous, process->coordinator, NULL, &err) !=
            FSDP_OK)
        sim_violated("no bug", "no coordinator: %s", err.message);
    process->reporter = coordinator_reporter(process->coordinator, COORDINATOR_SELF);
    coordinator_attach(process->coordinator, COORDINATOR_SELF, sim_world_tell, process);
}

static void configure(struct process *process)
{
    static char address[SIM_HOSTS][32];
    struct agent_config *config = &process->config;
    const int number = process->host->number;

    agent_config_init(config);
    snprintf(address[number], sizeof *address, "10.0.0.%d", number + 1);
    config->job_json = sim_plan.job ? "{}" : NULL;
    config->total_steps = 1000;
    config->run_id = "sim";
    config->n_workers = sim_plan.n_workers;
    config->n_nodes = sim_plan.max_nodes;
    config->min_nodes = sim_plan.min_nodes;
    config->node_rank = -1;
    config->max_restarts = sim_plan.max_restarts;
    config->lease_ms = sim_plan.lease_ms;
    config->grace_ms = sim_plan.grace_ms;
    config->join_timeout_ms = sim_plan.join_ms;
    config->last_call_timeout_ms = sim_plan.last_call_ms;
    config->rendezvous_host = "10.0.0.1";
    config->rendezvous_port = PORT;
    config->hosting = number == 0 ? AGENT_HOST_YES : AGENT_HOST_NO;
    config->local_address = address[number];
    config->no_store = true;
    config->master_port = 29500;
}

void sim_start(struct host *host)
{
    static const struct uplink_handlers handlers = { .hosts = on_hosts, .note = on_note };
    struct process *process;
    struct fsdp_err err = { 0 };

    if (host->down || host->n_lives == SIM_LIVES || (host->process != NULL && host->process->alive))
        return;
    process = calloc(1, sizeof *process);
    process->host = host;
    process->life = ++host->n_lives;
    process->alive = true;
    process->status = -1;
    host->process = process;
    configure(process);
    sim_lease_make(process);
    sim_loop_begin(process);
    uv_timer_init(&process->loop, &process->patience);
    process->patience.data = process;
    sim_world_begin(process);
    sim_current = process;
    sim_trace("fsdprun starts");
    if (uplink_create(&process->uplink, &process->loop, &process->config, sim_world_tell, &handlers, process,
                      &process->lease, &err) != FSDP_OK)
        sim_violated("no bug", "no uplink: %s", err.message);
    process->reporter = uplink_reporter(process->uplink);
    sim_current = NULL;
    sim_wake(process);
}

static void lose_leader(struct process *process)
{
    for (struct formed *formed = sim_formed; formed != NULL; formed = formed->next)
        if (formed->leader == process && formed->over_at == NEVER) {
            formed->over_at = sim_now;
            for (int i = 0; i < SIM_HOSTS; i++)
                formed->stall_at[i] = sim_hosts[i].stalled_ns;
        }
}

void sim_kill(struct process *process, bool silent)
{
    if (process == NULL || !process->alive)
        return;
    sim_trace("n%d: %s", process->host->number, silent ? "the host is gone" : "fsdprun is killed");
    process->alive = false;
    process->host->down = silent;
    sim_net_end(process, silent);
    sim_world_end(process, silent);
    lose_leader(process);
}

struct signalled {
    struct process *process;
    int signal;
    enum reporter_ask how;
};

static void on_signal(void *arg)
{
    const struct signalled *signalled = arg;
    struct process *process = signalled->process;

    if (process->finished || process->reporter.to == NULL)
        return;
    sim_trace("gets signal %d", signalled->signal);
    process->reporter.asked(process->reporter.to, signalled->signal, signalled->how);
}

void sim_signal(struct process *process, int signal, enum reporter_ask how)
{
    struct signalled *signalled = malloc(sizeof *signalled);

    *signalled = (struct signalled){ process, signal, how };
    sim_later(process, 0, on_signal, signalled);
}

static void goes_on(void *what, uint64_t for_ns)
{
    struct host *host = what;

    if (sim_now < host->stalled_until)
        return;
    host->suspended = false;
    sim_trace("n%d goes on after %.2f s", host->number, (double)for_ns / 1e9);
}

void sim_stall(struct host *host, int64_t for_ns, bool suspended)
{
    if (host->process == NULL || sim_now < host->stalled_until)
        return;
    sim_trace("n%d stands still for %.2f s%s", host->number, (double)for_ns / 1e9,
              suspended ? ", with its clock" : "");
    host->stalled_until = sim_now + for_ns;
    host->stalled_ns += for_ns;
    host->suspended = suspended;
    if (suspended)
        host->suspended_ns += for_ns;
    sim_at(host->stalled_until, goes_on, host, (uint64_t)for_ns);
}

/*
 * The disk: --wrap=save_prepare calls this. The run has no directory, so no checkpoint is found; the search
 * takes its time all the same.
 */

struct search_done {
    struct process *process;
    void (*done)(void *arg, int64_t step, const struct fsdp_err *err);
    void *arg;
};

void __wrap_save_prepare(struct save *save, void (*done)(void *arg, int64_t step, const struct fsdp_err *err),
                         void *arg);

static void on_prepared(void *arg)
{
    const struct search_done *search = arg;
    const struct fsdp_err fine = { 0 };

    search->process->n_preparing--;
    search->done(search->arg, -1, &fine);
}

void __wrap_save_prepare(struct save *save, void (*done)(void *arg, int64_t step, const struct fsdp_err *err),
                         void *arg)
{
    struct search_done *search = malloc(sizeof *search);

    (void)save;
    *search = (struct search_done){ sim_current, done, arg };
    sim_current->n_preparing++;
    sim_later(sim_current, sim_one_in(SIM_AGENTS, 4) ? sim_between(SIM_AGENTS, 0, 5 * SECOND) : MS,
              on_prepared, search);
}

/* A generation begins: --wrap=coordinator_form calls this */

/*
 * No rank of an older generation may run on any host, also on one that cannot be reached. A host that stood
 * still together with its clock does not know how much time has passed.
 */
static void check_older_ranks(const struct process *leader, const struct formed *formed)
{
    for (int i = 0; i < sim_plan.n_hosts; i++) {
        const struct host *host = &sim_hosts[i];

        for (struct rank *rank = host->process == NULL || host->suspended_ns > 0 ? NULL
                                                                                 : host->process->world.ranks;
             rank != NULL; rank = rank->next)
            if (rank->alive && rank->formed != formed && rank->formed->leader == leader)
                sim_violated("one generation",
                             "generation %d is formed, and rank %d of generation %d runs on n%d",
                             formed->generation, rank->number, rank->formed->generation, i);
    }
}

void __real_coordinator_form(struct coordinator *coordinator);
void __wrap_coordinator_form(struct coordinator *coordinator);

void __wrap_coordinator_form(struct coordinator *coordinator)
{
    struct process *process = sim_current;
    struct formed *formed = calloc(1, sizeof *formed);
    char address[32];

    lose_leader(process); /* its generation before this one is over */
    formed->leader = process;
    formed->generation = coordinator->generation;
    formed->at = sim_now;
    formed->over_at = NEVER;
    formed->next = sim_formed;
    formed->world_size = INT32_MAX;
    sim_formed = formed;
    memcpy(formed->token, coordinator->token, sizeof formed->token);
    __real_coordinator_form(coordinator);
    formed->world_size = coordinator->world_size;
    check_older_ranks(process, formed);
    for (int i = 0; i < coordinator->roster.capacity; i++)
        for (int number = 0; coordinator_in_play(coordinator, i) && number < sim_plan.n_hosts; number++) {
            const struct host *host = &sim_hosts[number];

            snprintf(address, sizeof address, "10.0.0.%d", number + 1);
            if (strcmp(address, coordinator->roster.nodes[i].address) != 0 || host->process == NULL)
                continue;
            for (struct rank *rank = host->process->world.ranks; rank != NULL; rank = rank->next)
                if (rank->alive && rank->formed != formed && rank->formed->leader == process)
                    sim_violated("one generation",
                                 "generation %d is formed with n%d, where rank %d of generation %d runs",
                                 formed->generation, number, rank->number, rank->formed->generation);
        }
}
