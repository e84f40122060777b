/*
 * Ranks that are silent for too long. A node reports that it has one. It also answers the coordinator's
 * question what its ranks are doing. The coordinator knows the ranks of all nodes, and tells the node of the
 * culprit.
 */
#include <stdio.h>

#include "agent/os/descendants.h"
#include "agent/watch/hang_read.h"
#include "agent/watch/python_stacks.h"
#include "agent/world/world_impl.h"

/* In a world of several nodes, how often a node reports that it has a silent rank. */
static const int64_t SUSPECT_EVERY_NS = 1000000000;
/*
 * Looks are 250 ms apart. If more time than this passes between two looks, this process itself did not run.
 */
static const int64_t STILL_NS = 1000000000;
/*
 * What keeps a silent rank from running is read at least so often, and at least four times within its bound;
 * the first reading is left out. So there are at least two readings before a verdict.
 */
static const int64_t EXCUSES_EVERY_NS = 1000000000;
/* Ranks of a node often wait for the same disk, so one line in this time stands for all of them. */
static const int64_t TELL_EVERY_NS = 60000000000;

static bool is_on(const struct world *world)
{
    return world->config->hang_timeout_ms > 0 && world->workers != NULL && world->links != NULL &&
           (world->state == WS_RUNNING || world->state == WS_LEAVING);
}

/*
 * A worker of a job shows its progress from its start on, and its bounds are learned. A program that uses our
 * library may do other work first, and between two calls of the library. So its bound is the limit, from its
 * first step on. With --hang-timeout any program is watched, and what it shows otherwise counts too
 * (world_life.c).
 */
int64_t world_bound_ns(const struct world *world, const struct worker *worker)
{
    const struct fsdp_progress *page = link_server_page(world->links, worker->local_rank);

    if (world->config->job_json != NULL)
        return hang_bounds_of(&world->bounds, worker->class);
    if (world_life_has(world, worker))
        return worker->heart.used ? world->life.limit_ns : hang_life_bound(&world->life);
    if (worker->seen_beat == 0 || atomic_load_explicit(&page->step, memory_order_relaxed) == 0)
        return 0;
    return world->config->hang_timeout_ms * 1000000;
}

/* Returns for how much time in state D a rank may be excused. */
static int64_t excuse_ns(const struct world *world, const struct worker *worker)
{
    if (world->config->job_json != NULL)
        return hang_bounds_excuse(&world->bounds, worker->class);
    return HANG_EXCUSED_BOUNDS * world_bound_ns(world, worker);
}

int64_t world_blocked_ns(const struct world *world, const struct worker *worker)
{
    const int64_t most_ns = excuse_ns(world, worker), blocked_ns = worker->patience.blocked_ns;

    return blocked_ns < most_ns ? blocked_ns : most_ns;
}

int64_t world_silence_ns(const struct world *world, const struct worker *worker)
{
    return hang_silence(worker->changed_ns, world_now_ns(world), world_bound_ns(world, worker),
                        excuse_ns(world, worker), &worker->patience);
}

static bool is_suspect(const struct world *world, const struct worker *worker)
{
    const int64_t bound = worker->live ? world_bound_ns(world, worker) : 0;

    return bound > 0 && world_silence_ns(world, worker) > bound;
}

/* Counts steps and saves for the learned bounds. The first worker of a job shows which are done. */
static void count_steps(struct world *world, struct worker *worker, enum hang_class class, int64_t step)
{
    if (worker->class == HANG_SAVE && class != HANG_SAVE)
        hang_bounds_saved(&world->bounds);
    if (worker->step >= 0 && step > worker->step)
        hang_bounds_steps(&world->bounds, (uint64_t)(step - worker->step));
}

/*
 * The worker has given a sign of life: take the silence before it into account, and where the worker is now.
 */
static void take_sign(struct world *world, struct worker *worker, const struct fsdp_progress *page)
{
    const int64_t now = world_now_ns(world),
                  step = (int64_t)(atomic_load_explicit(&page->step, memory_order_relaxed) & INT64_MAX);
    struct hang_sign sign = { .begun = true,
                              .phase = atomic_load_explicit(&page->phase, memory_order_relaxed),
                              .pass = atomic_load_explicit(&page->pass, memory_order_relaxed) };
    enum hang_class class = hang_class_of(&sign);

    hang_bounds_saw(&world->bounds, worker->class, world_silence_ns(world, worker));
    if (worker->first_step < 0 && class >= HANG_DATA && class <= HANG_COLLECTIVE)
        worker->first_step = worker->step = step;
    sign.first_step = step == worker->first_step;
    class = hang_class_of(&sign);
    if (worker->local_rank == 0)
        count_steps(world, worker, class, step);
    if (worker->first_step >= 0)
        worker->step = step;
    worker->class = class;
    worker->changed_ns = now;
    worker->patience = (struct hang_patience){ 0 };
}

/* Writes an event about which bounds are learned, if more are than before. */
static void tell_bounds(struct world *world)
{
    struct events_field fields[HANG_CLASSES + 1];
    unsigned learned = 0;
    int n = 0;

    for (int i = 0; i < HANG_CLASSES; i++) {
        if (!hang_bounds_learned(&world->bounds, (enum hang_class)i))
            continue;
        learned |= 1U << i;
        fields[n++] = EVENT_REAL(hang_class_name((enum hang_class)i),
                                 (double)hang_bounds_of(&world->bounds, (enum hang_class)i) / 1e9);
    }
    fields[n] = EVENT_END;
    if ((learned & ~world->told_learned) != 0)
        world_record(world, "hang_bounds", fields);
    world->told_learned = learned;
}

/*
 * Returns for how long this process did not run. It saw no sign of life in that time, so no rank counts as
 * silent for it.
 */
static int64_t stood_still_ns(struct world *world)
{
    const uint64_t now = uv_hrtime(), before = world->signs_ns;

    world->signs_ns = now;
    return before != 0 && now - before > (uint64_t)STILL_NS ? (int64_t)(now - before) : 0;
}

static void look_for_signs(struct world *world)
{
    const int64_t still_ns = stood_still_ns(world);
    bool beats = false;

    if (still_ns > 0)
        world_life_shift(world, still_ns);
    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const struct fsdp_progress *page = link_server_page(world->links, i);
        const uint64_t signs = hang_signs(page);

        worker->changed_ns += still_ns;
        if (still_ns > 0)
            worker->patience.asked_ns = 0; /* that time is not excused once more */
        if (signs == worker->seen_beat)
            continue;
        worker->seen_beat = signs;
        if (!worker->heart.used)
            take_sign(world, worker, page);
        beats = true;
    }
    if (beats)
        world_life_shown(world, 0);
    world_life_look(world);
    if (world->config->job_json != NULL)
        tell_bounds(world);
}

pid_t world_held(const struct worker *worker)
{
    const struct process_held *held = &worker->patience.held;
    char place[128];

    return held->pid != 0 && descendants_state(held->pid, place, sizeof place) == held->state
               ? held->pid
               : worker->child.pid;
}

/*
 * Returns the state of a rank: of its process, or of a process below it that is held. A single moment in
 * state D does not count.
 */
static int state_of(const struct worker *worker)
{
    const pid_t pid = world_held(worker);
    char place[128];
    const char state = descendants_state(pid, place, sizeof place);

    return process_state_is_held(state) && pid != worker->patience.held.pid ? 'R' : state & 0x7f;
}

/* Prints that a rank waits in the kernel, as a reason why its silence is not reported as a hang. */
static void tell_waiting(struct world *world, struct worker *worker)
{
    const int64_t now = world_now_ns(world), bound = world_bound_ns(world, worker);
    char place[128], words[256];

    if (worker->patience.held.state != 'D' || bound <= 0 || now - worker->changed_ns <= bound ||
        (world->told_waiting_ns != 0 && now - world->told_waiting_ns < TELL_EVERY_NS))
        return;
    descendants_state(worker->patience.held.pid, place, sizeof place);
    snprintf(
        words, sizeof words,
        "rank %d has shown no progress for %.0f s and sleeps in the kernel (state D, in %.64s), as for a "
        "disk: it is reported as hung after %.0f s",
        worker->rank, (double)(now - worker->changed_ns) / 1e9, place,
        (double)(bound + excuse_ns(world, worker)) / 1e9);
    world_say(world, words);
    world->told_waiting_ns = now;
}

/*
 * Adds the counts of a rank's process and of all processes below it. A shell that waits for its Python is
 * held if that Python is.
 */
static void take_toll(struct process_toll *toll, pid_t root)
{
    pid_t pids[WORLD_PROCESSES];
    const size_t n = descendants_living_below(root, pids, WORLD_PROCESSES);

    *toll = (struct process_toll){ 0 };
    for (size_t i = 0; i < n; i++)
        process_toll_add(toll, "/proc", pids[i]);
}

/* From time to time, reads what has kept the silent ranks from running. */
static void look_for_excuses(struct world *world)
{
    const int64_t now = world_now_ns(world);
    struct process_toll toll;

    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const int64_t quarter_ns = world_bound_ns(world, worker) / 4,
                      every_ns =
                          quarter_ns > 0 && quarter_ns < EXCUSES_EVERY_NS ? quarter_ns : EXCUSES_EVERY_NS;

        if (!worker->live || now - worker->changed_ns < 2 * every_ns ||
            now - worker->patience.asked_ns < every_ns)
            continue;
        take_toll(&toll, worker->child.pid);
        hang_excuse(&worker->patience, now, &toll);
        tell_waiting(world, worker);
    }
}

void world_forget_silence(struct world *world)
{
    world->life.shown_ns = world_now_ns(world);
    for (int i = 0; i < world->config->n_workers; i++) {
        world->workers[i].changed_ns = world_now_ns(world);
        world->workers[i].patience = (struct hang_patience){ 0 };
    }
}

static bool has_suspects(const struct world *world)
{
    for (int i = 0; i < world->config->n_workers; i++)
        if (is_suspect(world, &world->workers[i]))
            return true;
    return false;
}

static void report_suspects(struct world *world, int64_t now)
{
    world->suspected_ns = now;
    world->reporter.suspects(world->reporter.to, world->plan.generation);
}

void world_look_for_hang(struct world *world)
{
    const int64_t now = world_now_ns(world);
    const struct worker *culprit = world_account_culprit(world);

    if (!is_on(world)) {
        world_account_drop(world);
        return;
    }
    look_for_signs(world);
    look_for_excuses(world);
    if (culprit != NULL ? !is_suspect(world, culprit) : !world_account_shows(world) && !has_suspects(world))
        world_account_drop(world); /* the culprit has gone on, or ended */
    if (world->account != NULL && !world_account_look(world))
        return;
    if (!has_suspects(world)) {
        if (world->plan.n_nodes > 1 && hang_life_wants_news(&world->life, now, world->suspected_ns))
            report_suspects(world, now);
        return;
    }
    if (world->plan.n_nodes > 1 && world->suspected_ns != 0 && now - world->suspected_ns < SUSPECT_EVERY_NS)
        return;
    if (world->life.limit_ns > 0 && world->account == NULL && world_account_begin(world, NULL, ""))
        return;
    report_suspects(world, now);
}

/* Fills in what a program's rank has shown. The coordinator adds the phase. */
static void read_life(const struct world *world, const struct worker *worker, struct hang_rank *rank)
{
    const struct python_stack *stack = world_account_stack(world, worker->local_rank);

    rank->program = true;
    rank->step = worker->heart.step;
    snprintf(rank->layer, sizeof rank->layer, "%s",
             stack != NULL ? python_stack_line(stack) : worker->heart.phase);
    rank->python = stack != NULL;
    rank->waits = stack != NULL && stack->waits;
}

void world_answer(struct world *world, int generation, uint64_t question, int64_t shown_ns)
{
    if (!is_on(world) || generation != world->plan.generation)
        return;
    look_for_signs(world);
    if (shown_ns != INT64_MAX)
        world_life_shown(world, shown_ns);
    for (int i = 0; i < world->config->n_workers && is_on(world); i++) {
        const struct worker *worker = &world->workers[i];
        struct fsdp_progress *page = link_server_page(world->links, i);
        struct hang_rank rank = { .rank = world->plan.first_rank + i,
                                  .local_rank = i,
                                  .pid = worker->live ? worker->child.pid : 0,
                                  .answered = true,
                                  .live = worker->live,
                                  .hearts = worker->heart.used };

        if (world->life.limit_ns > 0)
            rank.shown_ns = 1 + world_now_ns(world) - world->life.shown_ns;
        hang_rank_read(&rank, page);
        if (world_life_has(world, worker))
            read_life(world, worker, &rank);
        if (worker->live && page != NULL) {
            /* both include the time in state D, because the words about a hang say how long it lasted */
            rank.bound_ns = world_bound_ns(world, worker) + world_blocked_ns(world, worker);
            rank.silent_ns = world_silence_ns(world, worker) + world_blocked_ns(world, worker);
        }
        if (worker->live)
            rank.state = state_of(worker);
        rank.still = rank.state == 'S' && worker->patience.still_ns >= HANG_STILL_S * INT64_C(1000000000);
        world->reporter.rank(world->reporter.to, world->plan.generation, question, &rank);
    }
}

void world_show(struct world *world, int generation)
{
    if (is_on(world) && generation == world->plan.generation)
        world_account_show(world);
}

void world_hung(struct world *world, int generation, int rank, const char *words)
{
    const int i = rank - world->plan.first_rank;

    if (!is_on(world) || generation != world->plan.generation || world_account_culprit(world) != NULL ||
        i < 0 || i >= world->config->n_workers)
        return;
    look_for_signs(world);
    if (!is_suspect(world, &world->workers[i]))
        return; /* the rank has gone on, or ended, since this node's answer */
    if (world->account != NULL)
        world_account_name(world, &world->workers[i], words);
    else
        world_account_begin(world, &world->workers[i], words);
    world_proceed(world);
}
