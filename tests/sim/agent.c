/* One fsdprun, from its start to its end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arbiter/leader_swept.h"
#include "agent/os/deadlines.h"
#include "agent/rendezvous/identity.h"
#include "agent/run/run_store.h"
#include "agent/wire/swept.h"
#include "shard_runtime/core/clock.h"
#include "tests/sim/sim.h"

enum { PORT = 29400 };
struct host sim_hosts[SIM_HOSTS];

struct coordinator *sim_coordinator(const struct process *process)
{
    return process->run == NULL ? NULL : process->run->coordinator;
}

bool sim_leads(const struct process *process)
{
    const struct run *run = process->alive ? process->run : NULL;

    return run != NULL && run->lead.arbiter != NULL &&
           arbiter_holds_until_ms(run->lead.arbiter) > sim_clock_of(process->host) / MS;
}

/* The life of a process */

static void configure(struct process *process)
{
    static char address[SIM_HOSTS][32], *argv[] = { "program", NULL };
    struct agent_config *config = &process->config;
    const int number = process->host->number;

    agent_config_init(config);
    snprintf(address[number], sizeof *address, "10.0.0.%d", number + 1);
    config->argv = argv;
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
    if (!sim_plan.no_endpoint) {
        config->rendezvous_host = "10.0.0.1";
        config->rendezvous_port = PORT;
        config->hosting = number == 0 ? AGENT_HOST_YES : AGENT_HOST_NO;
    }
    config->local_address = address[number];
    config->save_on_signal = AGENT_SAVE_USR1;
    config->forward_signals = UINT64_C(1) << SIGUSR2;
    config->arbiter = !sim_plan.arbiter ? AGENT_ARBITER_NONE
                      : sim_plan.etcd   ? AGENT_ARBITER_ETCD
                                        : AGENT_ARBITER_DIRECTORY;
    config->etcd = sim_plan.etcd ? "etcd://10.0.1.1:2379" : NULL;
    config->run_dir = sim_plan.has_run_dir ? "/run" : NULL;
    config->run_dir_named = config->run_dir != NULL && !sim_plan.job;
}

static void on_done(void *arg, int status, bool stuck)
{
    struct process *process = arg;

    process->run = NULL;
    process->status = status;
    process->leaving = true;
    process->stuck = stuck;
}

void sim_start(struct host *host)
{
    static const struct os_baseline baseline;
    struct process *process;
    struct fsdp_err err = { 0 };

    if (host->down || host->n_lives == SIM_LIVES || (host->process != NULL && host->process->alive))
        return;
    process = calloc(1, sizeof *process);
    process->host = host;
    process->life = ++host->n_lives;
    process->alive = true;
    process->status = -1;
    process->world.state = WS_DOWN;
    host->process = process;
    configure(process);
    sim_lease_make(process);
    sim_loop_begin(process);
    sim_current = process;
    sim_trace("fsdprun starts");
    if (run_start(&process->run, &process->loop, &process->config, &baseline, &process->lease, on_done,
                  process, &err) != FSDP_OK)
        sim_violated("no bug", "no run: %s", err.message);
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

/* A guard's calls of the store, which take time, are made on a thread of its own. */
struct saying {
    struct disk_job job;
    const struct agent_config *config;
    struct leader_will will;
};

static void write_record(struct disk_job *job)
{
    const struct saying *saying = (const struct saying *)job;
    struct arbiter_store *store;
    enum arbiter_answer answer;

    if (run_store_open(&store, saying->config, NULL) != FSDP_OK)
        return;
    answer = leader_swept_say(store, identity_job(saying->config), &saying->will, NULL);
    sim_trace("the guard writes generation %d: %d", saying->will.generation, (int)answer);
}

static void on_written(struct disk_job *job)
{
    (void)job;
}

static void say_to_arbiter(struct process *guard, const struct process *agent, const struct leader_will *will)
{
    struct saying *saying = calloc(1, sizeof *saying);
    struct disk *disk;

    saying->job = (struct disk_job){ .work = write_record, .done = on_written };
    saying->config = &agent->config;
    saying->will = *will;
    (void)disk_create(&disk, &guard->loop, NULL);
    disk_submit(disk, &saying->job);
}

/* The guard has survived its agent. Once no rank is left, it says so, by a loop of its own. */
static void guard_speaks(void *what, uint64_t number)
{
    const struct process *agent = what;
    struct host *host = agent->host;
    struct process *guard;
    struct leader_will leader;
    struct swept_will will;
    bool led;

    for (int list = 0; list < 2; list++)
        for (const struct rank *rank = list == 0 ? agent->world.ranks : agent->world.left; rank != NULL;
             rank = rank->next)
            if (rank->alive) {
                sim_at(sim_now + MS, guard_speaks, what, number);
                return;
            }
    led = lease_inherit(&agent->lease, &leader, sizeof leader);
    if (host->down || (!led && !lease_inherit(&agent->lease, &will, sizeof will)))
        return;
    sim_trace("the guard on n%d says that no rank is left", host->number);
    guard = calloc(1, sizeof *guard);
    guard->host = host;
    guard->alive = true;
    guard->status = -1;
    guard->world.state = WS_DOWN;
    sim_loop_begin(guard);
    sim_current = guard;
    if (led)
        say_to_arbiter(guard, agent, &leader);
    else
        (void)swept_say(&guard->loop, &will, NULL, identity_job(&agent->config), LAST_WORD_MS, NULL);
    sim_current = NULL;
    sim_wake(guard);
}

void sim_kill(struct process *process, bool silent)
{
    if (process == NULL || !process->alive)
        return;
    sim_trace("n%d: %s", process->host->number, silent ? "the host is gone" : "fsdprun is killed");
    process->alive = false;
    process->ended_at = sim_now;
    process->host->down = silent;
    sim_net_end(process, silent);
    sim_world_end(process, silent);
    lose_leader(process);
    if (!silent && sim_one_in(SIM_FAULTS, 2))
        sim_at(sim_now + sim_between(SIM_FAULTS, MS, 100 * MS), guard_speaks, process, 0);
}

struct signalled {
    struct process *process;
    int signal, times;
};

static void on_signal(void *arg)
{
    const struct signalled *signalled = arg;

    for (int i = 0; i < signalled->times && signalled->process->run != NULL; i++) {
        sim_trace("gets signal %d", signalled->signal);
        run_signal(signalled->process->run, signalled->signal);
    }
}

void sim_signal(struct process *process, int signal, int times)
{
    struct signalled *signalled = malloc(sizeof *signalled);

    *signalled = (struct signalled){ process, signal, times };
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

static void stall(struct host *host, int64_t for_ns, bool suspended, bool busy)
{
    if (host->process == NULL || sim_now < host->stalled_until)
        return;
    sim_trace("n%d stands still for %.2f s%s", host->number, (double)for_ns / 1e9,
              suspended ? ", with its clock"
              : busy    ? ", but for its threads"
                        : "");
    host->stalled_until = sim_now + for_ns;
    host->stalled_ns += for_ns;
    host->suspended = suspended;
    host->busy = busy;
    if (suspended)
        host->suspended_ns += for_ns;
    sim_at(host->stalled_until, goes_on, host, (uint64_t)for_ns);
}

void sim_stall(struct host *host, int64_t for_ns, bool suspended)
{
    stall(host, for_ns, suspended, !suspended && sim_one_in(SIM_PULSES, 2));
}

void sim_busy(struct host *host, int64_t for_ns)
{
    stall(host, for_ns, false, true);
}

/*
 * Checkpoints (--wrap): none is ever found; the search takes its time all the same. No file of the run is
 * read or written.
 */

struct search_done {
    struct process *process;
    save_prepared *done;
    void *arg;
};

enum fsdp_status __real_save_create(struct save **out, uv_loop_t *loop, struct fsdp_io *io,
                                    const char *run_dir, const struct save_handlers *handlers,
                                    struct fsdp_err *err);
enum fsdp_status __wrap_save_create(struct save **out, uv_loop_t *loop, struct fsdp_io *io,
                                    const char *run_dir, const struct save_handlers *handlers,
                                    struct fsdp_err *err);
void __wrap_save_prepare(struct save *save, save_prepared *done, void *arg);
bool __wrap_save_idle(const struct save *save);
void __wrap_save_when_idle(struct save *save, void (*idle)(void *arg), void *arg);
enum fsdp_status __wrap_events_open(struct events **out, int dir_fd, const char *name, struct fsdp_err *err);

enum fsdp_status __wrap_save_create(struct save **out, uv_loop_t *loop, struct fsdp_io *io,
                                    const char *run_dir, const struct save_handlers *handlers,
                                    struct fsdp_err *err)
{
    (void)run_dir;
    return __real_save_create(out, loop, io, NULL, handlers, err);
}

static void on_prepared(void *arg)
{
    const struct search_done *search = arg;
    struct process *process = search->process;
    void (*idle)(void *arg) = process->prepared;
    const struct fsdp_err fine = { 0 };

    process->prepares = false;
    process->prepared = NULL;
    search->done(search->arg, -1, &fine);
    if (idle != NULL)
        idle(process->prepared_arg);
}

void __wrap_save_prepare(struct save *save, save_prepared *done, void *arg)
{
    struct search_done *search = malloc(sizeof *search);

    (void)save;
    *search = (struct search_done){ sim_current, done, arg };
    sim_current->prepares = true;
    sim_later(sim_current, sim_one_in(SIM_AGENTS, 4) ? sim_between(SIM_AGENTS, 0, 5 * SECOND) : MS,
              on_prepared, search);
}

bool __wrap_save_idle(const struct save *save)
{
    (void)save;
    return !sim_current->prepares;
}

void __wrap_save_when_idle(struct save *save, void (*idle)(void *arg), void *arg)
{
    (void)save;
    sim_current->prepared = idle;
    sim_current->prepared_arg = arg;
}

enum fsdp_status __wrap_events_open(struct events **out, int dir_fd, const char *name, struct fsdp_err *err)
{
    (void)dir_fd, (void)name, (void)err;
    *out = NULL;
    return FSDP_OK;
}

/* What the coordinator tells its members: --wrap=run_member calls this */

coordinator_tell __real_run_member, __wrap_run_member;

void __wrap_run_member(void *member, enum proto_type type, int generation, const void *message)
{
    const struct process *process = sim_current;
    const struct world *world = &process->world;
    const struct coordinator_end *end = message;
    const bool needs_ranks = type != PROTO_START && type != PROTO_FINISH && type != PROTO_OPEN &&
                             type != PROTO_CLOSE && type != PROTO_ENDED;

    if (type != PROTO_PUT)
        sim_trace("is told %s of generation %d", proto_name(type), generation);
    if (needs_ranks && generation != world->generation)
        sim_violated("old generations", "n%d runs generation %d and is told %s of generation %d",
                     process->host->number, world->generation, proto_name(type), generation);
    if (needs_ranks && sim_coordinator(process) == NULL && world->state == WS_DOWN)
        sim_violated("old generations", "n%d is told %s of generation %d, which is over there",
                     process->host->number, proto_name(type), generation);
    if (type == PROTO_FINISH && strstr(end->line, "does not talk as it should") != NULL)
        sim_violated("no bug", "n%d: %s", process->host->number, end->line);
    if (type == PROTO_FINISH && strstr(end->line, "is refused for good") != NULL)
        sim_violated("who was never restored is welcome", "n%d: %s", process->host->number, end->line);
    if (type == PROTO_FINISH)
        sim_trace("is told the end: %d %.120s", end->status, end->line);
    __real_run_member(member, type, generation, message);
}

/* A generation begins, or its leader is deposed (--wrap) */

/*
 * No rank of an older generation may run on any host, also on one that cannot be reached. A host that stood
 * still together with its clock does not know how much time has passed. Without an arbiter, the members of a
 * leader that was killed end by themselves.
 */
static void check_older_ranks(const struct process *leader, const struct formed *formed)
{
    for (int i = 0; i < sim_plan.n_hosts; i++) {
        const struct host *host = &sim_hosts[i];

        for (struct rank *rank = host->process == NULL || host->suspended_ns > 0 ? NULL
                                                                                 : host->process->world.ranks;
             rank != NULL; rank = rank->next)
            if (rank->alive && !rank->asleep && rank->formed != formed &&
                (sim_plan.arbiter || rank->formed->leader == leader))
                sim_violated("one generation",
                             "generation %d is formed, and rank %d of generation %d runs on n%d",
                             formed->generation, rank->number, rank->formed->generation, i);
    }
}

/* The leaders of a run come one after another, and so do their generations. */
static void check_order(const struct formed *formed)
{
    const struct formed *before = formed->next;

    if (!sim_plan.arbiter || before == NULL || formed->leader->host->suspended_ns > 0)
        return;
    if (!sim_leads(formed->leader))
        sim_violated("who forms leads", "n%d does not", formed->leader->host->number);
    if (before->leader == formed->leader || before->leader->host->suspended_ns > 0)
        return;
    if (before->term >= formed->term)
        sim_violated("terms grow", "%llu after %llu", (unsigned long long)formed->term,
                     (unsigned long long)before->term);
}

void __real_coordinator_depose(struct coordinator *coordinator, const char *words);
void __wrap_coordinator_depose(struct coordinator *coordinator, const char *words);
void __real_coordinator_form(struct coordinator *coordinator);
void __wrap_coordinator_form(struct coordinator *coordinator);

void __wrap_coordinator_depose(struct coordinator *coordinator, const char *words)
{
    lose_leader(sim_current);
    __real_coordinator_depose(coordinator, words);
}

void __wrap_coordinator_form(struct coordinator *coordinator)
{
    struct process *process = sim_current;
    struct formed *formed = calloc(1, sizeof *formed);
    char address[32];

    /* all generations before this one are over; without an arbiter, those of this leader */
    for (struct formed *before = sim_formed; before != NULL; before = before->next)
        if (sim_plan.arbiter || before->leader == process)
            lose_leader(before->leader);
    formed->leader = process;
    formed->term = coordinator->services.lead.term;
    formed->generation = coordinator->generation;
    formed->n_ended = process->run->ended.n;
    formed->at = sim_now;
    formed->over_at = NEVER;
    formed->next = sim_formed;
    formed->world_size = INT32_MAX;
    sim_formed = formed;
    memcpy(formed->token, coordinator->token, sizeof formed->token);
    __real_coordinator_form(coordinator);
    formed->world_size = coordinator->world_size;
    check_order(formed);
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
            if (host->process->world.left != NULL)
                sim_violated("no seat beside a sleeper",
                             "generation %d is formed with n%d, where rank %d of generation %d sleeps",
                             formed->generation, number, host->process->world.left->number,
                             host->process->world.left->formed->generation);
        }
}
