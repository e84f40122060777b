/*
 * Weights from files of other tools: found by name, converted, told about when they do not fit, at every
 * world size.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/checkpoint/weights.h"
#include "shard_runtime/core/bf16.h"
#include "shard_runtime/shard/layout.h"
#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "tests/unit/shardfile/files.h"

enum { ROWS_A = 5, COLS_A = 3, ROWS_B = 7 };

static const char *folder;

static void make_folder(void)
{
    folder = files_begin();
}

TestSuite(weights, .init = make_folder, .fini = files_end, .timeout = 600);

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
        half[i] = bf16_of_f32(values_a()[i]);
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

static const float values_b[ROWS_B] = { 1, 2, 3, 4, 5, 6, 7 };

static struct safetensors_tensor whole_a(const char *name)
{
    return file_tensor(name, FSDP_F32, 2, ROWS_A, COLS_A, values_a());
}

static struct safetensors_tensor whole_b(const char *name)
{
    return file_tensor(name, FSDP_F32, 1, ROWS_B, 0, values_b);
}

static const char *path_of(const char *name)
{
    return files_path(folder, name);
}

static void put_file(const char *name, struct safetensors_tensor *tensors, size_t n)
{
    struct safetensors_written written;
    struct fsdp_err err = { 0 };

    cr_assert(safetensors_write(&io_posix, path_of(name), tensors, n, NULL, 0, 8, false, &written, &err) ==
                  FSDP_OK,
              "%s", err.message);
}

/* A rank's rows of "a" and "b", which begin as -1. */
struct rank_state {
    float a[ROWS_A * COLS_A], b[ROWS_B];
    struct checkpoint_tensor tensors[2];
};

static struct rank_state state;
static struct weights_report report;
static const struct weights_names *names;
static struct fsdp_err err;

static void begin(void)
{
    for (int i = 0; i < ROWS_A * COLS_A; i++)
        state.a[i] = -1;
    for (int i = 0; i < ROWS_B; i++)
        state.b[i] = -1;
    state.tensors[0] = (struct checkpoint_tensor){
        .name = "a", .dtype = FSDP_F32, .n_dims = 2, .shape = { ROWS_A, COLS_A }, .rows = state.a
    };
    state.tensors[1] = (struct checkpoint_tensor){
        .name = "b", .dtype = FSDP_F32, .n_dims = 1, .shape = { ROWS_B }, .rows = state.b
    };
}

static enum fsdp_status load(const char *path, int W, int rank, bool strict)
{
    begin();
    free(report.lines);
    report = (struct weights_report){ 0 };
    err = (struct fsdp_err){ 0 };
    return weights_load(NULL, path, W, rank, state.tensors, 2, strict, names, &report, NULL, &err);
}

/* A rank of W loads all that it owns. */
static void loads(const char *path, int W, int rank)
{
    const struct layout_rows a = layout_shard(ROWS_A, W, rank), b = layout_shard(ROWS_B, W, rank);

    cr_assert(load(path, W, rank, true) == FSDP_OK, "%s", err.message);
    cr_assert(memcmp(state.a, values_a() + a.first * COLS_A, a.n_rows * COLS_A * sizeof(float)) == 0);
    cr_assert(memcmp(state.b, values_b + b.first, b.n_rows * sizeof(float)) == 0);
    cr_assert(report.n_loaded == 2 && report.lines[0] == '\0');
}

static void check_loads(const char *path)
{
    for (int W = 1; W <= 8; W++)
        for (int rank = 0; rank < W; rank++)
            loads(path, W, rank);
}

/* One rank that takes all is refused, and nothing is written. */
static void check_refused(const char *path, enum fsdp_status wanted, const char *words)
{
    cr_assert_eq(load(path, 1, 0, true), wanted, "%s", err.message);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
    cr_assert(state.a[0] == -1 && state.b[0] == -1);
}

Test(weights, every_rank_takes_its_rows_in_any_type)
{
    static const enum fsdp_dtype types[] = { FSDP_F32, FSDP_BF16, FSDP_F16, FSDP_F64 };

    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct safetensors_tensor tensors[] = {
            whole_b("b"),
            file_tensor("a", types[t], 2, ROWS_A, COLS_A, as_type(types[t])),
        };

        put_file("model.safetensors", tensors, 2);
        check_loads(folder);
    }
}

/* With the others' prefix or without; what they keep in addition belongs to no parameter. */
Test(weights, another_program_s_names)
{
    static const char *const beside[] = { "h.*.mask", "head" };
    const struct weights_names others = { .prefix = "net.", .passed_over = beside, .n_passed_over = 2 };
    struct safetensors_tensor tensors[] = {
        whole_b("net.b"), whole_a("a"), whole_b("net.h.11.mask"), whole_b("head"), whole_b("net.tail"),
    };

    put_file("net.safetensors", tensors, 4);
    names = &others;
    loads(folder, 2, 1);
    put_file("net.safetensors", tensors, 5);
    cr_assert(load(folder, 2, 1, true) == FSDP_ERR_MISMATCH);
    cr_assert_str_eq(report.lines, "unexpected net.tail\n");
}

Test(weights, a_directory_of_files_is_one_model)
{
    struct safetensors_tensor a = whole_a("a");
    struct safetensors_tensor b = whole_b("b");

    put_file("model-00001-of-00002.safetensors", &a, 1);
    put_file("model-00002-of-00002.safetensors", &b, 1);
    loads(folder, 2, 1);
    put_file("model-00003-of-00002.safetensors", &b, 1);
    check_refused(folder, FSDP_ERR_FORMAT, "b is in two files");
}

Test(weights, strict_refuses_what_is_missing_or_unexpected_and_partial_takes_the_rest)
{
    struct safetensors_tensor tensors[] = { whole_a("a"), whole_b("extra"), whole_a("optimizer.exp_avg.a") };

    put_file("m.safetensors", tensors, 3);
    check_refused(folder, FSDP_ERR_MISMATCH, "1 missing, 1 unexpected, 0 mismatched");
    cr_assert_str_eq(report.lines, "missing b\nunexpected extra\n");

    cr_assert(load(path_of("m.safetensors"), 1, 0, false) == FSDP_OK);
    cr_assert(report.n_loaded == 1 && report.n_missing == 1 && report.n_unexpected == 1);
    cr_assert(memcmp(state.a, values_a(), sizeof state.a) == 0);
    cr_assert(state.b[0] == -1 && state.b[ROWS_B - 1] == -1, "what is missing keeps its value");
}

Test(weights, another_shape_or_type_is_refused_also_when_a_part_would_do)
{
    static const int32_t whole[ROWS_B] = { 1 };
    struct safetensors_tensor tensors[] = {
        file_tensor("a", FSDP_F32, 2, COLS_A, ROWS_A, values_a()),
        file_tensor("b", FSDP_I32, 1, ROWS_B, 0, whole),
    };

    put_file("m.safetensors", tensors, 2);
    cr_assert(load(path_of("m.safetensors"), 1, 0, false) == FSDP_ERR_MISMATCH);
    cr_assert_eq(report.n_mismatched, 2);
    cr_assert_str_eq(report.lines, "mismatched a: (5, 3) float32 here, (3, 5) float32 there\n"
                                   "mismatched b: (7) float32 here, (7) int32 there\n");
    cr_assert(state.a[0] == -1 && state.b[0] == -1);
}

static void put_text(const char *name, const char *text)
{
    files_write(path_of(name), text, strlen(text));
}

/* A header as some other tool writes it. */
Test(weights, a_type_without_a_name_is_named_as_such)
{
    static const char file[] = "\x3a\0\0\0\0\0\0\0{\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[7],"
                               "\"data_offsets\":[0,7]}}1234567";

    files_write(path_of("h.safetensors"), file, sizeof file - 1);
    cr_assert(load(folder, 1, 0, false) == FSDP_ERR_MISMATCH, "%s", err.message);
    cr_assert_not_null(
        strstr(report.lines, "mismatched b: (7) float32 here, (7) a type that is not read there"), "%s",
        report.lines);
}

Test(weights, what_is_no_weights_is_refused_by_name)
{
    check_refused("/nowhere/x.safetensors", FSDP_ERR_NOT_FOUND, "");
    check_refused(folder, FSDP_ERR_NOT_FOUND, ""); /* it is empty */
    check_refused("/dev/null", FSDP_ERR_FORMAT, "/dev/null is not a regular file");
    put_text("model.bin", "{}");
    check_refused(path_of("model.bin"), FSDP_ERR_FORMAT, "is no *.safetensors file");
    put_text("cut.safetensors", "{}");
    check_refused(path_of("cut.safetensors"), FSDP_ERR_FORMAT, "cut.safetensors");
}

/* Shards, as PyTorch's HuggingFaceStorageWriter saves them */

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

Test(weights, whole_tensors_with_pytorchs_sharding_information_are_read)
{
    struct safetensors_tensor whole[] = { shard_of("a", 0, ROWS_A, 0, COLS_A),
                                          shard_of("b", 0, ROWS_B, 0, 1) };

    put_shards("model-00001-of-00001.safetensors", whole, 2);
    check_loads(path_of("model-00001-of-00001.safetensors"));
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
    struct safetensors_tensor shard = whole_a("a");

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
    struct safetensors_tensor a = whole_a("a");
    struct safetensors_written written;

    a.has_offsets = true;
    cr_assert(safetensors_write(&io_posix, path_of("shard-00001-model-00001-of-00001.safetensors"), &a, 1,
                                &mark, 1, 8, false, &written, NULL) == FSDP_OK);
    check_refused(folder, FSDP_ERR_FORMAT, "is part of a checkpoint");
}

/* An index */

#define MAP(A, B) "{\"metadata\":{\"total_size\":88},\"weight_map\":{\"a\":\"" A "\",\"b\":\"" B "\"}}"

Test(weights, an_index_names_the_files_of_a_model)
{
    struct safetensors_tensor a = whole_a("a");
    struct safetensors_tensor b = whole_b("b");

    put_file("model-00001-of-00002.safetensors", &a, 1);
    put_file("model-00002-of-00002.safetensors", &b, 1);
    put_file("consolidated.safetensors", &a, 1); /* the same model once more, which the index leaves out */
    put_text("model.safetensors.index.json",
             MAP("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
    check_loads(path_of("model.safetensors.index.json"));
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
    struct safetensors_tensor a = whole_a("a");

    put_file("a.safetensors", &a, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text("i.json", bad[i].text);
        check_refused(path_of("i.json"), bad[i].status, bad[i].words);
    }
}

/* Links */

/* The cache of Hugging Face's hub: every name of a snapshot is a link to a file named by its hash. */
Test(weights, links_that_the_user_names_are_followed)
{
    struct safetensors_tensor tensors[] = { whole_a("a"), whole_b("b") };
    const char *gone;

    cr_assert(mkdir(path_of("blobs"), 0777) == 0 && mkdir(path_of("snapshots"), 0777) == 0 &&
              mkdir(path_of("snapshots/4f2a"), 0777) == 0);
    put_file("blobs/9c81", tensors, 2);
    cr_assert_eq(symlink("../../blobs/9c81", path_of("snapshots/4f2a/model.safetensors")), 0);
    cr_assert_eq(symlink("snapshots/4f2a", path_of("latest")), 0);

    check_loads(path_of("snapshots/4f2a/model.safetensors"));
    check_loads(path_of("snapshots/4f2a"));
    check_loads(path_of("latest"));

    gone = path_of("gone.safetensors");
    cr_assert_eq(symlink("blobs/0000", gone), 0);
    check_refused(gone, FSDP_ERR_NOT_FOUND, "gone.safetensors is a link to a file that is not there");
    cr_assert_eq(unlink(gone), 0);
    cr_assert_eq(mkfifo(gone, 0600), 0);
    check_refused(gone, FSDP_ERR_FORMAT, "gone.safetensors is not a regular file");
}
