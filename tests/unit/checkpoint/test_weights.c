/*
 * Weights from files of other tools: found by name, converted, told about when they do not fit, at every world size.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/checkpoint/weights.h"
#include "shard_runtime/shard/layout.h"
#include "shard_runtime/shardfile/contents.h"
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
    return weights_load(NULL, path, W, rank, state->tensors, 2, strict, names, report, NULL, err);
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
    cr_assert_not_null(strstr(err.message, "/dev/null is not a regular file"), "%s", err.message);
    file = fopen(path_of("model.bin"), "w");
    fputs("{}", file);
    fclose(file);
    cr_assert(load(&state, path_of("model.bin"), 1, 0, true, &report, &err) == FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "is no *.safetensors file"), "%s", err.message);
    file = fopen(path_of("cut.safetensors"), "w");
    fputs("{}", file);
    fclose(file);
    cr_assert(load(&state, path_of("cut.safetensors"), 1, 0, true, &report, &err) == FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "cut.safetensors"), "%s", err.message);
}

/* --- shards, as PyTorch's HuggingFaceStorageWriter saves them ----------------------------------------------- */

/* Rows and columns of "a" from `row` and `col` on, or rows of "b"; `data` is to be freed. */
static struct safetensors_tensor shard_of(const char *name, size_t row, size_t rows, size_t col, size_t cols)
{
    const bool is_a = name[0] == 'a';
    struct safetensors_tensor shard = file_tensor(name, FSDP_F32, is_a ? 2 : 1, rows, is_a ? cols : 0, NULL);
    float *data = malloc(rows * cols * sizeof *data);

    for (size_t i = 0; i < rows * cols; i++)
        data[i] = is_a ? values_a()[(row + i / cols) * COLS_A + col + i % cols] : values_b[row + i];
    shard.data = data;
    shard.has_offsets = true;
    shard.offsets[0] = row;
    shard.offsets[1] = col;
    return shard;
}

static void put_shards(const char *name, struct safetensors_tensor *shards, size_t n)
{
    put_file(name, shards, n);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)shards[i].data);
}

static void check_loads(const char *path)
{
    for (int W = 1; W <= 8; W++)
        for (int rank = 0; rank < W; rank++) {
            struct weights_report report;
            struct rank_state state;
            struct fsdp_err err = { 0 };

            cr_assert(load(&state, path, W, rank, true, &report, &err) == FSDP_OK, "%s", err.message);
            check_rows(&state, W, rank);
            free(report.lines);
        }
}

static void check_refused(const char *path, enum fsdp_status wanted, const char *words)
{
    struct weights_report report;
    struct rank_state state;
    struct fsdp_err err = { 0 };

    cr_assert_eq(load(&state, path, 1, 0, true, &report, &err), wanted, "%s", err.message);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
    cr_assert(state.a[0] == -1 && state.b[0] == -1);
    free(report.lines);
}

Test(weights, whole_tensors_with_pytorchs_sharding_information_are_read)
{
    struct safetensors_tensor whole[] = { shard_of("a", 0, ROWS_A, 0, COLS_A),
                                          shard_of("b", 0, ROWS_B, 0, 1) };
    char path[160];

    put_shards("model-00001-of-00001.safetensors", whole, 2);
    snprintf(path, sizeof path, "%s", path_of("model-00001-of-00001.safetensors"));
    check_loads(path);
    check_loads(folder);
}

/* "a" in three boxes, "b" in rows; the last file has a shard without elements, as FSDP2's last rank may. */
Test(weights, shards_that_cover_their_tensors_are_one_model_at_every_world_size)
{
    struct safetensors_tensor first[] = { shard_of("a", 0, 3, 0, COLS_A), shard_of("b", 0, 4, 0, 1) };
    struct safetensors_tensor second[] = { shard_of("a", 3, 2, 0, 1), shard_of("b", 4, 3, 0, 1) };
    struct safetensors_tensor third[] = { shard_of("a", 3, 2, 1, 2), shard_of("b", ROWS_B, 0, 0, 1) };
    struct safetensors_tensor again[] = { shard_of("a", 3, 1, 0, 1) };

    put_shards("shard-00001-model-00001-of-00001.safetensors", first, 2);
    put_shards("shard-00002-model-00001-of-00001.safetensors", second, 2);
    check_refused(folder, FSDP_ERR_FORMAT, "a: 4 of its 15 elements are in no file");
    put_shards("shard-00003-model-00001-of-00001.safetensors", third, 2);
    check_loads(folder);
    put_shards("shard-00004-model-00001-of-00001.safetensors", again, 1);
    check_refused(folder, FSDP_ERR_FORMAT, "a: what begins at row 3 is there twice");
}

Test(weights, a_shard_without_the_others_is_refused)
{
    struct safetensors_tensor shard = file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a());

    shard.has_offsets = shard.has_global_shape = true;
    shard.global_shape[0] = 2 * ROWS_A;
    shard.global_shape[1] = COLS_A;
    put_file("s.safetensors", &shard, 1);
    check_refused(path_of("s.safetensors"), FSDP_ERR_FORMAT, "a: rows 5 to 9 are in no file");
}

Test(weights, shards_of_another_type_or_shape_than_the_first_are_refused)
{
    struct safetensors_tensor first[] = { shard_of("b", 0, 4, 0, 1) };
    struct safetensors_tensor second[] = { shard_of("b", 4, 3, 0, 1) };

    second[0].has_global_shape = true;
    second[0].global_shape[0] = ROWS_B;
    put_shards("1.safetensors", first, 1);
    put_shards("2.safetensors", second, 1);
    check_refused(folder, FSDP_ERR_FORMAT,
                  "b has another type or shape in 2.safetensors than in 1.safetensors");
}

Test(weights, a_file_of_a_checkpoint_is_refused_without_its_manifest)
{
    static const struct safetensors_metadata mark = { CONTENTS_STEP_KEY, "50" };
    struct safetensors_tensor whole[] = { shard_of("a", 0, ROWS_A, 0, COLS_A),
                                          shard_of("b", 0, ROWS_B, 0, 1) };
    struct safetensors_written written;

    cr_assert(safetensors_write(&io_posix, path_of("shard-00001-model-00001-of-00001.safetensors"), whole, 2,
                                &mark, 1, 8, &written, NULL) == FSDP_OK);
    free((void *)(uintptr_t)whole[0].data);
    free((void *)(uintptr_t)whole[1].data);
    check_refused(folder, FSDP_ERR_FORMAT, "is part of a checkpoint");
}

/* --- an index ------------------------------------------------------------------------------------------------ */

static void put_text(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");

    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

#define MAP(A, B) "{\"metadata\":{\"total_size\":88},\"weight_map\":{\"a\":\"" A "\",\"b\":\"" B "\"}}"

Test(weights, an_index_names_the_files_of_a_model)
{
    struct safetensors_tensor a = file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a());
    struct safetensors_tensor b = file_tensor("b", FSDP_F32, 1, ROWS_B, 0, values_b);
    char index[160];

    put_file("model-00001-of-00002.safetensors", &a, 1);
    put_file("model-00002-of-00002.safetensors", &b, 1);
    put_file("consolidated.safetensors", &a, 1); /* the same model once more, which the index leaves out */
    snprintf(index, sizeof index, "%s", path_of("model.safetensors.index.json"));

    put_text("model.safetensors.index.json",
             MAP("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
    check_loads(index);
    check_refused(folder, FSDP_ERR_FORMAT,
                  "a is in two files, consolidated.safetensors and model-00001-of-00002.safetensors");
}

Test(weights, an_index_that_is_none_is_refused)
{
    static const struct {
        const char *text, *words;
        enum fsdp_status status;
    } bad[] = {
        { MAP("a.safetensors", "a.safetensors"), "b is not in a.safetensors, where the index has it",
          FSDP_ERR_FORMAT },
        { MAP("a.safetensors", "b.safetensors"), "b.safetensors: No such file", FSDP_ERR_NOT_FOUND },
        { MAP("a.safetensors", "../b.safetensors"), "a file in another directory", FSDP_ERR_FORMAT },
        { MAP("a.safetensors", ""), "a file in another directory", FSDP_ERR_FORMAT },
        { MAP("a.safetensors", "model.bin"), "model.bin, which is no *.safetensors file", FSDP_ERR_FORMAT },
        { "{\"weight_map\":{}}", "there is no file *.safetensors", FSDP_ERR_NOT_FOUND },
        { "{\"weight_map\":{\"a\":1}}", "a string was expected", FSDP_ERR_FORMAT },
        { "{\"weight_map\":{\"a\":\"a.safetensors\",\"a\":\"a.safetensors\"}}", "weight_map has a twice",
          FSDP_ERR_FORMAT },
        { "{\"weight_map\":{},\"weight_map\":{}}", "weight_map is there twice", FSDP_ERR_FORMAT },
        { "{\"hidden_size\":64}", "there is no weight_map", FSDP_ERR_FORMAT },
        { "", "an object was expected", FSDP_ERR_FORMAT },
    };
    struct safetensors_tensor a = file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a());
    char index[160];

    put_file("a.safetensors", &a, 1);
    snprintf(index, sizeof index, "%s", path_of("i.json"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text("i.json", bad[i].text);
        check_refused(index, bad[i].status, bad[i].words);
    }
}

/* --- links --------------------------------------------------------------------------------------------------- */

/* The cache of Hugging Face's hub: every name of a snapshot is a link to a file named by its hash. */
Test(weights, links_that_the_user_names_are_followed)
{
    struct safetensors_tensor tensors[] = {
        file_tensor("a", FSDP_F32, 2, ROWS_A, COLS_A, values_a()),
        file_tensor("b", FSDP_F32, 1, ROWS_B, 0, values_b),
    };
    char snapshot[160], path[200], gone[200];

    cr_assert(mkdir(path_of("blobs"), 0777) == 0 && mkdir(path_of("snapshots"), 0777) == 0 &&
              mkdir(path_of("snapshots/4f2a"), 0777) == 0);
    put_file("blobs/9c81", tensors, 2);
    cr_assert_eq(symlink("../../blobs/9c81", path_of("snapshots/4f2a/model.safetensors")), 0);
    cr_assert_eq(symlink("snapshots/4f2a", path_of("latest")), 0);
    snprintf(snapshot, sizeof snapshot, "%s", path_of("snapshots/4f2a"));
    snprintf(path, sizeof path, "%s/model.safetensors", snapshot);

    check_loads(path);
    check_loads(snapshot);
    check_loads(path_of("latest"));

    snprintf(gone, sizeof gone, "%s/gone.safetensors", snapshot);
    cr_assert_eq(symlink("../../blobs/0000", gone), 0);
    check_refused(gone, FSDP_ERR_NOT_FOUND, "gone.safetensors is a link to a file that is not there");
    cr_assert_eq(unlink(gone), 0);
    cr_assert_eq(mkfifo(gone, 0600), 0);
    check_refused(gone, FSDP_ERR_FORMAT, "gone.safetensors is not a regular file");
}
