/*
 * The console over real pipes, files and terminals, on a real loop. A source is a memfd that the test lets grow.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "agent/os/sink.h"
#include "agent/output/console.h"

static uv_loop_t loop;
static struct console *console;
static int near_end[2], far_end[2]; /* what the console writes to, what the test reads: stdout, stderr */
static char *got[2];
static size_t n_got[2];

static void start(void)
{
    cr_assert(uv_loop_init(&loop) == 0);
    cr_assert(console_create(&console, &loop, near_end[0], near_end[1], NULL) == FSDP_OK);
}

static void start_on_pipes(void)
{
    for (int i = 0; i < 2; i++) {
        int fds[2];

        cr_assert(pipe2(fds, O_CLOEXEC) == 0);
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
        near_end[i] = fds[1];
        far_end[i] = fds[0];
    }
    start();
}

/* A terminal for both; its far end is what a person sees. `instead` of it for stdout where that is not -1. */
static void start_on_a_terminal_but(int instead)
{
    struct termios raw;
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);

    cr_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    near_end[0] = near_end[1] = open(ptsname(master), O_RDWR | O_NOCTTY);
    far_end[0] = far_end[1] = master;
    tcgetattr(near_end[0], &raw);
    cfmakeraw(&raw);
    tcsetattr(near_end[0], TCSANOW, &raw);
    setenv("TERM", "xterm", 1);
    if (instead >= 0) {
        near_end[0] = instead;
        far_end[0] = memfd_create("nothing comes here", MFD_CLOEXEC);
    }
    start();
}

static void start_on_a_terminal(void)
{
    start_on_a_terminal_but(-1);
}

static void stop(void)
{
    console_destroy(console);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
    for (int i = 0; i < 2; i++) {
        free(got[i]);
        close(near_end[i]);
        close(far_end[i]);
    }
}

static void read_far_ends(void)
{
    char piece[65536];
    ssize_t n;

    for (int i = 0; i < 2; i++)
        while ((n = read(far_end[i], piece, sizeof piece)) > 0) {
            got[i] = realloc(got[i], n_got[i] + (size_t)n + 1);
            memcpy(got[i] + n_got[i], piece, (size_t)n);
            n_got[i] += (size_t)n;
            got[i][n_got[i]] = '\0';
        }
}

static bool run_turns(int n)
{
    bool active = true;

    for (int i = 0; i < n; i++)
        active = uv_run(&loop, UV_RUN_NOWAIT) != 0;
    return active;
}

static bool is_drained;
static uint64_t n_left;

static void on_drained(uint64_t left, void *data)
{
    (void)data;
    is_drained = true;
    n_left = left;
}

/* Let everything be shown, reading as it comes. */
static void drain_reading(void)
{
    is_drained = false;
    console_drain(console, 20000, 20000, on_drained, NULL);
    while (!is_drained) {
        uv_run(&loop, UV_RUN_NOWAIT);
        read_far_ends();
    }
    read_far_ends();
}

struct file {
    int fd;
    uint64_t size;
    struct console_source *source;
    bool shown;
};

static const char *look_at_file(void *data, uint64_t offset, char *room, size_t want, size_t *n)
{
    const ssize_t now = pread(((struct file *)data)->fd, room, want, (off_t)offset);

    *n = now > 0 ? (size_t)now : 0;
    return room;
}

static void on_shown(void *data)
{
    ((struct file *)data)->shown = true;
}

static void open_file(struct file *file, const char *prefix, enum console_sink sink)
{
    const struct console_source_spec spec = {
        .look = look_at_file,
        .path = "/x/stdout.log",
        .prefix = prefix,
        .sink = sink,
        .shown = on_shown,
        .data = file,
    };

    file->fd = memfd_create("log", MFD_CLOEXEC);
    file->size = 0;
    file->shown = false;
    cr_assert(console_add(console, &file->source, &spec, NULL) == FSDP_OK);
}

static void grow(struct file *file, const char *bytes, size_t n)
{
    cr_assert(write(file->fd, bytes, n) == (ssize_t)n);
    file->size += n;
    console_grew(file->source, file->size);
}

static void say(struct file *file, const char *text)
{
    grow(file, text, strlen(text));
}

Test(console, complete_lines_are_shown_with_their_prefix, .fini = stop)
{
    struct file out, err;

    start_on_pipes();
    open_file(&out, "[rank 0]: ", CONSOLE_OUT);
    open_file(&err, NULL, CONSOLE_ERR);
    say(&out, "one\ntwo\npart");
    say(&err, "error\n");
    run_turns(20);
    read_far_ends();
    cr_assert_str_eq(got[0], "[rank 0]: one\n[rank 0]: two\n");
    cr_assert_str_eq(got[1], "error\n");
    say(&out, "ial\nlast");
    console_end(out.source);
    console_end(err.source);
    drain_reading();

    cr_assert_str_eq(got[0], "[rank 0]: one\n[rank 0]: two\n[rank 0]: partial\n[rank 0]: last\n");
    cr_assert(out.shown && err.shown && n_left == 0);
    cr_assert(console_backlog(console) == 0 && console_written(console) == out.size + err.size);
}

Test(console, a_shared_description_is_left_as_it_is, .fini = stop)
{
    struct file out;

    start_on_pipes();
    open_file(&out, NULL, CONSOLE_OUT);
    say(&out, "x\n");
    run_turns(10);

    cr_assert((fcntl(near_end[0], F_GETFL) & O_NONBLOCK) == 0);
    cr_assert((fcntl(near_end[1], F_GETFL) & O_NONBLOCK) == 0);
}

/* Lines of `n` bytes from 8 sources in ragged pieces: none is torn, mixed or lost. */
static void many_writers(size_t length, int n_lines)
{
    enum { WRITERS = 8 };
    struct file files[WRITERS];
    char *line = malloc(length + 1), prefix[32];
    int seen[WRITERS] = { 0 };

    for (int i = 0; i < WRITERS; i++) {
        snprintf(prefix, sizeof prefix, "[rank %d]: ", i);
        open_file(&files[i], prefix, CONSOLE_OUT);
    }
    for (int l = 0; l < n_lines; l++)
        for (size_t at = 0; at < length + 1;) {
            const size_t piece = 4000 + (at * 7 + (size_t)l) % 9000 < length + 1 - at
                                     ? 4000 + (at * 7 + (size_t)l) % 9000
                                     : length + 1 - at;

            for (int i = 0; i < WRITERS; i++) {
                memset(line, 'a' + i, length);
                line[length] = '\n';
                grow(&files[i], line + at, piece);
            }
            at += piece;
            run_turns(1);
            read_far_ends();
        }
    for (int i = 0; i < WRITERS; i++)
        console_end(files[i].source);
    drain_reading();

    for (char *at = got[0]; *at != '\0';) {
        char *end = strchr(at, '\n');
        const int who = at[6] - '0';

        cr_assert((size_t)(end - at) == length + 10, "a line of %zu bytes", (size_t)(end - at));
        for (char *c = at + 10; c < end; c++)
            cr_assert(*c == 'a' + who, "mixed");
        seen[who]++;
        at = end + 1;
    }
    for (int i = 0; i < WRITERS; i++)
        cr_assert(seen[i] == n_lines, "%d of %d lines of rank %d", seen[i], n_lines, i);
    free(line);
}

Test(console, lines_of_64_kib_from_eight_writers_are_whole, .fini = stop)
{
    start_on_pipes();
    many_writers(CONSOLE_LINE_BYTES, 4);
}

Test(console, short_lines_from_eight_writers_are_whole, .fini = stop)
{
    start_on_pipes();
    many_writers(9, 400);
}

Test(console, longer_lines_are_cut_and_say_where_the_rest_is, .fini = stop)
{
    static char line[5 * CONSOLE_LINE_BYTES];
    struct file out;
    char mark[128];
    size_t n;

    start_on_pipes();
    open_file(&out, "> ", CONSOLE_OUT);
    memset(line, 'x', sizeof line);
    grow(&out, line, CONSOLE_LINE_BYTES + 1);
    run_turns(10);
    read_far_ends();
    cr_assert(n_got[0] == 0, "its size is not known before its end");
    for (int i = 0; i < 20; i++) {
        grow(&out, line, sizeof line);
        run_turns(2);
    }
    say(&out, "\nshort\n");
    grow(&out, line, CONSOLE_LINE_BYTES + 7); /* the last one has no end */
    console_end(out.source);
    drain_reading();

    n = snprintf(mark, sizeof mark, "... [cut: %zu bytes in /x/stdout.log]\n> short\n> xxx",
                 20 * sizeof line + CONSOLE_LINE_BYTES + 1);
    cr_assert(strncmp(got[0] + 2 + CONSOLE_LINE_BYTES, mark, n) == 0, "%.100s",
              got[0] + 2 + CONSOLE_LINE_BYTES);
    snprintf(mark, sizeof mark, "x... [cut: %d bytes in /x/stdout.log]\n", CONSOLE_LINE_BYTES + 7);
    cr_assert_str_eq(got[0] + n_got[0] - strlen(mark), mark);
}

Test(console, what_cannot_be_had_any_more_is_named_and_passed_over, .fini = stop)
{
    struct file out;

    start_on_pipes();
    open_file(&out, "> ", CONSOLE_OUT);
    say(&out, "first\nhalf a li");
    run_turns(5);
    cr_assert(console_taken(out.source) == 6);
    console_skip(out.source, 3); /* shown already: nothing is missing */
    run_turns(5);
    say(&out, "ne\nthird\n");
    console_skip(out.source, 12);
    run_turns(5);
    console_skip(out.source, out.size);
    say(&out, "last\n");
    console_end(out.source);
    drain_reading();

    cr_assert_str_eq(got[0], "> first\n> half a line\n> third\n> last\n", "all was shown before: %s", got[0]);
}

Test(console, a_skipped_piece_of_an_unread_log_is_counted, .fini = stop)
{
    static char block[4 << 20];
    const char *mark;
    struct file out;

    start_on_pipes();
    open_file(&out, NULL, CONSOLE_OUT);
    memset(block, '\n', sizeof block);
    grow(&out, block, sizeof block); /* more than the pipe holds */
    console_skip(out.source, sizeof block);
    say(&out, "last\n");
    console_end(out.source);
    drain_reading();

    mark = strstr(got[0], "[fsdprun: ");
    cr_assert_not_null(mark);
    cr_assert(strtoul(mark + 10, NULL, 10) + (size_t)(mark - got[0]) == sizeof block, "%.80s", mark);
    cr_assert_str_eq(strchr(mark, '\n'), "\nlast\n");
}

Test(console, a_line_of_one_byte_writes_is_found, .fini = stop)
{
    struct file out;

    start_on_pipes();
    open_file(&out, NULL, CONSOLE_OUT);
    for (int i = 0; i < 3000; i++) {
        grow(&out, "x", 1);
        run_turns(1);
    }
    grow(&out, "\n", 1);
    console_end(out.source);
    drain_reading();

    cr_assert(n_got[0] == 3001 && got[0][3000] == '\n');
}

Test(console, an_unread_pipe_holds_nobody_up_and_is_served_when_read, .fini = stop)
{
    enum { TOTAL = 4 << 20 };
    static char block[65536];
    struct file out;

    start_on_pipes();
    open_file(&out, NULL, CONSOLE_OUT);
    memset(block, 'x', sizeof block);
    for (size_t i = 99; i < sizeof block; i += 100)
        block[i] = '\n';
    block[sizeof block - 1] = '\n';
    for (int i = 0; i < TOTAL / 65536; i++) {
        grow(&out, block, sizeof block);
        run_turns(3);
    }
    cr_assert(console_backlog(console) > TOTAL / 2, "the pipe took only what it holds");
    console_end(out.source);
    drain_reading();

    cr_assert(n_got[0] == TOTAL && n_left == 0);
}

Test(console, a_stalled_reader_is_given_up_and_the_rest_is_counted, .fini = stop)
{
    static char block[4 << 20];
    struct file out;

    start_on_pipes();
    open_file(&out, NULL, CONSOLE_OUT);
    memset(block, '\n', sizeof block);
    grow(&out, block, sizeof block);
    console_end(out.source);
    is_drained = false;
    console_drain(console, 100, 1, on_drained, NULL);
    while (!is_drained)
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(n_left > sizeof block / 2 && n_left < sizeof block, "%zu", (size_t)n_left);
}

Test(console, a_reader_that_is_gone_swallows, .fini = stop)
{
    struct file out;

    start_on_pipes();
    open_file(&out, NULL, CONSOLE_OUT);
    close(far_end[0]);
    far_end[0] = -1;
    say(&out, "x\n");
    run_turns(5);
    say(&out, "y\n");
    console_end(out.source);
    console_say(console, "still heard");
    drain_reading();

    cr_assert(out.shown && n_left == 0);
    cr_assert_str_eq(got[1], "still heard\n");
}

Test(console, closed_descriptors_swallow)
{
    struct file out;

    near_end[0] = near_end[1] = -1;
    start();
    open_file(&out, NULL, CONSOLE_OUT);
    say(&out, "x\n");
    console_say(console, "nobody hears");
    console_end(out.source);
    is_drained = false;
    console_drain(console, 10000, 10000, on_drained, NULL);
    while (!is_drained)
        uv_run(&loop, UV_RUN_ONCE);

    cr_assert(out.shown);
    console_destroy(console);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0);
}

Test(console, regular_files_and_sockets_are_written)
{
    char name[] = "/tmp/fsdp-unit-console.XXXXXX", text[64] = "";
    struct file out, err;
    int sockets[2];

    cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    near_end[0] = mkstemp(name);
    near_end[1] = sockets[0];
    far_end[0] = open(name, O_RDONLY);
    far_end[1] = sockets[1];
    fcntl(sockets[1], F_SETFL, O_NONBLOCK);
    unlink(name);
    start();
    open_file(&out, "o ", CONSOLE_OUT);
    open_file(&err, "e ", CONSOLE_ERR);
    say(&out, "file\n");
    say(&err, "socket\n");
    console_end(out.source);
    console_end(err.source);
    drain_reading();

    cr_assert_str_eq(got[0], "o file\n");
    cr_assert_str_eq(got[1], "e socket\n");
    cr_assert(pread(near_end[0], text, sizeof text, 0) == 7);
    cr_assert((fcntl(sockets[0], F_GETFL) & O_NONBLOCK) == 0);
    stop();
}

Test(console, one_terminal_is_one_sink_with_the_status_line_last, .fini = stop)
{
    struct file out, err;
    char *status;

    start_on_a_terminal();
    cr_assert(console_is_tty(console));
    open_file(&out, NULL, CONSOLE_OUT);
    open_file(&err, NULL, CONSOLE_ERR);
    console_status(console, "step 1");
    run_turns(10);
    read_far_ends();
    cr_assert_str_eq(got[0], "step 1");
    say(&out, "a line\n");
    run_turns(10);
    read_far_ends();
    cr_assert_str_eq(got[0], "step 1\r\033[Ka line\nstep 1");
    say(&err, "incomplete");
    console_status(console, "step 1");
    run_turns(10);
    read_far_ends();
    cr_assert_str_eq(got[0], "step 1\r\033[Ka line\nstep 1", "nothing new: nothing is drawn");
    console_status(console, "step 2");
    console_say(console, "ours");
    run_turns(10);
    read_far_ends();
    status = strrchr(got[0], 'K') + 1;
    cr_assert_str_eq(status, "ours\nstep 2");
    console_end(out.source);
    console_end(err.source);
    console_status(console, NULL);
    drain_reading();

    cr_assert_str_eq(strrchr(got[0], 'K') + 1, "incomplete\n", "the status line is gone");
}

Test(console, stdout_on_a_pipe_means_no_status_line, .fini = stop)
{
    int pipe_ends[2];

    cr_assert(pipe2(pipe_ends, O_CLOEXEC) == 0);
    start_on_a_terminal_but(pipe_ends[1]); /* fsdprun ... | tee log: tee writes to this terminal too */
    console_status(console, "step 1");
    console_say(console, "ours");
    run_turns(10);
    read_far_ends();

    cr_assert_not(console_is_tty(console));
    cr_assert_str_eq(got[1], "ours\n");
    close(pipe_ends[0]);
}

Test(console, stdout_in_a_file_leaves_the_status_line, .fini = stop)
{
    start_on_a_terminal_but(memfd_create("log", MFD_CLOEXEC));
    console_status(console, "step 1");
    run_turns(10);
    read_far_ends();

    cr_assert(console_is_tty(console));
    cr_assert_str_eq(got[1], "step 1");
}

Test(console, a_stopped_terminal_holds_nobody_up, .fini = stop)
{
    static char block[1 << 20];
    struct file out;

    start_on_a_terminal();
    open_file(&out, NULL, CONSOLE_OUT);
    memset(block, '\n', sizeof block);
    grow(&out, block, sizeof block);
    run_turns(1000);
    cr_assert(console_backlog(console) > sizeof block / 2, "it takes only what its buffer holds");
    cr_assert((fcntl(near_end[0], F_GETFL) & O_NONBLOCK) == 0);
    console_end(out.source);
    drain_reading();

    cr_assert(n_got[0] == sizeof block);
}

Test(console, what_cannot_be_reopened_is_written_in_small_pieces)
{
    char text[1024];
    struct sink sink;
    int fds[2];
    ssize_t n, total = 0;

    cr_assert(pipe(fds) == 0);
    sink_init(&sink, fds[1]);
    close(sink.own); /* as if /proc had refused it */
    sink.own = -1;
    sink.kind = SINK_POLLED;
    memset(text, 'x', sizeof text);

    while ((n = sink_write(&sink, text, sizeof text)) > 0) {
        cr_assert(n <= 256);
        total += n;
    }

    cr_assert(n == 0, "it never waits for a full pipe");
    cr_assert(total >= 4096, "%zd", total);
    close(fds[0]);
    sink_fini(&sink);
    close(fds[1]);
}

Test(console, a_flood_of_our_own_lines_is_bounded, .fini = stop)
{
    start_on_pipes();
    for (int i = 0; i < 10000; i++)
        console_say(console, "line %d", i);
    run_turns(50);
    read_far_ends();
    run_turns(50);
    read_far_ends();

    cr_assert_not_null(strstr(got[1], "line 0\nline 1\n"));
    cr_assert_not_null(strstr(got[1], "lines of the launcher itself were dropped here\n"));
    cr_assert(n_got[1] < 70000);
}
