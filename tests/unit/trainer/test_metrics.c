#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/trainer/metrics.h"
#include "tests/unit/shardfile/files.h"

#include <fsdp/link.h>

static const struct metrics_record sample = {
    .step = 10,
    .loss = 5.5350789448,
    .grad_norm = 0.1,
    .lr = 1e-3,
    .tokens_per_s = 123456.789,
    .step_s = 0.25,
    .memory_bytes = 1048576,
    .generation = 2,
    .time = 1790000000.25,
};

static const char *folder, *path;

static void make_folder(void)
{
    folder = files_begin();
    path = files_path(folder, "metrics.jsonl");
}

TestSuite(metrics, .init = make_folder, .fini = files_end);

static void put(const char *text)
{
    files_write(path, text, strlen(text));
}

static size_t get(char *out, size_t size)
{
    size_t n;
    unsigned char *bytes = files_read(path, &n);

    cr_assert_lt(n, size);
    memcpy(out, bytes, n + 1);
    free(bytes);
    return n;
}

Test(metrics, line_has_the_keys_of_the_contract)
{
    char line[METRICS_LINE_BYTES];

    const size_t length = metrics_format(line, &sample);

    cr_assert(eq(sz, length, strlen(line)));
    cr_assert_str_eq(line, "{\"step\": 10, \"loss\": 5.53507894, \"grad_norm\": 0.1, \"lr\": 0.001, "
                           "\"tokens_per_s\": 123456.789, \"step_s\": 0.25, \"memory_bytes\": 1048576, "
                           "\"generation\": 2, \"time\": 1790000000.250000}\n");
}

Test(metrics, a_line_has_its_leaders_term)
{
    char line[METRICS_LINE_BYTES];
    struct metrics_record record = sample;

    record.term = 3;
    (void)metrics_format(line, &record);

    cr_assert_not_null(strstr(line, "\"generation\": 2, \"term\": 3, \"time\": "), "%s", line);
}

Test(metrics, a_gpu_is_told_of_when_the_agent_knows_it)
{
    static struct fsdp_progress page;
    char line[METRICS_LINE_BYTES];
    struct metrics_record record = sample;

    page.gpu.memory_used_bytes = 5;
    cr_assert_not(metrics_read_gpu(&page).known, "nothing is said before the first sample");
    page.gpu.memory_used_bytes = 1073741824;
    page.gpu.utilisation_percent = 87;
    page.gpu.temperature_c = -1;
    page.gpu.ecc_uncorrected = 0;
    page.gpu.n_xids = 2;
    page.gpu.throttle_reasons = 64;
    page.gpu.n_samples = 1;
    record.gpu = metrics_read_gpu(&page);
    record.host_s = 0.125;
    (void)metrics_format(line, &record);

    cr_assert_not_null(strstr(line,
                              "\"step_s\": 0.25, \"host_s\": 0.125, "
                              "\"memory_bytes\": 1048576, \"gpu_memory_bytes\": 1073741824, "
                              "\"gpu_utilisation_percent\": 87, \"gpu_temperature_c\": null, "
                              "\"gpu_ecc_uncorrected\": 0, \"gpu_xids\": 2, \"gpu_throttle_reasons\": 64, "
                              "\"generation\": 2"),
                       "%s", line);
}

Test(metrics, nine_digits_tell_neighbouring_floats_apart)
{
    const float x = 5.5350789f;
    char a[METRICS_LINE_BYTES], b[METRICS_LINE_BYTES];
    struct metrics_record record = sample;

    record.loss = x;
    (void)metrics_format(a, &record);
    record.loss = nextafterf(x, 6.0f);
    (void)metrics_format(b, &record);

    cr_assert_str_neq(a, b);
}

Test(metrics, longest_line_fits)
{
    char line[METRICS_LINE_BYTES];
    const double longest = -1.23456789e-300;
    const struct metrics_record record = {
        .step = UINT64_MAX,
        .loss = longest,
        .grad_norm = longest,
        .lr = longest,
        .tokens_per_s = longest,
        .step_s = longest,
        .host_s = 1.23456789e-300,
        .memory_bytes = UINT64_MAX,
        .generation = -2147483647,
        .term = UINT64_MAX,
        .time = -99999999999999.0,
        .gpu = { .known = true,
                 .memory_bytes = INT64_MAX,
                 .ecc_uncorrected = INT64_MAX,
                 .xids = INT64_MAX,
                 .utilisation_percent = INT32_MAX,
                 .temperature_c = INT32_MAX,
                 .throttle_reasons = UINT64_MAX },
    };

    const size_t length = metrics_format(line, &record);

    cr_assert(eq(sz, length, strlen(line)));
    cr_assert(eq(chr, line[length - 1], '\n'));
}

Test(metrics, what_is_no_number_is_null)
{
    char line[METRICS_LINE_BYTES];
    struct metrics_record record = sample;

    record.loss = NAN;
    record.grad_norm = INFINITY;
    (void)metrics_format(line, &record);

    cr_assert_not_null(strstr(line, "\"loss\": null, \"grad_norm\": null,"), "%s", line);
}

/* Reopen a file of `before` and append a line: what stands in front of that line. */
static void reopened(const char *before, const char *want)
{
    char text[4096];
    size_t length;
    struct metrics metrics;

    put(before);
    cr_assert(eq(int, metrics_open(&metrics, folder, NULL), FSDP_OK));
    cr_assert(eq(int, metrics_write(&metrics, &sample, NULL), FSDP_OK));
    metrics_close(&metrics);

    length = get(text, sizeof text);
    cr_assert_not_null(strstr(text, "{\"step\": 10"), "%s", text);
    cr_assert(eq(chr, text[length - 1], '\n'));
    *strstr(text, "{\"step\": 10") = '\0';
    cr_assert_str_eq(text, want);
}

Test(metrics, line_cut_by_an_earlier_run_is_dropped)
{
    char line[METRICS_LINE_BYTES], before[64 + METRICS_LINE_BYTES];
    const size_t length = metrics_format(line, &sample);

    reopened("", "");
    reopened("{\"step\": 1}\n", "{\"step\": 1}\n");
    reopened("{", "");
    reopened("{\"ste", "");
    reopened("{\"seed\": 1}\n{\"ste", "{\"seed\": 1}\n");
    for (size_t cut = 1; cut < length; cut++) { /* wherever it was cut */
        snprintf(before, sizeof before, "{\"seed\": 1}\n\n%.*s", (int)cut, line);
        reopened(before, "{\"seed\": 1}\n\n");
    }
}

Test(metrics, what_is_no_line_of_ours_is_ended_and_kept)
{
    char before[2 * METRICS_LINE_BYTES], want[2 * METRICS_LINE_BYTES + 1];

    memset(before, 'x', sizeof before - 1);
    before[sizeof before - 1] = '\0';
    snprintf(want, sizeof want, "%s\n", before);
    reopened(before, want);

    before[METRICS_LINE_BYTES - 1] = '\0';
    reopened(before, "");
    before[METRICS_LINE_BYTES - 1] = 'x';
    before[METRICS_LINE_BYTES] = '\0';
    snprintf(want, sizeof want, "%s\n", before);
    reopened(before, want);
}

Test(metrics, missing_directory_is_an_io_error)
{
    struct fsdp_err err = { 0 };
    struct metrics metrics;

    cr_assert(eq(int, metrics_open(&metrics, "/nonexistent/run", &err), FSDP_ERR_IO));
    cr_assert_not_null(strstr(err.message, "/nonexistent/run"));
}
