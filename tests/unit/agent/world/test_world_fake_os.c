/*
 * The world's libuv glue on an operating system of ours: it starts what we say, kills what we let it kill, and its
 * children end when and how we want. Loop, timers, links and descriptors are real.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/world/world_impl.h"

enum {
    MAX_CHILDREN = 64,
    MAX_DEATHS = 64,
    FIRST_PID = 900000000 /* beyond every pid_max: /proc has none of them */
};

struct fake_child {
    int event; /* our end of its "pidfd": written when it ends */
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
};

static void end_child(struct fake_os *os, int i, int code, int status)
{
    struct fake_child *child = &os->children[i];

    if (child->ended)
        return;
    child->ended = true;
    /* One after another: pid and status are parts of one union member, which an initialiser of both would halve. */
    memset(&child->info, 0, sizeof child->info);
    child->info.si_code = code;
    child->info.si_pid = FIRST_PID + i;
    child->info.si_status = status;
    cr_assert_eq(eventfd_write(child->event, 1), 0);
}

static bool fake_spawn(void *arg, const struct os_spawn *spawn, struct os_child *out,
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
    *child = (struct fake_child){ .event = dup(fd) };
    if (os->link_fd > 0)
        close(os->link_fd);
    os->link_fd = dup(spawn->keep_fds[0]);
    *out = (struct os_child){ .pid = FIRST_PID + os->n_children++, .pidfd = fd };
    return true;
}

static int fake_kill_group(void *arg, const struct os_child *child, int signal)
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

static bool fake_reap(void *arg, const struct os_child *child, siginfo_t *info)
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

static int64_t fake_now_ns(void *arg)
{
    const struct fake_os *os = arg;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + os->later_ns;
}

/* --- a world, and what it tells ----------------------------------------------------------------------------------- */

struct told {
    struct death deaths[MAX_DEATHS];
    int n_deaths, n_stopped, n_left_behind;
    bool ended;
};

static struct fake_os os;
static struct told told;
static struct agent_config config;
static struct os_baseline baseline;
static struct world *world;
static uv_loop_t loop;
static char *argv[] = { "/bin/sh", NULL };
static char *environment[] = { "PATH=/bin", NULL };

static void on_exited(void *arg, int generation, const struct death *death,
                      const struct errors_detail *detail)
{
    (void)arg;
    (void)generation;
    (void)detail;
    cr_assert_lt(told.n_deaths, MAX_DEATHS);
    told.deaths[told.n_deaths++] = *death;
}

static void on_stopped(void *arg, int generation)
{
    (void)arg;
    (void)generation;
    told.n_stopped++;
}

static void on_event(void *arg, int generation, int rank, const char *json, size_t length)
{
    (void)arg;
    (void)generation;
    (void)rank;
    (void)json;
    (void)length;
}

static void on_saved(void *arg, int generation, int rank, const struct fsdp_link_saved *saved,
                     int manifest_fd)
{
    (void)arg;
    (void)generation;
    (void)rank;
    (void)saved;
    if (manifest_fd >= 0)
        close(manifest_fd);
}

static void on_record(void *arg, int generation, const char *event, const struct events_field *fields)
{
    (void)arg;
    (void)generation;
    (void)fields;
    told.n_left_behind += strcmp(event, "left_behind") == 0;
}

static void on_ended(void *arg)
{
    (void)arg;
    told.ended = true;
}

static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;

    cr_assert_not_null(directory);
    while (readdir(directory) != NULL)
        n++;
    closedir(directory);
    return n;
}

static void begin(int n_workers, int64_t grace_ms)
{
    static const struct placement placement = { .threads = 1 };
    struct world_services services = {
        .loop = &loop, .os = &os.base, .baseline = &baseline, .placement = &placement
    };
    const struct world_listener listener = { .exited = on_exited,
                                             .stopped = on_stopped,
                                             .event = on_event,
                                             .saved = on_saved,
                                             .record = on_record,
                                             .ended = on_ended };

    told = (struct told){ 0 };
    os.n_children = os.n_spawns = 0;
    os.base = (struct agent_os){ .arg = &os,
                                 .spawn = fake_spawn,
                                 .kill_group = fake_kill_group,
                                 .reap = fake_reap,
                                 .now_ns = fake_now_ns };
    agent_config_init(&config);
    config.argv = argv;
    config.environment = environment;
    config.n_workers = n_workers;
    config.grace_ms = grace_ms;
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(world_create(&world, &config, &services, &listener, NULL), FSDP_OK);
}

static void form(int generation)
{
    struct world_plan plan = {
        .generation = generation, .world_size = config.n_workers, .n_nodes = 1, .resume_step = -1
    };

    world_form(world, &plan);
}

/* Until `*flag` is at least `want`; a bug that never comes there is ended by the test's time limit. */
static void run_until(const int *flag, int want)
{
    while (*flag < want)
        uv_run(&loop, UV_RUN_ONCE);
}

static void count_tick(uv_timer_t *timer)
{
    ++*(int *)timer->data;
}

/* What is ready now, and what follows from it. */
static void run_ready(void)
{
    for (int i = 0; i < 4; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static void note_closed(uv_handle_t *handle)
{
    *(int *)handle->data = 1;
}

/* The pages have been looked at `n` times more. */
static void run_looks(int n)
{
    uv_timer_t timer;
    int n_looks = 0, closed = 0;

    uv_timer_init(&loop, &timer);
    timer.data = &n_looks;
    uv_timer_start(&timer, count_tick, 250, 250);
    run_until(&n_looks, n);
    timer.data = &closed;
    uv_close((uv_handle_t *)&timer, note_closed); /* it is on this stack: wait until the loop has let go of it */
    run_until(&closed, 1);
}

static void finish(void)
{
    world_end(world);
    while (!told.ended)
        uv_run(&loop, UV_RUN_ONCE);
    world_destroy(world);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle is left");
    for (int i = 0; i < os.n_children; i++)
        close(os.children[i].event);
    if (os.link_fd > 0)
        close(os.link_fd);
    os.link_fd = 0;
}

static int was_sent(int child, int signal)
{
    int n = 0;

    for (int i = 0; i < os.children[child].n_signals; i++)
        n += os.children[child].signals[i] == signal;
    return n;
}

/* What the first loop of a process opens for good is no leak. */
static int descriptors_before(void)
{
    os = (struct fake_os){ 0 };
    begin(1, 0);
    finish();
    return count_descriptors();
}

/* --- the tests ---------------------------------------------------------------------------------------------------- */

Test(world_fake_os, a_start_that_fails_at_the_nth_worker_ends_the_others_and_leaks_nothing, .timeout = 600)
{
    enum { N = 4 };
    const int before = descriptors_before();

    for (int kind = 0; kind < 2; kind++)
        for (int nth = 1; nth <= N + 1; nth++) {
            os = (struct fake_os){ .fail_spawn_at = nth, .exec_refuses = kind == 1 };
            begin(N, 30000);

            form(0);
            if (nth > N) /* none fails */
                for (int i = 0; i < N; i++)
                    end_child(&os, i, CLD_EXITED, 0);
            run_until(&told.n_stopped, 1);

            cr_assert_eq(os.n_children, nth - 1, "failing call %d", nth);
            cr_assert_eq(told.n_deaths, nth > N ? N : nth, "failing call %d", nth);
            if (nth <= N) {
                cr_assert_eq(told.deaths[0].kind, DEATH_SPAWN, "failing call %d", nth);
                cr_assert_eq(told.deaths[0].rank, nth - 1);
                cr_assert_eq(told.deaths[0].code, kind == 1 ? 126 : FSDP_EXIT_PEER);
                cr_assert_eq(first_cause_find(told.deaths, (size_t)told.n_deaths), 0);
            }
            for (int i = 0; i < os.n_children; i++)
                cr_assert(nth > N || was_sent(i, SIGTERM) == 1, "failing call %d, child %d", nth, i);
            finish();
            cr_assert_eq(told.n_stopped, 1);
            cr_assert_eq(count_descriptors(), before, "failing call %d", nth);
        }
}

/* Three workers that end in every order, each in every way; what follows is checked against a model of two lines. */
Test(world_fake_os, exits_in_every_order_are_told_once_and_the_cause_is_the_first, .timeout = 1200)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                      { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    static const struct {
        int code, status;
    } ways[4] = {
        { CLD_EXITED, 0 }, { CLD_EXITED, 3 }, { CLD_KILLED, SIGSEGV }, { CLD_EXITED, FSDP_EXIT_PEER }
    };

    for (int order = 0; order < 6; order++)
        for (int combination = 0; combination < 64; combination++) {
            const int way[3] = { combination & 3, combination >> 2 & 3, combination >> 4 };
            int want = -1, cause;

            os = (struct fake_os){ 0 };
            begin(3, 30000);
            form(0);

            for (int k = 0; k < 3; k++) {
                const int i = orders[order][k];

                if (!os.children[i].ended && (way[i] == 1 || way[i] == 2) && want < 0)
                    want = i; /* the first that failed by itself; the others are stopped by then */
                end_child(&os, i, ways[way[i]].code, ways[way[i]].status);
                run_ready();
            }
            run_until(&told.n_stopped, 1);

            cr_assert_eq(told.n_deaths, 3, "order %d, ways %d", order, combination);
            cr_assert_eq(told.n_stopped, 1);
            cause = first_cause_find(told.deaths, 3);
            if (want >= 0)
                cr_assert_eq(told.deaths[cause].rank, want, "order %d, ways %d: rank %d", order, combination,
                             told.deaths[cause].rank);
            else if (combination == 0)
                cr_assert_eq(cause, -1);
            else
                cr_assert_eq(told.deaths[cause].code, FSDP_EXIT_PEER, "order %d, ways %d", order,
                             combination);
            for (int i = 0; i < 3; i++) /* each rank once */
                cr_assert_eq(
                    (told.deaths[0].rank == i) + (told.deaths[1].rank == i) + (told.deaths[2].rank == i), 1);
            finish();
        }
}

Test(world_fake_os, workers_are_stopped_by_the_signal_that_stops_the_run, .timeout = 300)
{
    os = (struct fake_os){ .deaf = true };
    begin(2, 60000);
    form(0);

    world_stop(world, SIGINT, false);
    world_stop(world, SIGTERM, false);
    run_ready();

    for (int i = 0; i < 2; i++) {
        cr_expect_eq(os.children[i].n_signals, 2);
        cr_expect_eq(os.children[i].signals[0], SIGINT);
        cr_expect_eq(os.children[i].signals[1], SIGCONT, "one that is stopped is woken to take it");
    }
    cr_expect_eq(told.n_stopped, 0, "the grace runs");

    world_stop(world, SIGINT, true);
    run_until(&told.n_stopped, 1);

    for (int i = 0; i < 2; i++) {
        cr_expect_geq(was_sent(i, SIGKILL), 1);
        cr_expect_eq(told.deaths[i].sent_signal, SIGINT);
        cr_expect(told.deaths[i].killed);
        cr_expect(first_cause_is_consequence(&told.deaths[i]));
    }
    finish();
}

Test(world_fake_os, the_next_generation_is_not_stopped_by_the_signal_of_the_last, .timeout = 300)
{
    os = (struct fake_os){ 0 };
    begin(1, 60000);
    form(0);
    world_stop(world, SIGUSR1, false);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(os.children[0].signals[0], SIGUSR1);

    form(1);
    run_ready();
    end_child(&os, 1, CLD_EXITED, 0);
    run_until(&told.n_stopped, 2);
    cr_expect_eq(os.children[1].n_signals, 0);
    cr_expect_eq(told.deaths[1].kind, DEATH_NONE);
    finish();
}

Test(world_fake_os, without_grace_kill_comes_at_once, .timeout = 300)
{
    os = (struct fake_os){ .deaf = true };
    begin(2, 0);
    form(0);
    end_child(&os, 1, CLD_EXITED, 9);

    run_until(&told.n_stopped, 1);

    cr_expect_eq(was_sent(0, SIGTERM), 1);
    cr_expect_geq(was_sent(0, SIGKILL), 1);
    cr_expect_eq(told.deaths[0].rank, 1);
    cr_expect_eq(told.deaths[0].sent_signal, 0);
    finish();
}

/* Its workers ignore what asks them to end, and lose nothing: whatever stops them, the grace is not for that. */
Test(world_fake_os, workers_of_a_job_are_killed_at_once, .timeout = 300)
{
    for (int failure = 0; failure < 2; failure++) {
        os = (struct fake_os){ .deaf = true };
        begin(2, 60000);
        config.job_json = "{}";
        form(0);
        if (failure)
            end_child(&os, 1, CLD_EXITED, 9);
        else
            world_stop(world, SIGTERM, false);

        run_until(&told.n_stopped, 1);

        cr_expect_geq(was_sent(0, SIGKILL), 1);
        cr_expect_eq(was_sent(0, SIGTERM), 0);
        cr_expect_eq(was_sent(1, SIGTERM), 0);
        cr_expect(first_cause_is_consequence(&told.deaths[failure]));
        cr_expect(failure == !first_cause_is_consequence(&told.deaths[0]),
                  "the one that failed is the cause");
        finish();
    }
}

Test(world_fake_os, a_kill_that_does_nothing_is_not_waited_for, .timeout = 600)
{
    const int before = descriptors_before();
    int64_t began;

    os = (struct fake_os){ .deaf = true, .immortal = true };
    begin(2, 0);
    form(0);
    began = fake_now_ns(&os);

    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);

    cr_expect_geq(fake_now_ns(&os) - began, INT64_C(4900000000), "5 s after KILL");
    cr_expect_eq(told.n_left_behind, 2);
    cr_expect_eq(told.n_deaths, 0, "they have not died");

    os.deaf = os.immortal = false; /* a further generation is not held up by them */
    form(1);
    run_ready(); /* it begins once the handles of the one before are closed */
    end_child(&os, 2, CLD_EXITED, 0);
    end_child(&os, 3, CLD_EXITED, 0);
    run_until(&told.n_stopped, 2);
    cr_expect_eq(told.n_deaths, 2);
    finish();
    cr_expect_eq(count_descriptors(), before);
}

/* It was never heard of: stopped, or stuck in a library, before it opened its link. */
Test(world_fake_os, a_worker_of_a_job_that_never_begins_is_a_hang_in_every_generation, .timeout = 300)
{
    os = (struct fake_os){ 0 };
    begin(2, 30000);
    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    for (int generation = 0; generation < 2; generation++) {
        form(generation);
        os.later_ns += 6000 * 1000000LL;
        run_until(&told.n_stopped, generation + 1);

        cr_assert_eq(told.deaths[3 * generation].kind, DEATH_HANG);
        cr_expect_eq(told.deaths[3 * generation].phase, FSDP_PHASE_START);
        cr_expect_eq(told.deaths[3 * generation].step, -1);
        cr_expect_eq(first_cause_find(&told.deaths[3 * generation], 3), 0);
    }
    finish();
}

Test(world_fake_os, a_program_that_shows_no_progress_is_no_hang, .timeout = 300)
{
    os = (struct fake_os){ 0 };
    begin(1, 30000);
    config.hang_timeout_ms = 5000;
    form(0);
    os.later_ns = 3600 * 1000000000LL;
    run_looks(4);
    cr_expect_eq(told.n_deaths, 0);
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_NONE);
    finish();
}

/* A sign of life of a worker, as it leaves it on its page. */
static void show(int worker, uint64_t beat, enum fsdp_phase phase, uint64_t step)
{
    struct fsdp_progress *page = link_server_page(world->links, worker);

    atomic_store(&page->beat_ns, beat);
    atomic_store(&page->step, step);
    atomic_store(&page->phase, (uint32_t)phase);
}

Test(world_fake_os, a_program_of_the_library_is_watched_from_its_first_step_on, .timeout = 300)
{
    os = (struct fake_os){ 0 };
    begin(1, 30000);
    config.hang_timeout_ms = 5000;
    form(0);
    show(0, 1, FSDP_PHASE_FORWARD, 0);
    run_looks(2);
    os.later_ns = 6000 * 1000000LL;
    run_looks(4);
    cr_assert_eq(told.n_deaths, 0);

    show(0, 2, FSDP_PHASE_FORWARD, 1);
    run_looks(2);
    os.later_ns += 6000 * 1000000LL;
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_HANG);
    cr_expect_eq(told.deaths[0].phase, FSDP_PHASE_FORWARD);
    finish();
}

Test(world_fake_os, a_rank_that_waits_is_no_hang_while_another_goes_on, .timeout = 300)
{
    os = (struct fake_os){ 0 };
    begin(2, 30000);
    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    form(0);
    show(0, 1, FSDP_PHASE_WAIT, 1);
    show(1, 1, FSDP_PHASE_SAVE, 1);
    run_looks(2);
    for (uint64_t beat = 2; beat < 5; beat++) {
        show(1, beat, FSDP_PHASE_SAVE, 1);
        os.later_ns += 6000 * 1000000LL;
        run_looks(4);
    }
    cr_assert_eq(told.n_deaths, 0);

    os.later_ns += 6000 * 1000000LL; /* now it does not go on either */
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_HANG);
    cr_expect_eq(told.deaths[0].rank, 1);
    finish();
}

Test(world_fake_os, a_wake_up_without_an_end_is_no_end, .timeout = 300)
{
    os = (struct fake_os){ 0 };
    begin(1, 60000);
    form(0);

    cr_assert_eq(eventfd_write(os.children[0].event, 1), 0);
    run_ready();
    world_reap(world);
    cr_expect_eq(told.n_deaths, 0);
    cr_expect_eq(told.n_stopped, 0);

    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.n_deaths, 1);
    finish();
}

/* A stop in each moment of a start and of an end: before, between and after the exits. */
Test(world_fake_os, a_stop_at_any_moment_leads_down, .timeout = 600)
{
    for (int moment = 0; moment <= 3; moment++)
        for (int now = 0; now < 2; now++) {
            os = (struct fake_os){ .deaf = now == 1 };
            begin(2, 60000);
            if (moment > 0)
                form(0);
            for (int i = 0; i < moment - 1; i++) {
                end_child(&os, i, CLD_EXITED, 0);
                run_ready();
            }

            world_stop(world, SIGTERM, now == 1);
            if (moment > 0)
                run_until(&told.n_stopped, 1);

            cr_assert_eq(told.n_stopped, moment > 0, "moment %d", moment);
            cr_assert_eq(told.n_deaths, moment > 0 ? 2 : 0, "moment %d", moment);
            finish();
        }
}

/* --- what outlives a generation ----------------------------------------------------------------------- */

static struct fsdp_link_hello read_hello(void)
{
    unsigned char packet[sizeof(struct fsdp_link_header) + sizeof(struct fsdp_link_hello)];
    struct fsdp_link_hello hello;

    cr_assert_eq(read(os.link_fd, packet, sizeof packet), sizeof packet);
    memcpy(&hello, packet + sizeof(struct fsdp_link_header), sizeof hello);
    return hello;
}

static void put(const char *key, const void *value, uint32_t size)
{
    unsigned char packet[sizeof(struct fsdp_link_header) + sizeof(struct fsdp_link_put) + 256] = { 0 };
    const struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC,
                                             .version = FSDP_LINK_VERSION,
                                             .type = FSDP_LINK_PUT,
                                             .size = (uint32_t)sizeof(struct fsdp_link_put) + size };
    struct fsdp_link_put names = { 0 };

    snprintf(names.key, sizeof names.key, "%s", key);
    memcpy(packet, &header, sizeof header);
    memcpy(packet + sizeof header, &names, sizeof names);
    memcpy(packet + sizeof header + sizeof names, value, size);
    cr_assert_eq(write(os.link_fd, packet, sizeof header + header.size),
                 (ssize_t)(sizeof header + header.size));
}

Test(world_fake_os, what_a_worker_keeps_is_in_the_hellos_of_the_next_generations, .timeout = 600)
{
    static const char too_long[FSDP_LINK_KEPT_BYTES + 1];
    const int before = descriptors_before();

    os = (struct fake_os){ 0 };
    begin(1, 30000);
    for (int generation = 0; generation < 4; generation++) {
        struct fsdp_link_hello hello;

        form(generation);
        hello = read_hello();
        cr_expect_eq(hello.kept_bytes, generation == 1 || generation == 2 ? 5 : 0, "generation %d",
                     generation);
        cr_expect(hello.kept_bytes == 0 || memcmp(hello.kept, "bytes", 5) == 0);
        put("another key", "x", 1);
        if (generation == 0)
            put(FSDP_LINK_KEPT_KEY, "bytes", 5);
        if (generation == 2)
            put(FSDP_LINK_KEPT_KEY, too_long, sizeof too_long);
        run_ready();
        end_child(&os, generation, CLD_EXITED, 0);
        run_until(&told.n_stopped, generation + 1);
    }
    finish();
    cr_assert_eq(count_descriptors(), before);
}
