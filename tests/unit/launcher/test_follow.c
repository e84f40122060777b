#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/follow.h"
#include "tests/unit/agent/scratch.h"

static struct follow *follow;
static struct fsdp_err err;
static FILE *out;
static char *printed;
static size_t size;

static void begin(void)
{
    scratch_make();
    out = open_memstream(&printed, &size);
    cr_assert(eq(int, follow_create(&follow, true, &err), FSDP_OK), "%s", err.message);
    follow_watch(follow, scratch);
}

static void end(void)
{
    follow_destroy(follow);
    fclose(out);
    free(printed);
    scratch_remove();
}

TestSuite(follow, .init = begin, .fini = end, .timeout = 60);

static void append(const char *name, const char *text)
{
    FILE *file = fopen(scratch_path("%s", name), "a");

    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static void add(const char *name, const char *prefix)
{
    cr_assert(eq(int, follow_add(follow, scratch_path("%s", name), prefix, out, &err), FSDP_OK));
}

/* What is printed now that was not printed before. Each test has a process of its own. */
static const char *news(bool all)
{
    static size_t before;
    const size_t from = before;

    cr_assert(eq(int, follow_print(follow, all, &err), FSDP_OK), "%s", err.message);
    fflush(out);
    before = size;
    return printed + from;
}

static void rename_file(const char *from, const char *to)
{
    char path[512];

    snprintf(path, sizeof path, "%s", scratch_path("%s", from));
    cr_assert_eq(rename(path, scratch_path("%s", to)), 0);
}

Test(follow, prints_whole_lines_after_their_prefix)
{
    append("a", "one\ntw");
    add("a", "[0]: ");
    cr_assert(eq(str, (char *)news(false), "[0]: one\n"));

    append("a", "o\n\nthree");
    cr_assert(eq(str, (char *)news(false), "[0]: two\n[0]: \n"));
    cr_assert(eq(str, (char *)news(true), "[0]: three\n"));
    cr_assert(eq(str, (char *)news(true), ""));
}

Test(follow, as_json_each_line_is_an_object_whatever_its_bytes_are)
{
    FILE *file = fopen(scratch_path("a"), "w");

    cr_assert_not_null(file);
    fwrite("say \"x\"\t\n\na\0b\xfe\nlast", 1, 19, file);
    fclose(file);
    follow_as_json(follow);
    add("a", "{\"rank\": 3, \"line\": ");
    cr_assert(eq(str, (char *)news(false),
                 "{\"rank\": 3, \"line\": \"say \\\"x\\\"\\t\"}\n"
                 "{\"rank\": 3, \"line\": \"\"}\n"
                 "{\"rank\": 3, \"line\": \"a\xef\xbf\xbd"
                 "b\xef\xbf\xbd\"}\n"));
    cr_assert(eq(str, (char *)news(true), "{\"rank\": 3, \"line\": \"last\"}\n"));
}

Test(follow, a_file_may_come_later)
{
    add("later", "");
    cr_assert(eq(str, (char *)news(false), ""));

    append("later", "here\n");
    cr_assert(eq(str, (char *)news(false), "here\n"));
}

Test(follow, a_file_that_is_added_again_is_printed_once)
{
    append("a", "one\n");
    add("a", "");
    add("a", "");

    cr_assert(eq(str, (char *)news(true), "one\n"));
}

Test(follow, files_that_were_rotated_before_are_printed_oldest_first)
{
    append("a.2", "one\n");
    append("a.1", "two\n");
    append("a", "three\n");
    add("a", "");

    cr_assert(eq(str, (char *)news(true), "one\ntwo\nthree\n"));
}

Test(follow, no_line_is_lost_or_doubled_by_a_rotation)
{
    append("a", "one\n");
    add("a", "");
    news(false);

    append("a", "two\n");
    rename_file("a", "a.1");
    append("a", "three\n");
    cr_assert(eq(str, (char *)news(false), "two\nthree\n"));
    rename_file("a.1", "a.2");
    rename_file("a", "a.1");
    append("a", "four\n");
    cr_assert(eq(str, (char *)news(false), "four\n"));
}

Test(follow, an_endless_line_takes_bounded_memory)
{
    char chunk[1001];

    memset(chunk, 'x', 1000);
    chunk[1000] = '\0';
    for (int i = 0; i < 200; i++)
        append("a", chunk);
    add("a", "");

    cr_assert(eq(sz, strlen(news(true)), 200000 + 4)); /* cut three times, and the end */
}

Test(follow, a_pipe_is_not_waited_for)
{
    cr_assert_eq(mkfifo(scratch_path("pipe"), 0600), 0);
    add("pipe", "");

    cr_assert(eq(str, (char *)news(true), ""));
}

Test(follow, a_change_ends_the_wait_and_so_does_the_end)
{
    int ended[2];

    cr_assert_eq(pipe(ended), 0);
    append("a", "one\n");
    cr_assert(follow_wait(follow, ended[0]));
    close(ended[1]);
    cr_assert(not(follow_wait(follow, ended[0])));
    close(ended[0]);
}

Test(follow, the_last_lines_are_counted_over_rotated_files_and_generations)
{
    append("g0", "a\nb\n");
    append("g1.1", "c\nd");
    append("g1", "e\nf\n");
    append("other", "x\ny\nz");
    add("g0", "[0]: ");
    add("g1", "[0]: ");
    add("other", "[1]: ");
    follow_tail(follow, 3);
    cr_assert(eq(str, (char *)news(true), "[0]: c\n[0]: de\n[0]: f\n[1]: x\n[1]: y\n[1]: z\n"));

    append("g1", "g\n");
    cr_assert(eq(str, (char *)news(true), "[0]: g\n"));
}

Test(follow, of_more_generations_only_the_newest_lines_are_left)
{
    append("g0", "a\nb\n");
    append("g1", "c\nd\n");
    add("g0", "");
    add("g1", "");
    follow_tail(follow, 3);
    cr_assert(eq(str, (char *)news(true), "b\nc\nd\n"));
    follow_tail(follow, 0);
    append("g1", "e\n");
    cr_assert(eq(str, (char *)news(true), "e\n"));
}
