#include "agent/record/error_file.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct errors_detail detail; /* zero at the start of each test: a process of its own */

static bool parse(const char *text)
{
    return error_file_parse(&detail, text, strlen(text));
}

Test(error_file, the_form_of_record)
{
    cr_assert(parse(
        "{\"message\": {\"message\": \"ValueError: x\", \"extraInfo\": {\"py_callstack\": \"Traceback\\n "
        "f\\n\", \"timestamp\": \"1700000000\"}}}"));

    cr_expect_str_eq(detail.message, "ValueError: x");
    cr_expect_str_eq(detail.traceback, "Traceback\n f\n");
    cr_expect_eq(detail.raised_us, 1700000000000000);
}

Test(error_file, the_plain_form)
{
    cr_assert(parse("{\"message\": \"x\", \"timestamp\": 1700000000.25}"));
    cr_expect_str_eq(detail.message, "x");
    cr_expect_str_eq(detail.traceback, "");
    cr_expect_eq(detail.raised_us, 1700000000250000);

    cr_assert(parse("{\"message\": \"y\"}"));
    cr_expect_str_eq(detail.message, "y");
    cr_expect_eq(detail.raised_us, 0);
}

Test(error_file, what_is_missing_or_of_another_type_is_left_out)
{
    cr_assert(parse(
        "{\"message\": {\"message\": 7, \"extraInfo\": {\"py_callstack\": [], \"timestamp\": \"soon\"}}}"));
    cr_expect_str_eq(detail.message, "");
    cr_expect_str_eq(detail.traceback, "");
    cr_expect_eq(detail.raised_us, 0);
    cr_assert(parse("{\"message\": {\"extraInfo\": 3}}"));
    cr_assert(parse("{\"message\": {}, \"timestamp\": -1}"));
    cr_expect_eq(detail.raised_us, 0);
    cr_assert(parse("{\"message\": \"\", \"timestamp\": 1e300}"));
    cr_expect_eq(detail.raised_us, 0);
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

static char folder[64], path[96];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-error-file-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/error.json", folder);
}

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static void put(const char *text, size_t size)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    fwrite(text, 1, size, file);
    fclose(file);
}

Test(error_file, what_cannot_be_read_says_nothing_and_never_waits, .init = make_folder, .fini = remove_folder,
     .timeout = 100)
{
    cr_expect_not(error_file_read(&detail, path), "it is not there");
    put("", 0);
    cr_expect_not(error_file_read(&detail, path), "it is empty");
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_not(error_file_read(&detail, path), "it is a FIFO");
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_not(error_file_read(&detail, path), "it is a directory");
    rmdir(path);
    put("{\"message\": \"m\"}", 16);
    cr_assert_eq(truncate(path, ERROR_FILE_MAX_BYTES + 1), 0);
    cr_expect_not(error_file_read(&detail, path), "it is huge");
    cr_expect_str_eq(detail.error_file, "");
    put("{\"message\": \"m\"}", 16);
    cr_expect(error_file_read(&detail, path));
    cr_expect_str_eq(detail.error_file, path);
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

static const char *text_of(const char *name)
{
    static char text[4096];
    FILE *file = fopen(name, "r");
    size_t n;

    cr_assert_not_null(file);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

Test(error_file, passing_it_on_never_waits, .init = make_folder, .fini = remove_folder, .timeout = 100)
{
    struct fsdp_err err = { 0 };

    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(error_file_pass_on(NULL, path, &detail, 4, &err), FSDP_ERR_IO, "a FIFO that nobody reads");
    cr_expect_not_null(strstr(err.message, path));
}

Test(error_file, passed_on_with_the_status, .init = make_folder, .fini = remove_folder)
{
    char to[96];
    static const char plain[] = "{\"message\": \"m\", \"mine\": 1}",
                      nested[] =
                          "{\"message\": {\"message\": \"m\", \"errorCode\": 5, \"k\": 2}, \"mine\": 1}";

    snprintf(to, sizeof to, "%s/to.json", folder);
    put(nested, sizeof nested - 1);
    cr_assert_eq(error_file_pass_on(path, to, &detail, -9, NULL), FSDP_OK);
    cr_expect_str_eq(text_of(to), "{\"message\":{\"message\":\"m\",\"k\":2,\"errorCode\":-9},\"mine\":1}");
    put(plain, sizeof plain - 1);
    cr_assert_eq(error_file_pass_on(path, to, &detail, 3, NULL), FSDP_OK);
    cr_expect_str_eq(text_of(to), "{\"message\":\"m\",\"mine\":1}", "as torchrun: no code in the plain form");

    snprintf(detail.message, sizeof detail.message, "far");
    snprintf(detail.traceback, sizeof detail.traceback, "T");
    detail.raised_us = 17000000;
    cr_assert_eq(error_file_pass_on(NULL, to, &detail, 4, NULL), FSDP_OK);
    cr_expect_str_eq(text_of(to), "{\"message\":{\"message\":\"far\",\"extraInfo\":{\"py_callstack\":\"T\","
                                  "\"timestamp\":\"17\"},\"errorCode\":4}}");
    cr_expect_eq(error_file_pass_on(NULL, "/nonexistent/x", &detail, 4, NULL), FSDP_ERR_IO);
}

Test(error_file, a_long_message_is_cut_to_whole_characters)
{
    static char text[4000];
    size_t n = (size_t)sprintf(text, "{\"message\": \"x");

    for (int i = 0; i < 800; i++)
        n += (size_t)sprintf(text + n, "\xe2\x82\xac");
    sprintf(text + n, "\"}");

    cr_assert(parse(text));
    cr_assert(strlen(detail.message) == 1021 && (unsigned char)detail.message[1020] == 0xac, "%zu",
              strlen(detail.message));
}
