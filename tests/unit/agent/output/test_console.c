/*
 * The console over real pipes, files and terminals, on a real loop. A source is a memfd that the test lets
 * grow.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
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

static void stop(void)
{
    console_destroy(console);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
    for (int i = 0; i < 2; i++) {
        free(got[i]);
        got[i] = NULL;
        n_got[i] = 0;
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

static void run_turns(int n)
{
    for (int i = 0; i < n; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

/* Some turns of the loop, and what came out at the far ends. */
static void show(int turns)
{
    run_turns(turns);
    read_far_ends();
}

static bool is_drained;
static uint64_t n_left;

static void on_drained(uint64_t left, void *data)
{
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

static struct file {
    int fd;
    uint64_t size;
    struct console_source *source;
    bool shown;
} out, err;

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

static void show_the_rest(struct file *file)
{
    console_end(file->source);
    drain_reading();
}

TestSuite(console, .init = start_on_pipes, .fini = stop);

Test(console, complete_lines_are_shown_with_their_prefix)
{
    open_file(&out, "[rank 0]: ", CONSOLE_OUT);
    open_file(&err, NULL, CONSOLE_ERR);
    say(&out, "one\ntwo\npart");
    say(&err, "error\n");
    show(20);
    cr_assert_str_eq(got[0], "[rank 0]: one\n[rank 0]: two\n");
    cr_assert_str_eq(got[1], "error\n");
    say(&out, "ial\nlast");
    console_end(err.source);
    show_the_rest(&out);

    cr_assert_str_eq(got[0], "[rank 0]: one\n[rank 0]: two\n[rank 0]: partial\n[rank 0]: last\n");
    cr_assert(out.shown && err.shown && n_left == 0);
    cr_assert(console_backlog(console) == 0);
}

Test(console, what_cannot_be_had_any_more_is_named_and_passed_over)
{
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
    show_the_rest(&out);

    cr_assert_str_eq(got[0], "> first\n> half a line\n> third\n> last\n", "all was shown before: %s", got[0]);
}

Test(console, a_skipped_piece_of_an_unread_log_is_counted)
{
    static char block[4 << 20];
    const char *mark;

    open_file(&out, NULL, CONSOLE_OUT);
    memset(block, '\n', sizeof block);
    grow(&out, block, sizeof block); /* more than the pipe holds */
    console_skip(out.source, sizeof block);
    say(&out, "last\n");
    show_the_rest(&out);

    mark = strstr(got[0], "[fsdprun: ");
    cr_assert_not_null(mark);
    cr_assert(strtoul(mark + 10, NULL, 10) + (size_t)(mark - got[0]) == sizeof block, "%.80s", mark);
    cr_assert_str_eq(strchr(mark, '\n'), "\nlast\n");
}

Test(console, closed_descriptors_swallow)
{
    stop();
    near_end[0] = near_end[1] = far_end[0] = far_end[1] = -1;
    start();
    open_file(&out, NULL, CONSOLE_OUT);
    say(&out, "x\n");
    console_say(console, "nobody hears");
    show_the_rest(&out);

    cr_assert(out.shown);
}

Test(console, regular_files_and_sockets_are_written)
{
    char name[] = "/tmp/fsdp-unit-console.XXXXXX", text[64] = "";
    int sockets[2];

    stop();
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
    console_end(err.source);
    show_the_rest(&out);

    cr_assert_str_eq(got[0], "o file\n");
    cr_assert_str_eq(got[1], "e socket\n");
    cr_assert(pread(near_end[0], text, sizeof text, 0) == 7);
    cr_assert((fcntl(sockets[0], F_GETFL) & O_NONBLOCK) == 0);
}

Test(console, one_terminal_is_one_sink_with_the_status_line_last)
{
    char *status;

    stop();
    start_on_a_terminal_but(-1);
    cr_assert(console_is_tty(console));
    open_file(&out, NULL, CONSOLE_OUT);
    open_file(&err, NULL, CONSOLE_ERR);
    console_status(console, "step 1");
    show(10);
    cr_assert_str_eq(got[0], "step 1");
    say(&out, "a line\n");
    show(10);
    cr_assert_str_eq(got[0], "step 1\r\033[Ka line\nstep 1");
    say(&err, "incomplete");
    console_status(console, "step 1");
    show(10);
    cr_assert_str_eq(got[0], "step 1\r\033[Ka line\nstep 1", "nothing new: nothing is drawn");
    console_status(console, "step 2");
    console_say(console, "ours");
    show(10);
    status = strrchr(got[0], 'K') + 1;
    cr_assert_str_eq(status, "ours\nstep 2");
    console_end(out.source);
    console_end(err.source);
    console_status(console, NULL);
    drain_reading();

    cr_assert_str_eq(strrchr(got[0], 'K') + 1, "incomplete\n", "the status line is gone");
}

Test(console, stdout_in_a_file_leaves_the_status_line)
{
    stop();
    start_on_a_terminal_but(memfd_create("log", MFD_CLOEXEC));
    console_status(console, "step 1");
    show(10);

    cr_assert(console_is_tty(console));
    cr_assert_str_eq(got[1], "step 1");
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

Test(console, a_flood_of_our_own_lines_is_bounded)
{
    for (int i = 0; i < 10000; i++)
        console_say(console, "line %d", i);
    show(50);
    show(50);

    cr_assert_not_null(strstr(got[1], "line 0\nline 1\n"));
    cr_assert_not_null(strstr(got[1], "lines of the launcher itself were dropped here\n"));
    cr_assert(n_got[1] < 70000);
}
