#include "tests/unit/numerics/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"

const size_t odd_sizes[] = { 1, 3, 7, 17, 64, 65, 1000 };
const size_t n_odd_sizes = sizeof odd_sizes / sizeof *odd_sizes;

static const struct row_case cases[] = {
    { "ref", "", 1 },         { "plain", "base", 1 }, { "plain", "avx2", 1 },
    { "plain", "avx512", 1 }, { "plain", "", 3 },
#ifndef FSDP_WITHOUT_ONEDNN
    { "onednn", "", 1 },      { "onednn", "", 2 },
#endif
};

struct criterion_test_params row_cases(void)
{
    return cr_make_param_array(const struct row_case, cases, sizeof cases / sizeof *cases);
}

struct criterion_test_params fast_row_cases(void)
{
    return cr_make_param_array(const struct row_case, cases + 1, sizeof cases / sizeof *cases - 1);
}

static bool cpu_has(const char *isa)
{
#if defined(__x86_64__)
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    return isa[0] == '\0' || strcmp(isa, "base") == 0;
}

void row_open(struct numerics *numerics, const struct row_case *row)
{
    struct numerics_config config = { .threads = row->threads, .name = row->name };
    struct fsdp_err err = { 0 };

    if (!cpu_has(row->isa))
        cr_skip_test("this CPU has no %s", row->isa);
    if (row->isa[0] != '\0')
        setenv("FSDP_ISA", row->isa, 1);
    else
        unsetenv("FSDP_ISA");
    cr_assert(numerics_open(numerics, &config, &err) == FSDP_OK, "%s: %s", row->name, err.message);
}

/* What a test was given; each test is a process of its own. */
static void *given[4096];
static size_t n_given;

void *row_zeros(size_t size_bytes)
{
    const size_t room = (size_bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, room);

    cr_assert(memory != NULL && n_given < sizeof given / sizeof *given);
    memset(memory, 0, room);
    given[n_given++] = memory;
    return memory;
}

void row_run(const struct row_case *row, row_body *body)
{
    struct numerics numerics;

    row_open(&numerics, row);
    body(row, &numerics);
    numerics_close(&numerics);
    while (n_given > 0)
        free(given[--n_given]);
}

float *random_floats(uint64_t seed, size_t n, float std)
{
    float *x = row_zeros(n * sizeof *x);

    rng_fill_normal(seed, 0, x, n, std);
    return x;
}

float *copy_floats(const float *x, size_t n)
{
    return memcpy(row_zeros(n * sizeof *x), x, n * sizeof *x);
}

uint16_t *narrow_of(const float *x, size_t n)
{
    uint16_t *narrow = row_zeros(n * sizeof *narrow);

    for (size_t i = 0; i < n; i++)
        narrow[i] = bf16_of_f32(x[i]);
    return narrow;
}

float *narrow_floats(uint64_t seed, size_t n, float std, uint16_t **narrow)
{
    float *x = random_floats(seed, n, std);

    *narrow = narrow_of(x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_to_f32((*narrow)[i]);
    return x;
}

void assert_rounded(const struct row_case *row, const char *what, const uint16_t *got, const float *want,
                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_assert(got[i] == bf16_of_f32(want[i]), "%s %s: %s: element %zu of %zu is %a, not %a rounded",
                  row->name, row->isa, what, i, n, (double)bf16_to_f32(got[i]), (double)want[i]);
}

double dropout_factor(const struct dropout *dropout, size_t row, size_t j)
{
    uint32_t words[4];

    if (dropout->p <= 0)
        return 1;
    rng_philox(dropout->key, dropout->first_row + row, j / 4, words);
    return (double)words[j % 4] < floor((1 - (double)dropout->p) * 0x1p32) ? 1 / (1 - (double)dropout->p) : 0;
}

void assert_near(const struct row_case *row, const char *what, const float *got, const double *want, size_t n,
                 double relative, double absolute)
{
    for (size_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - want[i]);

        /* Written so that a NaN fails. */
        if (!(error <= absolute + relative * fabs(want[i])))
            cr_assert(false, "%s %s x%d: %s, element %zu of %zu: %.9g for %.12g, off by %.3g", row->name,
                      row->isa, row->threads, what, i, n, (double)got[i], want[i], error);
    }
}
