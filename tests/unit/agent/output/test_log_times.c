/*
 * The times of a log, in a file beside it. The times are the test's, the files are real.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/output/log_times.h"
#include "tests/unit/agent/scratch.h"

static struct log_file *file;
static struct log_times times;
static char path[512], rows[4096];

static void open_log(bool named, uint64_t limit_bytes)
{
    struct log_file_spec spec = { .limit_bytes = limit_bytes, .n_rotated = 2, .io = &io_posix };

    snprintf(path, sizeof path, "%s", scratch_path("out.log"));
    spec.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    spec.path = named ? path : NULL;
    cr_assert(eq(int, log_file_create(&file, &spec, NULL), FSDP_OK));
    times = (struct log_times){ 0 };
}

static void close_log(void)
{
    log_file_destroy(file);
    file = NULL;
}

static void begin(void)
{
    scratch_make();
    open_log(true, 0);
}

static void end(void)
{
    close_log();
    scratch_remove();
}

TestSuite(log_times, .init = begin, .fini = end, .timeout = 60);

static void put(int64_t ms, const char *text)
{
    log_times_note(&times, file, ms);
    log_file_write(file, text, strlen(text));
    log_file_show(file);
}

/* The rows without their inodes; empty: there is no file. */
static const char *read_rows(void)
{
    FILE *in = fopen(scratch_path(".out.log.times"), "r");
    long long ms;
    unsigned long inode, offset;
    size_t n = 0;

    rows[0] = '\0';
    while (in != NULL && fscanf(in, "%lld %lu %lu\n", &ms, &inode, &offset) == 3)
        n += (size_t)snprintf(rows + n, sizeof rows - n, "%lld:%lu ", ms, offset);
    if (in != NULL)
        fclose(in);
    return rows;
}

static unsigned long inode_of_row(int wanted)
{
    FILE *in = fopen(scratch_path(".out.log.times"), "r");
    unsigned long inode = 0;

    cr_assert_not_null(in);
    for (int i = 0; i <= wanted; i++)
        cr_assert_eq(fscanf(in, "%*d %lu %*d\n", &inode), 1);
    fclose(in);
    return inode;
}

Test(log_times, a_second_has_one_row_and_the_first_comes_with_the_next)
{
    put(5000, "one\n");
    put(5999, "two\n");
    cr_assert(eq(str, (char *)read_rows(), ""));

    put(6000, "three\n");
    put(6500, "four\n");
    put(9000, "five\n");

    cr_assert(eq(str, (char *)read_rows(), "5000:0 6000:8 9000:19 "));
}

Test(log_times, what_an_earlier_run_has_left_is_told_apart_at_once)
{
    put(5000, "one\n");
    close_log();
    open_log(true, 0);

    put(7000, "two\n");

    cr_assert(eq(str, (char *)read_rows(), "7000:4 "));
}

Test(log_times, a_row_names_the_file_of_its_bytes_also_when_it_is_rotated)
{
    struct stat first, second;

    close_log();
    open_log(true, 8);
    put(5000, "one\n");
    put(6000, "two two\n"); /* the log begins another file */
    put(7000, "three\n");

    cr_assert(eq(str, (char *)read_rows(), "5000:0 6000:4 7000:0 "));
    cr_assert_eq(stat(scratch_path("out.log.1"), &first), 0);
    cr_assert_eq(stat(scratch_path("out.log"), &second), 0);
    cr_assert_eq(inode_of_row(1), first.st_ino);
    cr_assert_eq(inode_of_row(2), second.st_ino);
}

Test(log_times, a_clock_that_is_set_back_gets_rows)
{
    put(5000, "one\n");
    put(3000, "two\n");
    put(3500, "three\n");

    cr_assert(eq(str, (char *)read_rows(), "5000:0 3000:4 "));
}

Test(log_times, a_log_without_a_name_has_none)
{
    close_log();
    open_log(false, 0);

    put(5000, "one\n");
    put(7000, "two\n");

    cr_assert(eq(str, (char *)read_rows(), ""));
}

Test(log_times, where_no_rows_can_be_written_the_log_goes_on)
{
    struct stat at;

    cr_assert_eq(symlink(scratch_path("elsewhere"), scratch_path(".out.log.times")), 0);

    put(5000, "one\n");
    put(7000, "two\n");

    cr_assert_eq(stat(scratch_path("out.log"), &at), 0);
    cr_assert_eq(at.st_size, 8);
    cr_assert(access(scratch_path("elsewhere"), F_OK) < 0, "a link is not followed");
}
