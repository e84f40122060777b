/* A run directory that all nodes share, on a disk that does not answer when the coordinator marks it. */
#include "agent/world/start_wait.h"
#include "tests/unit/agent/cluster/stage.h"
#include "tests/unit/agent/said.h"
#include "tests/unit/agent/scratch.h"
#include "tests/unit/agent/stuck_disk.h"

static struct disk *disk;
static struct rundir *rundir;
static bool answers;

/* Two nodes have come, and the disk was stuck before that. */
static void set_up(void)
{
    const struct rundir_spec spec = { .kind = RUNDIR_NAMED, .path = scratch, .lock = true };

    scratch_make();
    make_config();
    config.run_dir = scratch;
    config.run_dir_named = true;
    clock_ns = 1;
    cr_assert(eq(int, rundir_open(&rundir, &spec, NULL), FSDP_OK));
    said_begin();
    begin(2, 2, 1, 1);
    cr_assert(eq(int, disk_create(&disk, &loop, NULL), FSDP_OK));
    coordinator->services.disk = disk;
    coordinator->services.rundir = rundir;
    stuck_begin(disk);
    enter();
    cr_assert(eq(int, (int)coordinator->state, CS_PREPARING));
}

/* The disk answers, and the loop hears of it. */
static void disk_answers(void)
{
    stuck_let_go();
    answers = true;
    while (!disk_is_idle(disk))
        uv_run(&loop, UV_RUN_ONCE);
}

static void tear_down(void)
{
    said_end();
    if (!answers)
        disk_answers();
    disk_close(disk);
    end();
    rundir_close(rundir, false);
    scratch_remove();
}

TestSuite(coordinator_mark, .init = set_up, .fini = tear_down, .timeout = 300);

/* The looks of so long, for each of which the timer must have been set. */
static void look_for_ms(int ms)
{
    for (int i = 0; i < ms / START_WAIT_LOOK_MS; i++) {
        cr_assert(uv_is_active((uv_handle_t *)coordinator->timer));
        cr_assert(le(u64, uv_timer_get_due_in(coordinator->timer), START_WAIT_LOOK_MS));
        pass_ms(START_WAIT_LOOK_MS);
    }
}

Test(coordinator_mark, no_node_starts_before_the_disk_has_answered)
{
    look_for_ms(START_WAIT_SAY_MS - START_WAIT_LOOK_MS);
    cr_assert(eq(int, actors[0].n_formed, 0));
    disk_answers();

    cr_assert(actors[0].n_formed == 1 && actors[1].n_formed == 1);
    cr_expect(eq(int, rundir_find_mark(rundir, actors[1].plan.token, NULL), FSDP_OK));
    cr_expect(eq(int, said("fsdprun"), 0));
}

Test(coordinator_mark, a_mark_that_takes_long_is_named_once_and_ends_the_run_with_75)
{
    look_for_ms(START_WAIT_SAY_MS - START_WAIT_LOOK_MS);
    cr_expect(eq(int, said("fsdprun"), 0));
    look_for_ms(START_WAIT_LIMIT_MS - START_WAIT_SAY_MS);
    cr_expect(eq(int, said("fsdprun: no worker is started after 10 s: the disk does not answer\n"), 1));
    cr_expect(eq(int, actors[0].n_finished, 0));
    pass_ms(START_WAIT_LOOK_MS);

    check_finished(0, FSDP_EXIT_PEER);
    check_finished(1, FSDP_EXIT_PEER);
    cr_expect_not_null(strstr(actors[0].line, "the disk has not answered for 120 s"), "%s", actors[0].line);
}

Test(coordinator_mark, an_answer_after_the_end_changes_nothing)
{
    look_for_ms(START_WAIT_LIMIT_MS);
    check_finished(0, FSDP_EXIT_PEER);
    disk_answers();

    check_finished(0, FSDP_EXIT_PEER);
    cr_expect(eq(int, (int)coordinator->state, CS_ENDED));
    cr_expect(eq(int, actors[0].n_formed, 0));
    cr_expect(eq(int, said("fsdprun"), 1));
}

Test(coordinator_mark, a_stop_does_not_wait_for_it_and_a_refused_mark_is_not_told_afterwards)
{
    asks(0, SIGTERM, REPORTER_STOP);
    check_finished(0, 128 + SIGTERM);
    scratch_remove(); /* so that no mark can be made */
    disk_answers();
    scratch_make();

    cr_expect(eq(int, actors[0].n_formed, 0));
    cr_expect(eq(int, said("fsdprun"), 0));
}

Test(coordinator_mark, a_pause_of_the_coordinator_counts_as_one_look)
{
    pass_ms(1000000);
    cr_expect(eq(int, actors[0].n_finished, 0));
    cr_expect(eq(int, said("fsdprun"), 0));
    disk_answers();

    cr_assert(eq(int, actors[0].n_formed, 1));
}
