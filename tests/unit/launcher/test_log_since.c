#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/output/log_times.h"
#include "launcher/follow.h"
#include "launcher/log_since.h"
#include "tests/unit/agent/scratch.h"

static struct fsdp_err err;

/* T */

static int64_t read_time(const char *text)
{
    int64_t ms = -1;

    cr_assert(eq(int, log_since_read(text, 1000000000, &ms, &err), FSDP_OK), "%s: %s", text, err.message);
    return ms;
}

Test(log_since, a_time_ago_has_a_unit_or_is_in_seconds)
{
    cr_assert_eq(read_time("90"), 1000000000 - 90000);
    cr_assert_eq(read_time("90s"), 1000000000 - 90000);
    cr_assert_eq(read_time("10m"), 1000000000 - 600000);
    cr_assert_eq(read_time("2h"), 1000000000 - 7200000);
    cr_assert_eq(read_time("1d"), 1000000000 - 86400000);
    cr_assert_eq(read_time("99999999999999"), 0);
}

Test(log_since, a_date_is_local_or_utc)
{
    setenv("TZ", "XXX-2", 1); /* two hours before UTC */

    cr_assert_eq(read_time("1970-01-02T00:00:01Z"), 86401000);
    cr_assert_eq(read_time("1970-01-02T00:00Z"), 86400000);
    cr_assert_eq(read_time("1970-01-02T02:00:01"), 86401000);
}

Test(log_since, what_is_neither_is_refused)
{
    static const char *const texts[] = {
        "", "x", "-5", "+5", "5w", "1.5h", "1970-01-02T00:00:01+", "99999999999999999999"
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t ms;

        cr_expect(eq(int, log_since_read(texts[i], 0, &ms, &err), FSDP_ERR_CONFIG), "%s", texts[i]);
        cr_expect_not_null(strstr(err.message, "90s, 10m"));
    }
}

/* Where a log begins. Its bytes were written at 10, 12, 12.5 and 20 s, and in 0.4 s more. */

static char path[512];

static void write_log(uint64_t limit_bytes, int64_t modified_ms)
{
    static const struct {
        int64_t ms;
        const char *text;
    } writes[] = { { 10000, "ten\n" },
                   { 12000, "twelve\n" },
                   { 12500, "half\nbeg" },
                   { 20000, "un\n" },
                   { 20400, "last\n" } };
    struct log_file_spec spec = { .limit_bytes = limit_bytes, .n_rotated = 9, .io = &io_posix, .path = path };
    const struct timespec at = { .tv_sec = modified_ms / 1000, .tv_nsec = modified_ms % 1000 * 1000000 };
    struct log_times times = { 0 };
    struct log_file *file;

    scratch_make();
    snprintf(path, sizeof path, "%s", scratch_path("out.log"));
    spec.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    cr_assert(eq(int, log_file_create(&file, &spec, NULL), FSDP_OK));
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++) {
        log_times_note(&times, file, writes[i].ms);
        log_file_write(file, writes[i].text, strlen(writes[i].text));
        log_file_show(file);
    }
    log_file_destroy(file);
    cr_assert_eq(utimensat(AT_FDCWD, path, (const struct timespec[]){ at, at }, 0), 0);
}

static void expect(int64_t since_ms, const char *lines)
{
    char *printed = NULL;
    size_t size;
    FILE *out = open_memstream(&printed, &size);
    struct follow *follow;

    cr_assert(eq(int, follow_create(&follow, false, &err), FSDP_OK));
    follow_since(follow, since_ms);
    cr_assert(eq(int, follow_add(follow, path, "", out, &err), FSDP_OK));
    cr_assert(eq(int, follow_print(follow, true, &err), FSDP_OK));
    follow_destroy(follow);
    fclose(out);
    cr_expect(eq(str, printed, (char *)lines), "since %lld", (long long)since_ms);
    free(printed);
}

static void check_lines(uint64_t limit_bytes)
{
    static const struct {
        int64_t since_ms;
        const char *lines;
    } cases[] = {
        { 9000, "ten\ntwelve\nhalf\nbegun\nlast\n" },
        { 10500, "ten\ntwelve\nhalf\nbegun\nlast\n" },
        { 11500, "twelve\nhalf\nbegun\nlast\n" },
        { 12900, "twelve\nhalf\nbegun\nlast\n" },
        { 13000, "begun\nlast\n" }, /* a line that had begun is there as a whole */
        { 20000, "begun\nlast\n" },
        { 20300, "begun\nlast\n" },
        { 21000, "" },
        { 99000, "" },
    };

    write_log(limit_bytes, 20400);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(cases[i].since_ms, cases[i].lines);
    scratch_remove();
}

Test(log_since, older_lines_are_left_out_but_those_of_a_second)
{
    check_lines(0);
}

Test(log_since, also_of_a_log_that_was_rotated)
{
    check_lines(11);
}

Test(log_since, without_times_a_log_is_wanted_as_a_whole_or_not_at_all)
{
    write_log(0, 20400);
    cr_assert_eq(unlink(scratch_path(".out.log.times")), 0);

    expect(20400, "ten\ntwelve\nhalf\nbegun\nlast\n");
    expect(20401, "");
    scratch_remove();
}

Test(log_since, damaged_times_leave_no_line_out)
{
    FILE *times;

    write_log(0, 20400);
    times = fopen(scratch_path(".out.log.times"), "w");
    fputs("10000 1 0\n1x\n99999999 5 5\n", times);
    fclose(times);

    expect(20000, "ten\ntwelve\nhalf\nbegun\nlast\n");
    scratch_remove();
}

Test(log_since, a_log_that_is_not_there_yet_is_wanted)
{
    ino_t inode = 7;
    off_t offset = 7;

    log_since_find("/nowhere/out.log", 5, &inode, &offset);

    cr_assert(inode == 0 && offset == 0);
}
