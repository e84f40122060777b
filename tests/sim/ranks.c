/*
 * The workers of a node: agent/world/world.h as a model of a hundred lines, over the product's own state
 * machine. The agent's deadlines run in its loop, so they stand still with it; ranks run on the host.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/deadlines.h"
#include "tests/sim/sim.h"

enum { BLAME_MS = 1000 };

struct formed *sim_formed;

static void post(struct world *world, enum world_event event);

/* Ranks */

static bool runs_on(struct host *host, void (*again)(void *, uint64_t), void *what, uint64_t number)
{
    if (host->suspended && sim_now < host->stalled_until) {
        sim_at(host->stalled_until + 1000, again, what, number);
        return false;
    }
    return true;
}

static void end_rank(struct rank *rank, enum death_kind kind, int code)
{
    if (!rank->alive)
        return;
    rank->alive = false;
    rank->kind = kind;
    rank->code = code;
    if (kind != DEATH_NONE)
        rank->formed->broken = true;
    sim_trace("rank %d of generation %d on n%d ends (%s %d)", rank->number, rank->formed->generation,
              rank->owner->host->number,
              kind == DEATH_NONE   ? "well"
              : kind == DEATH_EXIT ? "code"
                                   : "signal",
              code);
    sim_wake(rank->owner);
}

static void dies_of_signal(void *what, uint64_t signal)
{
    struct rank *rank = what;

    if (runs_on(rank->owner->host, dies_of_signal, what, signal))
        end_rank(rank, DEATH_SIGNAL, (int)signal);
}

static void fails(void *what, uint64_t code)
{
    struct rank *rank = what;

    if (runs_on(rank->owner->host, fails, what, code))
        end_rank(rank, DEATH_EXIT, (int)code);
}

/* The rank has done its work, if all the others run; it waits for them in its collectives. */
static void finishes(void *what, uint64_t number)
{
    struct rank *rank = what;

    if (!rank->alive || rank->formed->broken || !runs_on(rank->owner->host, finishes, what, number))
        return;
    if (rank->formed->n_started < rank->formed->world_size)
        sim_at(sim_now + 100 * MS, finishes, what, number);
    else
        end_rank(rank, DEATH_NONE, 0);
}

static void saves_and_leaves(void *what, uint64_t number)
{
    struct rank *rank = what;

    if (runs_on(rank->owner->host, saves_and_leaves, what, number))
        end_rank(rank, DEATH_NONE, 0);
}

static void signal_rank(struct rank *rank, int signal)
{
    int64_t kill_ns = sim_between(SIM_AGENTS, MS, 20 * MS);

    if (!rank->alive || rank->asleep)
        return;
    if (signal == SIGKILL) {
        rank->killed = true;
        rank->asleep = sim_one_in(SIM_AGENTS, sim_plan.sleeps_one_in);
        if (rank->asleep)
            kill_ns = sim_between(SIM_AGENTS, 0, 20 * SECOND);
        sim_at(sim_now + kill_ns, dies_of_signal, rank, SIGKILL);
        return;
    }
    rank->sent_signal = signal;
    if (!sim_one_in(SIM_AGENTS, sim_plan.ignores_one_in))
        sim_at(sim_now + sim_between(SIM_AGENTS, MS, 2 * SECOND), dies_of_signal, rank, (uint64_t)signal);
}

static void signal_all(struct process *process, int signal)
{
    for (struct rank *rank = process->world.ranks; rank != NULL; rank = rank->next)
        signal_rank(rank, signal);
}

void sim_world_sweep(struct process *process)
{
    for (struct rank *rank = process->world.ranks; rank != NULL; rank = rank->next)
        if (!rank->killed)
            signal_rank(rank, SIGKILL);
}

static void spawn(struct world *world, const struct world_plan *plan)
{
    for (int i = 0; i < world->process->config.n_workers; i++) {
        struct rank *rank = calloc(1, sizeof *rank);

        *rank = (struct rank){ .next = world->ranks,
                               .owner = world->process,
                               .formed = world->formed,
                               .number = plan->first_rank + i,
                               .alive = true };
        world->ranks = rank;
        world->formed->n_started++;
        sim_at(sim_now + sim_plan.work_ns + sim_between(SIM_AGENTS, 0, 50 * MS), finishes, rank, 0);
        if (sim_one_in(SIM_AGENTS, sim_plan.fails_one_in))
            sim_at(sim_now + sim_between(SIM_AGENTS, 0, sim_plan.work_ns), fails, rank, 1);
    }
}

/* What the workers report while they run */

void sim_tag(char *out, const struct process *leader, int generation)
{
    snprintf(out, SIM_TAG_BYTES, "n%d life %d generation %d", leader->host->number, leader->life, generation);
}

static void on_chatter(uv_timer_t *timer)
{
    struct world *world = timer->data;
    const struct reporter *to = &world->reporter;
    const int64_t n = sim_one_in(SIM_AGENTS, 20) ? sim_between(SIM_AGENTS, 30, 120) : 1;
    char key[64], tag[SIM_TAG_BYTES];

    if (world->ranks == NULL)
        return;
    sim_tag(tag, world->formed->leader, world->generation);
    for (int64_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%d.%llu", world->ranks->number, (unsigned long long)world->n_put++);
        to->put(to->to, world->generation, key, tag, strlen(tag));
    }
    snprintf(key, sizeof key, "%d.%llu", (int)sim_between(SIM_AGENTS, 0, world->formed->world_size - 1),
             (unsigned long long)sim_between(SIM_AGENTS, 0, (int64_t)world->n_put + 5));
    to->want(to->to, world->generation, key);
    to->event(to->to, world->generation, world->ranks->number, "{}", 2);
    uv_timer_start(timer, on_chatter, (uint64_t)sim_between(SIM_AGENTS, 1, 2 * sim_plan.chatter_ms), 0);
}

/* Ranks that KILL did not end in time */

static void leave_behind(struct world *world)
{
    int n = 0;

    for (struct rank *rank; (rank = world->ranks) != NULL;) {
        world->ranks = rank->next;
        rank->next = world->left;
        world->left = rank;
        sim_trace("rank %d of generation %d is left behind", rank->number, rank->formed->generation);
    }
    for (const struct rank *rank = world->left; rank != NULL; rank = rank->next)
        n++;
    if (n > 0)
        world->reporter.unkilled(world->reporter.to, n);
}

static void forget_left(struct world *world)
{
    const bool any = world->left != NULL;

    for (struct rank **link = &world->left, *rank; (rank = *link) != NULL;)
        if (rank->alive)
            link = &rank->next;
        else
            *link = rank->next;
    if (any && world->left == NULL && world->state != WS_OVER)
        world->reporter.unkilled(world->reporter.to, 0);
}

/* The state machine */

static void on_deadline(uv_timer_t *timer)
{
    struct world *world = timer->data;

    world->deadline_ms = 0;
    post(world, WE_DEADLINE);
}

static void set_deadline(struct world *world, int64_t ms)
{
    world->deadline_ms = (int64_t)world->process->loop_ms + ms;
    uv_timer_start(&world->deadline, on_deadline, (uint64_t)ms, 0);
}

static int64_t grace_of(const struct world *world)
{
    const struct agent_config *config = &world->process->config;
    const int64_t grace_ms = config->job_json != NULL ? 0 : config->grace_ms;

    return world->lost && grace_ms > LOST_GRACE_MS ? LOST_GRACE_MS : grace_ms;
}

static void on_swept(uv_timer_t *timer)
{
    post(timer->data, WE_SWEPT);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct world *world = handle->data;

    if (--world->n_timers == 0)
        world->services.ended(world->services.ended_arg);
}

static void perform(struct world *world, enum world_action action)
{
    struct process *process = world->process;

    switch (action) {
    case WA_ABORT:
        set_deadline(world, BLAME_MS);
        break;
    case WA_NOTIFY:
        world->noticed = true;
        for (struct rank *rank = world->ranks; rank != NULL; rank = rank->next)
            if (!sim_one_in(SIM_AGENTS, sim_plan.ignores_one_in))
                sim_at(sim_now + sim_between(SIM_AGENTS, MS, 2 * SECOND), saves_and_leaves, rank, 0);
        set_deadline(world, process->config.grace_ms);
        break;
    case WA_CLEAR:
    case WA_TERM:
        signal_all(process, process->config.job_json != NULL ? SIGKILL
                            : world->stop_signal != 0        ? world->stop_signal
                                                             : SIGTERM);
        set_deadline(world, grace_of(world));
        break;
    case WA_KILL:
        signal_all(process, SIGKILL);
        set_deadline(world, KILL_MS);
        break;
    case WA_DRAIN:
    case WA_SWEEP:
        uv_timer_start(&world->deadline, on_swept, 1, 0);
        break;
    case WA_ABANDON:
        leave_behind(world);
        /* fall through */
    case WA_DOWN:
        sim_trace("generation %d is down here", world->generation);
        world->stop_signal = 0;
        world->reporter.stopped(world->reporter.to, world->generation);
        break;
    case WA_CLOSE:
        uv_close((uv_handle_t *)&world->deadline, on_timer_closed);
        uv_close((uv_handle_t *)&world->chatter, on_timer_closed);
        break;
    default:
        break;
    }
}

static void post(struct world *world, enum world_event event)
{
    const enum world_state before = world->state;
    enum world_action action;

    if (!world_fsm_step(&world->state, event, &action))
        sim_violated("no bug", "the world of n%d gets %s while %s", world->process->host->number,
                     world_event_name(event), world_state_name(before));
    if (world->state != before) {
        uv_timer_stop(&world->deadline);
        world->deadline_ms = 0;
    }
    perform(world, action);
}

/* Ranks that have ended are seen by the agent, one after another. */
void world_reap(struct world *world)
{
    struct rank **link = &world->ranks, *rank;

    forget_left(world);
    while ((rank = *link) != NULL) {
        struct death death;

        if (rank->alive) {
            link = &rank->next;
            continue;
        }
        *link = rank->next;
        death = (struct death){ .kind = rank->kind,
                                .rank = rank->number,
                                .code = rank->code,
                                .sent_signal = rank->sent_signal,
                                .killed = rank->killed,
                                .when_ns = sim_clock_of(world->process->host),
                                .step = -1,
                                .phase = -1 };
        sim_tag(death.words, rank->formed->leader, rank->formed->generation);
        world->reporter.exited(world->reporter.to, world->generation, &death, NULL);
        if (rank->kind != DEATH_NONE && !first_cause_is_consequence(&death) && world->state != WS_DRAINING &&
            world->state != WS_SWEEPING && world->state != WS_DOWN)
            post(world, WE_FAILED);
        if (world->ranks == NULL && world->state != WS_DOWN) {
            post(world, WE_REAPED);
            return;
        }
        link = &world->ranks; /* a report may have led to a call into the world */
    }
}

static struct formed *find_formed(const struct world_plan *plan)
{
    for (struct formed *formed = sim_formed; formed != NULL; formed = formed->next)
        if (memcmp(formed->token, plan->token, sizeof formed->token) == 0)
            return formed;
    sim_violated("no bug", "a START that no coordinator sent");
}

/* agent/world/world.h. A world is not watched: no rank hangs or is slow. */

enum fsdp_status world_create(struct world **out, const struct agent_config *config,
                              const struct world_services *services, const struct reporter *reporter,
                              struct fsdp_err *err)
{
    struct process *process = services->loop->data;
    struct world *world = &process->world;

    (void)config, (void)err;
    *world = (struct world){
        .process = process, .services = *services, .reporter = *reporter, .n_timers = 2, .state = WS_DOWN
    };
    uv_timer_init(services->loop, &world->deadline);
    uv_timer_init(services->loop, &world->chatter);
    world->deadline.data = world->chatter.data = world;
    *out = world;
    return FSDP_OK;
}

void world_destroy(struct world *world)
{
    (void)world;
}

void world_report_to(struct world *world, const struct reporter *reporter)
{
    int n = 0;

    world->reporter = *reporter;
    for (const struct rank *rank = world->left; rank != NULL; rank = rank->next)
        n++;
    if (n > 0)
        reporter->unkilled(reporter->to, n);
}

void world_form(struct world *world, const struct world_plan *plan)
{
    world->formed = find_formed(plan);
    world->generation = plan->generation;
    world->lost = world->noticed = false;
    world->stop_signal = 0;
    sim_check_start(world->process, plan);
    post(world, WE_FORM);
    spawn(world, plan);
    world->n_put = 0;
    if (sim_plan.chatter_ms > 0)
        uv_timer_start(&world->chatter, on_chatter, 1, 0);
}

void world_stop(struct world *world, int signal, bool now)
{
    if (world->stop_signal == 0)
        world->stop_signal = signal;
    post(world, now ? WE_STOP_NOW : WE_STOP);
}

void world_lost(struct world *world)
{
    world->lost = true;
    if (world->deadline_ms > (int64_t)world->process->loop_ms + grace_of(world) &&
        world->state == WS_STOPPING)
        set_deadline(world, grace_of(world));
}

void world_notify(struct world *world, const struct fsdp_link_notice *notice)
{
    (void)notice;
    if (world->state != WS_DOWN)
        post(world, WE_NOTICE);
}

void world_publish(struct world *world, const struct fsdp_link_published *published)
{
    (void)world, (void)published;
}

void world_take_entry(struct world *world, const struct snapshot_entry *entry)
{
    (void)world, (void)entry;
}

void world_put(struct world *world, int generation, const char *key, const void *value, size_t size_bytes)
{
    char tag[SIM_TAG_BYTES];

    (void)key;
    if (generation != world->generation || world->state == WS_DOWN)
        return;
    sim_tag(tag, world->formed->leader, world->generation);
    if (size_bytes != strlen(tag) || memcmp(value, tag, size_bytes) != 0)
        sim_violated("old generations", "n%d runs %s and gets a key of %.*s", world->process->host->number,
                     tag, (int)size_bytes, (const char *)value);
}

void world_answer(struct world *world, int generation, uint64_t question, int64_t shown_ns)
{
    (void)world, (void)generation, (void)question, (void)shown_ns;
}

void world_show(struct world *world, int generation)
{
    (void)world, (void)generation;
}

void world_hung(struct world *world, int generation, int rank, const char *words)
{
    (void)world, (void)generation, (void)rank, (void)words;
}

void world_end(struct world *world)
{
    uv_timer_stop(&world->chatter);
    post(world, WE_END);
}

/* No command over jobs asks a simulated agent. */
void world_view(const struct world *world, struct world_view *view)
{
    (void)world;
    *view = (struct world_view){ 0 };
}

void world_show_worker(const struct world *world, int i, int *rank, pid_t *pid, int *phase, int64_t *step)
{
    (void)world, (void)i;
    *rank = *phase = -1;
    *pid = 0;
    *step = -1;
}

const struct fsdp_progress *world_page(const struct world *world, int i)
{
    (void)world;
    (void)i;
    return NULL;
}

void world_suspended(struct world *world, int64_t slept_ns)
{
    (void)world, (void)slept_ns;
}

void world_forward(struct world *world, int signal)
{
    (void)world, (void)signal;
}

static void killed_with_agent(void *what, uint64_t number)
{
    struct rank *rank = what;

    if (runs_on(rank->owner->host, killed_with_agent, what, number))
        end_rank(rank, DEATH_SIGNAL, SIGKILL);
}

void sim_world_end(struct process *process, bool silent)
{
    for (struct rank *rank = process->world.ranks; rank != NULL; rank = rank->next) {
        if (silent)
            end_rank(rank, DEATH_SIGNAL, SIGKILL);
        else if (rank->alive) /* PR_SET_PDEATHSIG */
            sim_at(sim_now + sim_between(SIM_AGENTS, MS, 20 * MS), killed_with_agent, rank, 0);
    }
}
