/*
 * Captured output over real pipes and files, on a real loop: the test is the worker.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/output/logs.h"

static char top[64];
static uv_loop_t loop;
static struct rundir *rundir;
static struct console *console;
static struct logs *logs;
static struct logs_rotation rotation;
static int far_end; /* of the console's pipe */
static char seen[1 << 20];
static size_t n_seen;

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void set_up(void)
{
    struct rundir_spec spec = { .kind = RUNDIR_JOB, .path = top };
    int fds[2];

    strcpy(top, "/tmp/fsdp-unit-logs.XXXXXX");
    cr_assert_not_null(mkdtemp(top));
    cr_assert(pipe2(fds, O_CLOEXEC) == 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    far_end = fds[0];
    cr_assert(uv_loop_init(&loop) == 0);
    cr_assert(rundir_open(&rundir, &spec, NULL) == FSDP_OK);
    cr_assert(console_create(&console, &loop, fds[1], fds[1], NULL) == FSDP_OK);
    close(fds[1]);
    cr_assert(logs_create(&logs, &loop, rundir, console, &rotation, NULL) == FSDP_OK);
}

static void tear_down(void)
{
    logs_destroy(logs);
    console_destroy(console);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
    rundir_close(rundir, false);
    close(far_end);
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(logs, .init = set_up, .fini = tear_down);

static char *const *filters;

static int open_stream(int generation, int rank, enum rundir_stream stream, enum logs_mode mode)
{
    char prefix[64];
    const struct logs_names names = { .rank = rank };
    const struct logs_spec spec = {
        .generation = generation,
        .rank = rank,
        .stream = stream,
        .mode = mode,
        .prefix = logs_prefix(prefix, sizeof prefix, NULL, &names),
        .filters = filters,
    };
    int fd;

    cr_assert(logs_open(logs, &spec, &fd, NULL) == FSDP_OK);
    return fd;
}

static const char *slurp(int generation, int rank, const char *stream)
{
    static char text[1 << 20];
    char path[256];
    int fd;
    ssize_t n;

    if (rank < 0) /* of the whole generation */
        snprintf(path, sizeof path, "%s/logs/g%d/%s.log", top, generation, stream);
    else
        snprintf(path, sizeof path, "%s/logs/g%d/rank%d/%s.log", top, generation, rank, stream);
    fd = open(path, O_RDONLY);
    n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static void write_text(int fd, const char *text)
{
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void look(void)
{
    ssize_t n;

    while ((n = read(far_end, seen + n_seen, sizeof seen - 1 - n_seen)) > 0)
        n_seen += (size_t)n;
    seen[n_seen] = '\0';
}

static void run_turns(int n)
{
    for (int i = 0; i < n; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    look();
}

static bool is_drained;

static void on_drained(void *data)
{
    (void)data;
    is_drained = true;
}

static void drain(void)
{
    is_drained = false;
    logs_drain(logs, on_drained, NULL);
    while (!is_drained) {
        uv_run(&loop, UV_RUN_NOWAIT);
        look();
    }
    look();
}

Test(logs, output_goes_to_its_file_and_to_the_console)
{
    int out = open_stream(0, 1, RUNDIR_STDOUT, LOGS_TEE), err = open_stream(0, 1, RUNDIR_STDERR, LOGS_FILE);

    write_text(out, "shown\nnot ended");
    write_text(err, "kept\n");
    run_turns(10);
    cr_assert_str_eq(seen, "[rank 1]: shown\n");
    close(out);
    close(err);
    run_turns(10);

    cr_assert_str_eq(seen, "[rank 1]: shown\n[rank 1]: not ended\n");
    cr_assert_str_eq(slurp(0, 1, "stdout"), "shown\nnot ended");
    cr_assert_str_eq(slurp(0, 1, "stderr"), "kept\n");
    cr_assert(logs_captured(logs) == 20 && logs_lost(logs) == 0);
}

Test(logs, an_inherited_stream_opens_nothing)
{
    cr_assert(open_stream(0, 0, RUNDIR_STDOUT, LOGS_INHERIT) == -1);
    cr_assert_str_eq(slurp(0, 0, "stdout"), "");
}

Test(logs, the_worker_gets_a_blocking_descriptor_that_closes_on_exec)
{
    int fd = open_stream(0, 0, RUNDIR_STDOUT, LOGS_FILE);

    cr_assert((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    cr_assert((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(fd);
}

Test(logs, the_tail_has_what_the_pipe_still_held)
{
    struct errors_detail detail = { 0 };
    const struct errors_tail *tail = &detail.tail;
    int err = open_stream(3, 2, RUNDIR_STDERR, LOGS_FILE);

    write_text(err, "first\nTraceback\n");
    close(err);

    cr_assert(logs_tell(logs, 2, false, &detail));
    cr_assert(tail->n_lines == 2);
    cr_assert_str_eq(tail->lines[1], "Traceback");
    memset(&detail, 0, sizeof detail);
    cr_assert(!logs_tell(logs, 5, false, &detail) && tail->n_lines == 0, "not captured");
}

Test(logs, the_tail_is_of_the_newest_generation_and_of_this_run)
{
    struct errors_detail detail = { 0 };
    const struct errors_tail *tail = &detail.tail;
    int err;

    for (int generation = 0; generation < 3; generation++) {
        err = open_stream(generation, 0, RUNDIR_STDERR, LOGS_FILE);
        if (generation < 2)
            write_text(err, "old\n");
        close(err);
        logs_end_generation(logs);
        run_turns(3);
    }

    cr_assert(logs_tell(logs, 0, false, &detail) && tail->n_lines == 0);
    err = open_stream(0, 0, RUNDIR_STDERR, LOGS_FILE); /* what stands there already is another's */
    close(err);
}

Test(logs, ending_a_generation_does_not_wait_for_who_holds_a_pipe)
{
    int out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_TEE);

    write_text(out, "last words");
    logs_end_generation(logs); /* `out` is still open, as in a process that got away */
    drain();

    cr_assert_str_eq(seen, "[rank 0]: last words\n");
    cr_assert(write(out, "x", 1) < 0 && errno == EPIPE);
    close(out);
}

Test(logs, generations_and_runs_keep_their_logs)
{
    int out;

    for (int generation = 0; generation < 2; generation++) {
        out = open_stream(generation, 0, RUNDIR_STDOUT, LOGS_TEE);
        write_text(out, generation == 0 ? "zero\n" : "one\n");
        close(out);
        logs_end_generation(logs);
    }
    out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_TEE); /* as a second run in the directory does */
    write_text(out, "again\n");
    close(out);
    drain();

    cr_assert(strncmp(slurp(0, 0, "stdout"), "zero\n--- fsdprun: run of ", 23) == 0);
    cr_assert_not_null(strstr(slurp(0, 0, "stdout"), " ---\nagain\n"));
    cr_assert_str_eq(slurp(1, 0, "stdout"), "one\n");
    cr_assert_not_null(strstr(seen, "[rank 0]: again\n"));
    cr_assert_null(strstr(seen, "---"), "the mark is not shown");
}

Test(logs, a_file_that_may_not_grow_loses_output_but_no_worker)
{
    static char block[40000];
    struct rlimit limit = { 50000, RLIM_INFINITY }, none = { RLIM_INFINITY, RLIM_INFINITY };
    int out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_FILE);
    const char *text;

    memset(block, 'x', sizeof block);
    block[sizeof block - 1] = '\n';
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 10; i++) {
        cr_assert(write(out, block, sizeof block) == (ssize_t)sizeof block);
        run_turns(3);
    }
    cr_assert(logs_lost(logs) == 10 * sizeof block - 50000);
    setrlimit(RLIMIT_FSIZE, &none);
    write_text(out, "there is room again\n");
    close(out);
    drain();

    text = strchr(slurp(0, 0, "stdout") + sizeof block, '\n');
    cr_assert_str_eq(text, "\n[fsdprun: 350000 bytes were lost here]\nthere is room again\n");
    cr_assert(strstr(seen, "cannot write") != NULL &&
                  strstr(strstr(seen, "cannot write") + 1, "cannot write") == NULL,
              "said once: %s", seen);
    cr_assert_not_null(strstr(seen, "350000 bytes of output were lost"));
}

Test(logs, what_no_file_takes_is_still_shown)
{
    struct rlimit limit = { 6, RLIM_INFINITY };
    int out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_TEE);

    setrlimit(RLIMIT_FSIZE, &limit);
    write_text(out, "first\n");
    run_turns(3);
    write_text(out, "why it fails\nand more\n");
    close(out);
    drain();

    cr_assert_str_eq(slurp(0, 0, "stdout"), "first\n");
    cr_assert_not_null(strstr(seen, "[rank 0]: first\n"), "%s", seen);
    cr_assert_not_null(strstr(seen, "[rank 0]: why it fails\n[rank 0]: and more\n"), "%s", seen);
}

Test(logs, many_megabytes_pass_while_nobody_reads_the_console)
{
    enum { MEGABYTES = 24 };
    int out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_TEE), status;
    struct stat stat_of;
    char path[128];
    pid_t pid = fork();

    if (pid == 0) {
        static char block[1 << 20];

        memset(block, 'x', sizeof block);
        for (int i = 0; i < MEGABYTES; i++)
            if (write(out, block, sizeof block) != (ssize_t)sizeof block)
                _exit(1);
        _exit(0);
    }
    close(out);
    while (waitpid(pid, &status, WNOHANG) == 0)
        uv_run(&loop, UV_RUN_NOWAIT); /* the far end is not looked at */
    logs_end_generation(logs);

    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    snprintf(path, sizeof path, "%s/logs/g0/rank0/stdout.log", top);
    cr_assert(stat(path, &stat_of) == 0 && stat_of.st_size == MEGABYTES << 20);
    drain();
    cr_assert_not_null(strstr(seen, "... [cut: 25165824 bytes in /tmp/"));
}

Test(logs, without_a_run_directory_the_console_is_served_all_the_same)
{
    struct logs *others;
    const struct logs_spec spec = { .stream = RUNDIR_STDOUT, .mode = LOGS_TEE, .prefix = "> " };
    int fd;

    cr_assert(logs_create(&others, &loop, NULL, console, &rotation, NULL) == FSDP_OK);
    cr_assert(logs_open(others, &spec, &fd, NULL) == FSDP_OK);
    write_text(fd, "line\n");
    close(fd);
    run_turns(10);

    cr_assert_str_eq(seen, "> line\n");
    logs_destroy(others);
}

Test(logs, descriptors_running_out_opens_nothing_and_leaks_nothing)
{
    struct rlimit before, limit;
    const struct logs_spec spec = { .stream = RUNDIR_STDOUT, .mode = LOGS_TEE };
    enum fsdp_status status;
    int free_fd = dup(0), fd, n = 0;

    close(free_fd);
    getrlimit(RLIMIT_NOFILE, &before);
    do {
        limit = (struct rlimit){ (rlim_t)(free_fd + n++), before.rlim_max };
        setrlimit(RLIMIT_NOFILE, &limit);
        status = logs_open(logs, &spec, &fd, NULL);
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
    rotation = (struct logs_rotation){ limit_bytes, n_rotated };
    logs_destroy(logs);
    cr_assert(logs_create(&logs, &loop, rundir, console, &rotation, NULL) == FSDP_OK);
}

static void write_numbered(int fd, int n_lines)
{
    char line[32];

    for (int i = 0; i < n_lines; i++) {
        const int n = snprintf(line, sizeof line, "line %06d\n", i);

        cr_assert(write(fd, line, (size_t)n) == n);
        if (i % 500 == 0)
            run_turns(1);
    }
}

static void check_numbered(const char *text, const char *prefix, int n_lines)
{
    for (int i = 0; i < n_lines; i++) {
        char line[64];
        const int n = snprintf(line, sizeof line, "%sline %06d\n", prefix, i);

        cr_assert(strncmp(text, line, (size_t)n) == 0, "at line %d: %.40s", i, text);
        text += n;
    }
    cr_assert(*text == '\0', "more: %.40s", text);
}

Test(logs, the_console_goes_on_while_files_rotate_under_it)
{
    int out;

    rotate_at(4096, 2);
    out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_TEE);
    write_numbered(out, 20000); /* 240 KB, about 58 files */
    close(out);
    drain();

    check_numbered(seen, "[rank 0]: ", 20000);
    cr_assert(strlen(slurp(0, 0, "stdout")) < 4108);
}

Test(logs, a_console_that_nobody_reads_loses_no_line_of_rotated_files)
{
    enum { LINES = 300000 };
    int out;

    rotate_at(100000, 1);
    out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_TEE);
    for (int i = 0; i < LINES; i += 1000) {
        char line[16];

        for (int j = i; j < i + 1000; j++) {
            snprintf(line, sizeof line, "%06d\n", j);
            cr_assert(write(out, line, 7) == 7);
        }
        uv_run(&loop, UV_RUN_NOWAIT); /* the far end is not looked at */
    }
    close(out);
    n_seen = 0;
    for (int i = 0; i < LINES;) { /* only now */
        char *at = seen;

        uv_run(&loop, UV_RUN_NOWAIT);
        look();
        for (; at + 17 <= seen + n_seen; at += 17, i++)
            cr_assert(strncmp(at, "[rank 0]: ", 10) == 0 && atoi(at + 10) == i, "line %d: %.17s", i, at);
        n_seen -= (size_t)(at - seen);
        memmove(seen, at, n_seen);
    }
}

Test(logs, too_many_unshown_files_are_let_go_and_it_is_said)
{
    struct rlimit before, limit;
    const char *mark;
    int out;

    getrlimit(RLIMIT_NOFILE, &before);
    limit = (struct rlimit){ 64, before.rlim_max }; /* 16 files may be held */
    setrlimit(RLIMIT_NOFILE, &limit);
    rotate_at(70000, 1);
    out = open_stream(0, 0, RUNDIR_STDOUT, LOGS_TEE);
    for (int i = 0; i < 60; i++) {
        static char block[70000];

        memset(block, 'x', sizeof block);
        block[sizeof block - 1] = '\n';
        cr_assert(write(out, block, sizeof block) == sizeof block);
        uv_run(&loop, UV_RUN_NOWAIT);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    close(out);
    n_seen = 0;
    is_drained = false;
    logs_drain(logs, on_drained, NULL);
    while (!is_drained) {
        uv_run(&loop, UV_RUN_NOWAIT);
        look();
        if ((mark = strstr(seen, "rotated away unseen")) == NULL)
            n_seen = n_seen > 1000 ? 0 : n_seen;
        else
            n_seen = 0;
        if (mark != NULL)
            break;
    }
    cr_assert_not_null(mark);
    setrlimit(RLIMIT_NOFILE, &before);
    while (!is_drained) {
        uv_run(&loop, UV_RUN_NOWAIT);
        n_seen = 0;
        look();
    }
}

Test(logs, the_tail_reaches_over_a_rotation)
{
    struct errors_detail detail = { 0 };
    const struct errors_tail *tail = &detail.tail;
    int err;

    rotate_at(100, 1);
    err = open_stream(0, 0, RUNDIR_STDERR, LOGS_FILE);
    for (int i = 0; i < 10; i++)
        write_text(err, "a line of the traceback\n");
    run_turns(3);
    write_text(err, "the cause\n");
    close(err);

    cr_assert(logs_tell(logs, 0, false, &detail));
    cr_assert(tail->n_lines > 2 && strcmp(tail->lines[tail->n_lines - 1], "the cause") == 0 &&
                  strcmp(tail->lines[tail->n_lines - 2], "a line of the traceback") == 0,
              "%d lines", tail->n_lines);
}

Test(logs, filtered_lines_of_all_ranks_stand_in_one_file_a_generation)
{
    static char *const words[] = { "apple", "orange", NULL };
    int out[2], err;

    filters = words;
    for (int generation = 0; generation < 2; generation++) {
        for (int rank = 0; rank < 2; rank++)
            out[rank] = open_stream(generation, rank, RUNDIR_STDOUT, rank == 0 ? LOGS_TEE : LOGS_FILE);
        err = open_stream(generation, 0, RUNDIR_STDERR, LOGS_TEE);
        write_text(out[0], "an ap");
        run_turns(3);
        write_text(out[0], "ple\na pear\n");
        run_turns(3);
        write_text(out[1], generation == 0 ? "no\norange" : "none");
        write_text(err, "orange too\n");
        for (int rank = 0; rank < 2; rank++)
            close(out[rank]);
        close(err);
        logs_end_generation(logs);
        run_turns(3);
    }
    filters = NULL;

    cr_assert_str_eq(slurp(0, -1, "filtered_stdout"), "[rank 0]: an apple\n[rank 1]: orange\n");
    cr_assert_str_eq(slurp(1, -1, "filtered_stdout"), "[rank 0]: an apple\n");
    cr_assert_str_eq(slurp(1, -1, "filtered_stderr"), "[rank 0]: orange too\n");
}

Test(logs, a_prefix_is_made_of_its_names)
{
    const struct logs_names names = {
        .rank = 12, .local_rank = 4, .generation = 2, .host = "n1", .stream = RUNDIR_STDERR
    };
    char out[64], small[8];

    cr_assert_str_eq(logs_prefix(out, sizeof out, NULL, &names), "[rank 12]: ");
    cr_assert_str_eq(logs_prefix(out, sizeof out, "[${role_name}${local_rank}]:", &names), "[default4]:");
    cr_assert_str_eq(logs_prefix(out, sizeof out, "${host}/${stream}/${generation} ${x} $ ${ra", &names),
                     "n1/stderr/2 ${x} $ ${ra");
    cr_assert_str_eq(
        logs_prefix(out, sizeof out, "$$rank=$rank, $local_rank$hostname ${2} $ranks ${rank", &names),
        "$rank=12, 4n1 ${2} $ranks ${rank");
    cr_assert_str_eq(logs_prefix(small, sizeof small, NULL, &names), "[rank 1");
}
