/*
 * Captured output over real pipes and files, on a real loop: the test is the worker.
 */
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/output/line_prefix.h"
#include "tests/unit/agent/output/far_end.h"
#include "tests/unit/agent/scratch.h"
#include "tests/unit/agent/stuck_disk.h"

static struct rundir *rundir;
static struct console *console;

static void create(struct rundir *directory, uint64_t limit_bytes, int n_rotated)
{
    const struct output_spec spec = { .rundir = directory,
                                      .console = console,
                                      .limit_bytes = limit_bytes,
                                      .n_rotated = n_rotated,
                                      .out_fd = -1,
                                      .err_fd = -1,
                                      .captures = true };

    cr_assert(output_create(&output, &loop, &spec, NULL) == FSDP_OK);
}

static void set_up(void)
{
    const struct rundir_spec spec = { .kind = RUNDIR_JOB, .path = scratch };
    const int near_end = open_far_end();

    scratch_make();
    cr_assert(uv_loop_init(&loop) == 0);
    cr_assert(rundir_open(&rundir, &spec, NULL) == FSDP_OK);
    cr_assert(console_create(&console, &loop, near_end, near_end, NULL) == FSDP_OK);
    close(near_end);
    create(rundir, 0, 0);
}

static void tear_down(void)
{
    output_destroy(output);
    console_destroy(console);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
    rundir_close(rundir, false);
    close(far_end);
    scratch_remove();
}

TestSuite(logs, .init = set_up, .fini = tear_down);

static char *const *filters;

static int open_stream(int generation, int rank, enum rundir_stream stream, enum output_mode mode)
{
    char prefix[64];
    const struct line_names names = { .rank = rank };
    const struct stream_spec spec = {
        .generation = generation,
        .rank = rank,
        .which = stream,
        .mode = mode,
        .prefix = line_prefix(prefix, sizeof prefix, NULL, &names),
        .filters = filters,
    };

    return open_output(&spec);
}

Test(logs, the_worker_gets_a_blocking_descriptor_that_closes_on_exec)
{
    int fd = open_stream(0, 0, RUNDIR_STDOUT, OUTPUT_FILE);

    cr_assert((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    cr_assert((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    cr_assert(open_stream(0, 1, RUNDIR_STDOUT, OUTPUT_INHERIT) == -1, "or, of what is inherited, none");
    close(fd);
}

static const struct errors_tail *tail_of(int rank)
{
    static struct errors_detail detail;

    memset(&detail, 0, sizeof detail);
    output_tell(output, rank, false, &detail);
    return &detail.tail;
}

Test(logs, the_tail_has_what_the_pipe_still_held)
{
    int err = open_stream(3, 2, RUNDIR_STDERR, OUTPUT_FILE);

    put(err, "first\nTraceback\n");
    close(err);

    cr_assert(tail_of(2)->n_lines == 2);
    cr_assert_str_eq(tail_of(2)->lines[1], "Traceback");
    cr_assert(tail_of(5)->n_lines == 0, "not captured");
}

Test(logs, the_tail_is_of_the_newest_generation_and_of_this_run)
{
    for (int generation = 0; generation < 3; generation++) {
        int err = open_stream(generation, 0, RUNDIR_STDERR, OUTPUT_FILE);

        if (generation < 2)
            put(err, "old\n");
        close(err);
        output_end_generation(output);
        run_turns(3);
    }

    cr_assert(tail_of(0)->n_lines == 0);
    close(open_stream(0, 0, RUNDIR_STDERR, OUTPUT_FILE)); /* as a second run in the directory does */
    cr_assert(tail_of(0)->n_lines == 0, "what an earlier run wrote there is another's");
}

Test(logs, what_no_file_takes_is_still_shown)
{
    struct rlimit limit = { 6, RLIM_INFINITY };
    int out = open_stream(0, 0, RUNDIR_STDOUT, OUTPUT_TEE);

    setrlimit(RLIMIT_FSIZE, &limit);
    put(out, "first\n");
    run_turns(3);
    put(out, "why it fails\nand more\n");
    close(out);
    drain();

    cr_assert_str_eq(scratch_read(scratch_path("logs/g0/rank0/stdout.log")), "first\n");
    cr_assert_not_null(strstr(seen, "[rank 0]: first\n"), "%s", seen);
    cr_assert_not_null(strstr(seen, "[rank 0]: why it fails\n[rank 0]: and more\n"), "%s", seen);
}

Test(logs, descriptors_running_out_opens_nothing_and_leaks_nothing)
{
    struct rlimit before, limit;
    const struct stream_spec spec = { .which = RUNDIR_STDOUT, .mode = OUTPUT_TEE };
    static struct stream_files files;
    enum fsdp_status status;
    int free_fd, fd = -1, n = 0;

    cr_assert(output_open_files(output, &spec, &files, NULL) == FSDP_OK); /* the first one opens the folder */
    output_close_files(&files);
    free_fd = dup(0);
    close(free_fd);
    getrlimit(RLIMIT_NOFILE, &before);
    do {
        limit = (struct rlimit){ (rlim_t)(free_fd + n++), before.rlim_max };
        setrlimit(RLIMIT_NOFILE, &limit);
        status = output_open_files(output, &spec, &files, NULL);
        if (status == FSDP_OK)
            status = output_open(output, &spec, &files, &fd, NULL);
        setrlimit(RLIMIT_NOFILE, &before);
        run_turns(3);
        if (status != FSDP_OK) {
            const int now = dup(0);

            close(now);
            cr_assert(status == FSDP_ERR_IO && fd == -1);
            cr_assert(now == free_fd, "%d descriptors: one was leaked", n - 1);
        }
    } while (status != FSDP_OK);
    close(fd);

    cr_assert(n > 3, "nothing was ever made to fail");
}

/* The logs once more, with files that are rotated. */
static void rotate_at(uint64_t limit_bytes, int n_rotated)
{
    output_destroy(output);
    create(rundir, limit_bytes, n_rotated);
}

Test(logs, too_many_unshown_files_are_let_go_and_it_is_said)
{
    struct rlimit before, limit;
    bool said = false;
    int out;

    getrlimit(RLIMIT_NOFILE, &before);
    limit = (struct rlimit){ 64, before.rlim_max }; /* 16 files may be held */
    setrlimit(RLIMIT_NOFILE, &limit);
    rotate_at(70000, 1);
    out = open_stream(0, 0, RUNDIR_STDOUT, OUTPUT_TEE);
    for (int i = 0; i < 60; i++) {
        static char block[70000];

        memset(block, 'x', sizeof block);
        block[sizeof block - 1] = '\n';
        cr_assert(write(out, block, sizeof block) == sizeof block);
        uv_run(&loop, UV_RUN_NOWAIT);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    close(out);
    setrlimit(RLIMIT_NOFILE, &before);
    is_drained = false;
    output_drain(output, on_drained, NULL);
    while (!is_drained) { /* of the lines, each of 70000 bytes, only the last bytes read are kept */
        uv_run(&loop, UV_RUN_NOWAIT);
        n_seen = n_seen > 1000 ? 0 : n_seen;
        look();
        said |= strstr(seen, "rotated away unseen") != NULL;
    }
    cr_assert(said);
}

Test(logs, the_tail_reaches_over_a_rotation)
{
    const struct errors_tail *tail;
    int err;

    rotate_at(100, 1);
    err = open_stream(0, 0, RUNDIR_STDERR, OUTPUT_FILE);
    for (int i = 0; i < 10; i++)
        put(err, "a line of the traceback\n");
    run_turns(3);
    put(err, "the cause\n");
    close(err);

    tail = tail_of(0);
    cr_assert(tail->n_lines > 2, "%d lines", tail->n_lines);
    cr_assert_str_eq(tail->lines[tail->n_lines - 1], "the cause");
    cr_assert_str_eq(tail->lines[tail->n_lines - 2], "a line of the traceback");
}

/* That a file has the lines of all ranks, conformance/test_logs.sh looks at. */
Test(logs, filtered_lines_stand_in_one_file_a_generation)
{
    static char *const words[] = { "apple", NULL };

    filters = words;
    for (int generation = 0; generation < 2; generation++) {
        const int out = open_stream(generation, 0, RUNDIR_STDOUT, OUTPUT_FILE);

        put(out, generation == 0 ? "an ap" : "no\nap");
        run_turns(3);
        put(out, "ple\na pear\n");
        close(out);
        output_end_generation(output);
        run_turns(3);
    }
    cr_assert_str_eq(scratch_read(scratch_path("logs/g0/filtered_stdout.log")), "[rank 0]: an apple\n");
    cr_assert_str_eq(scratch_read(scratch_path("logs/g1/filtered_stdout.log")), "[rank 0]: apple\n");
}

Test(logs, a_prefix_is_made_of_its_names)
{
    const struct line_names names = {
        .rank = 12, .local_rank = 4, .generation = 2, .host = "n1", .stream = RUNDIR_STDERR
    };
    char out[64], small[8];

    cr_assert_str_eq(line_prefix(out, sizeof out, NULL, &names), "[rank 12]: ");
    cr_assert_str_eq(line_prefix(out, sizeof out, "[${role_name}${local_rank}]:", &names), "[default4]:");
    cr_assert_str_eq(line_prefix(out, sizeof out, "${host}/${stream}/${generation} ${x} $ ${ra", &names),
                     "n1/stderr/2 ${x} $ ${ra");
    cr_assert_str_eq(
        line_prefix(out, sizeof out, "$$rank=$rank, $local_rank$hostname ${2} $ranks ${rank", &names),
        "$rank=12, 4n1 ${2} $ranks ${rank");
    cr_assert_str_eq(line_prefix(small, sizeof small, NULL, &names), "[rank 1");
}

/* The logs once more, with a disk that does not answer until it is let go. */
static struct disk *disk;

static void use_stuck_disk(void)
{
    const struct output_spec spec = {
        .rundir = rundir, .console = console, .out_fd = -1, .err_fd = -1, .captures = true
    };
    struct output_spec with_disk = spec;

    output_destroy(output);
    cr_assert(disk_create(&disk, &loop, NULL) == FSDP_OK);
    with_disk.disk = disk;
    cr_assert(output_create(&output, &loop, &with_disk, NULL) == FSDP_OK);
    stuck_begin(disk);
}

static void answer(void)
{
    stuck_let_go();
    while (!disk_is_idle(disk))
        run_turns(1);
    disk_close(disk);
}

Test(logs, a_stuck_disk_delays_the_files_and_the_console_but_not_the_last_words, .timeout = 60)
{
    static char *words[] = { "keep", NULL };
    int err;

    use_stuck_disk();
    filters = words;
    err = open_stream(0, 0, RUNDIR_STDERR, OUTPUT_TEE);
    put(err, "first\nkeep this\n");
    run_turns(3);
    put(err, "and keep the end");
    close(err);
    cr_assert(tail_of(0)->n_lines == 3, "%d", (int)tail_of(0)->n_lines);
    output_end_generation(output);
    run_turns(3);
    cr_assert_str_eq(scratch_read(scratch_path("logs/g0/rank0/stderr.log")), "");
    cr_assert(n_seen == 0, "%s", seen);

    answer();
    cr_assert_str_eq(scratch_read(scratch_path("logs/g0/rank0/stderr.log")),
                     "first\nkeep this\nand keep the end");
    drain();
    cr_assert_str_eq(seen, "[rank 0]: first\n[rank 0]: keep this\n[rank 0]: and keep the end\n");
    cr_assert_str_eq(scratch_read(scratch_path("logs/g0/filtered_stderr.log")),
                     "[rank 0]: keep this\n[rank 0]: and keep the end\n");
}

Test(logs, a_generation_that_begins_while_the_disk_lags_loses_no_filtered_line_of_the_last, .timeout = 60)
{
    static char *words[] = { "keep", NULL };
    int out;

    use_stuck_disk();
    filters = words;
    for (int generation = 0; generation < 2; generation++) {
        out = open_stream(generation, 0, RUNDIR_STDOUT, OUTPUT_FILE);
        put(out, generation == 0 ? "drop\nkeep the cause" : "keep on\n");
        run_turns(3);
        close(out);
        output_end_generation(output);
    }
    cr_assert_str_eq(scratch_read(scratch_path("logs/g0/filtered_stdout.log")), "");

    answer();
    cr_assert_str_eq(scratch_read(scratch_path("logs/g0/filtered_stdout.log")), "[rank 0]: keep the cause\n");
    cr_assert_str_eq(scratch_read(scratch_path("logs/g1/filtered_stdout.log")), "[rank 0]: keep on\n");
}

Test(logs, a_worker_that_writes_on_waits_for_a_stuck_disk_and_nothing_is_lost, .timeout = 60)
{
    static char line[4096];
    const size_t most = 8 << 20;
    size_t n_put = 0;
    struct stat info;
    int out;

    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    use_stuck_disk();
    out = open_stream(0, 0, RUNDIR_STDOUT, OUTPUT_FILE);
    fcntl(out, F_SETFL, O_NONBLOCK);
    for (int idle = 0; idle < 3 && n_put < most;) {
        const ssize_t n = write(out, line, sizeof line);

        n_put += n > 0 ? (size_t)n : 0;
        idle = n > 0 ? 0 : idle + 1;
        if (n < 0)
            run_turns(3);
    }
    cr_assert(n_put > 1 << 20 && n_put < most, "memory has a bound: %zu", n_put);

    stuck_let_go();
    close(out);
    do {
        run_turns(1);
        cr_assert(stat(scratch_path("logs/g0/rank0/stdout.log"), &info) == 0);
    } while ((size_t)info.st_size < n_put);
    while (!disk_is_idle(disk))
        run_turns(1);
    disk_close(disk);
    cr_assert((size_t)info.st_size == n_put);
}
