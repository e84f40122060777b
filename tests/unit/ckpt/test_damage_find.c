#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/ckpt/damage_find.h"
#include "tests/unit/ckpt/made.h"
#include "tests/unit/shardfile/files.h"

static const char *folder, *step;
static struct damage_report report;
static struct fsdp_err err;

/* Two files; a (512 x 64) has 64 KiB in each, b 128 bytes. Their headers have 4096 bytes. */
static const struct made_piece pieces[] = {
    { .rank = 0, "a", 512, 64, { 0, 0 }, { 256, 64 } },
    { .rank = 0, "b", 2, 32, { 0, 0 }, { 1, 32 } },
    { .rank = 1, "a", 512, 64, { 256, 0 }, { 256, 64 } },
    { .rank = 1, "b", 2, 32, { 1, 0 }, { 1, 32 } },
};
#define FIRST  "shard-00001-model-00001-of-00001.safetensors"
#define SECOND "shard-00002-model-00001-of-00001.safetensors"

static void begin(void)
{
    folder = files_begin();
    made_checkpoint(folder, 7, 2, pieces, 4);
    step = strdup(files_path(folder, "step-00000007"));
}

static void end(void)
{
    damage_report_free(&report);
    free((void *)(uintptr_t)step);
    files_end();
}
TestSuite(damage_find, .init = begin, .fini = end, .timeout = 60);

static void find(void)
{
    damage_report_free(&report);
    cr_assert(eq(int, damage_find(&io_posix, step, &report, &err), FSDP_OK), "%s", err.message);
}

Test(damage_find, of_a_sound_checkpoint_nothing_is_said)
{
    find();

    cr_assert(eq(sz, report.n, 0));
    cr_assert(report.has_manifest && report.step == 7 && report.world_size == 2);
    cr_assert(eq(u64, report.bytes, 2 * (4096 + 65536 + 128)));
}

/* Every byte class of a file: header, both ends of each tensor. */
Test(damage_find, a_flipped_bit_is_named_by_file_tensor_and_bytes)
{
    static const struct {
        size_t at;
        const char *tensor;
        uint64_t begin, end, in_tensor;
    } flips[] = {
        { 0, "", 0, 4096, 0 },          { 4095, "", 0, 4096, 0 },        { 4096, "a", 4096, 69632, 0 },
        { 69631, "a", 4096, 69632, 0 }, { 69632, "b", 69632, 69760, 0 }, { 69759, "b", 69632, 69760, 0 },
    };

    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        made_flip(files_path(step, SECOND), flips[i].at);
        find();
        made_flip(files_path(step, SECOND), flips[i].at);

        cr_assert(eq(sz, report.n, 1), "byte %zu", flips[i].at);
        cr_expect(eq(str, report.list[0].file, SECOND));
        cr_expect(eq(str, report.list[0].tensor, (char *)flips[i].tensor), "byte %zu", flips[i].at);
        cr_expect(report.list[0].has_range);
        cr_expect(eq(u64, report.list[0].begin, flips[i].begin), "byte %zu", flips[i].at);
        cr_expect(eq(u64, report.list[0].end, flips[i].end), "byte %zu", flips[i].at);
        cr_expect(eq(u64, report.list[0].in_tensor, flips[i].in_tensor));
    }
}

Test(damage_find, all_damage_is_named_and_not_only_the_first)
{
    made_flip(files_path(step, FIRST), 69700);
    made_flip(files_path(step, SECOND), 5000);
    made_flip(files_path(step, SECOND), 69700);

    find();

    cr_assert(eq(sz, report.n, 3));
    cr_expect(eq(str, report.list[0].file, FIRST));
    cr_expect(eq(str, report.list[0].tensor, "b"));
    cr_expect(eq(str, report.list[1].tensor, "a"));
    cr_expect(eq(str, report.list[2].tensor, "b"));
}

Test(damage_find, without_sums_the_file_is_named)
{
    unlink(files_path(step, "sums-00002"));
    find();
    cr_assert(eq(sz, report.n, 0), "a checkpoint of an older program is sound");

    made_flip(files_path(step, SECOND), 5000);
    find();

    cr_assert(eq(sz, report.n, 1));
    cr_expect(eq(str, report.list[0].file, SECOND));
    cr_expect(eq(str, report.list[0].tensor, ""));
    cr_expect(eq(u64, report.list[0].end, 69760));
}

Test(damage_find, damaged_sums_damage_no_checkpoint)
{
    made_flip(files_path(step, "sums-00001"), 40);

    find();

    cr_assert(eq(sz, report.n, 0));
}

Test(damage_find, a_missing_a_short_and_a_foreign_file_are_named)
{
    size_t size;
    unsigned char *bytes = files_read(files_path(step, SECOND), &size);

    files_write(files_path(step, SECOND), bytes, size - 1);
    unlink(files_path(step, FIRST));
    find();
    cr_assert(eq(sz, report.n, 2));
    cr_expect(eq(str, report.list[0].file, FIRST));
    cr_expect_not_null(strstr(report.list[1].reason, "the manifest says 69760"), "%s", report.list[1].reason);

    files_write(files_path(step, FIRST), bytes, size);
    files_write(files_path(step, SECOND), bytes, size);
    unlink(files_path(step, "sums-00001"));
    find();
    cr_assert(eq(sz, report.n, 1), "the second rank's file in place of the first one's");
    cr_expect(eq(str, report.list[0].file, FIRST));
    free(bytes);
}

Test(damage_find, every_byte_of_the_manifest_counts)
{
    size_t size;

    free(files_read(files_path(step, "manifest.json"), &size));
    for (size_t at = 0; at < size; at++) {
        made_flip(files_path(step, "manifest.json"), at);
        find();
        made_flip(files_path(step, "manifest.json"), at);

        cr_assert(eq(sz, report.n, 1), "byte %zu", at);
        cr_assert(eq(str, report.list[0].file, "manifest.json"));
    }
    unlink(files_path(step, "manifest.json"));
    find();
    cr_assert(report.n == 1 && !report.has_manifest);
}

Test(damage_find, a_file_that_no_manifest_lists_is_damage)
{
    files_write(files_path(step, "model.safetensors"), "x", 1);

    find();

    cr_assert(eq(sz, report.n, 1));
    cr_expect_not_null(strstr(report.list[0].reason, "model.safetensors"));
}

Test(damage_find, what_is_no_directory_is_an_error)
{
    cr_assert(eq(int, damage_find(&io_posix, "/nowhere", &report, &err), FSDP_ERR_NOT_FOUND));
}
