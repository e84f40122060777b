#include "agent/record/error_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/agent/scratch.h"

static struct errors_detail detail; /* zero at the start of each test: a process of its own */

static bool parse(const char *text)
{
    return error_file_parse(&detail, text, strlen(text));
}

Test(error_file, both_forms_are_read_and_what_is_missing_or_of_another_type_is_left_out)
{
    static const struct {
        const char *text, *message, *traceback;
        int64_t raised_us;
    } cases[] = {
        { "{\"message\": {\"message\": \"ValueError: x\", \"extraInfo\": {\"py_callstack\": \"Traceback\\n "
          "f\\n\", \"timestamp\": \"1700000000\"}}}",
          "ValueError: x", "Traceback\n f\n", 1700000000000000 },
        { "{\"message\": \"x\", \"timestamp\": 1700000000.25}", "x", "", 1700000000250000 },
        { "{\"message\": \"y\"}", "y", "", 0 },
        { "{\"message\": {\"message\": 7, \"extraInfo\": {\"py_callstack\": [], \"timestamp\": \"soon\"}}}",
          "", "", 0 },
        { "{\"message\": {\"extraInfo\": 3}}", "", "", 0 },
        { "{\"message\": {}, \"timestamp\": -1}", "", "", 0 },
        { "{\"message\": \"\", \"timestamp\": 1e300}", "", "", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert(parse(cases[i].text), "%s", cases[i].text);
        cr_expect_str_eq(detail.message, cases[i].message);
        cr_expect_str_eq(detail.traceback, cases[i].traceback);
        cr_expect_eq(detail.raised_us, cases[i].raised_us, "%s", cases[i].text);
    }
}

/* Every beginning of a good file, and what is no such object at all: nothing is taken, nothing is changed. */
Test(error_file, a_corrupt_file_changes_nothing)
{
    static const char good[] = "{\"message\": {\"message\": \"m\", \"extraInfo\": {\"timestamp\": \"17\"}}}";
    static const char *const bad[] = {
        "", "x", "[]", "3", "null", "{}", "{\"message\": 3}", "{\"message\": null}", "\"message\"", "\xff\xfe"
    };

    snprintf(detail.message, sizeof detail.message, "before");
    for (size_t n = 0; n < sizeof good - 1; n++)
        cr_assert_not(error_file_parse(&detail, good, n), "%zu bytes", n);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(parse(bad[i]), "%s", bad[i]);
    cr_expect_str_eq(detail.message, "before");
}

Test(error_file, the_end_of_a_long_traceback_is_kept)
{
    char *text = malloc(200000), *at = text;

    at += sprintf(at, "{\"message\": {\"message\": \"m\", \"extraInfo\": {\"py_callstack\": \"");
    for (int i = 0; i < 5000; i++)
        at += sprintf(at, "line %d\\n", i);
    sprintf(at, "\"}}}");

    cr_assert(parse(text));
    cr_expect(strlen(detail.traceback) < sizeof detail.traceback);
    cr_expect_eq(strncmp(detail.traceback, "line ", 5), 0, "from the beginning of a line");
    cr_expect_not_null(strstr(detail.traceback, "line 4999\n"));
    free(text);
}

static char path[96];

static void make_folder(void)
{
    scratch_make();
    snprintf(path, sizeof path, "%s/error.json", scratch);
}

static void put(const char *text, size_t size)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    fwrite(text, 1, size, file);
    fclose(file);
}

Test(error_file, a_time_is_believed_when_it_can_be)
{
    const int64_t second = 1000000, now = 1700000100 * second + 300000;
    const struct {
        int64_t raised_us, age_us;
    } cases[] = {
        { 0, 0 },
        { -5, 0 },
        { now + 1, 0 }, /* the future */
        { now, 0 },
        { now - 1, 1 },
        { now - 5 * second - 1, 5 * second + 1 },
        { now - 60 * second, 60 * second },
        { now - 60 * second - 1, 0 },      /* another failure's */
        { now - 300000, 0 },               /* a whole second: this one, which is not over yet */
        { now - 300000 - second, 300000 }, /* the one before: no later than its end */
        { now - 300000 - 10 * second, 9 * second + 300000 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        detail.raised_us = cases[i].raised_us;
        cr_expect_eq(error_file_age_ns(&detail, now), cases[i].age_us * 1000, "case %zu", i);
    }
}

Test(error_file, passing_it_on_never_waits, .init = make_folder, .fini = scratch_remove, .timeout = 100)
{
    struct fsdp_err err = { 0 };

    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(error_file_pass_on(NULL, path, &detail, 4, &err), FSDP_ERR_IO, "a FIFO that nobody reads");
    cr_expect_not_null(strstr(err.message, path));
}

Test(error_file, passed_on_with_the_status, .init = make_folder, .fini = scratch_remove)
{
    char to[96];
    static const char plain[] = "{\"message\": \"m\", \"mine\": 1}",
                      nested[] =
                          "{\"message\": {\"message\": \"m\", \"errorCode\": 5, \"k\": 2}, \"mine\": 1}";

    snprintf(to, sizeof to, "%s/to.json", scratch);
    put(nested, sizeof nested - 1);
    cr_assert_eq(error_file_pass_on(path, to, &detail, -9, NULL), FSDP_OK);
    cr_expect_str_eq(scratch_read(to),
                     "{\"message\":{\"message\":\"m\",\"k\":2,\"errorCode\":-9},\"mine\":1}");
    put(plain, sizeof plain - 1);
    cr_assert_eq(error_file_pass_on(path, to, &detail, 3, NULL), FSDP_OK);
    cr_expect_str_eq(scratch_read(to), "{\"message\":\"m\",\"mine\":1}",
                     "as torchrun: no code in the plain form");

    snprintf(detail.message, sizeof detail.message, "far");
    snprintf(detail.traceback, sizeof detail.traceback, "T");
    detail.raised_us = 17000000;
    cr_assert_eq(error_file_pass_on(NULL, to, &detail, 4, NULL), FSDP_OK);
    cr_expect_str_eq(scratch_read(to),
                     "{\"message\":{\"message\":\"far\",\"extraInfo\":{\"py_callstack\":\"T\","
                     "\"timestamp\":\"17\"},\"errorCode\":4}}");
    cr_expect_eq(error_file_pass_on(NULL, "/nonexistent/x", &detail, 4, NULL), FSDP_ERR_IO);
}
