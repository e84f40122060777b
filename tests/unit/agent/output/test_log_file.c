/*
 * A log that grows and is rotated: on a file system of the test's own in which every call can be made to
 * fail. The row of files, oldest first, must always be what was appended.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/output/log_file.h"

enum { FILES = 64, FILE_BYTES = 1 << 18 };

struct fake_file {
    char name[64];
    char *bytes;
    size_t n;
    int n_open; /* descriptors */
    bool named;
};

static struct fake {
    struct fsdp_io base;
    struct fake_file files[FILES];
    int n_files, n_calls, fail_at, fail_with;
    size_t space; /* bytes that may still be written */
} disk;

static bool fails(void)
{
    if (++disk.n_calls != disk.fail_at)
        return false;
    errno = disk.fail_with;
    return true;
}

static struct fake_file *find(const char *name)
{
    for (int i = 0; i < disk.n_files; i++)
        if (disk.files[i].named && strcmp(disk.files[i].name, name) == 0)
            return &disk.files[i];
    return NULL;
}

static int fake_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    struct fake_file *file = find(path);

    if (fails())
        return -1;
    if (file == NULL) {
        cr_assert(disk.n_files < FILES);
        file = &disk.files[disk.n_files++];
        *file = (struct fake_file){ .named = true, .bytes = malloc(FILE_BYTES) };
        snprintf(file->name, sizeof file->name, "%s", path);
    }
    file->n = 0;
    file->n_open++;
    return (int)(file - disk.files);
}

static int fake_close(struct fsdp_io *io, int fd)
{
    cr_assert(disk.files[fd].n_open-- > 0, "closed twice");
    return 0;
}

static ssize_t fake_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t n, uint64_t offset)
{
    struct fake_file *file = &disk.files[fd];

    cr_assert(offset == file->n, "appends only");
    if (fails())
        return -1;
    if (disk.space == 0) {
        errno = ENOSPC;
        return -1;
    }
    n = n < disk.space ? n : disk.space;
    disk.space -= n;
    memcpy(file->bytes + file->n, bytes, n);
    file->n += n;
    return (ssize_t)n;
}

static ssize_t fake_pread(struct fsdp_io *io, int fd, void *bytes, size_t n, uint64_t offset)
{
    const struct fake_file *file = &disk.files[fd];

    cr_assert(file->n_open > 0 && offset <= file->n);
    n = n < file->n - offset ? n : file->n - offset;
    memcpy(bytes, file->bytes + offset, n);
    return (ssize_t)n;
}

static int fake_fstat(struct fsdp_io *io, int fd, struct io_stat *out)
{
    *out = (struct io_stat){ .kind = IO_FILE, .size_bytes = disk.files[fd].n };
    return fails() ? -1 : 0;
}

static int fake_rename(struct fsdp_io *io, const char *from, const char *to)
{
    struct fake_file *file = find(from), *there = find(to);

    if (fails())
        return -1;
    if (file == NULL) {
        errno = ENOENT;
        return -1;
    }
    if (there != NULL)
        there->named = false;
    snprintf(file->name, sizeof file->name, "%s", to);
    return 0;
}

static int fake_unlink(struct fsdp_io *io, const char *path)
{
    struct fake_file *file = find(path);

    if (file != NULL)
        file->named = false;
    return file != NULL ? 0 : -1;
}

static void start(void)
{
    disk = (struct fake){ .base = { .open = fake_open,
                                    .close = fake_close,
                                    .pwrite = fake_pwrite,
                                    .pread = fake_pread,
                                    .fstat = fake_fstat,
                                    .rename = fake_rename,
                                    .unlink = fake_unlink },
                          .space = SIZE_MAX,
                          .fail_with = EIO };
}

static struct log_file *file; /* of the test; closed at its end */

static void stop(void)
{
    log_file_destroy(file);
    file = NULL;
    for (int i = 0; i < disk.n_files; i++) {
        cr_assert(disk.files[i].n_open == 0, "%s is left open", disk.files[i].name);
        free(disk.files[i].bytes);
    }
    disk.n_files = 0;
}

TestSuite(log_file, .init = start, .fini = stop);

static void make(uint64_t limit_bytes, int n_rotated)
{
    const struct log_file_spec spec = { .fd = fake_open(&disk.base, "log", 0, 0),
                                        .path = "log",
                                        .limit_bytes = limit_bytes,
                                        .n_rotated = n_rotated,
                                        .io = &disk.base };

    cr_assert(log_file_create(&file, &spec, NULL) == FSDP_OK);
}

static struct log_file_result append_bytes(const char *bytes, size_t n)
{
    const struct log_file_result result = log_file_write(file, bytes, n);

    log_file_show(file);
    return result;
}

static struct log_file_result append(const char *text)
{
    const struct log_file_result result = append_bytes(text, strlen(text));

    log_file_settle(file);
    return result;
}

static const char *text_of(const char *name)
{
    const struct fake_file *found = find(name);
    static char text[FILE_BYTES + 1];

    if (found == NULL)
        return "(none)";
    memcpy(text, found->bytes, found->n);
    text[found->n] = '\0';
    return text;
}

/* The row of named files, oldest first, in one text. */
static size_t row(char *out, int n_rotated)
{
    size_t n = 0;

    for (int i = n_rotated; i >= 0; i--) {
        char name[32];
        const struct fake_file *found;

        snprintf(name, sizeof name, i > 0 ? "log.%d" : "log", i);
        found = find(name);
        if (found != NULL)
            n = (size_t)((char *)mempcpy(out + n, found->bytes, found->n) - out);
    }
    out[n] = '\0';
    return n;
}

Test(log_file, a_file_is_rotated_at_the_end_of_the_line_that_fills_it)
{
    make(10, 2);
    cr_assert(!append("12345678\n").rotated);
    cr_assert(append("abc\ndef\n").rotated);
    cr_assert_str_eq(text_of("log.1"), "12345678\nabc\n");
    cr_assert_str_eq(text_of("log"), "def\n");
    cr_assert(append("12345\n").rotated, "ten bytes are a full file");
    cr_assert_str_eq(text_of("log.2"), "12345678\nabc\n");
    cr_assert_str_eq(text_of("log.1"), "def\n12345\n");
    cr_assert_str_eq(text_of("log"), "");
    append("the third file\n");
    cr_assert_str_eq(text_of("log.2"), "def\n12345\n", "the oldest is gone");
    cr_assert_str_eq(text_of("log.3"), "(none)");
}

Test(log_file, with_none_kept_it_begins_anew)
{
    make(4, 0);
    append("one two\nx");

    cr_assert_str_eq(text_of("log"), "x");
    cr_assert_str_eq(text_of("log.1"), "(none)");
}

/*
 * Forty lines of uneven sizes in pieces of every size, over every limit: the row is what went in, no line is
 * parted.
 */
Test(log_file, every_limit_keeps_every_byte_and_every_line)
{
    static char all[40 * 24], got[FILE_BYTES];
    size_t n = 0;

    for (int line = 0; line < 40; line++) {
        const size_t length = (size_t)line * 7919 % 23;

        memset(all + n, 'a' + line % 26, length);
        all[n + length] = '\n';
        n += length + 1;
    }
    for (uint64_t limit = 1; limit < 100; limit++)
        for (size_t piece = 1; piece < 100; piece += 7) {
            stop();
            start();
            make(limit, 50);
            for (size_t at = 0; at < n; at += piece) {
                cr_assert(append_bytes(all + at, n - at < piece ? n - at : piece).lost == 0);
                log_file_settle(file);
                log_file_release(file, log_file_end(file));
            }

            cr_assert(row(got, 50) == n && memcmp(got, all, n) == 0, "limit %d", (int)limit);
            for (int i = 0; i < disk.n_files; i++)
                cr_assert(&disk.files[i] == find("log") || disk.files[i].bytes[disk.files[i].n - 1] == '\n',
                          "limit %d: a file that does not end with its line", (int)limit);
        }
}

Test(log_file, a_line_of_64_kib_is_whole_and_a_longer_one_is_parted)
{
    static char line[3 * LOG_FILE_LINE_BYTES + 1];
    make(10, 5);
    memset(line, 'x', sizeof line - 1);
    /* the longest that still fits: it begins one byte before the limit */
    line[9 + LOG_FILE_LINE_BYTES] = '\n';
    append(line);
    cr_assert(find("log.2") != NULL && find("log.2")->n == 10 + LOG_FILE_LINE_BYTES, "%zu", find("log.2")->n);
    cr_assert(find("log.1")->n == 10 + LOG_FILE_LINE_BYTES, "a line without an end is parted");
    cr_assert(find("log")->n == sizeof line - 1 - 2 * (10 + LOG_FILE_LINE_BYTES));
}

Test(log_file, offsets_count_on_and_all_that_is_held_can_be_looked_at)
{
    static const char all[] = "one\ntwo\nthree\nfour\nfive\nsix\n";
    char room[64];
    size_t n;

    make(4, 1);
    append(all);
    cr_assert(log_file_n_held(file) == 6 && log_file_end(file) == sizeof all - 1);
    for (uint64_t from = 0; from < sizeof all - 1; from++) {
        const char *bytes = log_file_look(file, from, room, sizeof room, &n);

        cr_assert(n == sizeof all - 1 - from && memcmp(bytes, all + from, n) == 0, "from %d", (int)from);
    }
    log_file_release(file, 9); /* in the third file */
    cr_assert(log_file_n_held(file) == 4 && log_file_oldest_end(file) == 14);
    log_file_look(file, 7, room, sizeof room, &n);
    cr_assert(n == 0, "gone");
    log_file_look(file, 8, room, 6, &n);
    cr_assert(n == 6 && memcmp(room, "three\n", 6) == 0);
    log_file_release(file, UINT64_MAX);
    cr_assert(log_file_n_held(file) == 0, "all that is rotated is let go");
}

Test(log_file, what_was_just_appended_is_looked_at_in_place)
{
    static const char bytes[] = "one\ntwo\nthree";
    char room[64];
    size_t n;

    make(4, 1);
    append("0");
    append_bytes(bytes, sizeof bytes - 1);
    cr_assert(log_file_look(file, 3, room, 2, &n) == bytes + 2 && n == sizeof bytes - 3);
    log_file_settle(file);
    cr_assert(log_file_look(file, 3, room, 2, &n) == room && n == 2 && memcmp(room, "e\n", 2) == 0);
}

Test(log_file, a_full_disk_loses_counts_and_says_so_in_the_file)
{
    struct log_file_result result;

    make(0, 0);
    disk.space = 6;
    result = append("12345678");
    cr_assert(result.lost == 2 && result.error == ENOSPC);
    result = append("more");
    cr_assert(result.lost == 4 && !result.gap_ended);
    disk.space = SIZE_MAX;
    result = append("again\n");

    cr_assert(result.lost == 0 && result.gap_ended);
    cr_assert_str_eq(text_of("log"), "123456\n[fsdprun: 6 bytes were lost here]\nagain\n");
}

/*
 * One call after another fails once: nothing is lost but what a failing write leaves out, and no name goes
 * missing.
 */
Test(log_file, the_nth_call_fails_and_the_log_goes_on)
{
    static const char *const pieces[] = { "first line\n", "second line\nthird line\n",
                                          "fourth\n",     "fifth line\n",
                                          "sixth line\n", "last\n" };
    static char want[512], got[FILE_BYTES];
    int nth = 0;
    bool failed;

    want[0] = '\0';
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        strcat(want, pieces[i]);
    strcat(want, "end\n");
    do {
        uint64_t lost = 0;
        int n_errors = 0;

        stop();
        start();
        make(12, 9);
        disk.n_calls = 0;
        disk.fail_at = ++nth;
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            const struct log_file_result result = append(pieces[i]);

            lost += result.lost;
            n_errors += result.error != 0;
        }
        failed = disk.n_calls >= nth;
        disk.fail_at = 0;
        append("end\n"); /* with it comes the word about what was lost last */
        row(got, 9);

        cr_assert(find("log") != NULL, "call %d", nth);
        cr_assert(lost == 0 || strstr(got, " bytes were lost here]") != NULL, "call %d", nth);
        if (lost == 0)
            cr_assert_str_eq(got, want, "call %d: %s", nth, got);
        cr_assert(find("log.new") == NULL, "call %d leaves a file behind", nth);
        cr_assert(!failed || n_errors > 0 || strcmp(got, want) == 0);
    } while (failed);
    cr_assert(nth > 10, "nothing was ever made to fail");
}

Test(log_file, a_log_that_cannot_be_looked_at_is_not_made)
{
    const struct log_file_spec spec = { .fd = fake_open(&disk.base, "log", 0, 0),
                                        .path = "log",
                                        .io = &disk.base };
    struct fsdp_err err = { 0 };

    disk.fail_at = disk.n_calls + 1;
    cr_assert(log_file_create(&file, &spec, &err) == FSDP_ERR_IO && file == NULL);
    cr_assert(strstr(err.message, "log") != NULL);
    fake_close(&disk.base, spec.fd); /* it is the caller's still */
}
