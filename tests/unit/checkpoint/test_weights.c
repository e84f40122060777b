/*
 * Weights from files of other tools: found by name, converted, told about when they do not fit, at every world size.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/checkpoint/weights.h"
#include "shard_runtime/shard/layout.h"
#include "shard_runtime/shardfile/safetensors.h"

enum { ROWS_A = 5, COLS_A = 3, ROWS_B = 7 };

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-weights.XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[96];

    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(weights, .init = make_folder, .fini = remove_folder, .timeout = 600);

static const float *values_a(void)
{
    static float a[ROWS_A * COLS_A];

    for (int i = 0; i < ROWS_A * COLS_A; i++)
        a[i] = 0.5f * (float)i - 3.0f; /* exact in bfloat16 and float16 too */
    return a;
}

static const void *as_type(enum fsdp_dtype dtype)
{
    static uint16_t half[ROWS_A * COLS_A];
    static _Float16 ieee_half[ROWS_A * COLS_A];
    static double wide[ROWS_A * COLS_A];

    for (int i = 0; i < ROWS_A * COLS_A; i++) {
        uint32_t bits;

        memcpy(&bits, &values_a()[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
        ieee_half[i] = (_Float16)values_a()[i];
        wide[i] = (double)values_a()[i];
    }
    return dtype == FSDP_BF16  ? (const void *)half
           : dtype == FSDP_F16 ? (const void *)ieee_half
           : dtype == FSDP_F64 ? (const void *)wide
                               : values_a();
}

static struct safetensors_tensor file_tensor(const char *name, enum fsdp_dtype dtype, size_t n_dims,
                                             uint64_t rows, uint64_t cols, const void *data)
{
    return (struct safetensors_tensor){
        .name = name, .dtype = dtype, .n_dims = n_dims, .shape = { rows, cols }, .data = data
    };
}

static const char *path_of(const char *name)
{
    static char path[160];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_file(const char *name, struct safetensors_tensor *tensors, size_t n)
{
    struct safetensors_written written;
    struct fsdp_err err = { 0 };

    cr_assert(safetensors_write(&io_posix, path_of(name), tensors, n, NULL, 0, 8, &written, &err) == FSDP_OK,
              "%s", err.message);
}

static const float values_b[ROWS_B] = { 1, 2, 3, 4, 5, 6, 7 };

/* A rank's rows of "a" and "b", which begin as -1. */
struct rank_state {
    float a[ROWS_A * COLS_A], b[ROWS_B];
    struct checkpoint_tensor tensors[2];
};

static void begin(struct rank_state *state)
{
    for (int i = 0; i < ROWS_A * COLS_A; i++)
        state->a[i] = -1;
    for (int i = 0; i < ROWS_B; i++)
        state->b[i] = -1;
    state->tensors[0] = (struct checkpoint_tensor){
        .name = "a", .dtype = FSDP_F32, .n_dims = 2, .shape = { ROWS_A, COLS_A }, .rows = state->a
    };
    state->tensors[1] = (struct checkpoint_tensor){
        .name = "b", .dtype = FSDP_F32, .n_dims = 1, .shape = { ROWS_B }, .rows = state->b
    };
}

static enum fsdp_status load_named(struct rank_state *state, const char *path, int W, int rank, bool strict,
                                   const struct weights_names *names, struct weights_report *report,
                                   struct fsdp_err *err)
{
    begin(state);
    return weights_load(NULL, path, W, rank, state->tensors, 2, strict, names, report, err);
}

static enum fsdp_status load(struct rank_state *state, const char *path, int W, int rank, bool strict,
                             struct weights_report *report, struct fsdp_err *err)
{
    return load_named(state, path, W, rank, strict, NULL, report, err);
}

static void check_rows(const struct rank_state *state, int W, int rank)
{
    const struct layout_rows a = layout_shard(ROWS_A, W, rank), b = layout_shard(ROWS_B, W, rank);

    cr_assert(memcmp(state->a, values_a() + a.first * COLS_A, a.n_rows * COLS_A * sizeof(float)) == 0);
    cr_assert(memcmp(state->b, values_b + b.first, b.n_rows * sizeof(float)) == 0);
}

Test(weights, every_rank_takes_its_rows_in_any_type)
{
    static const enum fsdp_dtype types[] = { FSDP_F32, FSDP_BF16, FSDP_F16, FSDP_F64 };

    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct safetensors_tensor tensors[] = {
            file_tensor("b", FSDP_F32, 1, ROWS_B, 0, values_b),
            file_tensor("a", types[t], 2, ROWS_A, COLS_A, as_type(types[t])),
        };
        char path[160];

        put_file("model.safetensors", tensors, 2);
        snprintf(path, sizeof path, "%s", path_of("model.safetensors"));
        for (int W = 1; W <= 8; W++)
            for (int rank = 0; rank < W; rank++) {
                struct weights_report report;
                struct rank_state state;
                struct fsdp_err err = { 0 };

                cr_assert(load(&state, path, W, rank, true, &report, &err) == FSDP_OK, "%s", err.message);
                check_rows(&state, W, rank);
                cr_assert(report.n_loaded == 2 && report.lines[0] == '\0');
                free(report.lines);
            }
    }
}

/* With the others' prefix or without; what they keep beside it is nobody's. */
Test(weights, another_program_s_names)
{
    static const char *const beside[] = { "h.*.mask", "head" };
    const struct weights_names names = { .prefix = "net.", .passed_over = beside, .n_passed_over = 2 };
    struct safetensors_tensor tensors[] = {
        file_tensor("net.b", FSDP_F32, 1, ROWS_B, 0, values_b),
        file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a()),
        file_tensor("net.h.11.mask", FSDP_F32, 1, ROWS_B, 0, values_b),
        file_tensor("head", FSDP_F32, 1, ROWS_B, 0, values_b),
        file_tensor("net.tail", FSDP_F32, 1, ROWS_B, 0, values_b),
    };
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };

    put_file("net.safetensors", tensors, 4);
    cr_assert(load_named(&state, path_of("net.safetensors"), 2, 1, true, &names, &report, &err) == FSDP_OK,
              "%s", err.message);
    check_rows(&state, 2, 1);
    free(report.lines);

    put_file("net.safetensors", tensors, 5);
    cr_assert(load_named(&state, path_of("net.safetensors"), 2, 1, true, &names, &report, &err) ==
              FSDP_ERR_MISMATCH);
    cr_assert_str_eq(report.lines, "unexpected net.tail\n");
    free(report.lines);
}

Test(weights, a_directory_of_files_is_one_model)
{
    struct safetensors_tensor a = file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a());
    struct safetensors_tensor b = file_tensor("b", FSDP_F32, 1, ROWS_B, 0, values_b);
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };

    put_file("model-00001-of-00002.safetensors", &a, 1);
    put_file("model-00002-of-00002.safetensors", &b, 1);
    cr_assert(load(&state, folder, 2, 1, true, &report, &err) == FSDP_OK, "%s", err.message);
    check_rows(&state, 2, 1);
    free(report.lines);

    put_file("model-00003-of-00002.safetensors", &b, 1);
    cr_assert(load(&state, folder, 1, 0, true, &report, &err) == FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "b is in two files"), "%s", err.message);
}

Test(weights, strict_refuses_what_is_missing_or_unexpected_and_partial_takes_the_rest)
{
    struct safetensors_tensor tensors[] = {
        file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a()),
        file_tensor("extra", FSDP_F32, 1, ROWS_B, 0, values_b),
        file_tensor("optimizer.exp_avg.a", FSDP_F32, 2, ROWS_A, COLS_A, values_a()),
    };
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };

    put_file("m.safetensors", tensors, 3);
    cr_assert(load(&state, path_of("m.safetensors"), 1, 0, true, &report, &err) == FSDP_ERR_MISMATCH);
    cr_assert_not_null(strstr(err.message, "1 missing, 1 unexpected, 0 mismatched"), "%s", err.message);
    cr_assert_str_eq(report.lines, "missing b\nunexpected extra\n");
    cr_assert(state.a[0] == -1, "nothing was written");
    free(report.lines);

    cr_assert(load(&state, path_of("m.safetensors"), 1, 0, false, &report, &err) == FSDP_OK);
    cr_assert(report.n_loaded == 1 && report.n_missing == 1 && report.n_unexpected == 1);
    cr_assert(memcmp(state.a, values_a(), sizeof state.a) == 0);
    cr_assert(state.b[0] == -1 && state.b[ROWS_B - 1] == -1, "what is missing keeps its value");
    free(report.lines);
}

Test(weights, another_shape_or_type_is_refused_also_when_a_part_would_do)
{
    static const int32_t whole[ROWS_B] = { 1 };
    struct safetensors_tensor tensors[] = {
        file_tensor("a", FSDP_F32, 2, COLS_A, ROWS_A, values_a()),
        file_tensor("b", FSDP_I32, 1, ROWS_B, 0, whole),
    };
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };

    put_file("m.safetensors", tensors, 2);
    cr_assert(load(&state, path_of("m.safetensors"), 1, 0, false, &report, &err) == FSDP_ERR_MISMATCH);
    cr_assert_eq(report.n_mismatched, 2);
    cr_assert_str_eq(report.lines, "mismatched a: (5, 3) float32 here, (3, 5) float32 there\n"
                                   "mismatched b: (7) float32 here, (7) int32 there\n");
    cr_assert(state.a[0] == -1 && state.b[0] == -1);
    free(report.lines);
}

/* A header as some other tool writes it, in a type that has no name here. */
static void put_float8_file(const char *name)
{
    static const char header[] = "{\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[7],\"data_offsets\":[0,7]}}";
    const uint64_t length = sizeof header - 1;
    FILE *file = fopen(path_of(name), "w");

    fwrite(&length, 8, 1, file);
    fwrite(header, 1, sizeof header - 1, file);
    fwrite("1234567", 1, 7, file);
    fclose(file);
}

Test(weights, a_type_without_a_name_is_named_as_such)
{
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };

    put_float8_file("h.safetensors");
    cr_assert(load(&state, path_of("h.safetensors"), 1, 0, false, &report, &err) == FSDP_ERR_MISMATCH, "%s",
              err.message);
    cr_assert_not_null(
        strstr(report.lines, "mismatched b: (7) float32 here, (7) a type that is not read there"), "%s",
        report.lines);
    free(report.lines);
}

Test(weights, what_is_no_weights_is_refused_by_name)
{
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };
    FILE *file;

    cr_assert(load(&state, "/nowhere/x.safetensors", 1, 0, true, &report, &err) == FSDP_ERR_NOT_FOUND);
    cr_assert(load(&state, folder, 1, 0, true, &report, &err) == FSDP_ERR_NOT_FOUND, "an empty directory");
    cr_assert(load(&state, "/dev/null", 1, 0, true, &report, &err) == FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "is no *.safetensors file"), "%s", err.message);
    file = fopen(path_of("cut.safetensors"), "w");
    fputs("{}", file);
    fclose(file);
    cr_assert(load(&state, path_of("cut.safetensors"), 1, 0, true, &report, &err) == FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "cut.safetensors"), "%s", err.message);
}

Test(weights, a_shard_without_its_manifest_is_refused)
{
    struct safetensors_tensor shard = file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a());
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };

    shard.has_offsets = shard.has_global_shape = true;
    shard.global_shape[0] = 2 * ROWS_A;
    shard.global_shape[1] = COLS_A;
    put_file("s.safetensors", &shard, 1);
    cr_assert(load(&state, path_of("s.safetensors"), 1, 0, true, &report, &err) == FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "a is a shard"), "%s", err.message);
}
