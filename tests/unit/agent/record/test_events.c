#include "agent/record/events.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit/agent/scratch.h"
#include "tests/unit/agent/stuck_disk.h"

static int dir_fd;
static struct events *events;

static void open_events(void)
{
    cr_assert(events_open(&events, dir_fd, "events.jsonl", NULL) == FSDP_OK);
}

static void set_up(void)
{
    scratch_make();
    dir_fd = open(scratch, O_RDONLY | O_DIRECTORY);
    open_events();
}

static const char *text(void)
{
    return scratch_read(scratch_path("events.jsonl"));
}

Test(events, a_line_has_its_keys_in_order)
{
    char line[512];
    const struct events_field fields[] = {
        EVENT_INT("rank", 3),         EVENT_TEXT("why", "a \"b\"\n"),
        EVENT_TEXT("host", NULL),     EVENT_REAL("seconds", 0.25),
        EVENT_REAL("loss", NAN),      EVENT_BOOL("ok", true),
        EVENT_JSON("list", "[1, 2]"), EVENT_END,
    };

    size_t n = events_format(line, sizeof line, 1763733600000123, 2, "spawn", fields);

    cr_assert_str_eq(line,
                     "{\"time\": 1763733600.000123, \"event\": \"spawn\", \"generation\": 2, \"rank\": 3, "
                     "\"why\": \"a \\\"b\\\"\\n\", \"host\": null, \"seconds\": 0.25, \"loss\": null, "
                     "\"ok\": true, \"list\": [1, 2]}\n");
    cr_assert(n == strlen(line));
}

Test(events, a_line_that_does_not_fit_is_refused_at_every_size)
{
    char line[512], whole[512];
    const struct events_field fields[] = { EVENT_INT("rank", 3), EVENT_TEXT("why", "words"),
                                           EVENT_REAL("s", 1.5), EVENT_END };
    const size_t n = events_format(whole, sizeof whole, 1, 0, "exit", fields);

    for (size_t size = 1; size < sizeof line; size++)
        cr_assert(events_format(line, size, 1, 0, "exit", fields) == (size > n ? n : 0), "size %zu", size);
}

Test(events, lines_are_appended_to_those_of_an_earlier_run, .init = set_up, .fini = scratch_remove)
{
    cr_assert(events_emit(events, 0, "complete", NULL, NULL) == FSDP_OK);
    events_close(events);
    open_events();
    cr_assert(events_emit(events, 1, "complete", NULL, NULL) == FSDP_OK);
    events_close(events);

    cr_assert_not_null(strstr(text(), "\"generation\": 0}\n{\"time\""));
    cr_assert_not_null(strstr(text(), "\"generation\": 1}\n"));
}

static void keep_last(void *arg, const char *line)
{
    strcpy(arg, line);
}

/* With a file, and without one. */
Test(events, a_watcher_sees_each_line_as_it_is_written, .init = set_up, .fini = scratch_remove)
{
    for (int with_file = 1; with_file >= 0; with_file--) {
        char seen[EVENTS_LINE_BYTES] = "";

        events_watch(events, keep_last, seen);
        cr_assert(events_emit(events, 0, "failure", NULL, NULL) == FSDP_OK);
        cr_assert(events_relay(events, 0, 1, "{\"event\": \"first_step\"}", 23, NULL) == FSDP_OK);
        cr_assert(events_lost(events) == 0);
        events_close(events);

        cr_assert_not_null(strstr(seen, "\"event\": \"first_step\""));
        cr_assert(!with_file || strstr(text(), seen) != NULL);
        dir_fd = -1;
        if (with_file)
            open_events();
    }
}

/* A worker's own `term` is not the leader's. */
Test(events, a_line_ends_with_its_leaders_term, .init = set_up, .fini = scratch_remove)
{
    static const char sent[] = "{\"event\": \"note\", \"term\": 9, \"x\": 1}";

    cr_assert(events_relay(events, 0, 1, sent, sizeof sent - 1, NULL) == FSDP_OK);
    events_lead(events, 3);
    cr_assert(events_relay(events, 1, 1, sent, sizeof sent - 1, NULL) == FSDP_OK);
    cr_assert(events_emit(events, 1, "complete", NULL, NULL) == FSDP_OK);
    events_close(events);

    cr_expect_not_null(strstr(text(), "\"generation\": 0, \"rank\": 1, \"term\": 9, \"x\": 1}\n"));
    cr_expect_not_null(strstr(text(), "\"generation\": 1, \"rank\": 1, \"x\": 1, \"term\": 3}\n"));
    cr_expect_not_null(strstr(text(), "\"complete\", \"generation\": 1, \"term\": 3}\n"));
}

Test(events, half_a_line_of_an_earlier_run_is_dropped, .init = set_up, .fini = scratch_remove)
{
    static const char before[] = "{\"event\": \"spawn\"}\n{\"time\": 17";
    const int fd = openat(dir_fd, "events.jsonl", O_WRONLY);

    events_close(events);
    cr_assert(write(fd, before, sizeof before - 1) == (ssize_t)sizeof before - 1);
    close(fd);
    open_events();
    cr_assert(events_emit(events, 0, "exit", NULL, NULL) == FSDP_OK);
    events_close(events);

    cr_assert_not_null(strstr(text(), "{\"event\": \"spawn\"}\n{\"time\": "));
    cr_assert_null(strstr(text(), "17{"));
    cr_assert_not_null(strstr(text(), "\"event\": \"exit\""));
}

/* What stands in the file after an event was relayed for `rank` in generation 4: from "event" on. */
static const char *relayed(int rank, const char *sent)
{
    cr_assert(events_relay(events, 4, rank, sent, strlen(sent), NULL) == FSDP_OK);
    events_close(events);
    cr_assert(strtod(text() + strlen("{\"time\": "), NULL) > 1e9);
    return strstr(text(), "\"event\"");
}

Test(events, a_workers_event_is_taken_in_under_our_identity, .init = set_up, .fini = scratch_remove)
{
    static const char sent[] =
        "{\"event\": \"resume\", \"step\": 70000000000, \"time\": 1, \"generation\": 99, \"rank\": 7,"
        " \"source\": \"di\\nsk\", \"x\": {\"y\": [1.5, null]}}";

    cr_assert_str_eq(relayed(1, sent), "\"event\": \"resume\", \"generation\": 4, \"rank\": 1, "
                                       "\"step\": 70000000000, \"source\": \"di\\nsk\", "
                                       "\"x\": {\"y\":[1.5,null]}}\n");
}

Test(events, another_nodes_agent_may_speak_of_any_rank, .init = set_up, .fini = scratch_remove)
{
    static const char sent[] = "{\"event\": \"spawn\", \"rank\": 7, \"pid\": 4242, \"generation\": 99}";

    cr_assert_str_eq(relayed(-1, sent),
                     "\"event\": \"spawn\", \"generation\": 4, \"rank\": 7, \"pid\": 4242}\n");
}

Test(events, what_is_no_event_is_refused, .init = set_up, .fini = scratch_remove)
{
    static const char *const bad[] = { "",
                                       "[]",
                                       "7",
                                       "{}",
                                       "{\"event\": 7}",
                                       "{\"event\": \"\"}",
                                       "{\"event\": \"x\"",
                                       "{\"event\": \"x\"} y" };
    char big[EVENTS_LINE_BYTES + 64];
    struct fsdp_err err = { 0 };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert(events_relay(events, 0, 0, bad[i], strlen(bad[i]), &err) == FSDP_ERR_FORMAT, "%s", bad[i]);
    memset(big, 'x', sizeof big);
    memcpy(big, "{\"event\": \"x\", \"y\": \"", 21);
    memcpy(big + sizeof big - 3, "\"}", 3);
    cr_assert(events_relay(events, 0, 0, big, strlen(big), &err) == FSDP_ERR_FORMAT);
    events_close(events);

    cr_assert_str_eq(text(), "", "nothing may have been written");
}

static int n_refused;

static void count_refused(void *arg, const char *words)
{
    n_refused++;
    cr_assert(strncmp(words, arg, strlen(arg)) == 0, "%s", words);
}

Test(events, a_full_disk_is_said_once_and_costs_whole_lines, .init = set_up, .fini = scratch_remove)
{
    struct rlimit limit = { 100, RLIM_INFINITY }, none = { RLIM_INFINITY, RLIM_INFINITY };
    char begin[] = "write events.jsonl: ";
    const char *last;

    signal(SIGXFSZ, SIG_IGN);
    events_on_refusal(events, count_refused, begin);
    cr_assert(events_emit(events, 0, "spawn", NULL, NULL) == FSDP_OK);
    cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    cr_assert(events_emit(events, 0, "torn", NULL, NULL) == FSDP_OK);
    cr_assert(n_refused == 1, "the file may not grow");
    cr_assert(events_emit(events, 0, "lost", NULL, NULL) == FSDP_OK);
    cr_assert(n_refused == 1, "said once");
    cr_assert(events_lost(events) == 2);
    cr_assert(setrlimit(RLIMIT_FSIZE, &none) == 0);
    cr_assert(events_emit(events, 0, "complete", NULL, NULL) == FSDP_OK);
    events_close(events);

    last = strrchr(text(), '{');
    cr_assert(last[-1] == '\n', "a whole line after a torn one");
    cr_assert_not_null(strstr(last, "\"event\": \"complete\""));
}

static uv_loop_t loop;
static struct disk *disk;

static void open_stuck_disk(void)
{
    set_up();
    cr_assert(uv_loop_init(&loop) == 0);
    cr_assert(disk_create(&disk, &loop, NULL) == FSDP_OK);
    stuck_begin(disk);
    events_write_on(events, disk);
}

static void close_all(void *arg)
{
    events_close(events);
    disk_close(disk);
}

static void answer(void)
{
    stuck_let_go();
    disk_when_idle(disk, close_all, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
}

Test(events, a_stuck_disk_delays_the_lines_and_nothing_else, .init = open_stuck_disk, .fini = scratch_remove,
     .timeout = 60)
{
    char seen[EVENTS_LINE_BYTES] = "", key[32];
    const char *at;

    events_watch(events, keep_last, seen);
    for (int i = 0; i < 100; i++) {
        cr_assert(events_emit(events, i, "spawn", NULL, NULL) == FSDP_OK);
        snprintf(key, sizeof key, "\"generation\": %d}", i);
        cr_assert(strstr(seen, key) != NULL, "the watcher does not wait for the disk");
    }
    cr_assert_str_eq(text(), "", "no line is there yet");
    answer();

    at = text();
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "\"generation\": %d}\n", i);
        at = strstr(at, key);
        cr_assert_not_null(at, "line %d is there, in its place", i);
    }
}

Test(events, what_does_not_fit_in_memory_is_counted_and_said_once, .init = open_stuck_disk,
     .fini = scratch_remove, .timeout = 60)
{
    static char long_words[EVENTS_LINE_BYTES - 200], bytes[65536];
    const struct events_field fields[] = { EVENT_TEXT("words", long_words), EVENT_END };
    char begin[] = "write events.jsonl: the disk does not answer";
    const int n = EVENTS_WAITING_BYTES / (EVENTS_LINE_BYTES - 200) + 10;
    const int file = openat(dir_fd, "events.jsonl", O_RDONLY);
    uint64_t n_lost;
    int n_written = 0;
    ssize_t size;

    memset(long_words, 'x', sizeof long_words - 1);
    events_on_refusal(events, count_refused, begin);
    cr_assert(events_emit(events, 0, "first", NULL, NULL) == FSDP_OK); /* the disk has this one already */
    for (int i = 0; i < n; i++)
        cr_assert(events_emit(events, 0, "many", fields, NULL) == FSDP_OK);
    n_lost = events_lost(events);
    cr_assert(n_lost > 0 && n_lost < 60, "%d", (int)n_lost);
    cr_assert(n_refused == 1);
    answer();

    while ((size = read(file, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < size; i++)
            n_written += bytes[i] == '\n';
    close(file);
    cr_assert(n_written == n + 1 - (int)n_lost, "every line is written, or counted");
}
