/* The world's libuv glue, on an operating system of the test's own. */
#include <poll.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "agent/os/deadlines.h"
#include "agent/os/descendants.h"
#include "tests/support/oracles/ends.h"
#include "tests/unit/agent/find_cause.h"
#include "tests/unit/agent/sleeping.h"
#include "tests/unit/agent/world/fake_world.h"

TestSuite(world_fake_os, .init = make_config, .fini = finish, .timeout = 1200);

Test(world_fake_os, a_start_that_fails_at_the_nth_worker_ends_the_others_and_leaks_nothing)
{
    enum { N = 4 };
    const int before = descriptors_before();

    for (int kind = 0; kind < 2; kind++)
        for (int nth = 1; nth <= N + 1; nth++) {
            os.fail_spawn_at = nth;
            os.exec_refuses = kind == 1;
            start(N, 30000);
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
                cr_assert_eq(find_cause(told.deaths, (size_t)told.n_deaths), 0);
            }
            for (int i = 0; i < os.n_children; i++)
                cr_assert(nth > N || was_sent(i, SIGTERM) == 1, "failing call %d, child %d", nth, i);
            finish();
            cr_assert_eq(told.n_stopped, 1);
            cr_assert_eq(count_descriptors(), before, "failing call %d", nth);
        }
}

/*
 * Three workers that end in every order, each in every way; what follows is checked against a model of two
 * lines.
 */
Test(world_fake_os, exits_in_every_order_are_told_once_and_the_cause_is_the_first)
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

            start(3, 30000);

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
            cause = find_cause(told.deaths, 3);
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

Test(world_fake_os, workers_are_stopped_by_the_signal_that_stops_the_run)
{
    os.deaf = true;
    start(2, 60000);

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
}

Test(world_fake_os, the_next_generation_is_not_stopped_by_the_signal_of_the_last)
{
    start(1, 60000);
    world_stop(world, SIGUSR1, false);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(os.children[0].signals[0], SIGUSR1);

    form(1);
    run_ready();
    end_child(&os, 1, CLD_EXITED, 0);
    run_until(&told.n_stopped, 2);
    cr_expect_eq(os.children[1].n_signals, 0);
    cr_expect_eq(told.deaths[1].kind, DEATH_NONE);
}

Test(world_fake_os, without_grace_kill_comes_at_once)
{
    os.deaf = true;
    start(2, 0);
    end_child(&os, 1, CLD_EXITED, 9);

    run_until(&told.n_stopped, 1);

    cr_expect_eq(was_sent(0, SIGTERM), 1);
    cr_expect_geq(was_sent(0, SIGKILL), 1);
    cr_expect_eq(told.deaths[0].rank, 1);
    cr_expect_eq(told.deaths[0].sent_signal, 0);
}

Test(world_fake_os, after_the_loss_of_a_node_the_grace_is_short_whether_or_not_it_has_begun)
{
    for (int begun = 0; begun < 2; begun++) {
        os.deaf = true;
        start(2, 60000);
        if (begun)
            world_stop(world, 0, false);

        world_lost(world);
        world_stop(world, 0, false);

        cr_expect_leq(world->deadline_ns - fake_now_ns(&os), LOST_GRACE_MS * INT64_C(1000000));
        cr_expect_eq(was_sent(0, SIGTERM), 1);
        world_stop(world, 0, true);
        run_until(&told.n_stopped, 1);

        form(1);
        run_ready();
        world_stop(world, 0, false);
        cr_expect_gt(world->deadline_ns - fake_now_ns(&os), 2 * LOST_GRACE_MS * INT64_C(1000000),
                     "the next generation has the whole grace");
        world_stop(world, 0, true);
        run_until(&told.n_stopped, 2);
        finish();
    }
}

/*
 * Its workers ignore what asks them to end, and lose nothing: whatever stops them, the grace is not for that.
 */
Test(world_fake_os, workers_of_a_job_are_killed_at_once)
{
    for (int failure = 0; failure < 2; failure++) {
        os.deaf = true;
        config.job_json = "{}";
        start(2, 60000);
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

Test(world_fake_os, a_kill_that_does_nothing_is_not_waited_for)
{
    const int before = descriptors_before();
    int64_t began;

    os.deaf = true;
    os.immortal = true;
    start(2, 0);
    began = fake_now_ns(&os);

    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);

    cr_expect_geq(fake_now_ns(&os) - began, INT64_C(4900000000), "5 s after KILL");
    cr_expect_eq(told.n_left_behind, 2);
    cr_expect_eq(told.n_unkilled, 2, "this node must not be seated again");
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
Test(world_fake_os, a_worker_of_a_job_that_never_begins_is_a_hang_in_every_generation)
{
    begin(2, 30000);
    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    for (int generation = 0; generation < 2; generation++) {
        told.account[0] = '\0';
        form(generation);
        os.later_ns += 6000 * 1000000LL;
        run_until(&told.n_stopped, generation + 1);

        cr_assert_eq(told.deaths[3 * generation].kind, DEATH_HANG);
        cr_expect_eq(told.deaths[3 * generation].phase, FSDP_PHASE_START);
        cr_expect_eq(told.deaths[3 * generation].step, -1);
        cr_expect_eq(find_cause(&told.deaths[3 * generation], 3), 0);
    }
}

/* A sign of life of a worker, as it leaves it on its page. */
static void show(int worker, uint64_t beat, enum fsdp_phase phase, uint64_t step)
{
    struct fsdp_progress *page = link_server_page(world->links, worker);

    atomic_store(&page->beat_ns, beat);
    atomic_store(&page->step, step);
    atomic_store(&page->phase, (uint32_t)phase);
    atomic_store(&page->pass, (uint32_t)(phase == FSDP_PHASE_WAIT ? FSDP_PHASE_SAVE : phase));
}

Test(world_fake_os, a_program_is_watched_from_the_first_step_that_it_shows_on)
{
    config.hang_timeout_ms = 5000;
    start(1, 30000);
    os.later_ns = 3600 * 1000000000LL;
    run_looks(4);
    cr_expect_eq(told.n_deaths, 0, "no program of the library's");
    show(0, 1, FSDP_PHASE_FORWARD, 0);
    run_looks(2);
    os.later_ns += 6000 * 1000000LL;
    run_looks(4);
    cr_assert_eq(told.n_deaths, 0);

    show(0, 2, FSDP_PHASE_FORWARD, 1);
    run_looks(2);
    os.later_ns += 6000 * 1000000LL;
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_HANG);
    cr_expect_eq(told.deaths[0].phase, FSDP_PHASE_FORWARD);
}

/* A watched program that uses the library, after its first step. */
static void start_watched(int n_workers)
{
    config.watched = true;
    config.hang_timeout_ms = 5000;
    start(n_workers, 30000);
    for (int i = 0; i < n_workers; i++)
        show(i, 1, FSDP_PHASE_FORWARD, 1);
    world_look_for_hang(world);
}

Test(world_fake_os, a_program_that_prints_is_no_hang_also_after_its_first_step)
{
    start_watched(2);
    for (int i = 0; i < 3; i++) {
        os.later_ns += 4000 * 1000000LL;
        world_life_shown(world, 0); /* one of its ranks has printed */
        world_look_for_hang(world);
    }
    cr_expect_null(world->account);
    cr_expect_eq(told.n_deaths, 0);

    os.later_ns += 6000 * 1000000LL;
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_HANG);
    cr_expect_eq(told.deaths[0].phase, FSDP_PHASE_FORWARD, "its page tells where it is");
}

Test(world_fake_os, after_its_first_heartbeat_nothing_else_is_a_sign_of_a_rank)
{
    start_watched(2);
    world->workers[1].heart.used = true;
    for (uint64_t step = 2; step < 4; step++) {
        os.later_ns += 4000 * 1000000LL;
        show(0, step, FSDP_PHASE_FORWARD, step);
        show(1, step, FSDP_PHASE_FORWARD, step);
        world_look_for_hang(world);
    }
    cr_expect_not_null(world->account);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_HANG);
    cr_expect_eq(told.deaths[0].rank, 1);
}

Test(world_fake_os, a_rank_that_waits_is_no_hang_while_another_goes_on)
{
    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    start(2, 30000);
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
    cr_expect_not_null(strstr(told.account, "\"ranks\": \"1\", \"culprit\": true"), "%s", told.account);
    cr_expect_not_null(strstr(told.account, "\"ranks\": \"0\", \"culprit\": false"), "%s", told.account);
}

/* Whatever its own ranks do: they are silent for too long only on the other node. */
Test(world_fake_os, what_its_ranks_show_is_said_when_a_rank_of_another_node_hangs)
{
    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    start(2, 30000);
    show(0, 1, FSDP_PHASE_WAIT, 1);
    show(1, 1, FSDP_PHASE_SAVE, 1);
    run_looks(2);
    world_show(world, world->plan.generation + 1);
    cr_assert_null(world->account, "it is of another generation");

    for (int i = 0; i < 2; i++) {
        told.account[0] = '\0';
        world_show(world, world->plan.generation);
        while (told.account[0] == '\0')
            uv_run(&loop, UV_RUN_ONCE);
        cr_expect_not_null(strstr(told.account, "\"ranks\": \"0\", \"culprit\": false"), "%s", told.account);
        cr_expect_not_null(strstr(told.account, "\"ranks\": \"1\", \"culprit\": false"), "%s", told.account);
        cr_expect_null(strstr(told.account, "details"));
        cr_expect_null(world->account);
    }
    cr_expect_eq(told.n_deaths, 0);
    for (int i = 0; i < 2; i++)
        end_child(&os, i, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
}

/* The page has one phase, which both threads of a rank store; each thread has a place of its own. */
Test(world_fake_os, a_hung_rank_is_where_the_thread_is_for_which_it_waits)
{
    static const struct {
        uint32_t groups[FSDP_THREADS];
        const char *words;
    } cases[] = {
        { { FSDP_WAITS_FOR_OTHER_THREAD, 1 },
          "\"phase\": \"collective\", \"pass\": \"forward\", \"layer\": \"layers.1\"" },
        { { 0, 1 }, "\"phase\": \"forward\", \"pass\": null, \"layer\": \"layers.0\"" },
    };

    begin(1, 30000);
    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    for (int i = 0; i < 2; i++) {
        struct fsdp_progress *page;

        told.account[0] = '\0';
        form(i);
        page = link_server_page(world->links, 0);
        for (uint32_t thread = 0; thread < FSDP_THREADS; thread++) {
            snprintf(fsdp_places(page) + (size_t)thread * FSDP_PLACE_BYTES, FSDP_PLACE_BYTES, "layers.%u",
                     thread);
            atomic_store(&page->threads[thread].place, thread + 1);
            atomic_store(&page->threads[thread].group, cases[i].groups[thread]);
        }
        strcpy(page->groups[0].name, "world");
        atomic_store(&page->groups[0].begun, 1);
        atomic_store(&page->groups[0].size, 1);
        show(0, 1, FSDP_PHASE_FORWARD, 1);
        atomic_store(&page->phase, FSDP_PHASE_COLLECTIVE);
        run_looks(2);
        os.later_ns += 6000 * 1000000LL;
        run_until(&told.n_stopped, i + 1);
        cr_expect_not_null(strstr(told.account, cases[i].words), "%s", told.account);
    }
}

Test(world_fake_os, a_rank_that_goes_on_while_it_is_looked_at_is_no_hang)
{
    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    start(1, 30000);
    show(0, 1, FSDP_PHASE_FORWARD, 1);
    run_looks(2);
    world_account_begin(world, &world->workers[0], ""); /* as if it had been silent until now */
    cr_assert_not_null(world->account);

    run_looks(2);

    cr_expect_eq(told.n_deaths, 0);
    cr_expect_str_empty(told.account);
    cr_expect_null(world->account);
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
}

/* This process's /proc shows another process in the place of the worker. */
static void look_at(pid_t pid)
{
    world->workers[0].child.pid = pid;
}

static void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static pid_t start_traced(void)
{
    const pid_t pid = fork();
    int status;

    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSTOPPED(status));
    return pid;
}

Test(world_fake_os, while_a_debugger_holds_a_rank_no_hang_is_reported)
{
    const pid_t pid = start_traced();

    config.job_json = "{}";
    config.hang_timeout_ms = 5000;
    start(1, 30000);
    show(0, 1, FSDP_PHASE_FORWARD, 1);
    run_looks(2);
    look_at(pid);
    os.later_ns += 6000 * 1000000LL;
    while (!world->said_traced && told.n_deaths == 0)
        run_looks(1);
    look_at(FIRST_PID);
    end_process(pid);

    cr_expect_eq(told.n_deaths, 0);
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
}

static bool is_asleep(pid_t root)
{
    char place[64];
    pid_t pids[8];
    size_t n = descendants_living_below(root, pids, 8);

    while (n > 0)
        if (descendants_state(pids[--n], place, sizeof place) == 'D')
            return true;
    return false;
}

/* A process that sleeps in the kernel until `go` is closed; with `shell`, one that waits for such one. */
static pid_t start_sleeping(int *go, bool shell)
{
    int ends[2];
    pid_t pid;

    cr_assert_eq(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        close(ends[1]);
        if (!shell || fork() == 0)
            sleep_in_kernel(ends[0]);
        wait(NULL);
        _exit(0);
    }
    close(ends[0]);
    *go = ends[1];
    while (!is_asleep(pid))
        poll(NULL, 0, 1);
    return pid;
}

/* Three seconds pass, and the world looks at its ranks. */
static void pass(int n)
{
    for (int i = 0; i < n && world->account == NULL; i++) {
        os.later_ns += 3000 * 1000000LL;
        world_look_for_hang(world);
    }
}

/* A job of one rank, after steps of which each read its data at once. */
static void learn_to_read(void)
{
    config.job_json = "{}";
    config.hang_timeout_ms = 600000;
    start(1, 30000);
    for (uint64_t step = 0; step <= 21; step++) {
        show(0, 1 + step, FSDP_PHASE_DATA, step);
        world_look_for_hang(world);
    }
    cr_assert_eq(world_bound_ns(world, &world->workers[0]), 10000 * 1000000LL, "it is learned");
}

Test(world_fake_os, a_silence_that_was_excused_is_not_learned)
{
    int go;
    const pid_t pid = start_sleeping(&go, false);

    learn_to_read();
    look_at(pid);
    pass(30);
    show(0, 23, FSDP_PHASE_DATA, 22);
    world_look_for_hang(world);
    cr_expect_lt(world_bound_ns(world, &world->workers[0]), 16000 * 1000000LL,
                 "3 s of 90 s were not excused");
    look_at(FIRST_PID);
    close(go);
    waitpid(pid, NULL, 0);
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
}

/* A read waits for a file system for longer than 5 bounds. */
Test(world_fake_os, a_rank_that_waits_for_a_file_system_is_no_hang_before_the_limit)
{
    int go;
    const pid_t pid = start_sleeping(&go, false);

    learn_to_read();
    look_at(pid);
    pass(100);
    cr_expect_null(world->account, "after 300 s");
    cr_expect_neq(world->told_waiting_ns, 0, "a line says so");
    pass(110);
    cr_expect_not_null(world->account, "after 600 s");
    look_at(FIRST_PID);
    close(go);
    waitpid(pid, NULL, 0);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_HANG);
    cr_expect_not_null(strstr(told.deaths[0].words, "no progress for 6"), "%s", told.deaths[0].words);
}

Test(world_fake_os, a_rank_is_held_by_the_state_of_a_process_below_its_shell)
{
    int go;
    const pid_t pid = start_sleeping(&go, true);

    config.watched = true;
    config.hang_timeout_ms = 100000;
    start(1, 30000);
    look_at(pid);
    pass(100);
    cr_expect_null(world->account, "after 300 s: four limits are excused");
    world_answer(world, 0, 1, INT64_MAX);
    cr_expect_eq(answers[0].state, 'D');
    pass(100);
    cr_expect_not_null(world->account, "after 600 s");
    look_at(FIRST_PID);
    run_until(&told.n_stopped, 1);
    close(go);
    waitpid(pid, NULL, 0);
    cr_expect_not_null(strstr(told.account, "\"state\": \"D\""), "%s", told.account);
}

static int state_after(uint64_t question)
{
    world_answer(world, 0, question, INT64_MAX);
    return answers[0].state;
}

/* A read that lasts for a moment must not make a rank the culprit of a hang. */
static void is_held_after_two_looks(bool shell)
{
    int go;
    const pid_t pid = start_sleeping(&go, shell);

    config.watched = true;
    config.hang_timeout_ms = 100000;
    start(1, 30000);
    pass(5);
    look_at(pid);
    cr_expect_neq(state_after(1), 'D', "one look");
    pass(1);
    cr_expect_neq(state_after(2), 'D', "the next one may meet another read");
    pass(1);
    cr_expect_eq(state_after(3), 'D');
    close(go);
    waitpid(pid, NULL, 0);
    cr_expect_neq(state_after(4), 'D', "it is over");
    look_at(FIRST_PID);
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
}

Test(world_fake_os, a_rank_is_held_only_by_what_two_looks_have_found)
{
    is_held_after_two_looks(false);
}

Test(world_fake_os, a_process_below_a_rank_holds_it_only_if_two_looks_have_found_it)
{
    is_held_after_two_looks(true);
}

/* TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT of 5 s, for a shell that waits for its Python. */
Test(world_fake_os, a_run_ends_if_a_process_below_a_worker_stays_in_state_d)
{
    pid_t pid;
    int go;

    start(1, 30000);
    world->stuck_limit_ns = 5000 * 1000000LL;
    for (int i = 0; i < 2; i++) {
        pid = start_sleeping(&go, true);
        look_at(pid);
        world_look_for_stuck(world);
        os.later_ns += 4000 * 1000000LL;
        world_look_for_stuck(world);
        cr_expect_eq(told.n_deaths, 0, "each slept for 4 s");
        if (i > 0)
            break;
        close(go);
        waitpid(pid, NULL, 0);
    }
    os.later_ns += 1000 * 1000000LL;
    world_look_for_stuck(world);
    look_at(FIRST_PID);
    close(go);
    waitpid(pid, NULL, 0);
    cr_assert_eq(told.n_deaths, 1);
    cr_expect_eq(told.deaths[0].kind, DEATH_STUCK);
    cr_expect_not_null(strstr(told.deaths[0].words, "(state D) for 5."), "%s", told.deaths[0].words);
    world_proceed(world);
    run_until(&told.n_stopped, 1);
}

Test(world_fake_os, a_wake_up_without_an_end_is_no_end)
{
    start(1, 60000);

    cr_assert_eq(eventfd_write(os.children[0].event, 1), 0);
    run_ready();
    world_reap(world);
    cr_expect_eq(told.n_deaths, 0);
    cr_expect_eq(told.n_stopped, 0);

    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(told.n_deaths, 1);
}

/* A stop in each moment of a start and of an end: before, between and after the exits. */
Test(world_fake_os, a_stop_at_any_moment_leads_down)
{
    for (int moment = 0; moment <= 3; moment++)
        for (int now = 0; now < 2; now++) {
            os.deaf = now == 1;
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

/* What outlives a generation */

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

Test(world_fake_os, what_a_worker_keeps_is_in_the_hellos_of_the_next_generations)
{
    static const char too_long[FSDP_LINK_KEPT_BYTES + 1];
    const int before = descriptors_before();

    begin(1, 30000);
    for (int generation = 0; generation < 4; generation++) {
        struct fsdp_link_hello hello;

        form(generation);
        hello = read_hello();
        cr_expect_eq(hello.term, 7);
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

/*
 * A worker cannot be started, which is told from within an action: nothing is taken from the queue meanwhile.
 */
Test(world_fake_os, no_number_of_signals_fills_the_queue)
{
    os.fail_spawn_at = 1;
    begin(1, 30000);
    told.n_storm = 4 * WORLD_QUEUE;

    form(0);

    cr_assert(told.n_deaths == 1 && told.n_stopped == 1, "the end of the last worker was taken at once");
}

static void fill_queue(void)
{
    begin(1, 0);
    for (int i = 0; i <= WORLD_QUEUE; i++)
        world_post(world, WE_SWEPT);
}

static void sweep_while_it_runs(void)
{
    start(1, 0);
    world_post(world, WE_SWEPT);
    world_proceed(world);
}

Test(world_fake_os, a_full_queue_and_an_event_out_of_order_stop_as_a_bug)
{
    char text[300];

    cr_expect_eq(run_to_its_end(fill_queue, text, sizeof text), FSDP_EXIT_BUG);
    cr_expect_str_eq(text, "fsdprun: bug: event swept has no place in the queue, in state down; stopping\n");
    cr_expect_eq(run_to_its_end(sweep_while_it_runs, text, sizeof text), FSDP_EXIT_BUG);
    cr_expect_str_eq(text, "fsdprun: bug: event swept came out of order, in state running; stopping\n");
}
