#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "agent/desk/desk.h"
#include "shard_runtime/core/clock.h"

static uv_loop_t loop;
static struct desk *desk;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_bytes;
static int n_stops, n_saves, n_restarts, refused_with;
static size_t answer_bytes;

static void on_show(void *arg, enum desk_word word, struct json_text *answer)
{
    json_open(answer, NULL, '{');
    json_field_string(answer, "asked", desk_word_text(word));
    json_key(answer, "much");
    json_add(answer, "\"");
    for (size_t i = 0; i < answer_bytes; i++)
        json_add(answer, "x");
    json_add(answer, "\"");
    json_close(answer, '}');
}

static int on_order(void *arg, enum desk_word word, char *reason)
{
    n_stops += word == DESK_STOP;
    n_saves += word == DESK_SAVE;
    n_restarts += word == DESK_RESTART;
    snprintf(reason, DESK_REASON_BYTES, "no");
    return refused_with;
}

/* The socket has an abstract name, so that no file is needed. */
static void begin(void)
{
    const struct desk_handlers handlers = { .show = on_show, .order = on_order };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct fsdp_err err = { 0 };

    n_stops = n_saves = n_restarts = refused_with = 0;
    answer_bytes = 0;
    address_bytes = sizeof(sa_family_t);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, address_bytes), 0); /* autobind: a name of its own */
    address_bytes = sizeof address;
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &address_bytes), 0);
    cr_assert_eq(listen(fd, 64), 0);
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert(eq(int, desk_open(&desk, &loop, fd, &handlers, &err), FSDP_OK), "%s", err.message);
}

static void end(void)
{
    desk_close(desk, 143, "stopped by SIGTERM");
    desk = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(eq(int, uv_loop_close(&loop), 0), "a handle was left");
}

TestSuite(desk, .init = begin, .fini = end, .timeout = 120);

static int dial(void)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    cr_assert(ge(int, fd, 0), "%s", strerror(errno));
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, address_bytes), 0, "%s", strerror(errno));
    return fd;
}

static int say(const char *line)
{
    const int fd = dial();

    cr_assert_eq(send(fd, line, strlen(line), MSG_NOSIGNAL), (ssize_t)strlen(line));
    return fd;
}

/*
 * Read until the end of the connection, or until `lines` lines have come. Returns the text, and whether the
 * end has come in `ended`. Kept until the next call.
 */
static const char *hear(int fd, int lines, bool *ended)
{
    static char text[2 * DESK_ANSWER_BYTES];
    const int64_t until_ms = clock_now_ms() + 20000;
    size_t n = 0;

    *ended = false;
    while (clock_now_ms() < until_ms) {
        const ssize_t got = recv(fd, text + n, sizeof text - 1 - n, MSG_DONTWAIT);

        if (got > 0) {
            for (ssize_t i = 0; i < got; i++)
                lines -= text[n + (size_t)i] == '\n';
            n += (size_t)got;
        }
        *ended = got == 0 || (got < 0 && errno == ECONNRESET);
        if (*ended || lines == 0)
            break;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    text[n] = '\0';
    return text;
}

static const char *ask(const char *line)
{
    const int fd = say(line);
    bool ended;
    const char *answer = hear(fd, -1, &ended);

    cr_assert(ended, "the connection stays open after %s", answer);
    close(fd);
    return answer;
}

static bool is_cut(int fd)
{
    bool ended;

    hear(fd, -1, &ended);
    return ended;
}

Test(desk, answers_a_question_and_closes)
{
    cr_assert(eq(str, (char *)ask("ps\n"), "{\"asked\": \"ps\", \"much\": \"\"}\n"));
    cr_assert(eq(str, (char *)ask("inspect\n"), "{\"asked\": \"inspect\", \"much\": \"\"}\n"));
}

Test(desk, a_line_may_come_in_pieces)
{
    const int fd = say("sta");
    bool ended;

    uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert_eq(send(fd, "tus\n", 4, MSG_NOSIGNAL), 4);

    cr_assert_not_null(strstr(hear(fd, -1, &ended), "\"status\""));
    close(fd);
}

static void is_refused(const char *line)
{
    cr_assert_not_null(strstr(ask(line), "{\"refused\": 2, "), "%s", line);
    cr_assert(eq(int, n_stops + n_saves + n_restarts, 0));
}

Test(desk, what_is_no_word_is_refused)
{
    is_refused("\n");
    is_refused("stop now\n");
    is_refused("STOP\n");
    is_refused("\xff\xfe\n");
}

Test(desk, a_giant_line_is_refused_and_not_read)
{
    char line[5000];

    memset(line, 'a', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    is_refused(line);
}

Test(desk, an_order_is_accepted_and_answered_at_the_end)
{
    const int fd = say("stop\n");
    bool ended;

    cr_assert(eq(str, (char *)hear(fd, 1, &ended), "{\"accepted\": true}\n"));
    cr_assert(not(ended));
    cr_assert(eq(int, n_stops, 1));
    desk_close(desk, 143, "stopped by SIGTERM");
    desk = NULL;

    cr_assert(eq(str, (char *)hear(fd, -1, &ended), "{\"ended\": 143, \"words\": \"stopped by SIGTERM\"}\n"));
    close(fd);
}

Test(desk, one_that_watches_is_told_what_changes_and_nothing_else)
{
    const int fd = say("watch\n");
    const int64_t begun_ms = clock_now_ms();
    bool ended;

    cr_assert(eq(str, (char *)hear(fd, 1, &ended), "{\"asked\": \"watch\", \"much\": \"\"}\n"));
    while (clock_now_ms() < begun_ms + 3 * DESK_WATCH_MS) /* what is the same is not told again */
        uv_run(&loop, UV_RUN_ONCE);
    answer_bytes = 1;

    cr_assert(eq(str, (char *)hear(fd, 1, &ended), "{\"asked\": \"watch\", \"much\": \"x\"}\n"));
    cr_assert(not(ended));
    desk_close(desk, 0, "complete");
    desk = NULL;
    cr_assert(eq(str, (char *)hear(fd, -1, &ended), ""));
    cr_assert(ended);
    close(fd);
}

Test(desk, one_that_watches_and_takes_nothing_is_cut)
{
    const int fd = say("watch all\n");
    const int64_t until_ms = clock_now_ms() + 60000;
    bool ended = false;

    answer_bytes = DESK_ANSWER_BYTES - 1000;
    for (int64_t begun_ms = clock_now_ms(); clock_now_ms() < begun_ms + 2 * DESK_MS; answer_bytes ^= 1)
        uv_run(&loop, UV_RUN_NOWAIT); /* each is new, and the socket is full soon */

    while (!ended && clock_now_ms() < until_ms)
        hear(fd, -1, &ended);
    cr_assert(ended);
    close(fd);
}

Test(desk, watchers_make_room_for_an_order)
{
    int fds[DESK_CONNECTIONS];
    bool ended;

    for (int i = 0; i < DESK_CONNECTIONS; i++) {
        fds[i] = say("watch\n");
        hear(fds[i], 1, &ended);
        cr_assert(not(ended), "%d", i);
    }
    const int order = say("stop\n");

    cr_assert(eq(str, (char *)hear(order, 1, &ended), "{\"accepted\": true}\n"));
    cr_assert(is_cut(fds[0]), "the oldest has made room");
    for (int i = 0; i < DESK_CONNECTIONS; i++)
        close(fds[i]);
    close(order);
}

Test(desk, a_restart_is_answered_when_a_generation_was_formed)
{
    const int stop = say("save\n"), restart = say("restart\n");
    bool ended;

    hear(stop, 1, &ended);
    hear(restart, 1, &ended);
    desk_formed(desk, 3);

    cr_assert(eq(str, (char *)hear(restart, -1, &ended), "{\"generation\": 3}\n"));
    cr_assert(ended);
    cr_assert(eq(int, n_saves * 10 + n_restarts, 11));
    desk_close(desk, 77, "saved");
    desk = NULL;
    cr_assert(eq(str, (char *)hear(stop, -1, &ended), "{\"ended\": 77, \"words\": \"saved\"}\n"));
    close(stop);
    close(restart);
}

Test(desk, an_order_that_is_refused_says_why)
{
    refused_with = 75;

    cr_assert(eq(str, (char *)ask("restart\n"), "{\"refused\": 75, \"words\": \"no\"}\n"));
}

Test(desk, an_order_stays_given_when_its_caller_goes)
{
    const int fd = say("stop\n");
    bool ended;

    hear(fd, 1, &ended);
    close(fd);
    uv_run(&loop, UV_RUN_NOWAIT);

    cr_assert(eq(int, n_stops, 1));
}

Test(desk, a_caller_that_says_nothing_is_cut)
{
    const int64_t began_ms = clock_now_ms();
    const int silent = dial(), slow = say("p");

    cr_assert(is_cut(silent));
    cr_assert(is_cut(slow));

    cr_assert(ge(i64, clock_now_ms() - began_ms, DESK_MS));
    close(silent);
    close(slow);
}

Test(desk, a_caller_that_takes_nothing_is_cut)
{
    const int small = 1;
    int fd;
    bool ended;

    answer_bytes = DESK_ANSWER_BYTES - 100;
    fd = dial();
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    cr_assert_eq(send(fd, "ps\n", 3, MSG_NOSIGNAL), 3);
    for (int64_t until_ms = clock_now_ms() + DESK_MS + 1500; clock_now_ms() < until_ms;)
        uv_run(&loop, UV_RUN_NOWAIT); /* the caller reads nothing meanwhile */

    cr_assert(lt(sz, strlen(hear(fd, -1, &ended)), answer_bytes));
    cr_assert(ended);
    close(fd);
}

Test(desk, a_large_answer_comes_whole)
{
    answer_bytes = DESK_ANSWER_BYTES - 100;

    cr_assert(gt(sz, strlen(ask("ps\n")), answer_bytes));
}

Test(desk, an_answer_that_is_too_large_is_refused)
{
    answer_bytes = DESK_ANSWER_BYTES;

    cr_assert_not_null(strstr(ask("ps\n"), "\"refused\": 74"));
}

/* They hold their ends open. The desk holds DESK_CONNECTIONS at most, and answers others at once. */
Test(desk, ten_thousand_idle_callers_keep_nobody_from_an_answer)
{
    enum { N = 10000 };
    static int held[N];
    struct rlimit limit;
    int n = 0;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < N + 1000)
        cr_skip_test("this user may not open so many files");
    while (n < N) {
        held[n++] = dial();
        uv_run(&loop, UV_RUN_NOWAIT);
        if (n % 1000 == 0)
            cr_assert_not_null(strstr(ask("ps\n"), "\"asked\": \"ps\""), "after %d", n);
    }
    cr_assert(is_cut(held[0]), "the oldest gave its place up");
    while (n > 0)
        close(held[--n]);
}

/* Those that wait for the end of the run have their places; the others still get answers, one by one. */
Test(desk, callers_that_wait_are_not_cut_for_others)
{
    int waiting[DESK_CONNECTIONS - 1], idle[3];
    bool ended;

    for (int i = 0; i < DESK_CONNECTIONS - 1; i++) {
        waiting[i] = say("stop\n");
        hear(waiting[i], 1, &ended);
        cr_assert(not(ended));
    }
    for (int i = 0; i < 3; i++) {
        idle[i] = dial();
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    cr_assert_not_null(strstr(ask("ps\n"), "\"asked\""));
    desk_close(desk, 0, "");
    desk = NULL;

    for (int i = 0; i < DESK_CONNECTIONS - 1; i++) {
        cr_assert_not_null(strstr(hear(waiting[i], -1, &ended), "\"ended\": 0"));
        close(waiting[i]);
    }
    for (int i = 0; i < 3; i++)
        close(idle[i]);
}
