#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/record/events.h"

static char folder[] = "/tmp/fsdp-unit-events.XXXXXX";
static int dir_fd;

static void set_up(void)
{
    cr_assert_not_null(mkdtemp(folder));
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY);
}

static void tear_down(void)
{
    unlinkat(dir_fd, "events.jsonl", 0);
    close(dir_fd);
    rmdir(folder);
}

static char *slurp(const char *name)
{
    static char text[1 << 16];
    int fd = openat(dir_fd, name, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);

    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return text;
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

Test(events, lines_are_appended_to_those_of_an_earlier_run, .init = set_up, .fini = tear_down)
{
    for (int run = 0; run < 2; run++) {
        struct events *events;

        cr_assert(events_open(&events, dir_fd, "events.jsonl", NULL) == FSDP_OK);
        cr_assert(events_emit(events, run, "complete", NULL, NULL) == FSDP_OK);
        events_close(events);
    }

    char *text = slurp("events.jsonl");
    cr_assert_not_null(strstr(text, "\"generation\": 0}\n{\"time\""));
    cr_assert_not_null(strstr(text, "\"generation\": 1}\n"));
}

Test(events, half_a_line_of_an_earlier_run_is_dropped, .init = set_up, .fini = tear_down)
{
    static const char before[] = "{\"event\": \"spawn\"}\n{\"time\": 17";
    const int fd = openat(dir_fd, "events.jsonl", O_WRONLY | O_CREAT, 0600);
    struct events *events;

    cr_assert(write(fd, before, sizeof before - 1) == (ssize_t)sizeof before - 1);
    close(fd);
    cr_assert(events_open(&events, dir_fd, "events.jsonl", NULL) == FSDP_OK);
    cr_assert(events_emit(events, 0, "exit", NULL, NULL) == FSDP_OK);
    events_close(events);

    cr_assert_not_null(strstr(slurp("events.jsonl"), "{\"event\": \"spawn\"}\n{\"time\": "));
    cr_assert_null(strstr(slurp("events.jsonl"), "17{"));
    cr_assert_not_null(strstr(slurp("events.jsonl"), "\"event\": \"exit\""));
}

Test(events, a_workers_event_is_taken_in_under_our_identity, .init = set_up, .fini = tear_down)
{
    static const char sent[] =
        "{\"event\": \"resume\", \"step\": 70000000000, \"time\": 1, \"generation\": 99, \"rank\": 7,"
        " \"source\": \"di\\nsk\", \"x\": {\"y\": [1.5, null]}}";
    struct events *events;
    cJSON *line;

    cr_assert(events_open(&events, dir_fd, "events.jsonl", NULL) == FSDP_OK);
    cr_assert(events_relay(events, 4, 1, sent, strlen(sent), NULL) == FSDP_OK);
    events_close(events);

    line = cJSON_Parse(slurp("events.jsonl"));
    cr_assert(cJSON_GetObjectItem(line, "generation")->valueint == 4);
    cr_assert(cJSON_GetObjectItem(line, "rank")->valueint == 1);
    cr_assert(cJSON_GetObjectItem(line, "time")->valuedouble > 1e9);
    cr_assert(cJSON_GetObjectItem(line, "step")->valuedouble == 7e10);
    cr_assert_str_eq(cJSON_GetObjectItem(line, "source")->valuestring, "di\nsk");
    cr_assert_not_null(cJSON_GetObjectItem(cJSON_GetObjectItem(line, "x"), "y"));
    cJSON_Delete(line);
}

Test(events, another_nodes_agent_may_speak_of_any_rank, .init = set_up, .fini = tear_down)
{
    static const char sent[] = "{\"event\": \"spawn\", \"rank\": 7, \"pid\": 4242, \"generation\": 99}";
    struct events *events;
    cJSON *line;

    cr_assert(events_open(&events, dir_fd, "events.jsonl", NULL) == FSDP_OK);
    cr_assert(events_relay(events, 4, -1, sent, strlen(sent), NULL) == FSDP_OK);
    events_close(events);

    line = cJSON_Parse(slurp("events.jsonl"));
    cr_assert(cJSON_GetObjectItem(line, "generation")->valueint == 4);
    cr_assert(cJSON_GetObjectItem(line, "rank")->valueint == 7);
    cr_assert(cJSON_GetObjectItem(line, "pid")->valueint == 4242);
    cJSON_Delete(line);
}

Test(events, what_is_no_event_is_refused, .init = set_up, .fini = tear_down)
{
    static const char *const bad[] = { "",
                                       "[]",
                                       "7",
                                       "{}",
                                       "{\"event\": 7}",
                                       "{\"event\": \"\"}",
                                       "{\"event\": \"x\"",
                                       "{\"event\": \"x\"} y" };
    struct events *events;
    char big[EVENTS_LINE_BYTES + 64];
    struct fsdp_err err = { 0 };

    cr_assert(events_open(&events, dir_fd, "events.jsonl", NULL) == FSDP_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert(events_relay(events, 0, 0, bad[i], strlen(bad[i]), &err) == FSDP_ERR_FORMAT, "%s", bad[i]);
    memset(big, 'x', sizeof big);
    memcpy(big, "{\"event\": \"x\", \"y\": \"", 21);
    memcpy(big + sizeof big - 3, "\"}", 3);
    cr_assert(events_relay(events, 0, 0, big, strlen(big), &err) == FSDP_ERR_FORMAT);
    events_close(events);

    cr_assert_str_eq(slurp("events.jsonl"), "", "nothing may have been written");
}

Test(events, a_full_disk_is_said_once_and_costs_whole_lines, .init = set_up, .fini = tear_down)
{
    struct rlimit limit = { 100, RLIM_INFINITY }, none = { RLIM_INFINITY, RLIM_INFINITY };
    struct events *events;
    struct fsdp_err err = { 0 };
    char *text;

    signal(SIGXFSZ, SIG_IGN);
    cr_assert(events_open(&events, dir_fd, "events.jsonl", NULL) == FSDP_OK);
    cr_assert(events_emit(events, 0, "spawn", NULL, NULL) == FSDP_OK);
    cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    cr_assert(events_emit(events, 0, "torn", NULL, &err) == FSDP_ERR_IO, "the file may not grow");
    cr_assert(events_emit(events, 0, "lost", NULL, &err) == FSDP_OK, "said once");
    cr_assert(setrlimit(RLIMIT_FSIZE, &none) == 0);
    cr_assert(events_emit(events, 0, "complete", NULL, &err) == FSDP_OK);
    events_close(events);

    text = strrchr(slurp("events.jsonl"), '{');
    cr_assert(text[-1] == '\n', "a whole line after a torn one");
    cr_assert_not_null(strstr(text, "\"event\": \"complete\""));
}
