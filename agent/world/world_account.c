/*
 * The account of a hang, on this node or on another. Before a hung rank is reported and then killed, a thread
 * looks at the process of every rank of this node (agent/os/process_look.h). It also asks programs for their
 * Python stacks (agent/watch/python_stacks.h). A thread does it, because a read of /proc can block. For a
 * program, the account decides which rank is the culprit, so it is made before one is named. The loop checks
 * for its results. After ACCOUNT_MS it goes on with what it has, and a thread that is still blocked is not
 * waited for.
 */
#include <assert.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/os/process_look.h"
#include "agent/watch/flight.h"
#include "agent/watch/hang_read.h"
#include "agent/watch/hang_report.h"
#include "agent/watch/python_stacks.h"
#include "agent/world/world_impl.h"
#include "shard_runtime/core/thread.h"

static_assert((int)FLIGHT_NAME_BYTES <= (int)HANG_NAME_BYTES, "a row holds any name of a progress page");

enum {
    ACCOUNT_MS = 1000,
    STALE_MS = 5000, /* if no culprit is named within this time, the account is made again */
    CHECK_MS = 20,   /* how often the progress pages are looked at while a thread looks at the processes */
};

/*
 * One rank to look at. The thread fills it in. The loop reads `look` once `looked` is set, and what is
 * known of its Python once `answered` is set. A file of /proc that blocks delays only what comes after it.
 */
struct sample {
    pid_t pid; /* 0: none lives */
    atomic_bool looked, answered;
    struct process_look look;
    struct process_look below; /* the process below a worker that is a shell; it may be the rank's Python */
};

/* What the loop and the thread share. The one of them that ends last frees it. */
struct samples {
    atomic_int n_users;
    int n;
    char directory[1024];
    struct python_ask *asks; /* (n) */
    struct sample of[];
};

struct world_account {
    struct samples *samples; /* one for each worker */
    struct worker *culprit;  /* NULL: not known yet */
    bool shows;              /* another node's hang waits for it */
    int64_t begun_ns;
    char words[HANG_WORDS_BYTES];
};

static void let_go(struct samples *samples)
{
    if (atomic_fetch_sub(&samples->n_users, 1) != 1)
        return;
    for (int i = 0; samples->asks != NULL && i < samples->n; i++)
        if (samples->asks[i].fd >= 0)
            close(samples->asks[i].fd);
    free(samples->asks);
    free(samples);
}

/* Returns whether a process below the worker must be looked at too, because it may be the rank's Python. */
static bool has_below(const struct samples *samples, int i)
{
    return samples->asks != NULL && samples->asks[i].python != 0 &&
           samples->asks[i].python != samples->of[i].pid;
}

/* The stacks are asked for last, because the signal for that changes what the kernel shows. */
static void *look_at_all(void *arg)
{
    struct samples *samples = arg;

    for (int i = 0; i < samples->n; i++) {
        struct sample *of = &samples->of[i];

        if (of->pid != 0)
            process_look(&of->look, "/proc", of->pid);
        atomic_store(&of->looked, true);
        atomic_store(&of->answered, samples->asks == NULL);
    }
    if (samples->asks != NULL)
        python_stacks_find(samples->asks, samples->n);
    for (int i = 0; i < samples->n; i++)
        if (has_below(samples, i))
            process_look(&samples->of[i].below, "/proc", samples->asks[i].python);
    if (samples->asks != NULL)
        python_stacks_take(samples->asks, samples->n, samples->directory);
    for (int i = 0; i < samples->n; i++)
        atomic_store(&samples->of[i].answered, true);
    let_go(samples);
    return NULL;
}

/* Gives the thread descriptors of its own, because the thread may keep running with them. */
static void prepare_asks(const struct world *world, struct samples *samples)
{
    if (world->life.limit_ns > 0)
        samples->asks = calloc((size_t)samples->n, sizeof *samples->asks);
    if (getcwd(samples->directory, sizeof samples->directory) == NULL)
        samples->directory[0] = '\0';
    for (int i = 0; samples->asks != NULL && i < samples->n; i++) {
        const struct worker *worker = &world->workers[i];

        samples->asks[i].worker = worker->live ? worker->child.pid : 0;
        samples->asks[i].worker_fd = worker->stacks_fd;
        samples->asks[i].fd = worker->stacks_fd > 0 ? fcntl(worker->stacks_fd, F_DUPFD_CLOEXEC, 3) : -1;
    }
}

static struct samples *take_samples(const struct world *world)
{
    const int n = world->config->n_workers;
    struct samples *samples = calloc(1, sizeof *samples + (size_t)n * sizeof *samples->of);

    if (samples == NULL)
        return NULL;
    samples->n = n;
    atomic_init(&samples->n_users, 2);
    for (int i = 0; i < n; i++)
        samples->of[i].pid = world->workers[i].live ? world_held(&world->workers[i]) : 0;
    prepare_asks(world, samples);
    if (thread_start(NULL, look_at_all, samples) == 0)
        return samples;
    atomic_store(&samples->n_users, 1);
    let_go(samples);
    return NULL;
}

/* The part of a rank's row that comes from its progress page and its flight recorder */

static void copy_words(char *to, size_t size, const char *from, size_t from_bytes)
{
    snprintf(to, size, "%.*s", (int)(from_bytes < size ? from_bytes : size - 1), from);
}

static void read_collective(struct hang_row *row, struct fsdp_progress *page, int64_t now_ns)
{
    const uint64_t number = atomic_load_explicit(&page->n_collectives, memory_order_acquire);
    const struct fsdp_flight_entry *entries = fsdp_flight(page);
    const struct fsdp_flight_entry *entry = &entries[number % FSDP_FLIGHT_ENTRIES];
    uint64_t ended_ns;

    if (number == 0 || atomic_load_explicit(&entry->number, memory_order_acquire) != number)
        return;
    row->collective.sequence = entry->sequence;
    row->collective.size_bytes = entry->size_bytes;
    flight_group_name(page, atomic_load_explicit(&entry->group, memory_order_relaxed), row->collective.group);
    copy_words(row->collective.kind, sizeof row->collective.kind, entry->kind, sizeof entry->kind);
    ended_ns = atomic_load_explicit(&entry->ended_ns, memory_order_acquire);
    if (ended_ns != 0)
        row->collective.ended_s_ago = (double)(now_ns - (int64_t)ended_ns) / 1e9;
}

static struct hang_row row_of(const struct world *world, const struct worker *worker,
                              const struct worker *culprit)
{
    struct fsdp_progress *page = link_server_page(world->links, worker->local_rank);
    const int64_t now = world_now_ns(world);
    struct hang_rank shown = { 0 };
    struct hang_row row = { .rank = worker->rank,
                            .pid = worker->child.pid,
                            .culprit = worker == culprit,
                            .host = world->host,
                            .step = worker->heart.step, /* only if the program reports step and phase */
                            .silent_s = (double)(now - worker->changed_ns) / 1e9,
                            .collective = { .ended_s_ago = (double)NAN } };
    int phase;

    snprintf(row.layer, sizeof row.layer, "%s", worker->heart.phase);
    if (world->config->job_json == NULL && hang_signs(page) == 0)
        return row;
    hang_rank_read(&shown, page);
    phase = hang_rank_phase(&shown);
    row.phase = first_cause_phase_name(phase);
    row.waits = phase == FSDP_PHASE_COLLECTIVE || phase == FSDP_PHASE_WAIT;
    if (page == NULL)
        return row;
    if (row.waits)
        row.pass = first_cause_phase_name(shown.pass);
    if (shown.step >= 0)
        row.step = shown.step;
    snprintf(row.layer, sizeof row.layer, "%s", shown.layer);
    read_collective(&row, page, now);
    return row;
}

/*
 * Fills in what the thread saw of a rank. If a Python below a shell has answered, it is that Python's state.
 */
static void read_sample(const struct world *world, struct hang_row *row, int i)
{
    const struct samples *samples = world->account->samples;
    const struct sample *of = &samples->of[i];

    row->looked = atomic_load(&of->looked);
    if (row->looked) {
        row->look = of->look;
        row->pid = of->pid;
    }
    row->python = world_account_stack(world, i);
    if (row->python != NULL && has_below(samples, i)) {
        row->look = of->below;
        row->pid = samples->asks[i].python;
    }
    if (world->config->python_stacks && samples->asks != NULL && atomic_load(&of->answered))
        row->python_missing = samples->asks[i].missing;
}

/* Reports what the ranks showed. If there is no memory for that, the hang is reported without it. */
static void report_account(const struct world *world, const struct world_account *account)
{
    const struct worker *culprit = account->culprit;
    struct hang_report report = { 0 };
    char *json;

    if (culprit != NULL)
        report.bound_s = (double)(world_bound_ns(world, culprit) + world_blocked_ns(world, culprit)) / 1e9;
    report.rows = calloc((size_t)world->config->n_workers, sizeof *report.rows);
    if (report.rows == NULL)
        return;
    for (int i = 0; i < world->config->n_workers; i++) {
        struct hang_row *row = &report.rows[report.n_rows];

        if (!world->workers[i].live)
            continue;
        *row = row_of(world, &world->workers[i], account->culprit);
        read_sample(world, row, i);
        report.n_rows++;
    }
    hang_report_sort(&report);
    json = report.n_rows > 0 ? hang_report_json(&report) : NULL;
    if (json != NULL)
        world->reporter.explained(world->reporter.to, world->plan.generation, json, strlen(json));
    free(json);
    free(report.rows);
}

static void report_hang(struct world *world, struct worker *worker, const char *words)
{
    struct fsdp_progress *page = link_server_page(world->links, worker->local_rank);
    struct hang_rank rank = { 0 };
    struct death hang = worker->death;

    hang.kind = DEATH_HANG;
    hang.code = SIGKILL;
    hang.when_ns = world_now_ns(world);
    hang.silent_ns = hang.when_ns - worker->changed_ns;
    /* a false alarm does not come again */
    hang_bounds_saw(&world->bounds, worker->class, world_silence_ns(world, worker));
    worker_read_place(&hang, page);
    hang_rank_read(&rank, page);
    hang.phase = hang_rank_phase(&rank); /* the phase is START if the process has not opened its link yet */
    if (world_life_has(world, worker)) {
        hang.phase = PROGRAM_STARTING; /* the coordinator knows whether it came further */
        hang.step = worker->heart.step;
    }
    snprintf(hang.words, sizeof hang.words, "%s", words);
    world_report(world, &hang, NULL);
    /* a watched program does not handle a request to save, and would only use up the grace period */
    if (world_life_has(world, worker))
        worker_end(worker, world->services.os, SIGKILL);
    world_post(world, WE_FAILED);
}

static bool is_complete(const struct samples *samples)
{
    for (int i = 0; i < samples->n; i++)
        if (!atomic_load(&samples->of[i].answered))
            return false;
    return true;
}

/*
 * Is any process below the workers traced by a debugger? The rank may run below a shell. The loop itself
 * asks, because a thread that is blocked in another file of /proc could not answer.
 */
static bool is_traced(const struct world *world)
{
    pid_t pids[WORLD_PROCESSES];

    for (int i = 0; i < world->config->n_workers; i++) {
        const struct worker *worker = &world->workers[i];
        size_t n = worker->live ? descendants_living_below(worker->child.pid, pids, WORLD_PROCESSES) : 0;

        for (size_t j = 0; j < n; j++)
            if (process_tracer("/proc", pids[j]) != 0)
                return true;
    }
    return false;
}

bool world_account_begin(struct world *world, struct worker *culprit, const char *words)
{
    struct world_account *account = calloc(1, sizeof *account);

    if (account != NULL)
        account->samples = take_samples(world);
    if (account == NULL || account->samples == NULL) {
        free(account);
        if (culprit != NULL)
            report_hang(world, culprit, words);
        return false;
    }
    account->begun_ns = world_now_ns(world);
    world->account = account;
    world_account_name(world, culprit, words);
    return true;
}

void world_account_show(struct world *world)
{
    if (world->account == NULL && !world_account_begin(world, NULL, ""))
        return;
    world->account->shows = true;
    world_look_soon(world, CHECK_MS);
}

bool world_account_shows(const struct world *world)
{
    return world->account != NULL && world->account->shows;
}

struct worker *world_account_culprit(const struct world *world)
{
    return world->account != NULL ? world->account->culprit : NULL;
}

void world_account_name(struct world *world, struct worker *culprit, const char *words)
{
    world->account->culprit = culprit;
    snprintf(world->account->words, sizeof world->account->words, "%s", words);
    world_look_soon(world, CHECK_MS);
}

const struct python_stack *world_account_stack(const struct world *world, int i)
{
    const struct samples *samples = world->account != NULL ? world->account->samples : NULL;

    if (samples == NULL || samples->asks == NULL || !atomic_load(&samples->of[i].answered) ||
        samples->asks[i].stack.n_frames == 0)
        return NULL;
    return &samples->asks[i].stack;
}

bool world_account_look(struct world *world)
{
    const struct world_account *account = world->account;
    const int64_t age_ms = (world_now_ns(world) - account->begun_ns) / 1000000;

    if (!is_complete(account->samples) && age_ms < ACCOUNT_MS) {
        world_look_soon(world, CHECK_MS);
        return false;
    }
    if (account->shows && account->culprit == NULL) {
        world->account->shows = false;
        report_account(world, account);
        /* no limit: the program is not watched, and this account does not decide which rank is the culprit */
        if (world->life.limit_ns == 0)
            world_account_drop(world);
        return true;
    }
    if (is_traced(world)) {
        if (!world->said_traced)
            world_say(world, "a debugger holds a rank: no hang is reported meanwhile");
        world->said_traced = true;
        world_forget_silence(world);
        world_account_drop(world);
        return false;
    }
    if (account->culprit == NULL && age_ms < STALE_MS)
        return true;
    if (account->culprit == NULL) {
        world_account_drop(world);
        return !world_account_begin(world, NULL, "");
    }
    report_account(world, account);
    report_hang(world, account->culprit, account->words);
    world_account_drop(world);
    return false;
}

void world_account_drop(struct world *world)
{
    if (world->account == NULL)
        return;
    let_go(world->account->samples);
    free(world->account);
    world->account = NULL;
}
