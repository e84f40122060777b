#include <criterion/criterion.h>

#include "agent/save/search_watch.h"

TestSuite(search_watch, .timeout = 300);

static struct counting_io files;
static _Atomic uint64_t n_done;
static bool reads;
static int n_silent;

static ssize_t read_nothing(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    return 0;
}

/* At every turn of the loop, so at least once between two looks, however slow the machine is. */
static void on_turn(uv_prepare_t *turn)
{
    if (reads)
        files.base.pread(&files.base, -1, NULL, 0, 0);
}

static void on_silent(void *arg)
{
    n_silent++;
}

Test(search_watch, one_that_reads_on_is_no_hang_and_one_that_stops_is)
{
    struct fsdp_io disk = { .pread = read_nothing };
    struct search_watch *watch;
    uv_prepare_t turn;
    uv_loop_t loop;
    uint64_t end;

    uv_loop_init(&loop);
    counting_io_init(&files, &disk, &n_done);
    uv_prepare_init(&loop, &turn);
    uv_prepare_start(&turn, on_turn);
    reads = true;
    watch = search_watch_start(&loop, &n_done, 20, on_silent, NULL);
    cr_assert_not_null(watch);
    end = uv_now(&loop) + 200;
    while (uv_now(&loop) < end)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(n_silent, 0);

    reads = false;
    while (n_silent == 0)
        uv_run(&loop, UV_RUN_ONCE);
    search_watch_stop(watch);
    uv_close((uv_handle_t *)&turn, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(n_silent, 1);
    cr_expect_eq(uv_loop_close(&loop), 0);
}
