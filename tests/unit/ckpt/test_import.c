#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/ckpt/import.h"
#include "shard_runtime/ckpt/tensor_stream.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "shard_runtime/shardfile/weights.h"
#include "tests/unit/shardfile/files.h"

static const char *folder;
static struct import_result result;
static struct fsdp_err err;

static void begin(void)
{
    folder = files_begin();
}
TestSuite(import, .init = begin, .fini = files_end, .timeout = 60);

static void write_source(struct safetensors_tensor *tensors, size_t n)
{
    struct safetensors_written written;

    cr_assert(safetensors_write(&io_posix, files_path(folder, "in.safetensors"), tensors, n, NULL, 0, 8,
                                false, &written, &err) == FSDP_OK,
              "%s", err.message);
}

static enum fsdp_status import_with(const struct import_options *options)
{
    struct contents source;
    char directory[IO_PATH_BYTES];
    enum fsdp_status status;

    cr_assert(weights_list(&io_posix, files_path(folder, "in.safetensors"), &source, directory, &err) ==
                  FSDP_OK,
              "%s", err.message);
    status = import_tensors(&io_posix, &source, directory, files_path(folder, "checkpoints"), options,
                            &result, &err);
    contents_free(&source);
    return status;
}

/* The values of a tensor in the checkpoint of a step, which the caller frees. */
static float *values_of(int64_t step, const char *name, size_t n)
{
    char path[IO_PATH_BYTES];
    struct tensor_stream *stream;
    struct contents contents;
    float *values = calloc(n, sizeof *values);
    int64_t t;

    cr_assert(commit_step_path(files_path(folder, "checkpoints"), step, path, &err) == FSDP_OK);
    cr_assert(contents_read(&io_posix, path, &contents, &err) == FSDP_OK, "%s", err.message);
    t = contents_find(&contents, name);
    cr_assert(t >= 0, "%s", name);
    cr_assert(contents.manifest.tensors[t].dtype == FSDP_F32);
    cr_assert(eq(u64, tensor_stream_size(&contents, (size_t)t), 4 * n));
    cr_assert(tensor_stream_create(&stream, &io_posix, &contents, path, &err) == FSDP_OK);
    cr_assert(tensor_stream_begin(stream, (size_t)t, &err) == FSDP_OK);
    cr_assert(tensor_stream_read(stream, values, 4 * n, &err) == FSDP_OK, "%s", err.message);
    tensor_stream_destroy(stream);
    contents_free(&contents);
    return values;
}

/*
 * Every float16 and every bfloat16 there is, and float64: each is float32 afterwards, at any number of ranks.
 */
Test(import, floats_of_every_type_become_float32)
{
    enum { N = 65536 };
    uint16_t *half = malloc(N * sizeof *half);
    double wide[7] = { 1.0 / 3, -2, 0, 1e300, -0.0, 5e-324, 3 };
    uint8_t odd[3] = { 1, 2, 3 };

    for (unsigned i = 0; i < N; i++)
        half[i] = (uint16_t)i;
    write_source(
        (struct safetensors_tensor[]){
            { .name = "odd", .dtype = FSDP_U8, .n_dims = 1, .shape = { 3 }, .data = odd },
            { .name = "half", .dtype = FSDP_F16, .n_dims = 2, .shape = { 256, 256 }, .data = half },
            { .name = "brain", .dtype = FSDP_BF16, .n_dims = 2, .shape = { 4, 16384 }, .data = half },
            { .name = "wide", .dtype = FSDP_F64, .n_dims = 1, .shape = { 7 }, .data = wide } },
        4);
    for (uint32_t ranks = 1; ranks <= 5; ranks += 2) {
        const struct import_options options = { .step = ranks, .ranks = ranks };
        float *values;

        cr_assert(import_with(&options) == FSDP_OK, "%s", err.message);
        cr_expect(eq(sz, result.n_weights, 4));
        values = values_of(ranks, "half", N);
        cr_expect(values[0x3c00] == 1 && values[0xc000] == -2 && values[0x7bff] == 65504 &&
                  values[1] == 0x1p-24f && isinf(values[0x7c00]) && isnan(values[0x7e00]));
        free(values);
        values = values_of(ranks, "brain", N);
        cr_expect(values[0x3f80] == 1 && values[0xc000] == -2 && isinf(values[0x7f80]));
        free(values);
        values = values_of(ranks, "wide", 7);
        for (int i = 0; i < 7; i++)
            cr_expect(eq(flt, values[i], (float)wide[i]));
        free(values);
    }
    free(half);
}

Test(import, states_that_are_missing_begin_at_zero)
{
    static const char *const states[] = { "exp_avg", "exp_avg_sq" };
    const struct import_options options = { .step = 9, .ranks = 2, .states = states, .n_states = 2 };
    const float a[6] = { 1, 2, 3, 4, 5, 6 }, step[1] = { 7 };
    float *values;

    write_source(
        (struct safetensors_tensor[]){
            { .name = "a", .dtype = FSDP_F32, .n_dims = 2, .shape = { 3, 2 }, .data = a },
            { .name = "optim.state.a.exp_avg", .dtype = FSDP_F32, .n_dims = 2, .shape = { 3, 2 }, .data = a },
            { .name = "optim.state.a.step", .dtype = FSDP_F32, .n_dims = 0, .data = step } },
        3);

    cr_assert(import_with(&options) == FSDP_OK, "%s", err.message);

    cr_expect(result.n_weights == 1 && result.n_states == 1 && result.n_zeroed == 1);
    cr_expect(eq(u64, result.optimizer_step, 7), "the source says how many steps the optimizer did");
    values = values_of(9, "optimizer.exp_avg.a", 6);
    cr_expect(values[0] == 1 && values[5] == 6);
    free(values);
    values = values_of(9, "optimizer.exp_avg_sq.a", 6);
    cr_expect(values[0] == 0 && values[5] == 0);
    free(values);
}

Test(import, a_step_that_is_there_stays)
{
    const struct import_options options = { .step = 1, .ranks = 1 };
    const float a[1] = { 1 };

    write_source(
        &(struct safetensors_tensor){
            .name = "a", .dtype = FSDP_F32, .n_dims = 1, .shape = { 1 }, .data = a },
        1);
    cr_assert(import_with(&options) == FSDP_OK, "%s", err.message);

    cr_expect(eq(int, import_with(&options), FSDP_ERR_CONFIG));
    cr_expect_not_null(strstr(err.message, "is there already"));
    cr_expect(eq(int, files_count(files_path(folder, "checkpoints")), 1), "and nothing unfinished");
}

Test(import, two_tensors_of_one_name_are_refused)
{
    const struct import_options options = { .ranks = 1, .names = { .prefixes = { "model." } } };
    const float a[1] = { 1 };

    write_source(
        (struct safetensors_tensor[]){
            { .name = "a", .dtype = FSDP_F32, .n_dims = 1, .shape = { 1 }, .data = a },
            { .name = "model.a", .dtype = FSDP_F32, .n_dims = 1, .shape = { 1 }, .data = a } },
        2);

    cr_expect(eq(int, import_with(&options), FSDP_ERR_MISMATCH));
    cr_expect_not_null(strstr(err.message, "two tensors are a"));
}
