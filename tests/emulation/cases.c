#include "tests/emulation/cases.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "tests/emulation/emulate.h"

enum { MAX_BUFFERS = 8192 };

/* So that the suite stays quick whatever is added to it: on our machines these take less than a second. */
enum { MOST_SWITCHES = 20 * 1000 * 1000 };

static void *buffers[MAX_BUFFERS];
static size_t n_buffers;

void *case_bytes(size_t size_bytes)
{
    void *memory;

    cr_assert(n_buffers < MAX_BUFFERS && posix_memalign(&memory, 16, size_bytes) == 0);
    memset(memory, 0xff, size_bytes);
    buffers[n_buffers++] = memory;
    return memory;
}

float *case_floats(size_t n_elems)
{
    return case_bytes(n_elems * sizeof(float));
}

/*
 * Each test is a process of its own, so that the switches are the test's: the same number on every machine,
 * unlike its time. After a test Criterion counts no assertion, only how the process ends.
 */
static void end_unless_quick(void)
{
    if (emulate_switches() <= MOST_SWITCHES)
        return;
    fprintf(stderr, "%s::%s: %llu switches of emulated threads, more than %d\n",
            criterion_current_test->category, criterion_current_test->name,
            (unsigned long long)emulate_switches(), MOST_SWITCHES);
    abort();
}

void cases_end(void)
{
    end_unless_quick();
    while (n_buffers > 0)
        free(buffers[--n_buffers]);
}

static size_t size_of(const struct operand *operand)
{
    return operand->n_elems * fsdp_dtype_size(operand->dtype);
}

struct operand operand_empty(enum fsdp_dtype dtype, size_t n_elems)
{
    struct operand operand = { .dtype = dtype, .n_elems = n_elems };

    operand.data = case_bytes(size_of(&operand));
    operand.values = case_floats(n_elems);
    operand.expected = case_floats(n_elems);
    return operand;
}

struct operand operand_random(enum fsdp_dtype dtype, size_t n_elems, uint64_t seed, float scale)
{
    struct operand operand = operand_empty(dtype, n_elems);

    rng_fill_normal(rng_key(seed, "case"), 0, operand.values, n_elems, scale);
    if (dtype == FSDP_F32)
        memcpy(operand.data, operand.values, size_of(&operand));
    for (size_t i = 0; dtype == FSDP_BF16 && i < n_elems; i++)
        ((uint16_t *)operand.data)[i] = bf16_of_f32(operand.values[i]);
    operand_read(&operand);
    memcpy(operand.expected, operand.values, n_elems * sizeof(float));
    return operand;
}

struct operand operand_copy(const struct operand *from)
{
    struct operand to = operand_empty(from->dtype, from->n_elems);

    memcpy(to.data, from->data, size_of(from));
    operand_read(&to);
    return to;
}

void operand_shift(struct operand *operand, size_t n_elems)
{
    const size_t before = n_elems * fsdp_dtype_size(operand->dtype);
    char *memory = case_bytes(before + size_of(operand));

    memcpy(memory + before, operand->data, size_of(operand));
    operand->data = memory + before;
    operand->n_before = n_elems;
}

void operand_read(struct operand *operand)
{
    const unsigned char *data = operand->data;

    for (size_t i = 1; i <= operand->n_before * fsdp_dtype_size(operand->dtype); i++)
        cr_assert_eq(data[-(ptrdiff_t)i], 0xff, "written in front of a tensor");
    if (operand->dtype == FSDP_F32)
        memcpy(operand->values, operand->data, size_of(operand));
    for (size_t i = 0; operand->dtype == FSDP_BF16 && i < operand->n_elems; i++)
        operand->values[i] = bf16_to_f32(((const uint16_t *)operand->data)[i]);
}

void under_schedules(int (*run)(void *context), void *context, ...)
{
    static const struct {
        enum emulate_order order;
        uint64_t seed;
    } schedules[] = {
        { EMULATE_FORWARD, 0 }, { EMULATE_REVERSE, 0 }, { EMULATE_SEEDED, 1 }, { EMULATE_SEEDED, 2 }
    };
    struct operand *outputs[16], before[16], first[16];
    size_t n = 0;
    va_list rest;

    va_start(rest, context);
    for (struct operand *next; (next = va_arg(rest, struct operand *)) != NULL; n++) {
        outputs[n] = next;
        before[n] = operand_copy(next);
    }
    va_end(rest);
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        for (size_t i = 0; i < n; i++)
            memcpy(outputs[i]->data, before[i].data, size_of(outputs[i]));
        emulate_schedule(schedules[s].order, schedules[s].seed);
        cr_assert_eq(run(context), 0);
        for (size_t i = 0; i < n; i++) {
            if (s == 0)
                first[i] = operand_copy(outputs[i]);
            cr_assert(memcmp(outputs[i]->data, first[i].data, size_of(outputs[i])) == 0,
                      "output %zu: other bits under schedule %zu", i, s);
        }
    }
    emulate_schedule(EMULATE_FORWARD, 0);
    for (size_t i = 0; i < n; i++)
        operand_read(outputs[i]);
}

float roundoff(enum fsdp_dtype dtype)
{
    return dtype == FSDP_BF16 ? 0x1p-8f : 0x1p-24f;
}

void expect_close(const struct operand *got, double tolerance, const char *what)
{
    for (size_t i = 0; i < got->n_elems; i++) {
        const double error = fabs((double)got->values[i] - (double)got->expected[i]);

        if (isnan(got->expected[i]) && isnan(got->values[i]))
            continue;
        cr_assert(error <= tolerance, "%s: element %zu is %.9g, not %.9g: off by %.3g, more than %.3g", what,
                  i, (double)got->values[i], (double)got->expected[i], error, tolerance);
    }
}

void expect_exact(const struct operand *got, const char *what)
{
    for (size_t i = 0; i < got->n_elems; i++) {
        const float want =
            got->dtype == FSDP_BF16 ? bf16_to_f32(bf16_of_f32(got->expected[i])) : got->expected[i];

        cr_assert(memcmp(&got->values[i], &want, sizeof want) == 0, "%s: element %zu is %.9g, not %.9g", what,
                  i, (double)got->values[i], (double)want);
    }
}

double largest_of(const float *values, size_t n_elems)
{
    double largest = 0;

    for (size_t i = 0; i < n_elems; i++)
        largest = fmax(largest, fabs((double)values[i]));
    return largest;
}
