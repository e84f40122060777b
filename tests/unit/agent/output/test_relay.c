/*
 * Inherited output on a real loop: the test is the worker, and whoever reads what fsdprun writes.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include "agent/output/pty.h"
#include "agent/output/relay.h"

enum { MOST = 4 << 20 };

static uv_loop_t loop;
static struct relay *relay;
static int far_end;
static char seen[2 * MOST];
static size_t n_seen;
static bool drained;

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    cr_assert(uv_loop_init(&loop) == 0);
    far_end = -1;
}

static void tear_down(void)
{
    relay_destroy(relay);
    relay = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
    if (far_end >= 0)
        close(far_end);
}

TestSuite(relay, .init = set_up, .fini = tear_down, .timeout = 600);

/* stdout and stderr are one pipe, of which the test has the other end. Small: it is full soon. */
static void over_a_pipe(bool direct)
{
    int ends[2];

    cr_assert(pipe2(ends, O_CLOEXEC) == 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    far_end = ends[0];
    cr_assert(relay_create(&relay, &loop, ends[1], ends[1], direct, NULL) == FSDP_OK);
    fcntl(far_end, F_SETPIPE_SZ, 4096);
    /* The relay borrows the descriptor: it stays open to the end of the test's process. */
}

static int open_rank(int generation, int rank, bool shown)
{
    int fd;

    cr_assert(relay_open(relay, generation, rank, shown, &fd, NULL) == FSDP_OK);
    return fd;
}

static void turn(void)
{
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void look(void)
{
    ssize_t n;

    while ((n = read(far_end, seen + n_seen, sizeof seen - n_seen)) > 0)
        n_seen += (size_t)n;
}

/* Until so much has come out, or the test's time is over. */
static void see(size_t n)
{
    while (n_seen < n) {
        turn();
        look();
    }
}

static void put(int fd, const char *text)
{
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void on_drained(void *data)
{
    *(bool *)data = true;
}

static const char *last_line(int rank)
{
    static struct errors_detail detail;

    memset(&detail, 0, sizeof detail);
    relay_tell(relay, rank, false, &detail);
    return detail.tail.n_lines > 0 ? detail.tail.lines[detail.tail.n_lines - 1] : "";
}

Test(relay, bytes_come_out_as_they_went_in_and_the_last_are_known)
{
    int fd;

    over_a_pipe(false);
    fd = open_rank(0, 3, true);
    put(fd, "a\rb\x1b[31mc\n no end");
    see(17);

    cr_assert(n_seen == 17 && memcmp(seen, "a\rb\x1b[31mc\n no end", 17) == 0);
    put(fd, "; killed");
    close(fd);
    cr_assert_str_eq(last_line(3), " no end; killed", "what the pipe still held counts");
    cr_assert_str_eq(last_line(4), "");
}

Test(relay, one_place_is_one_channel_and_others_are_not)
{
    int ends[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    over_a_pipe(false);
    cr_assert(relay_joins(relay));
    relay_destroy(relay);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(pipe2(ends, O_CLOEXEC) == 0);
    cr_assert(relay_create(&relay, &loop, null, ends[1], false, NULL) == FSDP_OK);
    cr_assert(!relay_joins(relay));
    relay_destroy(relay);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(relay_create(&relay, &loop, null, null, false, NULL) == FSDP_OK);
    cr_assert(!relay_joins(relay), "what the null device swallows has no order");
    close(open_rank(0, 0, true));
}

Test(relay, a_reader_that_stops_stops_the_writers_and_nothing_is_lost)
{
    static char chunk[65536];
    size_t written = 0, before;
    int fds[2];

    over_a_pipe(false);
    for (int i = 0; i < 2; i++) {
        fds[i] = open_rank(0, i, true);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    memset(chunk, 'x', sizeof chunk);
    do { /* until nothing moves any more: pipes, and what the relay holds, are full */
        before = written;
        for (int i = 0; i < 2; i++) {
            ssize_t n;

            while ((n = write(fds[i], chunk, sizeof chunk)) > 0)
                written += (size_t)n;
        }
        turn();
    } while (written > before);
    cr_assert(written <= 2 * sizeof chunk + sizeof chunk + 8192, "%zu bytes were taken of writers", written);

    close(fds[0]);
    close(fds[1]);
    relay_end_generation(relay);
    relay_drain(relay, on_drained, &drained);
    for (int i = 0; i < 50; i++)
        turn();
    cr_assert(!drained, "it waits for the reader");
    while (!drained) {
        turn();
        look();
    }
    look();
    cr_assert(n_seen == written && relay_lost(relay) == 0, "%zu of %zu", n_seen, written);
}

Test(relay, what_a_dead_worker_left_is_known_though_nobody_reads)
{
    static char chunk[65536];
    int loud, dead;

    over_a_pipe(false);
    loud = open_rank(0, 0, true);
    dead = open_rank(0, 1, true);
    memset(chunk, 'x', sizeof chunk);
    cr_assert(write(loud, chunk, sizeof chunk) == sizeof chunk);
    for (int i = 0; i < 10; i++)
        turn(); /* the far pipe is full */
    put(dead, "the cause\n");
    close(dead);

    cr_assert_str_eq(last_line(1), "the cause");
    close(loud);
    see(sizeof chunk + 10);
    cr_assert(memcmp(seen + n_seen - 10, "the cause\n", 10) == 0);
}

Test(relay, once_hurried_the_end_does_not_wait_for_ever)
{
    static char chunk[65536];
    int fd;

    over_a_pipe(false);
    fd = open_rank(0, 0, true);
    memset(chunk, 'x', sizeof chunk);
    cr_assert(write(fd, chunk, sizeof chunk) == sizeof chunk);
    close(fd);
    relay_end_generation(relay);
    relay_drain(relay, on_drained, &drained);
    relay_hurry(relay);
    relay_hurry(relay);

    while (!drained)
        uv_run(&loop, UV_RUN_ONCE);
    look();
    cr_assert(n_seen + relay_lost(relay) == sizeof chunk, "%zu seen, %llu lost", n_seen,
              (unsigned long long)relay_lost(relay));
}

Test(relay, a_reader_that_went_away_is_felt_by_the_workers)
{
    int fd, again;

    over_a_pipe(false);
    fd = open_rank(0, 0, true);
    close(far_end);
    far_end = -1;
    while (write(fd, "x", 1) == 1)
        turn();
    cr_assert(errno == EPIPE);
    again = open_rank(1, 0, true);
    cr_assert(again == -1, "the next one keeps ours, and feels the same");
    relay_end_generation(relay);
    relay_drain(relay, on_drained, &drained);
    while (!drained)
        uv_run(&loop, UV_RUN_ONCE);
    close(fd);
}

Test(relay, a_rank_that_is_not_shown_is_known_all_the_same)
{
    int hidden, shown;

    over_a_pipe(false);
    hidden = open_rank(0, 0, false);
    shown = open_rank(0, 1, true);
    put(hidden, "unseen\n");
    put(shown, "seen\n");
    see(5);
    for (int i = 0; i < 5; i++)
        turn();
    look();

    cr_assert(n_seen == 5 && memcmp(seen, "seen\n", 5) == 0);
    cr_assert_str_eq(last_line(0), "unseen");
    close(hidden);
    close(shown);
}

Test(relay, a_new_generation_begins_without_old_words)
{
    int fd;

    over_a_pipe(false);
    fd = open_rank(0, 0, true);
    put(fd, "old\n");
    relay_end_generation(relay); /* somebody still holds it: it ends all the same */
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

/* Over many restarts, and nobody reads: what is held is bounded, in descriptors and in bytes; the rest is counted. */
Test(relay, generations_that_end_while_nobody_reads_cost_no_descriptors)
{
    enum { GENERATIONS = 300, CHUNK = 65536 };
    static char chunk[CHUNK];
    int first = -1, fd;

    over_a_pipe(false);
    memset(chunk, 'x', sizeof chunk);
    for (int generation = 0; generation < GENERATIONS; generation++) {
        fd = open_rank(generation, generation % 2, true);
        cr_assert(write(fd, chunk, sizeof chunk) == sizeof chunk);
        turn();
        close(fd);
        relay_end_generation(relay);
        turn();
        if (generation == 0)
            first = lowest_free_descriptor();
    }
    cr_expect(lowest_free_descriptor() == first, "%d after one, %d after all", first,
              lowest_free_descriptor());
    cr_assert(relay_lost(relay) > 0);
    relay_drain(relay, on_drained, &drained);
    while (!drained) {
        turn();
        look();
    }
    look();
    cr_assert(n_seen + relay_lost(relay) == (size_t)GENERATIONS * CHUNK, "%zu seen, %llu lost of %zu", n_seen,
              (unsigned long long)relay_lost(relay), (size_t)GENERATIONS * CHUNK);
    cr_expect(n_seen > MOST / 2 && n_seen <= MOST + CHUNK, "%zu were kept", n_seen);
}

Test(relay, what_is_not_kept_says_where_it_went)
{
    struct rlimit before, none;
    int fd;

    over_a_pipe(true);
    cr_assert(open_rank(0, 0, true) == -1);
    cr_assert_not_null(strstr(last_line(0), "--direct-output"));
    relay_destroy(relay);
    uv_run(&loop, UV_RUN_DEFAULT);
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
    cr_assert(relay_create(&relay, &loop, file, file, false, NULL) == FSDP_OK);
    fd = open_rank(0, 0, true);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4;
    setrlimit(RLIMIT_FSIZE, &small);
    put(fd, "abcdef");
    while (relay_lost(relay) == 0)
        turn();
    setrlimit(RLIMIT_FSIZE, &before);
    put(fd, "more");
    close(fd);
    relay_end_generation(relay);

    cr_assert(relay_lost(relay) == 2);
    cr_assert(pread(file, text, 15, 0) == 8 && strcmp(text, "abcdmore") == 0, "%s", text);
    close(file);
}

/* --- a terminal --------------------------------------------------------------------------------------------------- */

/* The user's terminal: the test has its master. */
static int make_terminal(struct pty *terminal)
{
    const struct winsize size = { .ws_row = 33, .ws_col = 111 };
    int any = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (pty_open(terminal, any) != 0)
        cr_skip_test("no pseudo-terminal can be had here");
    close(any);
    ioctl(terminal->master, TIOCSWINSZ, &size);
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
    cr_assert(relay_create(&relay, &loop, tty, tty, false, NULL) == FSDP_OK);
    cr_assert(relay_joins(relay));
    fd = open_rank(0, 0, true);

    cr_assert(isatty(fd) == 1);
    cr_assert(ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col == 111 && size.ws_row == 33);
    put(fd, "50%\r\x1b[1mdone\n");
    see(14);
    cr_assert(n_seen == 14 && memcmp(seen, "50%\r\x1b[1mdone\r\n", 14) == 0,
              "one carriage return: the terminal's");
    ioctl(terminal.master, TIOCSWINSZ, &other);
    relay_resized(relay);
    cr_assert(ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col == 20);
    put(fd, "Traceback");
    close(fd);
    cr_assert_str_eq(last_line(0), "Traceback", "it is read to its end, though its other end is closed");
    close(tty);
}
