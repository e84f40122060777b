/*
 * A world on an operating system of the test's own. That system kills what the test lets it kill, and its
 * children end when and how the test wants. Loop, timers, links and descriptors are real.
 */
#ifndef UNIT_AGENT_FAKE_WORLD_H
#define UNIT_AGENT_FAKE_WORLD_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/watch/hang_verdict.h"
#include "agent/world/world_impl.h"

enum {
    MAX_CHILDREN = 64,
    FIRST_PID = 900000000 /* beyond every pid_max: /proc has none of them */
};

struct fake_child {
    int event; /* our end of its "pidfd": written when it ends */
    int exec;  /* our end of its start, until its exec is over; -1: nothing waits for that */
    bool ended, reaped;
    siginfo_t info; /* how it ended */
    int signals[32], n_signals;
};

struct fake_os {
    struct agent_os base;
    struct fake_child children[MAX_CHILDREN];
    int n_children, n_spawns;
    int fail_spawn_at; /* the nth call refuses; 0: none */
    bool exec_refuses; /* ... because the program cannot be executed */
    bool deaf;         /* children end by KILL only */
    bool immortal;     /* nor by that */
    int64_t later_ns;  /* the clock is so far ahead of the real one */
    int link_fd;       /* the last child's end of its link; 0: none */
    int lock_fd;       /* what the last child was to close first */
};

static inline void end_child(struct fake_os *os, int i, int code, int status)
{
    struct fake_child *child = &os->children[i];

    if (child->ended)
        return;
    child->ended = true;
    /*
     * One after another: pid and status are parts of one union member, which an initialiser of both would
     * halve.
     */
    memset(&child->info, 0, sizeof child->info);
    child->info.si_code = code;
    child->info.si_pid = FIRST_PID + i;
    child->info.si_status = status;
    cr_assert_eq(eventfd_write(child->event, 1), 0);
}

static inline bool fake_spawn(void *arg, const struct os_spawn *spawn, struct os_child *out,
                              struct os_spawn_failure *failure)
{
    struct fake_os *os = arg;
    struct fake_child *child = &os->children[os->n_children];
    int fd;

    cr_assert_not_null(spawn->path);
    if (++os->n_spawns == os->fail_spawn_at) {
        *failure = (struct os_spawn_failure){ .call = os->exec_refuses ? "execve" : "clone",
                                              .error = os->exec_refuses ? ENOEXEC : EAGAIN,
                                              .exec = os->exec_refuses };
        return false;
    }
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *child = (struct fake_child){ .event = dup(fd), .exec = -1 };
    if (spawn->exec_fd != NULL) {
        int ends[2];

        cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        *spawn->exec_fd = ends[0];
        child->exec = ends[1];
    }
    if (os->link_fd > 0)
        close(os->link_fd);
    os->link_fd = dup(spawn->keep_fds[0]);
    os->lock_fd = spawn->lock_fd;
    *out = (struct os_child){ .pid = FIRST_PID + os->n_children++, .pidfd = fd };
    return true;
}

/* Its exec is over: `error` is its errno, or 0. */
static inline void end_exec(struct fake_os *os, int i, int error)
{
    struct fake_child *child = &os->children[i];

    if (error != 0)
        cr_assert_eq(write(child->exec, &error, sizeof error), (ssize_t)sizeof error);
    if (child->exec >= 0)
        close(child->exec);
    child->exec = -1;
    if (error != 0)
        end_child(os, i, CLD_EXITED, 127);
}

static inline enum os_exec fake_executed(void *arg, int exec_fd, struct os_spawn_failure *failure)
{
    int error = 0;
    const ssize_t n = read(exec_fd, &error, sizeof error);

    if (n < 0)
        return OS_EXEC_PENDING;
    *failure = (struct os_spawn_failure){ .call = "execve", .error = error, .exec = true };
    return n > 0 ? OS_EXEC_FAILED : OS_EXEC_DONE;
}

static inline int fake_kill_group(void *arg, const struct os_child *child, int signal)
{
    struct fake_os *os = arg;
    const int i = child->pid - FIRST_PID;
    struct fake_child *target = &os->children[i];

    cr_assert(!target->reaped, "a child that is gone is signalled");
    if (target->n_signals < 32)
        target->signals[target->n_signals++] = signal;
    if (signal == SIGCONT || os->immortal || (signal != SIGKILL && os->deaf))
        return 0;
    end_child(os, i, CLD_KILLED, signal);
    return 0;
}

static inline bool fake_reap(void *arg, const struct os_child *child, siginfo_t *info)
{
    struct fake_os *os = arg;
    struct fake_child *target = &os->children[child->pid - FIRST_PID];

    cr_assert(!target->reaped, "a child is reaped twice");
    if (!target->ended)
        return false;
    target->reaped = true;
    *info = target->info;
    return true;
}

static inline int64_t fake_now_ns(void *arg)
{
    const struct fake_os *os = arg;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + os->later_ns;
}

/* A world, and what it tells */

enum { MAX_DEATHS = 64 };

struct told {
    struct death deaths[MAX_DEATHS];
    int n_deaths, n_stopped, n_left_behind, n_unkilled;
    bool ended;
    char account[8192]; /* JSON of the hang's; empty: none came */
    int n_storm;        /* so many signals come while an end is told */
};

static struct fake_os os;
static struct told told;
static struct agent_config config;
static struct os_baseline baseline;
static struct world *world;
static bool with_disk;
static struct disk *disk; /* NULL: files are opened, and programs executed, on the loop */
static struct rundir *rundir;
static uv_loop_t loop;
static char *argv[] = { "/bin/sh", NULL };
static char *environment[] = { "PATH=/bin", NULL };

static inline void on_exited(void *arg, int generation, const struct death *death,
                             const struct errors_detail *detail)
{
    cr_assert_lt(told.n_deaths, MAX_DEATHS);
    told.deaths[told.n_deaths++] = *death;
    for (; told.n_storm > 0; told.n_storm--) {
        world_stop(world, SIGTERM, told.n_storm % 2 == 0);
        world_notify(world, &(struct fsdp_link_notice){ .kind = FSDP_NOTICE_SAVE_AND_STOP });
    }
}

static inline void on_explained(void *arg, int generation, const char *json, size_t length)
{
    cr_assert_eq(told.account[0], '\0', "a hang is explained once");
    cr_assert_lt(length, sizeof told.account);
    memcpy(told.account, json, length + 1);
}

static inline void on_stopped(void *arg, int generation)
{
    told.n_stopped++;
}

static inline void on_unkilled(void *arg, int n)
{
    told.n_unkilled = n;
    cr_assert(n == 0 || told.n_stopped == 0, "before the generation is reported to be over");
}

static inline void on_record(void *arg, int generation, const char *event, const struct events_field *fields)
{
    told.n_left_behind += strcmp(event, "left_behind") == 0;
}

static inline void on_put(void *arg, int generation, const char *key, const void *value, size_t size_bytes)
{
}

static inline void on_want(void *arg, int generation, const char *key)
{
}

/* The coordinator of one node: it asks for the ranks, judges them and names the culprit. */
static struct hang_rank answers[MAX_CHILDREN];

static inline void on_rank(void *arg, int generation, uint64_t question, const struct hang_rank *rank)
{
    answers[rank->local_rank] = *rank;
}

static inline void on_suspects(void *arg, int generation)
{
    struct hang_verdict verdict;
    char words[HANG_WORDS_BYTES];

    world_answer(world, generation, 1, INT64_MAX);
    cr_assert(hang_verdict_reach(&verdict, answers, config.n_workers));
    if (verdict.kind != HANG_NONE)
        world_hung(world, generation, verdict.ranks[0], hang_words(&verdict, answers, words));
}

static inline void on_ended(void *arg)
{
    told.ended = true;
}

static inline int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;

    cr_assert_not_null(directory);
    while (readdir(directory) != NULL)
        n++;
    closedir(directory);
    return n;
}

/* What a test changes of it, and of `os`, it changes before begin() or start(). */
static inline void make_config(void)
{
    agent_config_init(&config);
    config.argv = argv;
    environ = environment;
}

static inline void begin(int n_workers, int64_t grace_ms)
{
    static const struct placement placement = { .threads = 1 };
    struct world_services services = {
        .loop = &loop, .os = &os.base, .baseline = &baseline, .placement = &placement, .ended = on_ended
    };
    const struct reporter reporter = { .exited = on_exited,
                                       .explained = on_explained,
                                       .stopped = on_stopped,
                                       .unkilled = on_unkilled,
                                       .record = on_record,
                                       .put = on_put,
                                       .want = on_want,
                                       .suspects = on_suspects,
                                       .rank = on_rank };

    told = (struct told){ 0 };
    os.base = (struct agent_os){ .arg = &os,
                                 .spawn = fake_spawn,
                                 .executed = fake_executed,
                                 .kill_group = fake_kill_group,
                                 .reap = fake_reap,
                                 .now_ns = fake_now_ns };
    config.n_workers = n_workers;
    config.grace_ms = grace_ms;
    cr_assert_eq(uv_loop_init(&loop), 0);
    if (with_disk)
        cr_assert_eq(disk_create(&disk, &loop, NULL), FSDP_OK);
    services.disk = disk;
    services.rundir = rundir;
    cr_assert_eq(world_create(&world, &config, &services, &reporter, NULL), FSDP_OK);
}

static inline void form(int generation)
{
    struct world_plan plan = {
        .generation = generation, .world_size = config.n_workers, .n_nodes = 1, .resume_step = -1, .term = 7
    };

    world_form(world, &plan);
}

static inline void start(int n_workers, int64_t grace_ms)
{
    begin(n_workers, grace_ms);
    form(0);
}

/* Until `*flag` is at least `want`; a bug that never comes there is ended by the test's time limit. */
static inline void run_until(const int *flag, int want)
{
    while (*flag < want)
        uv_run(&loop, UV_RUN_ONCE);
}

static inline void count_tick(uv_timer_t *timer)
{
    ++*(int *)timer->data;
}

/* What is ready now, and what follows from it. */
static inline void run_ready(void)
{
    for (int i = 0; i < 4; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static inline void note_closed(uv_handle_t *handle)
{
    *(int *)handle->data = 1;
}

/* The pages have been looked at `n` times more. */
static inline void run_looks(int n)
{
    uv_timer_t timer;
    int n_looks = 0, closed = 0;

    uv_timer_init(&loop, &timer);
    timer.data = &n_looks;
    uv_timer_start(&timer, count_tick, 250, 250);
    run_until(&n_looks, n);
    timer.data = &closed;
    /* it is on this stack: wait until the loop has let go of it */
    uv_close((uv_handle_t *)&timer, note_closed);
    run_until(&closed, 1);
}

static inline void finish(void)
{
    if (world == NULL)
        return;
    world_end(world);
    while (!told.ended || !disk_is_idle(disk))
        uv_run(&loop, UV_RUN_ONCE);
    disk_close(disk);
    disk = NULL;
    world_destroy(world);
    world = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle is left");
    for (int i = 0; i < os.n_children; i++) {
        close(os.children[i].event);
        end_exec(&os, i, 0);
    }
    if (os.link_fd > 0)
        close(os.link_fd);
    os = (struct fake_os){ 0 };
}

static inline int was_sent(int child, int signal)
{
    int n = 0;

    for (int i = 0; i < os.children[child].n_signals; i++)
        n += os.children[child].signals[i] == signal;
    return n;
}

/* What the first loop of a process opens for good is no leak. */
static inline int descriptors_before(void)
{
    begin(1, 0);
    finish();
    return count_descriptors();
}

#endif
