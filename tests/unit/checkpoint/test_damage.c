/*
 * Checkpoints that something else has changed: no bit of them may change unseen.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/safetensors.h"
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

/* Each file of the newest step in turn. It is whole again after `damage`. */
static void each_file(void (*damage)(const char *name, const char *path, char *bytes, size_t n))
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = path_of(50, names[i]);
        size_t n;
        char *bytes = take(path, &n);

        cr_assert(n > 500);
        damage(names[i], path, bytes, n);
        put(path, bytes, n);
        cr_assert(verify(VERIFY_CHECKSUMS, NULL) == FSDP_OK);
        free(bytes);
    }
}

/*
 * The ranks that load it see it too, whatever their number, and one of them names the file. A damaged header
 * may also contradict another one; then the message names the tensor.
 */
static void check_not_loaded(const char *name, int W, size_t at)
{
    struct fsdp_err err = { 0 };
    const enum fsdp_status status = state_load(&io.base, "c", 50, 5, W, &err);

    cr_assert(status == FSDP_ERR_FORMAT || status == FSDP_ERR_UNSUPPORTED,
              "%s, %d ranks, byte %zu: status %d", name, W, at, (int)status);
    cr_assert(at < SAFETENSORS_ALIGNMENT || strstr(err.message, name) != NULL, "%s, %d ranks, byte %zu: %s",
              name, W, at, err.message);
    cr_assert(io.n_open == 0);
}

static void flip_bits(const char *name, const char *path, char *bytes, size_t n)
{
    int64_t step;

    for (size_t at = 0; at < n; at = next_byte(bytes, n, at)) {
        bytes[at] ^= (char)(1 << at % 8);
        put(path, bytes, n);
        check_refused(name, "bit flipped", at);
        for (int W = 1; W <= 5; W++)
            check_not_loaded(name, W, at);
        bytes[at] ^= (char)(1 << at % 8);
    }
    cr_assert(verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK && step == 40);
}

Test(damage, any_flipped_bit_is_seen_and_its_file_named)
{
    each_file(flip_bits);
}

static void change_length(const char *name, const char *path, char *bytes, size_t n)
{
    char *more = calloc(1, n + 4096);
    struct fsdp_err err = { 0 };

    memcpy(more, bytes, n);
    for (size_t cut = 0; cut < n; cut = next_byte(bytes, n, cut)) {
        put(path, bytes, cut);
        for (enum verify_depth depth = VERIFY_SIZES; depth <= VERIFY_STRUCTURE; depth++) {
            cr_assert(verify(depth, &err) == FSDP_ERR_FORMAT, "%s cut to %zu", name, cut);
            cr_assert(strstr(err.message, name) != NULL, "%s cut to %zu: %s", name, cut, err.message);
        }
    }
    for (size_t length = n + 1; length <= n + 4096; length += 4095) {
        put(path, more, length);
        cr_assert(verify(VERIFY_SIZES, NULL) == FSDP_ERR_FORMAT);
        cr_assert(verify(VERIFY_STRUCTURE, NULL) == FSDP_ERR_FORMAT);
    }
    free(more);
    cr_assert(io.base.unlink(&io.base, path) == 0);
    for (enum verify_depth depth = VERIFY_SIZES; depth <= VERIFY_STRUCTURE; depth++)
        cr_assert(verify(depth, &err) == FSDP_ERR_NOT_FOUND && strstr(err.message, name) != NULL, "%s",
                  err.message);
}

Test(damage, a_file_of_another_length_or_none_is_seen_without_reading_its_data)
{
    each_file(change_length);
}

/* Another rank's, and two of another step, of the same size and shape. */
Test(damage, a_file_in_anothers_place_is_seen_by_its_header)
{
    static const struct {
        const char *to;
        int64_t from_step;
        const char *from, *words;
    } cases[] = { { SHARD_1, 50, SHARD_2, "" },
                  { SHARD_2, 40, SHARD_2, "another save" },
                  { "manifest.json", 40, "manifest.json", "" } };

    for (int i = 0; i < 3; i++) {
        struct fsdp_err err = { 0 };
        size_t n, n_other;
        char *own = take(path_of(50, cases[i].to), &n);
        char *other = take(path_of(cases[i].from_step, cases[i].from), &n_other);

        put(path_of(50, cases[i].to), other, n_other);
        cr_expect(verify(VERIFY_STRUCTURE, &err) == FSDP_ERR_FORMAT, "case %d", i);
        cr_expect_not_null(strstr(err.message, cases[i].words), "%s", err.message);
        put(path_of(50, cases[i].to), own, n);
        free(own);
        free(other);
    }
}

Test(damage, a_step_under_another_name_is_passed_over_and_none_at_all_is_a_fresh_run)
{
    int64_t step;

    cr_assert(io.base.rename(&io.base, "c/step-00000040", "c/step-00000070") == 0);
    cr_assert(verify_newest(&io.base, "c", VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK && step == 50);
    cr_assert(verify_newest(&io.base, "elsewhere", VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK &&
              step == -1);
}

Test(damage, a_tensor_file_too_many_is_refused_and_other_files_are_not)
{
    struct fsdp_err err = { 0 };

    put(path_of(50, "README.md"), "mine", 4);
    cr_assert(verify(VERIFY_CHECKSUMS, &err) == FSDP_OK, "%s", err.message);
    put(path_of(50, "model.safetensors"), "mine", 4);
    for (enum verify_depth depth = VERIFY_SIZES; depth <= VERIFY_STRUCTURE; depth++)
        cr_assert(verify(depth, &err) == FSDP_ERR_FORMAT && strstr(err.message, "model.safetensors") != NULL);
    cr_assert(state_load(&io.base, "c", 50, 5, 3, &err) == FSDP_ERR_FORMAT);
}
