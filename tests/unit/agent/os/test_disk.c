#include "agent/os/disk.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <signal.h>

enum { N_JOBS = 100 };

/* A job that notes where it ran, and when. */
struct noted {
    struct disk_job job;
    pthread_t worked_on, answered_on;
    bool signals_blocked;
    int nth;
};

static uv_loop_t loop;
static struct disk *disk;
static int n_answered;
static bool was_idle;

static void work(struct disk_job *job)
{
    struct noted *noted = (struct noted *)job;
    sigset_t blocked;

    noted->worked_on = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    noted->signals_blocked = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGCHLD) == 1;
}

static void done(struct disk_job *job)
{
    struct noted *noted = (struct noted *)job;

    noted->answered_on = pthread_self();
    noted->nth = n_answered++;
}

static void close_disk(void *arg)
{
    (void)arg;
    was_idle = disk_is_idle(disk);
    disk_close(disk);
}

static void set_up(void)
{
    cr_assert(eq(int, uv_loop_init(&loop), 0));
    cr_assert(eq(int, disk_create(&disk, &loop, NULL), FSDP_OK));
}

static void tear_down(void)
{
    cr_assert(eq(int, uv_loop_close(&loop), 0), "a handle was left open");
}

TestSuite(disk, .timeout = 60);

Test(disk, jobs_run_in_order_on_one_thread_and_are_answered_on_the_loop, .init = set_up, .fini = tear_down)
{
    static struct noted jobs[N_JOBS];

    for (int i = 0; i < N_JOBS; i++) {
        jobs[i].job = (struct disk_job){ .work = work, .done = done };
        disk_submit(disk, &jobs[i].job);
    }
    cr_assert(not(disk_is_idle(disk)));
    disk_when_idle(disk, close_disk, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);

    cr_assert(was_idle);
    for (int i = 0; i < N_JOBS; i++) {
        cr_assert(eq(int, jobs[i].nth, i));
        cr_assert(pthread_equal(jobs[i].worked_on, jobs[0].worked_on));
        cr_assert(not(pthread_equal(jobs[i].worked_on, pthread_self())));
        cr_assert(pthread_equal(jobs[i].answered_on, pthread_self()));
        cr_assert(jobs[i].signals_blocked);
    }
}

static void again(struct disk_job *job)
{
    if (++n_answered < N_JOBS)
        disk_submit(disk, job);
}

Test(disk, an_answer_may_submit_its_job_again, .init = set_up, .fini = tear_down)
{
    struct noted noted = { .job = { .work = work, .done = again } };

    disk_submit(disk, &noted.job);
    disk_when_idle(disk, close_disk, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);

    cr_assert(eq(int, n_answered, N_JOBS), "idle only after the last");
}

Test(disk, without_a_disk_a_job_is_answered_at_once)
{
    struct noted noted = { .job = { .work = work, .done = done } };

    disk_submit(NULL, &noted.job);

    cr_assert(eq(int, n_answered, 1));
    cr_assert(pthread_equal(noted.worked_on, pthread_self()));
    cr_assert(disk_is_idle(NULL));
    disk_close(NULL);
}
