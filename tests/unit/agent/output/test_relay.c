/*
 * Inherited output on a real loop: the test is the worker, and whoever reads what fsdprun writes.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>

#include "tests/unit/agent/output/far_end.h"

enum { MOST = 4 << 20 };

static char chunk[65536];

static void create(int out_fd, int err_fd, bool direct)
{
    const struct output_spec spec = { .out_fd = out_fd, .err_fd = err_fd, .relays = true, .direct = direct };

    cr_assert(output_create(&output, &loop, &spec, NULL) == FSDP_OK);
}

static uint64_t lost(void)
{
    return output->relay.lost;
}

/*
 * stdout and stderr are one pipe, of which the test has the other end. Small: it is full soon. The near end
 * is borrowed: it stays open to the end of the test's process.
 */
static void over_a_pipe(bool direct)
{
    const int near_end = open_far_end();

    create(near_end, near_end, direct);
    fcntl(far_end, F_SETPIPE_SZ, 4096);
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    cr_assert(uv_loop_init(&loop) == 0);
    memset(chunk, 'x', sizeof chunk);
    over_a_pipe(false);
}

static void tear_down(void)
{
    close_output();
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
    if (far_end >= 0)
        close(far_end);
}

TestSuite(relay, .init = set_up, .fini = tear_down, .timeout = 600);

static int open_rank(int generation, int rank, bool shown)
{
    return open_output(&(struct stream_spec){ .generation = generation,
                                              .rank = rank,
                                              .which = RUNDIR_STDERR,
                                              .mode = shown ? OUTPUT_INHERIT : OUTPUT_NULL });
}

/* Until so much has come out, or the test's time is over. */
static void see(size_t n)
{
    while (n_seen < n)
        run_turns(1);
}

static void fill(int fd)
{
    cr_assert(write(fd, chunk, sizeof chunk) == sizeof chunk);
}

static const char *last_line(int rank)
{
    static struct errors_detail detail;

    memset(&detail, 0, sizeof detail);
    output_tell(output, rank, false, &detail);
    return detail.tail.n_lines > 0 ? detail.tail.lines[detail.tail.n_lines - 1] : "";
}

Test(relay, one_place_is_one_channel_and_others_are_not)
{
    int ends[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    cr_assert(output_joins(output));
    close_output();
    cr_assert(pipe2(ends, O_CLOEXEC) == 0);
    create(null, ends[1], false);
    cr_assert(!output_joins(output));
    close_output();
    create(null, null, false);
    cr_assert(!output_joins(output), "what the null device swallows has no order");
    close(open_rank(0, 0, true));
}

Test(relay, a_reader_that_stops_stops_the_writers_and_nothing_is_lost)
{
    size_t written = 0, before;
    int fds[2];

    for (int i = 0; i < 2; i++) {
        fds[i] = open_rank(0, i, true);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    do { /* until nothing moves any more: pipes, and what the relay holds, are full */
        before = written;
        for (int i = 0; i < 2; i++) {
            ssize_t n;

            while ((n = write(fds[i], chunk, sizeof chunk)) > 0)
                written += (size_t)n;
        }
        uv_run(&loop, UV_RUN_NOWAIT);
    } while (written > before);
    cr_assert(written <= 2 * sizeof chunk + sizeof chunk + 8192, "%zu bytes were taken of writers", written);

    close(fds[0]);
    close(fds[1]);
    output_end_generation(output);
    output_drain(output, on_drained, NULL);
    for (int i = 0; i < 50; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert(!is_drained, "it waits for the reader");
    while (!is_drained)
        run_turns(1);
    look();
    cr_assert(n_seen == written && lost() == 0, "%zu of %zu", n_seen, written);
}

Test(relay, what_a_dead_worker_left_is_known_though_nobody_reads)
{
    int loud, dead;

    loud = open_rank(0, 0, true);
    dead = open_rank(0, 1, true);
    fill(loud);
    for (int i = 0; i < 10; i++)
        uv_run(&loop, UV_RUN_NOWAIT); /* the far pipe is full */
    put(dead, "the cause\n");
    close(dead);

    cr_assert_str_eq(last_line(1), "the cause");
    close(loud);
    see(sizeof chunk + 10);
    cr_assert(memcmp(seen + n_seen - 10, "the cause\n", 10) == 0);
}

Test(relay, a_new_generation_begins_without_old_words)
{
    int fd = open_rank(0, 0, true);

    put(fd, "old\n");
    output_end_generation(output); /* somebody still holds it: it ends all the same */
    see(4);
    cr_assert(write(fd, "x", 1) < 0 && errno == EPIPE);
    close(fd);
    cr_assert_str_eq(last_line(0), "old");
    fd = open_rank(1, 0, true);
    cr_assert_str_eq(last_line(0), "");
    put(fd, "new\n");
    close(fd);
    cr_assert_str_eq(last_line(0), "new");
}

static int lowest_free_descriptor(void)
{
    const int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);

    close(fd);
    return fd;
}

/*
 * No reader, and many restarts: the relay holds a bounded number of descriptors and bytes, and counts what it
 * drops.
 */
Test(relay, generations_that_end_while_nobody_reads_cost_no_descriptors)
{
    enum { GENERATIONS = 300, CHUNK = 65536 };
    int first = -1, fd;

    for (int generation = 0; generation < GENERATIONS; generation++) {
        fd = open_rank(generation, generation % 2, true);
        fill(fd);
        uv_run(&loop, UV_RUN_NOWAIT);
        close(fd);
        output_end_generation(output);
        uv_run(&loop, UV_RUN_NOWAIT);
        if (generation == 0)
            first = lowest_free_descriptor();
    }
    cr_expect(lowest_free_descriptor() == first, "%d after one, %d after all", first,
              lowest_free_descriptor());
    cr_assert(lost() > 0);
    drain();
    cr_assert(n_seen + lost() == (size_t)GENERATIONS * CHUNK, "%zu seen, %llu lost of %zu", n_seen,
              (unsigned long long)lost(), (size_t)GENERATIONS * CHUNK);
    cr_expect(n_seen > MOST / 2 && n_seen <= MOST + CHUNK, "%zu were kept", n_seen);
}

Test(relay, what_is_not_kept_says_where_it_went)
{
    struct rlimit before, none;
    int fd;

    close_output();
    close(far_end);
    over_a_pipe(true);
    cr_assert(open_rank(0, 0, true) == -1);
    cr_assert_not_null(strstr(last_line(0), "--direct-output"));
    close_output();
    close(far_end);
    over_a_pipe(false);
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    fd = open_rank(0, 0, true);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_assert(fd == -1);
    cr_assert_not_null(strstr(last_line(0), strerror(EMFILE)));
    cr_assert_not_null(strstr(last_line(0), "--tee 3"));
}

Test(relay, a_full_disk_is_counted_and_the_worker_goes_on)
{
    struct rlimit before, small;
    char name[] = "/tmp/fsdp-unit-relay.XXXXXX", text[16] = "";
    int file = mkstemp(name), fd;

    signal(SIGXFSZ, SIG_IGN);
    unlink(name);
    close_output();
    create(file, file, false);
    fd = open_rank(0, 0, true);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4;
    setrlimit(RLIMIT_FSIZE, &small);
    put(fd, "abcdef");
    while (lost() == 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    setrlimit(RLIMIT_FSIZE, &before);
    put(fd, "more");
    close(fd);
    output_end_generation(output);

    cr_assert(lost() == 2);
    cr_assert(pread(file, text, 15, 0) == 8 && strcmp(text, "abcdmore") == 0, "%s", text);
    close(file);
}

/* A terminal */

/* The user's terminal: the test has its master. */
static int make_terminal(struct pty *terminal)
{
    const struct winsize size = { .ws_row = 33, .ws_col = 111 };
    int any = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (pty_open(terminal, any) != 0)
        cr_skip_test("no pseudo-terminal can be had here");
    close(any);
    ioctl(terminal->master, TIOCSWINSZ, &size);
    close_output();
    close(far_end);
    far_end = terminal->master;
    return terminal->slave;
}

Test(relay, a_terminal_stays_one_of_its_size_and_nothing_is_changed_on_the_way)
{
    struct winsize size = { 0 }, other = { .ws_row = 10, .ws_col = 20 };
    struct termios modes;
    struct pty terminal;
    int tty = make_terminal(&terminal), fd;

    tcgetattr(tty, &modes);
    modes.c_oflag |= OPOST | ONLCR; /* as a terminal comes */
    tcsetattr(tty, TCSANOW, &modes);
    create(tty, tty, false);
    cr_assert(output_joins(output));
    fd = open_rank(0, 0, true);

    cr_assert(isatty(fd) == 1);
    cr_assert(ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col == 111 && size.ws_row == 33);
    put(fd, "50%\r\x1b[1mdone\n");
    see(14);
    cr_assert(n_seen == 14 && memcmp(seen, "50%\r\x1b[1mdone\r\n", 14) == 0,
              "one carriage return: the terminal's");
    ioctl(terminal.master, TIOCSWINSZ, &other);
    output_resized(output);
    cr_assert(ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col == 20);
    put(fd, "Traceback");
    close(fd);
    cr_assert_str_eq(last_line(0), "Traceback", "it is read to its end, though its other end is closed");
    close(tty);
}
