/*
 * Checkpoints that something else has changed: no bit of them may change unseen.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/memory_io.h"

static struct memory_io io;

static void begin(void)
{
    memory_io_init(&io);
    cr_assert(state_save(&io.base, "c", 40, 0, 5, 2, NULL) == FSDP_OK);
    cr_assert(state_save(&io.base, "c", 50, 0, 5, 2, NULL) == FSDP_OK);
}

static void end(void)
{
    memory_io_fini(&io);
}

TestSuite(damage, .init = begin, .fini = end, .timeout = 1200);

#define SHARD_1 "shard-00001-model-00001-of-00001.safetensors"
#define SHARD_2 "shard-00002-model-00001-of-00001.safetensors"
static const char *const names[] = { SHARD_1, SHARD_2, "manifest.json" };

static const char *path_of(int64_t step, const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, 256, "c/step-%08lld/%s", (long long)step, name);
    return path;
}

static char *take(const char *path, size_t *n)
{
    char *bytes;

    cr_assert(io_read_file(&io.base, path, 1 << 30, &bytes, n, NULL) == FSDP_OK, "%s", path);
    return bytes;
}

/* Replace a file's bytes where it stands. */
static void put(const char *path, const void *bytes, size_t n)
{
    const int fd = io.base.open(&io.base, path, O_WRONLY | O_CREAT, 0666);

    cr_assert(fd >= 0 && io.base.ftruncate(&io.base, fd, 0) == 0);
    cr_assert(io_write_all(&io.base, fd, bytes, n, 0, path, NULL) == FSDP_OK &&
              io.base.close(&io.base, fd) == 0);
}

/* The next byte to damage: all of them, but of the header's padding, which is all alike, one in 64. */
static size_t next_byte(const char *bytes, size_t n, size_t at)
{
    at++;
    while (at < n && at % 64 != 0 && bytes[at] == ' ' && bytes[at - 1] == ' ')
        at++;
    return at;
}

static enum fsdp_status verify(enum verify_depth depth, struct fsdp_err *err)
{
    return verify_step(&io.base, "c/step-00000050", depth, NULL, err);
}

/* A damaged newest one: it is refused with the file's name, and the older one is found. */
static void check_refused(const char *name, const char *what, size_t at)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status = verify(VERIFY_CHECKSUMS, &err);

    cr_assert(status == FSDP_ERR_FORMAT || status == FSDP_ERR_UNSUPPORTED, "%s, %s at %zu: status %d", name,
              what, at, (int)status);
    cr_assert(strstr(err.message, name) != NULL, "%s, %s at %zu: %s", name, what, at, err.message);
}

Test(damage, any_flipped_bit_is_seen_and_its_file_named)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = path_of(50, names[i]);
        size_t n;
        char *bytes = take(path, &n);
        int64_t step;

        cr_assert(n > 500);
        for (size_t at = 0; at < n; at = next_byte(bytes, n, at)) {
            bytes[at] ^= (char)(1 << at % 8);
            put(path, bytes, n);
            check_refused(names[i], "bit flipped", at);
            bytes[at] ^= (char)(1 << at % 8);
        }
        cr_assert(verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK && step == 40);
        put(path, bytes, n);
        cr_assert(verify(VERIFY_CHECKSUMS, NULL) == FSDP_OK);
        free(bytes);
    }
}

Test(damage, callers_that_share_the_work_see_a_flipped_bit_of_any_file)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = path_of(50, names[i]);
        size_t n;
        char *bytes = take(path, &n);

        bytes[n - 1] ^= 1;
        put(path, bytes, n);
        for (size_t n_parts = 1; n_parts <= 5; n_parts++) {
            size_t n_seen = 0;

            for (size_t part = 0; part < n_parts; part++)
                n_seen += verify_named_part(&io.base, "c", 50, part, n_parts, NULL) == FSDP_ERR_FORMAT;
            cr_assert(n_seen > 0, "%s, %zu parts", names[i], n_parts);
        }
        bytes[n - 1] ^= 1;
        put(path, bytes, n);
        for (size_t part = 0; part < 5; part++)
            cr_assert(verify_named_part(&io.base, "c", 50, part, 5, NULL) == FSDP_OK);
        free(bytes);
    }
}

Test(damage, a_file_cut_at_any_length_is_seen_without_reading_its_data)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = path_of(50, names[i]);
        size_t n;
        char *bytes = take(path, &n);

        for (size_t cut = 0; cut < n; cut = next_byte(bytes, n, cut)) {
            struct fsdp_err err = { 0 };

            put(path, bytes, cut);
            cr_assert(verify(VERIFY_STRUCTURE, &err) == FSDP_ERR_FORMAT, "%s cut to %zu", names[i], cut);
            cr_assert(strstr(err.message, names[i]) != NULL, "%s cut to %zu: %s", names[i], cut, err.message);
        }
        put(path, bytes, n);
        free(bytes);
    }
}

Test(damage, bytes_behind_the_end_are_seen)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = path_of(50, names[i]);
        size_t n;
        char *bytes = take(path, &n), *more = calloc(1, n + 4096);

        memcpy(more, bytes, n);
        put(path, more, n + 1);
        cr_assert(verify(VERIFY_STRUCTURE, NULL) == FSDP_ERR_FORMAT);
        put(path, more, n + 4096);
        cr_assert(verify(VERIFY_STRUCTURE, NULL) == FSDP_ERR_FORMAT);
        put(path, bytes, n);
        free(bytes);
        free(more);
    }
}

Test(damage, a_missing_file_is_named)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fsdp_err err = { 0 };
        size_t n;
        char *bytes = take(path_of(50, names[i]), &n);

        cr_assert(io.base.unlink(&io.base, path_of(50, names[i])) == 0);
        cr_assert(verify(VERIFY_STRUCTURE, &err) == FSDP_ERR_NOT_FOUND &&
                      strstr(err.message, names[i]) != NULL,
                  "%s", err.message);
        put(path_of(50, names[i]), bytes, n);
        free(bytes);
    }
}

Test(damage, two_ranks_files_swapped_are_seen_by_their_headers)
{
    struct fsdp_err err = { 0 };
    size_t n_one, n_two;
    char *one = take(path_of(50, SHARD_1), &n_one), *two = take(path_of(50, SHARD_2), &n_two);

    put(path_of(50, SHARD_1), two, n_two);
    put(path_of(50, SHARD_2), one, n_one);

    cr_assert(verify(VERIFY_STRUCTURE, &err) == FSDP_ERR_FORMAT, "%s", err.message);
    free(one);
    free(two);
}

Test(damage, files_of_two_steps_mixed_are_seen_by_their_headers)
{
    struct fsdp_err err = { 0 };
    size_t n;
    char *other = take(path_of(40, SHARD_2), &n);

    put(path_of(50, SHARD_2), other, n); /* of the same size and shape */
    cr_assert(verify(VERIFY_STRUCTURE, &err) == FSDP_ERR_FORMAT &&
                  strstr(err.message, "another save") != NULL,
              "%s", err.message);
    free(other);
}

Test(damage, a_manifest_of_another_step_is_seen)
{
    size_t n;
    char *other = take(path_of(40, "manifest.json"), &n);

    put(path_of(50, "manifest.json"), other, n);
    cr_assert(verify(VERIFY_STRUCTURE, NULL) == FSDP_ERR_FORMAT);
    free(other);
}

Test(damage, a_step_under_another_name_is_passed_over)
{
    int64_t step;

    cr_assert(io.base.rename(&io.base, "c/step-00000040", "c/step-00000070") == 0);

    cr_assert(verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK && step == 50);
}

Test(damage, a_tensor_file_too_many_is_refused_and_other_files_are_not)
{
    struct fsdp_err err = { 0 };

    put(path_of(50, "README.md"), "mine", 4);
    cr_assert(verify(VERIFY_CHECKSUMS, &err) == FSDP_OK, "%s", err.message);
    put(path_of(50, "model.safetensors"), "mine", 4);
    cr_assert(verify(VERIFY_STRUCTURE, &err) == FSDP_ERR_FORMAT &&
              strstr(err.message, "model.safetensors") != NULL);
}

static void count_line(void *context, const char *words)
{
    int *n = context;

    *n += strstr(words, "event=checkpoint_skipped") != NULL && strchr(words, '\n') == NULL;
}

Test(damage, falling_back_is_said_and_nothing_left_is_an_error)
{
    int n_lines = 0;
    const struct verify_log log = { count_line, &n_lines };
    struct fsdp_err err = { 0 };
    int64_t step;

    put(path_of(50, "manifest.json"), "{}", 2);
    cr_assert(verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, &log, NULL) == FSDP_OK && step == 40);
    cr_assert(n_lines == 1);
    put(path_of(40, "manifest.json"), "{}", 2);
    cr_assert(verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, &log, &err) == FSDP_ERR_FORMAT &&
              step == -1);
    cr_assert(n_lines == 3 && strstr(err.message, "none of the 2 checkpoints") != NULL, "%s", err.message);
}

Test(damage, no_checkpoint_at_all_is_a_fresh_run)
{
    int64_t step = 7;

    cr_assert(verify_newest(&io.base, "elsewhere", VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK &&
              step == -1);
}

Test(damage, loading_without_verifying_never_runs_wild)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = path_of(50, names[i]);
        size_t n;
        char *bytes = take(path, &n);

        for (size_t at = 0; at < n; at = next_byte(bytes, n, at)) {
            bytes[at] ^= (char)(1 << (at + 3) % 8);
            put(path, bytes, n);
            state_load(&io.base, "c", 50, 5, 2,
                       NULL); /* values may differ; the sanitizers must have no objection */
            cr_assert(io.n_open == 0);
            bytes[at] ^= (char)(1 << (at + 3) % 8);
        }
        put(path, bytes, n);
        free(bytes);
    }
}
