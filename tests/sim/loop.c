/*
 * libuv's loops, as far as the product's code below the simulation uses them. A turn has libuv 1.44's order:
 * timers, idle handles, what has arrived, check handles, closed handles.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/wire/lookup.h"
#include "tests/sim/sim.h"

enum { ACTIVE = 1, CLOSING = 2 };

struct process *sim_current;
jmp_buf sim_turn;

static struct process *process_of(const uv_loop_t *loop)
{
    return loop->data;
}

/* Clocks */

int64_t sim_clock_of(const struct host *host)
{
    int64_t stood_ns = host->suspended_ns;

    return host->offset_ns + (int64_t)((double)(sim_now - stood_ns) * host->rate);
}

/* Returns when the clock of the host will show that time, if the host does not stand still until then. */
static int64_t true_time_of(const struct host *host, int64_t clock_ns)
{
    return (int64_t)((double)(clock_ns - host->offset_ns) / host->rate) + host->suspended_ns + 1000;
}

/* The clock of the wall is set while it is read, to any time of 60 years: nothing may be decided by it. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    int64_t now = sim_current == NULL ? sim_now : sim_clock_of(sim_current->host);

    if (clock == CLOCK_REALTIME)
        now = sim_between(SIM_CLOCKS, 0, INT64_C(1900000000) * SECOND);
    *out = (struct timespec){ .tv_sec = now / SECOND, .tv_nsec = now % SECOND };
    return 0;
}

uint64_t uv_hrtime(void)
{
    return (uint64_t)sim_clock_of(sim_current->host);
}

uint64_t uv_now(const uv_loop_t *loop)
{
    return process_of(loop)->loop_ms;
}

void uv_update_time(uv_loop_t *loop)
{
    process_of(loop)->loop_ms = (uint64_t)(sim_clock_of(process_of(loop)->host) / MS);
}

ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
    if (sim_current == NULL) /* a sanitizer, before main() */
        return syscall(SYS_getrandom, bytes, size, flags);
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)sim_draw(SIM_AGENTS);
    return (ssize_t)size;
}

int gethostname(char *out, size_t size)
{
    snprintf(out, size, "host%d", sim_current->host->number);
    return 0;
}

/* Timers: the list is not sorted, because a process has few */

static uv_timer_t *next_of(const uv_timer_t *timer)
{
    return timer->heap_node[0];
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
    timer->flags = 0;
    timer->loop = loop;
    timer->type = UV_TIMER;
    return 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
    uv_timer_t **link = &process_of(timer->loop)->timers;

    if (!(timer->flags & ACTIVE))
        return 0;
    timer->flags &= ~(unsigned)ACTIVE;
    while (*link != timer)
        link = (uv_timer_t **)&(*link)->heap_node[0];
    *link = next_of(timer);
    return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb run, uint64_t timeout_ms, uint64_t repeat_ms)
{
    struct process *process = process_of(timer->loop);

    if (timer->flags & CLOSING)
        return UV_EINVAL;
    uv_timer_stop(timer);
    timer->timer_cb = run;
    timer->timeout = process->loop_ms + timeout_ms;
    timer->repeat = repeat_ms;
    timer->start_id = process->n_timers_started++;
    timer->flags |= ACTIVE;
    timer->heap_node[0] = process->timers;
    process->timers = timer;
    return 0;
}

static uv_timer_t *first_timer(const struct process *process)
{
    uv_timer_t *first = process->timers;

    for (uv_timer_t *timer = first; timer != NULL; timer = next_of(timer))
        if (timer->timeout < first->timeout ||
            (timer->timeout == first->timeout && timer->start_id < first->start_id))
            first = timer;
    return first;
}

static void run_timers(struct process *process)
{
    const uint64_t last = process->n_timers_started; /* those that start now wait for the next turn */

    for (uv_timer_t *timer; (timer = first_timer(process)) != NULL;) {
        if (timer->timeout > process->loop_ms || timer->start_id >= last)
            return;
        uv_timer_stop(timer);
        if (timer->repeat > 0)
            uv_timer_start(timer, timer->timer_cb, timer->repeat, timer->repeat);
        timer->timer_cb(timer);
    }
}

/* Idle and check handles: the product has one of each a pool */

int uv_idle_init(uv_loop_t *loop, uv_idle_t *idle)
{
    idle->flags = 0;
    idle->loop = loop;
    idle->type = UV_IDLE;
    return 0;
}

int uv_check_init(uv_loop_t *loop, uv_check_t *check)
{
    check->flags = 0;
    check->loop = loop;
    check->type = UV_CHECK;
    return 0;
}

/* A list is linked by `next_closing`, which an open handle does not use. */
static void add_handle(void *list, void *handle)
{
    uv_handle_t **first = list, *added = handle;

    if (added->flags & ACTIVE)
        return;
    added->flags |= ACTIVE;
    added->next_closing = *first;
    *first = added;
}

static void remove_handle(void *list, void *handle)
{
    uv_handle_t **link = list, *removed = handle;

    if (!(removed->flags & ACTIVE))
        return;
    removed->flags &= ~(unsigned)ACTIVE;
    while (*link != removed)
        link = &(*link)->next_closing;
    *link = removed->next_closing;
}

int uv_idle_start(uv_idle_t *idle, uv_idle_cb run)
{
    idle->idle_cb = run;
    add_handle(&process_of(idle->loop)->idles, idle);
    return 0;
}

int uv_idle_stop(uv_idle_t *idle)
{
    remove_handle(&process_of(idle->loop)->idles, idle);
    return 0;
}

int uv_check_start(uv_check_t *check, uv_check_cb run)
{
    check->check_cb = run;
    add_handle(&process_of(check->loop)->checks, check);
    return 0;
}

int uv_check_stop(uv_check_t *check)
{
    remove_handle(&process_of(check->loop)->checks, check);
    return 0;
}

/* Signals: SIGCHLD; the others come by run_signal() */

int uv_signal_init(uv_loop_t *loop, uv_signal_t *handle)
{
    handle->flags = 0;
    handle->loop = loop;
    handle->type = UV_SIGNAL;
    return 0;
}

int uv_signal_start(uv_signal_t *handle, uv_signal_cb run, int signum)
{
    handle->signal_cb = run;
    handle->signum = signum;
    return 0;
}

/* All handles */

int uv_is_active(const uv_handle_t *handle)
{
    return (handle->flags & ACTIVE) != 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb run)
{
    struct process *process = process_of(handle->loop);

    if (handle->flags & CLOSING)
        sim_violated("no bug", "a handle is closed twice");
    if (handle->type == UV_TIMER)
        uv_timer_stop((uv_timer_t *)handle);
    else if (handle->type == UV_IDLE)
        uv_idle_stop((uv_idle_t *)handle);
    else if (handle->type == UV_CHECK)
        uv_check_stop((uv_check_t *)handle);
    handle->flags |= CLOSING;
    handle->close_cb = run;
    handle->next_closing = process->closing;
    process->closing = handle;
}

static void run_closing(struct process *process)
{
    for (uv_handle_t *handle; (handle = process->closing) != NULL;) {
        process->closing = handle->next_closing;
        if (handle->close_cb != NULL)
            handle->close_cb(handle);
    }
}

/* Work of libuv's threads, and look-ups of names: done after a time, by the next turn */

struct work {
    struct work *next;
    struct process *process;
    bool due;
    uv_work_t *request;
    uv_work_cb work;
    uv_after_work_cb after;
    struct lookup *lookup;
    void (*run)(void *arg); /* of sim_later() */
    void *arg;
};

struct lookup {
    char host[64], service[16];
    lookup_done *done;
    void *arg;
    bool cancelled;
};

static void work_is_due(void *what, uint64_t number)
{
    struct work *work = what;

    (void)number;
    work->due = true;
    sim_wake(work->process);
}

static void add_work(struct process *process, int64_t after_ns, const struct work *model)
{
    struct work *work = malloc(sizeof *work);

    *work = *model;
    work->process = process;
    work->next = process->works;
    process->works = work;
    sim_at(sim_now + after_ns, work_is_due, work, 0);
}

int uv_queue_work(uv_loop_t *loop, uv_work_t *request, uv_work_cb run, uv_after_work_cb after)
{
    request->loop = loop;
    add_work(process_of(loop), sim_between(SIM_AGENTS, 0, 30 * MS),
             &(struct work){ .request = request, .work = run, .after = after });
    return 0;
}

void sim_later(struct process *process, int64_t after_ns, void (*run)(void *arg), void *arg)
{
    add_work(process, after_ns, &(struct work){ .run = run, .arg = arg });
}

enum fsdp_status lookup_begin(struct lookup **out, uv_loop_t *loop, const char *host, const char *service,
                              uint64_t within_ms, lookup_done *done, void *arg, struct fsdp_err *err)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);

    (void)within_ms;
    (void)err;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->service, sizeof lookup->service, "%s", service != NULL ? service : "0");
    lookup->done = done;
    lookup->arg = arg;
    add_work(process_of(loop), sim_between(SIM_AGENTS, 0, 30 * MS), &(struct work){ .lookup = lookup });
    *out = lookup;
    return FSDP_OK;
}

void lookup_cancel(struct lookup *lookup)
{
    if (lookup != NULL)
        lookup->cancelled = true;
}

static void answer_lookup(const struct lookup *lookup)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *found = NULL;

    if (lookup->cancelled)
        return;
    if (getaddrinfo(lookup->host, lookup->service, &hints, &found) != 0)
        found = NULL;
    lookup->done(lookup->arg, found, found == NULL ? "no such name" : NULL);
}

static void run_works(struct process *process)
{
    for (struct work **link = &process->works, *work; (work = *link) != NULL;) {
        if (!work->due) {
            link = &work->next;
            continue;
        }
        *link = work->next;
        if (work->lookup != NULL) {
            answer_lookup(work->lookup);
        } else if (work->run != NULL) {
            work->run(work->arg);
        } else {
            work->work(work->request);
            work->after(work->request, 0);
        }
        link = &process->works; /* the callee may have added some */
    }
}

/* Turns */

static void turn(void *what, uint64_t number);

static void turn_at(struct process *process, int64_t when)
{
    if (!process->alive || when >= process->turn_at)
        return;
    process->turn_at = when;
    sim_at(when, turn, process, ++process->turn_number);
}

void sim_wake(struct process *process)
{
    turn_at(process, sim_now + sim_between(SIM_AGENTS, 5000, 200000));
}

static void turn(void *what, uint64_t number)
{
    struct process *process = what;
    struct host *host = process->host;

    if (!process->alive || number != process->turn_number)
        return;
    process->turn_at = NEVER;
    if (sim_now < host->stalled_until) {
        turn_at(process, host->stalled_until);
        return;
    }
    sim_current = process;
    if (setjmp(sim_turn) == 0) {
        uv_update_time(&process->loop);
        run_timers(process);
        for (uv_idle_t *idle = process->idles; idle != NULL; idle = (uv_idle_t *)idle->next_closing)
            idle->idle_cb(idle);
        sim_net_deliver(process);
        run_works(process);
        world_reap(&process->world);
        uv_update_time(&process->loop);
        for (uv_check_t *check = process->checks, *next; check != NULL; check = next) {
            next = (uv_check_t *)check->next_closing;
            check->check_cb(check);
        }
        run_closing(process);
        sim_check(process);
        if (process->leaving && (process->stuck || sim_loop_is_empty(process))) {
            sim_trace("fsdprun ends with %d", process->status);
            process->alive = false;
            process->ended_at = sim_now;
            sim_net_end(process, false);
        }
    }
    sim_current = NULL;
    if (process->idles != NULL || process->ready != NULL || process->closing != NULL)
        turn_at(process, sim_now + 10000);
    if (process->timers != NULL)
        turn_at(process, true_time_of(host, (int64_t)first_timer(process)->timeout * MS));
}

void sim_loop_begin(struct process *process)
{
    process->loop.data = process;
    process->turn_at = NEVER;
    process->ready_end = &process->ready;
    uv_update_time(&process->loop);
}

bool sim_loop_is_empty(const struct process *process)
{
    return process->timers == NULL && process->closing == NULL && process->works == NULL &&
           process->peers == NULL && process->listeners == NULL;
}
