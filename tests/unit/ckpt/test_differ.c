#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/ckpt/differ.h"
#include "shard_runtime/shardfile/weights.h"
#include "tests/unit/ckpt/made.h"
#include "tests/unit/shardfile/files.h"

static const char *folder;
static struct contents a, b;
static char directory_a[IO_PATH_BYTES], directory_b[IO_PATH_BYTES];
static struct difference *list;
static size_t n;

static void begin(void)
{
    folder = files_begin();
}

static void end(void)
{
    free(list);
    contents_free(&a);
    contents_free(&b);
    files_end();
}
TestSuite(differ, .init = begin, .fini = end, .timeout = 60);

static void compare(const char *path_a, const char *path_b)
{
    struct fsdp_err err = { 0 };

    cr_assert(weights_list(&io_posix, path_a, &a, directory_a, &err) == FSDP_OK, "%s", err.message);
    cr_assert(weights_list(&io_posix, path_b, &b, directory_b, &err) == FSDP_OK, "%s", err.message);
    cr_assert(differ_all(&io_posix, &(struct differ_side){ &a, directory_a },
                         &(struct differ_side){ &b, directory_b }, &list, &n, &err) == FSDP_OK,
              "%s", err.message);
}

Test(differ, the_world_that_saved_makes_no_difference)
{
    static const struct made_piece one[] = { { .rank = 0, "a", 5, 4, { 0, 0 }, { 5, 4 } } };
    static const struct made_piece two[] = { { .rank = 0, "a", 5, 4, { 0, 0 }, { 5, 1 } },
                                             { .rank = 1, "a", 5, 4, { 0, 1 }, { 5, 3 } } };

    made_checkpoint(folder, 1, 1, one, 1);
    made_checkpoint(folder, 2, 2, two, 2);
    compare(files_path(folder, "step-00000001"), files_path(folder, "step-00000002"));

    cr_assert(eq(sz, n, 1));
    cr_expect(eq(int, list[0].kind, DIFFER_EQUAL));
    cr_expect(eq(u64, list[0].n_elems, 20));
}

Test(differ, what_is_missing_or_of_another_shape_is_named)
{
    static const struct made_piece one[] = { { .rank = 0, "a", 5, 4, { 0, 0 }, { 5, 4 } },
                                             { .rank = 0, "c", 5, 4, { 0, 0 }, { 5, 4 } } };
    static const struct made_piece two[] = { { .rank = 0, "b", 5, 4, { 0, 0 }, { 5, 4 } },
                                             { .rank = 0, "c", 4, 5, { 0, 0 }, { 4, 5 } } };

    made_checkpoint(folder, 1, 1, one, 2);
    made_checkpoint(folder, 2, 1, two, 2);
    compare(files_path(folder, "step-00000001"), files_path(folder, "step-00000002"));

    cr_assert(eq(sz, n, 3));
    cr_expect(eq(int, list[0].kind, DIFFER_ONLY_A));
    cr_expect(eq(int, list[1].kind, DIFFER_ONLY_B));
    cr_expect(eq(int, list[2].kind, DIFFER_SHAPE));
}

Test(differ, values_are_counted_and_measured)
{
    static const struct made_piece one[] = { { .rank = 0, "a", 5, 4, { 0, 0 }, { 5, 4 } } };
    static const struct made_piece two[] = { { .rank = 0, "a", 5, 4, { 0, 0 }, { 3, 4 } },
                                             { .rank = 1, "a", 5, 4, { 3, 0 }, { 2, 4 }, .scale = 2 } };

    made_checkpoint(folder, 1, 1, one, 1);
    made_checkpoint(folder, 2, 2, two, 2);
    compare(files_path(folder, "step-00000001"), files_path(folder, "step-00000002"));

    cr_assert(eq(int, list[0].kind, DIFFER_VALUES));
    cr_expect(eq(u64, list[0].n_differ, 8));
    cr_expect(eq(u64, list[0].first, 12));
    cr_expect(eq(dbl, list[0].max_abs, 19), "19 and 38");
    cr_expect(eq(dbl, list[0].max_rel, 0.5));
}

/* Writes one float32, float16 or bfloat16 tensor of four elements. */
static void write_four(const char *name, enum fsdp_dtype dtype, const void *bytes)
{
    struct safetensors_tensor tensor = {
        .name = "x", .dtype = dtype, .n_dims = 1, .shape = { 4 }, .data = bytes
    };
    struct safetensors_written written;

    cr_assert(safetensors_write(&io_posix, files_path(folder, name), &tensor, 1, NULL, 0, 8, false, &written,
                                NULL) == FSDP_OK);
}

Test(differ, other_types_of_equal_values_differ_in_their_type_alone)
{
    static const float wide[] = { 1, -2, 0.5f, 0 };
    static const uint16_t half[] = { 0x3c00, 0xc000, 0x3800, 0x8000 };

    write_four("a.safetensors", FSDP_F32, wide);
    write_four("b.safetensors", FSDP_F16, half);
    compare(files_path(folder, "a.safetensors"), files_path(folder, "b.safetensors"));

    cr_expect(eq(int, list[0].kind, DIFFER_DTYPE));
    cr_expect(eq(u64, list[0].n_differ, 0));
}

Test(differ, what_is_not_finite_differs_infinitely_unless_the_bits_are_equal)
{
    static const float one[] = { NAN, INFINITY, 1, 0 }, two[] = { NAN, 2, NAN, -0.0f };

    write_four("a.safetensors", FSDP_F32, one);
    write_four("b.safetensors", FSDP_F32, two);
    compare(files_path(folder, "a.safetensors"), files_path(folder, "b.safetensors"));

    cr_expect(eq(int, list[0].kind, DIFFER_VALUES));
    cr_expect(eq(u64, list[0].n_differ, 3), "both zeros have other bits");
    cr_expect(eq(u64, list[0].first, 1));
    cr_expect(isinf(list[0].max_abs) && isinf(list[0].max_rel));
}
