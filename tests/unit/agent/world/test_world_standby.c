/* Workers on standby whose program cannot be executed, where the start does not wait for the exec. */
#include "tests/unit/agent/said.h"
#include "tests/unit/agent/world/fake_world.h"

static void set_up(void)
{
    make_config();
    config.standby = 1;
    with_disk = true;
    said_begin();
}

static void tear_down(void)
{
    said_end();
    finish();
}

TestSuite(world_standby, .init = set_up, .fini = tear_down, .timeout = 300);

static void run_until_live(void)
{
    while (world->n_live < 1)
        uv_run(&loop, UV_RUN_ONCE);
}

/* A generation trains, and a process waits for the next one. Its exec is not over. */
static void start_with_standby(void)
{
    start(1, 60000);
    run_until_live();
    end_exec(&os, 0, 0);
    world_watch(&world->look);
    atomic_store(&link_server_page(world->links, 0)->pass, FSDP_PHASE_DATA);
    world_watch(&world->look);
    cr_assert_eq(os.n_spawns, 2);
}

Test(world_standby, one_that_is_taken_before_its_exec_has_failed_is_a_program_that_cannot_be_executed)
{
    start_with_standby();
    end_child(&os, 0, CLD_EXITED, 0);
    run_until(&told.n_stopped, 1);
    form(1);
    run_until_live();
    cr_assert(world->workers[0].was_standby && os.n_spawns == 2);
    end_exec(&os, 1, ENOEXEC);
    run_until(&told.n_stopped, 2);

    cr_assert_eq(told.n_deaths, 2);
    cr_expect(told.deaths[1].kind == DEATH_SPAWN && told.deaths[1].code == 126, "code %d",
              told.deaths[1].code);
    cr_expect_str_eq(told.deaths[1].words, "cannot start /bin/sh: Exec format error");
}

/* The process that has ended is a real one: orphans are reaped from the kernel. */
Test(world_standby, one_that_waits_says_why_its_exec_failed_and_the_generation_goes_on)
{
    struct standby_process process;

    start_with_standby();
    cr_assert(standby_take(world->standby, 0, &process));
    process.child.pid = fork();
    if (process.child.pid == 0)
        _exit(127);
    standby_put(world->standby, 0, &process);
    end_exec(&os, 1, ENOEXEC);
    while (standby_pids(world->standby, &(pid_t){ 0 }) == 1)
        world_reap(world);

    cr_expect_eq(said("fsdprun: cannot start /bin/sh: Exec format error\n"), 1);
    cr_expect_eq(told.n_deaths, 0);
    world_stop(world, SIGTERM, false);
    run_until(&told.n_stopped, 1);
}
