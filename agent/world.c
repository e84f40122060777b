#include "agent/world.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cpus.h"
#include "agent/descendants.h"
#include "agent/progress.h"
#include "agent/worker_env.h"
#include "agent/world_fsm.h"

extern char **environ;

enum {
    BLAME_MS = 1000,  /* how long we wait for the one that went first to show */
    DRAIN_MS = 1000,  /* for what a finished worker left running, between TERM and KILL */
    KILL_MS = 5000,   /* for what was sent KILL; then it is left behind */
    SWEEP_EVERY_MS = 10,
    LOOK_EVERY_MS = 250,
    QUEUE_LENGTH = 64,
};

struct world {
    const struct agent_config *config;
    struct world_services services;
    struct world_listener listener;
    struct world_plan plan;
    enum world_state state;
    struct worker *workers; /* of the generation; its handles are closed before the next is formed */
    int n_live, n_worker_handles;
    struct link_server *links;
    bool noticed, running;
    enum world_event queue[QUEUE_LENGTH];
    int queue_head, queue_n;
    uv_timer_t deadline, sweep, look;
    int64_t deadline_ns; /* 0: none */
    int n_timers;
    struct progress_clock clock;
    char host[DEATH_HOST_BYTES];
};

static void world_run(struct world *world);

static int64_t now_ns(const struct world *world)
{
    return world->services.os->now_ns(world->services.os->arg);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void post(struct world *world, enum world_event event)
{
    if (world->queue_n == QUEUE_LENGTH)
        return; /* cannot be: a worker posts two at most between runs, and runs follow each of them */
    world->queue[(world->queue_head + world->queue_n++) % QUEUE_LENGTH] = event;
}

static void say(const struct world *world, const char *words)
{
    console_say(world->services.console, "fsdprun: %s", words);
}

/* --- deadlines ---------------------------------------------------------------------------------------------------- */

static void on_deadline(uv_timer_t *timer)
{
    struct world *world = timer->data;

    world->deadline_ns = 0;
    post(world, WE_DEADLINE);
    world_run(world);
}

static void set_deadline(struct world *world, int64_t ms)
{
    uv_update_time(world->services.loop);
    world->deadline_ns = now_ns(world) + ms * 1000000;
    uv_timer_start(&world->deadline, on_deadline, (uint64_t)ms, 0);
}

static void clear_deadline(struct world *world)
{
    world->deadline_ns = 0;
    uv_timer_stop(&world->deadline);
    uv_timer_stop(&world->sweep);
}

void world_suspended(struct world *world, int64_t slept_ns)
{
    if (world->deadline_ns != 0) {
        int64_t left_ns = world->deadline_ns + slept_ns - now_ns(world);

        set_deadline(world, left_ns < 0 ? 0 : left_ns / 1000000);
    }
    if (world->workers == NULL)
        return;
    for (int i = 0; i < world->config->n_workers; i++)
        world->workers[i].changed_ns += slept_ns;
}

/* --- exits -------------------------------------------------------------------------------------------------------- */

static void on_worker_closed(uv_handle_t *handle)
{
    struct worker *worker = handle->data;
    struct world *world = worker->world;

    close(worker->child.pidfd);
    worker->child.pidfd = -1;
    world->n_worker_handles--;
    world_run(world); /* a generation may be waiting for the last of them */
}

static void stop_watching(struct worker *worker)
{
    if (!worker->polled) {
        close(worker->child.pidfd);
        worker->child.pidfd = -1;
        return;
    }
    worker->polled = false;
    uv_close((uv_handle_t *)&worker->poll, on_worker_closed);
}

static void record_exit(const struct world *world, const struct worker *worker)
{
    const struct death *death = &worker->death;
    const bool killed = death->kind == DEATH_SIGNAL;

    world->listener.record(world->listener.arg, world->plan.generation, "exit",
                           (struct events_field[]){ EVENT_INT("rank", worker->rank), EVENT_INT("pid", death->pid),
                                                    EVENT_INT(killed ? "signal" : "code", death->code), EVENT_END });
}

static void worker_exited(struct world *world, struct worker *worker, const siginfo_t *info)
{
    worker_ended(worker, info, world->noticed, link_server_page(world->links, worker->local_rank), now_ns(world));
    link_server_drop(world->links, worker->local_rank); /* its last events and reports come first */
    record_exit(world, worker);
    stop_watching(worker);
    world->n_live--;
    world->listener.exited(world->listener.arg, world->plan.generation, &worker->death);
    if (worker->death.kind == DEATH_EXIT &&
        (worker->death.code == FSDP_EXIT_PEER || worker->death.code == FSDP_EXIT_LINK))
        post(world, WE_PEER_LOST);
    else if (worker->death.kind != DEATH_NONE)
        post(world, WE_FAILED);
    if (world->n_live == 0)
        post(world, WE_REAPED);
}

static void look_at_worker(struct world *world, struct worker *worker)
{
    siginfo_t info;

    if (worker->live && world->services.os->reap(world->services.os->arg, &worker->child, &info))
        worker_exited(world, worker, &info);
}

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    struct worker *worker = poll->data;
    struct world *world = worker->world;

    (void)status;
    (void)events;
    look_at_worker(world, worker);
    world_run(world);
}

static struct worker *worker_of(const struct world *world, pid_t pid)
{
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        if (world->workers[i].live && world->workers[i].child.pid == pid)
            return &world->workers[i];
    return NULL;
}

/* Reap orphans that came to us; true while there is any child. Workers are left to their pidfd. */
static bool reap_orphans(struct world *world)
{
    siginfo_t info;

    for (;;) {
        struct worker *worker;

        memset(&info, 0, sizeof info);
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        if (info.si_pid == 0)
            return true;
        worker = worker_of(world, info.si_pid);
        if (worker != NULL)
            look_at_worker(world, worker);
        else
            waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
    }
}

void world_reap(struct world *world)
{
    bool any = reap_orphans(world);

    if (!any && (world->state == WS_DRAINING || world->state == WS_SWEEPING) && world->deadline_ns != 0)
        post(world, WE_SWEPT);
    world_run(world);
}

/* --- links -------------------------------------------------------------------------------------------------------- */

static void on_link_saved(void *arg, int rank, const struct fsdp_link_saved *saved, int manifest_fd)
{
    struct world *world = arg;

    world->listener.saved(world->listener.arg, world->plan.generation, rank, saved, manifest_fd);
}

static void on_link_event(void *arg, int rank, const char *json, size_t length)
{
    struct world *world = arg;

    world->listener.event(world->listener.arg, world->plan.generation, rank, json, length);
}

static void on_link_broken(void *arg, int rank, const char *words)
{
    struct world *world = arg;

    console_say(world->services.console, "fsdprun: rank %d: its link was closed: %s", rank, words);
}

static void on_link_put(void *arg, const char *key, const void *value, size_t size_bytes)
{
    struct world *world = arg;

    if (world->listener.put != NULL)
        world->listener.put(world->listener.arg, world->plan.generation, key, value, size_bytes);
}

void world_publish(struct world *world, const struct fsdp_link_published *published)
{
    if (world->links != NULL)
        link_server_publish(world->links, published);
}

void world_put(struct world *world, int generation, const char *key, const void *value, size_t size_bytes)
{
    struct fsdp_err err = { 0 };

    if (world->links == NULL || generation != world->plan.generation || world->state == WS_DOWN)
        return; /* of a generation that is over, or not begun here: fenced */
    if (link_server_put(world->links, key, value, size_bytes, &err) != FSDP_OK)
        say(world, err.message);
}

/* --- the actions -------------------------------------------------------------------------------------------------- */

static void report_death(struct world *world, struct worker *worker)
{
    worker->death.when_ns = now_ns(world);
    world->listener.exited(world->listener.arg, world->plan.generation, &worker->death);
}

static bool make_links(struct world *world, struct fsdp_err *err)
{
    const struct link_server_handlers handlers = { .arg = world, .saved = on_link_saved, .event = on_link_event,
                                                   .broken = on_link_broken, .put = on_link_put };

    link_server_destroy(world->links);
    world->links = NULL;
    return link_server_create(&world->links, world->services.loop, world->config->n_workers, &handlers, err) == FSDP_OK;
}

static bool start_worker(struct world *world, const struct worker_context *context, int i, int lookup_error)
{
    struct worker *worker = &world->workers[i];

    if (lookup_error != 0) {
        *worker = (struct worker){ .rank = context->plan->first_rank + i, .local_rank = i, .child = { .pidfd = -1 } };
        worker->death = (struct death){ .rank = worker->rank, .local_rank = i, .node_rank = context->plan->node_rank,
                                        .step = -1, .phase = -1 };
        snprintf(worker->death.host, sizeof worker->death.host, "%s", world->host);
        worker_cannot_start(&worker->death, world->config->argv[0], lookup_error, false);
        return false;
    }
    if (!worker_start(worker, context, i))
        return false;
    worker->world = world;
    world->n_live++;
    world->listener.record(world->listener.arg, world->plan.generation, "spawn",
                           (struct events_field[]){ EVENT_INT("rank", worker->rank),
                                                    EVENT_INT("pid", worker->child.pid), EVENT_END });
    if (uv_poll_init(world->services.loop, &worker->poll, worker->child.pidfd) == 0) {
        worker->poll.data = worker;
        worker->polled = true;
        world->n_worker_handles++;
        uv_poll_start(&worker->poll, UV_READABLE, on_pidfd);
    } /* else: SIGCHLD finds it all the same */
    return true;
}

static void spawn_all(struct world *world)
{
    const struct agent_config *config = world->config;
    char *const *environment = config->environment != NULL ? config->environment : environ;
    char program[RUNDIR_PATH_BYTES];
    struct worker_context context = {
        .config = config, .os = world->services.os, .baseline = world->services.baseline, .plan = &world->plan,
        .rundir = world->services.rundir, .logs = world->services.logs, .environment = environment,
        .program = program, .host = world->host,
        .threads = config->threads > 0 ? config->threads : cpus_available() / config->n_workers,
    };
    struct fsdp_err err = { 0 };
    int error;

    context.threads = context.threads < 1 ? 1 : context.threads;
    world->noticed = false;
    free(world->workers);
    world->workers = calloc((size_t)config->n_workers, sizeof *world->workers);
    if (world->workers == NULL || !make_links(world, &err)) {
        say(world, world->workers == NULL ? "out of memory" : err.message);
        post(world, WE_FAILED);
        post(world, WE_REAPED);
        return;
    }
    context.links = world->links;
    error = os_find_program(config->argv[0], worker_env_find(environment, "PATH"), config->directory, program,
                            sizeof program);
    for (int i = 0; i < config->n_workers; i++) {
        if (start_worker(world, &context, i, error))
            continue;
        report_death(world, &world->workers[i]);
        post(world, WE_FAILED);
        break;
    }
    if (world->n_live == 0)
        post(world, WE_REAPED);
}

static void signal_all(struct world *world, int signal)
{
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        worker_signal(&world->workers[i], world->services.os, signal);
}

static void kill_all(struct world *world)
{
    signal_all(world, SIGKILL);
    descendants_signal(SIGKILL, NULL, 0);
}

/* What forks while it is being killed needs another pass. */
static void on_sweep(uv_timer_t *timer)
{
    struct world *world = timer->data;

    descendants_signal(SIGKILL, NULL, 0);
    world_reap(world);
}

static void sweep(struct world *world)
{
    kill_all(world);
    set_deadline(world, KILL_MS);
    uv_timer_start(&world->sweep, on_sweep, SWEEP_EVERY_MS, SWEEP_EVERY_MS);
    if (!reap_orphans(world) && world->n_live == 0)
        post(world, WE_SWEPT);
}

static void drain(struct world *world)
{
    if (!reap_orphans(world)) {
        set_deadline(world, DRAIN_MS); /* what follows clears it */
        post(world, WE_SWEPT);
        return;
    }
    descendants_signal(SIGTERM, NULL, 0);
    set_deadline(world, DRAIN_MS);
}

static void read_word(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];
    ssize_t n = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, out, size - 1);
        close(fd);
    }
    out[n > 0 ? n : 0] = '\0';
}

/* KILL does not reach a process that sleeps inside the kernel: name it, say where it sleeps, go on without it. */
static void abandon(struct world *world)
{
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        char stat[512], place[128], *state;

        if (!worker->live)
            continue;
        read_word(worker->child.pid, "stat", stat, sizeof stat);
        read_word(worker->child.pid, "wchan", place, sizeof place);
        state = strrchr(stat, ')');
        console_say(world->services.console,
                    "fsdprun: rank %d (pid %d) cannot be killed: state %c, waits in %s; it is left behind", worker->rank,
                    (int)worker->child.pid, state != NULL && state[1] != '\0' ? state[2] : '?',
                    place[0] != '\0' ? place : "?");
        worker->live = false;
        world->n_live--;
        stop_watching(worker);
    }
    if (reap_orphans(world))
        say(world, "processes that the workers left running could not be killed and are left behind");
}

static void abort_others(struct world *world)
{
    if (world->links != NULL)
        link_server_abort(world->links);
}

static void tell_down(struct world *world)
{
    if (world->services.logs != NULL)
        logs_end_generation(world->services.logs);
    world->listener.stopped(world->listener.arg, world->plan.generation);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct world *world = handle->data;

    if (--world->n_timers == 0)
        world->listener.ended(world->listener.arg);
}

static void close_all(struct world *world)
{
    link_server_destroy(world->links);
    world->links = NULL;
    uv_close((uv_handle_t *)&world->deadline, on_timer_closed);
    uv_close((uv_handle_t *)&world->sweep, on_timer_closed);
    uv_close((uv_handle_t *)&world->look, on_timer_closed);
}

static void perform(struct world *world, enum world_action action)
{
    switch (action) {
    case WA_NONE:
        return;
    case WA_SPAWN:
        spawn_all(world);
        return;
    case WA_ABORT:
        abort_others(world);
        set_deadline(world, BLAME_MS);
        return;
    case WA_NOTIFY:
        set_deadline(world, world->config->grace_ms);
        return;
    case WA_CLEAR:
        abort_others(world);
        /* fall through */
    case WA_TERM:
        signal_all(world, SIGTERM);
        signal_all(world, SIGCONT); /* one that is stopped takes its TERM only when it goes on */
        set_deadline(world, world->config->grace_ms);
        return;
    case WA_KILL:
        kill_all(world);
        set_deadline(world, KILL_MS);
        uv_timer_start(&world->sweep, on_sweep, SWEEP_EVERY_MS, SWEEP_EVERY_MS);
        return;
    case WA_DRAIN:
        drain(world);
        return;
    case WA_SWEEP:
        sweep(world);
        return;
    case WA_ABANDON:
        abandon(world);
        tell_down(world);
        return;
    case WA_DOWN:
        tell_down(world);
        return;
    case WA_CLOSE:
        close_all(world);
        return;
    case WA_UNSET:
    case WA_COUNT:
        break;
    }
}

static void impossible(struct world *world, enum world_event event)
{
    console_say(world->services.console, "fsdprun: bug: event %s in state %s; stopping", world_event_name(event),
                world_state_name(world->state));
    kill_all(world);
}

/* A generation begins once nothing of the loop points into the one before. */
static bool must_wait(const struct world *world)
{
    const enum world_event event = world->queue[world->queue_head];

    return (event == WE_FORM || event == WE_END) && world->n_worker_handles > 0;
}

static void world_run(struct world *world)
{
    if (world->running)
        return; /* an action's callback: the loop below goes on with what it posted */
    world->running = true;
    while (world->queue_n > 0 && !must_wait(world)) {
        enum world_event event = world->queue[world->queue_head];
        enum world_state before = world->state;
        enum world_action action;

        world->queue_head = (world->queue_head + 1) % QUEUE_LENGTH;
        world->queue_n--;
        if (!world_fsm_step(&world->state, event, &action)) {
            impossible(world, event);
            continue;
        }
        if (world->state != before)
            clear_deadline(world);
        perform(world, action);
    }
    world->running = false;
}

/* --- looking at the pages ----------------------------------------------------------------------------------------- */

static uint64_t read64(const _Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

static double as_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return bits == 0 ? (double)NAN : value; /* an untouched word */
}

void world_progress(const struct world *world, struct agent_progress *progress)
{
    *progress = (struct agent_progress){ .generation = world->plan.generation, .n_live = world->n_live,
                                         .total_steps = world->config->total_steps, .loss = (double)NAN,
                                         .grad_norm = (double)NAN, .tokens_per_s = (double)NAN,
                                         .stopping = world->state != WS_RUNNING };
    for (int i = world->config->n_workers - 1; i >= 0 && world->links != NULL; i--) {
        const struct fsdp_progress *page = link_server_page(world->links, i);
        uint64_t memory;

        if (page == NULL || read64(&page->beat_ns) == 0)
            continue;
        memory = read64(&page->memory_bytes);
        if (memory > progress->memory_bytes)
            progress->memory_bytes = memory;
        if (i > 0)
            continue; /* all ranks say the same; the first one is shown */
        progress->step = read64(&page->step);
        if (read64(&page->total_steps) != 0)
            progress->total_steps = read64(&page->total_steps);
        progress->loss = as_double(read64(&page->loss_bits));
        progress->grad_norm = as_double(read64(&page->grad_norm_bits));
        progress->tokens_per_s = as_double(read64(&page->tokens_per_s_bits));
        progress->phase = (enum fsdp_phase)atomic_load_explicit(&page->phase, memory_order_relaxed);
    }
}

/*
 * Every rank stands still; who holds the others up? One that is in fewer collectives than the rest has not come
 * to where they wait; among equals, one that is not waiting in a collective; then the one that stood still first.
 */
static struct worker *find_culprit(const struct world *world)
{
    struct worker *best = NULL;
    uint64_t best_seq = 0;
    bool best_waits = false;

    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const struct fsdp_progress *page = link_server_page(world->links, i);
        uint64_t seq;
        bool waits;

        if (!worker->live || page == NULL)
            continue;
        seq = read64(&page->collective_seq);
        waits = atomic_load_explicit(&page->phase, memory_order_relaxed) == FSDP_PHASE_COLLECTIVE;
        if (best == NULL || seq < best_seq || (seq == best_seq && best_waits && !waits) ||
            (seq == best_seq && best_waits == waits && worker->changed_ns < best->changed_ns)) {
            best = worker;
            best_seq = seq;
            best_waits = waits;
        }
    }
    return best;
}

static void report_hang(struct world *world, struct worker *worker)
{
    const struct fsdp_progress *page = link_server_page(world->links, worker->local_rank);
    struct death hang = worker->death;

    hang.kind = DEATH_HANG;
    hang.code = SIGKILL;
    hang.when_ns = now_ns(world);
    hang.step = (int64_t)read64(&page->step);
    hang.phase = (int)atomic_load_explicit(&page->phase, memory_order_relaxed);
    snprintf(hang.words, sizeof hang.words, "no progress for %lld s", (long long)(world->config->hang_timeout_ms / 1000));
    world->listener.exited(world->listener.arg, world->plan.generation, &hang);
    worker_signal(worker, world->services.os, SIGKILL); /* it would not listen to TERM; the others get theirs */
    post(world, WE_FAILED);
}

/* The two signals of a hang: a rank that has made a step, and then neither beat nor exit for too long. */
static void look_for_hang(struct world *world)
{
    const int64_t now = now_ns(world);
    bool hangs = false;

    if (world->config->hang_timeout_ms <= 0 || (world->state != WS_RUNNING && world->state != WS_LEAVING))
        return;
    for (int i = 0; i < world->config->n_workers; i++) {
        struct worker *worker = &world->workers[i];
        const struct fsdp_progress *page = link_server_page(world->links, i);
        uint64_t beat;

        if (!worker->live || page == NULL)
            continue;
        beat = read64(&page->beat_ns);
        if (beat != worker->seen_beat) {
            worker->seen_beat = beat;
            worker->changed_ns = now;
        } else if (beat != 0 && read64(&page->step) > 0 &&
                   now - worker->changed_ns > world->config->hang_timeout_ms * 1000000) {
            hangs = true;
        }
    }
    if (hangs)
        report_hang(world, find_culprit(world));
}

static void draw_progress(struct world *world)
{
    const struct agent_config *config = world->config;
    struct agent_progress progress;
    char line[512];
    int64_t now = now_ns(world);

    if (config->job_json == NULL)
        return;
    world_progress(world, &progress);
    if (config->observer.progress != NULL)
        config->observer.progress(config->observer.arg, &progress);
    if (!config->output.bar || !console_is_tty(world->services.console))
        return;
    progress_note(&world->clock, &progress, now);
    console_status(world->services.console,
                   progress_line(line, sizeof line, console_width(world->services.console), config->output.color,
                                 &progress, progress_left_s(&world->clock, &progress, now)));
}

static void on_look(uv_timer_t *timer)
{
    struct world *world = timer->data;

    if (world->state == WS_DOWN || world->workers == NULL || world->links == NULL)
        return;
    look_for_hang(world);
    draw_progress(world);
    world_run(world);
}

/* --- from outside ------------------------------------------------------------------------------------------------- */

enum fsdp_status world_create(struct world **out, const struct agent_config *config,
                              const struct world_services *services, const struct world_listener *listener,
                              struct fsdp_err *err)
{
    struct world *world = calloc(1, sizeof *world);
    uv_timer_t *timers[3];

    *out = NULL;
    if (world == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    world->config = config;
    world->services = *services;
    world->listener = *listener;
    world->state = WS_DOWN;
    if (gethostname(world->host, sizeof world->host - 1) < 0)
        snprintf(world->host, sizeof world->host, "?");
    timers[0] = &world->deadline;
    timers[1] = &world->sweep;
    timers[2] = &world->look;
    for (int i = 0; i < 3; i++) {
        uv_timer_init(services->loop, timers[i]);
        timers[i]->data = world;
        world->n_timers++;
    }
    uv_timer_start(&world->look, on_look, LOOK_EVERY_MS, LOOK_EVERY_MS);
    *out = world;
    return FSDP_OK;
}

void world_destroy(struct world *world)
{
    if (world == NULL)
        return;
    free(world->workers);
    free(world);
}

static void post_and_run(struct world *world, enum world_event event)
{
    post(world, event);
    world_run(world);
}

void world_form(struct world *world, const struct world_plan *plan)
{
    world->plan = *plan;
    post_and_run(world, WE_FORM);
}

void world_stop(struct world *world, bool now)
{
    post_and_run(world, now ? WE_STOP_NOW : WE_STOP);
}

void world_notify(struct world *world, const struct fsdp_link_notice *notice)
{
    if (world->links == NULL || world->state == WS_DOWN)
        return;
    world->noticed = true;
    link_server_notify(world->links, notice);
    post_and_run(world, WE_NOTICE);
}

void world_end(struct world *world)
{
    post_and_run(world, WE_END);
}

/* Does the process handle this signal, so that passing it on is no way to kill it? */
static bool catches(pid_t pid, int signal)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "SigCgt: %llx", &caught) == 1)
            break;
    fclose(file);
    return (caught >> (signal - 1) & 1) != 0;
}

void world_forward(struct world *world, int signal)
{
    for (int i = 0; world->workers != NULL && i < world->config->n_workers; i++)
        if (world->workers[i].live && catches(world->workers[i].child.pid, signal))
            kill(world->workers[i].child.pid, signal);
}

bool world_stderr_tail(struct world *world, int rank, struct errors_tail *tail)
{
    return world->services.logs != NULL && logs_stderr_tail(world->services.logs, rank, tail);
}
