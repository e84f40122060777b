/* Starts that wait for a disk, while the loop goes on. */
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/unit/agent/scratch.h"
#include "tests/unit/agent/stuck_disk.h"
#include "tests/unit/agent/world/fake_world.h"

static void set_up(void)
{
    make_config();
    with_disk = true;
}

TestSuite(world_spawn, .init = set_up, .fini = finish, .timeout = 600);

static void start_stuck(int n_workers)
{
    begin(n_workers, 60000);
    stuck_begin(disk);
    form(0);
    run_ready();
    cr_assert_eq(os.n_spawns, 0, "the disk does not answer");
}

static void run_until_spawned(int n)
{
    while (world->n_live < n)
        uv_run(&loop, UV_RUN_ONCE);
}

/* Workers whose execs are not over. */
static void start_executing(int n_workers)
{
    start(n_workers, 60000);
    run_until_spawned(n_workers);
}

Test(world_spawn, a_worker_is_to_close_the_lock_of_the_run_directory_first)
{
    scratch_make();
    cr_assert_eq(rundir_open(&rundir,
                             &(struct rundir_spec){ .kind = RUNDIR_JOB, .path = scratch, .lock = true },
                             NULL),
                 FSDP_OK);
    start_executing(1);
    cr_expect_gt(os.lock_fd, 0);
    cr_expect_eq(os.lock_fd, rundir_lock_fd(rundir));
    end_exec(&os, 0, 0);
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
    finish();
    rundir_close(rundir, false);
    scratch_remove();
}

static void look_each(int every_ms, int seconds)
{
    for (int i = 0; i < seconds * 1000 / every_ms; i++) {
        os.later_ns += every_ms * 1000000LL;
        world_watch(&world->look);
    }
}

/* The looks of so many seconds. */
static void look_for(int seconds)
{
    look_each(WORLD_LOOK_EVERY_MS, seconds);
}

Test(world_spawn, the_loop_goes_on_and_the_answer_starts_all)
{
    start_stuck(3);
    cr_assert_eq(told.n_stopped, 0);
    stuck_let_go();
    run_until_spawned(3);

    for (int i = 0; i < 3; i++) {
        end_exec(&os, i, 0);
        end_child(&os, i, CLD_EXITED, 0);
    }
    run_until(&told.n_stopped, 1);
    cr_assert_eq(told.n_deaths, 3);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(told.deaths[i].kind, DEATH_NONE);
}

Test(world_spawn, a_stop_does_not_wait_for_the_disk_and_the_next_generation_does)
{
    start_stuck(2);
    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);
    cr_assert_eq(told.n_deaths, 0, "nothing has failed");
    form(1);
    run_ready();
    cr_assert_eq(os.n_spawns, 0);

    stuck_let_go();
    run_until_spawned(2);
    cr_assert_eq(os.n_spawns, 2, "only the second generation has workers");
    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 2);
}

Test(world_spawn, a_stop_ends_a_process_that_is_executing)
{
    start_executing(2);
    end_exec(&os, 0, 0);
    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);

    cr_assert(was_sent(0, SIGTERM) == 1 && was_sent(1, SIGTERM) == 1);
}

Test(world_spawn, a_program_that_cannot_be_executed_is_the_cause_with_its_status)
{
    start_executing(3);
    end_exec(&os, 0, 0);
    end_exec(&os, 1, ENOEXEC);
    run_until(&told.n_stopped, 1);

    cr_assert(told.deaths[0].kind == DEATH_SPAWN && told.deaths[0].rank == 1 && told.deaths[0].code == 126);
    cr_assert_not_null(strstr(told.deaths[0].words, "cannot start /bin/sh"));
    cr_assert_eq(told.n_deaths, 3);
    cr_assert(was_sent(0, SIGTERM) == 1 && was_sent(2, SIGTERM) == 1);
}

Test(world_spawn, an_exec_that_does_not_end_fails_with_its_rank_and_phase)
{
    start_executing(2);
    end_exec(&os, 0, 0);
    look_for(118);
    cr_assert_eq(told.n_deaths, 0);
    look_for(2);

    cr_assert(told.n_deaths >= 1 && told.deaths[0].kind == DEATH_SPAWN && told.deaths[0].rank == 1);
    cr_assert_eq(told.deaths[0].code, FSDP_EXIT_PEER, "another try may help");
    cr_assert_not_null(strstr(told.deaths[0].words, "exec of /bin/sh: no answer for 120 s"));
    run_until(&told.n_stopped, 1);
}

Test(world_spawn, files_that_are_never_open_fail_with_their_phase)
{
    start_stuck(2);
    look_for(118);
    cr_assert_eq(told.n_deaths, 0);
    look_for(2);
    run_until(&told.n_stopped, 1);

    cr_assert(told.n_deaths == 1 && told.deaths[0].kind == DEATH_SPAWN);
    cr_assert_not_null(strstr(told.deaths[0].words, "the disk has not answered for 120 s"));
    stuck_let_go();
}

Test(world_spawn, a_notice_that_comes_before_a_worker_reaches_it)
{
    unsigned char packet[sizeof(struct fsdp_link_header) + sizeof(struct fsdp_link_hello)];
    struct fsdp_link_header header = { 0 };

    start_stuck(1);
    world_notify(world, &(struct fsdp_link_notice){ .kind = FSDP_NOTICE_SAVE_AND_STOP });
    stuck_let_go();
    run_until_spawned(1);
    while (header.type != FSDP_LINK_NOTICE) {
        cr_assert_gt(read(os.link_fd, packet, sizeof packet), 0);
        memcpy(&header, packet, sizeof header);
    }

    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);
}

/* A process that blocks all signals. */
static pid_t fork_blocked(void)
{
    sigset_t all, before;
    pid_t pid;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    cr_assert_gt(pid, 0);
    return pid;
}

static bool is_pending(pid_t pid, int signal)
{
    char path[64], line[256];
    unsigned long long set = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "ShdPnd:", 7) == 0)
            set = strtoull(line + 7, NULL, 16);
    fclose(file);
    return (set >> (signal - 1) & 1) != 0;
}

Test(world_spawn, a_signal_is_passed_on_only_after_the_exec)
{
    const pid_t pid = fork_blocked(); /* first, so that it has no end of a pipe of the fake */
    pid_t fake;

    start_executing(1);
    fake = world->workers[0].child.pid;
    world->workers[0].child.pid = pid;
    world_forward(world, SIGUSR1);
    cr_expect_not(is_pending(pid, SIGUSR1), "it would end the program after its exec");
    world_forward(world, SIGWINCH);
    cr_expect(is_pending(pid, SIGWINCH), "it ends nothing");

    end_exec(&os, 0, 0);
    world_forward(world, SIGUSR1);
    cr_expect(is_pending(pid, SIGUSR1), "the program itself blocks it");

    world->workers[0].child.pid = fake;
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);
}

Test(world_spawn, looks_that_come_often_make_no_wait_longer)
{
    start_executing(1);
    look_each(20, 12);
    cr_expect_eq(told.n_deaths, 0);
    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);
}

static int n_started;

static void on_started(void *arg)
{
    n_started++;
}

Test(world_spawn, workers_that_end_before_the_first_look_were_started)
{
    config.observer.started = on_started;
    start_executing(2);
    end_exec(&os, 0, 0);
    end_exec(&os, 1, 0);
    end_child(&os, 0, CLD_EXITED, 0);
    end_child(&os, 1, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
    cr_expect_eq(n_started, 1);
}

Test(world_spawn, a_start_is_told_after_the_end_of_one_worker)
{
    config.observer.started = on_started;
    start_executing(2);
    end_exec(&os, 0, 0);
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_deaths, 1);
    cr_expect_eq(n_started, 0, "the other is executing");
    end_exec(&os, 1, 0);
    look_for(1);
    cr_expect_eq(n_started, 1);
    end_child(&os, 1, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
}
