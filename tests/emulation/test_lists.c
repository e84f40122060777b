/* Kernels over lists of tensors: optimizers, casts, norms. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/cpu_cast.h"
#include "tests/emulation/cases.h"
#include "tests/emulation/emulate.h"

TestSuite(emulated_lists, .fini = cases_end);

/* More tensors than one launch holds; one of them empty, one longer than a chunk. */
enum { N_TENSORS = 45 };

static size_t length_of(size_t i)
{
    return i == 3 ? 0 : i == 7 ? 4099 : 1 + i * 7 % 90;
}

struct optimizer_case {
    bool sgd, momentum;
    struct kernel_step step;
    struct adamw adamw;
    struct sgd sgd_h;
    struct kernel_adamw_tensor tensors[N_TENSORS];
    struct operand param, grad, m, v, copy; /* all tensors, one after the other */
};

static void run_optimizer(void *context)
{
    struct optimizer_case *c = context;

    if (c->sgd)
        cr_assert_eq(kernel_sgd(NULL, c->tensors, N_TENSORS, &c->sgd_h, &c->step), 0);
    else
        cr_assert_eq(kernel_adamw(NULL, c->tensors, N_TENSORS, &c->adamw, &c->step), 0);
}

static void prepare(struct optimizer_case *c, enum fsdp_dtype grad_dtype)
{
    size_t n = 0;

    for (size_t i = 0; i < N_TENSORS; i++)
        n += length_of(i);
    c->param = operand_random(FSDP_F32, n, 1, 1.0f);
    c->grad = operand_random(grad_dtype, n, 2, 0.1f);
    c->m = operand_random(FSDP_F32, n, 3, 0.1f);
    c->v = operand_random(FSDP_F32, n, 4, 0.1f);
    c->copy = operand_empty(FSDP_BF16, n);
    for (size_t i = 0; i < n; i++)
        ((float *)c->v.data)[i] = c->v.values[i] = fabsf(c->v.values[i]);
    for (size_t i = 0, at = 0; i < N_TENSORS; at += length_of(i), i++)
        c->tensors[i] = (struct kernel_adamw_tensor){
            .param = (float *)c->param.data + at,
            .grad = (const char *)c->grad.data + at * fsdp_dtype_size(grad_dtype),
            .m = c->sgd && !c->momentum ? NULL : (float *)c->m.data + at,
            .v = (float *)c->v.data + at,
            .copy = (uint16_t *)c->copy.data + at,
            .n_elems = length_of(i),
            .first = (1ull << 34) + i * 1000 + 3,
            .key = rng_key(7, "round"),
            .grad_dtype = grad_dtype,
        };
}

/* The copy of element i of tensor t, by the rule of kernels.h. */
static uint16_t rounded(const struct optimizer_case *c, size_t t, size_t i, float value)
{
    const uint64_t at = c->tensors[t].first + i;
    uint32_t words[4], bits;

    if (!c->step.stochastic_rounding)
        return bf16_of_f32(value);
    rng_philox(c->tensors[t].key, c->step.step, at / 4, words);
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + (words[at % 4] & 0xffffu)) >> 16);
}

static void check_optimizer(struct optimizer_case *c, enum fsdp_dtype grad_dtype)
{
    struct operand *outputs[] = { &c->param, &c->m, &c->v, &c->copy };
    float *param, *m, *v;
    size_t n;

    prepare(c, grad_dtype);
    n = c->param.n_elems;
    param = case_floats(n), m = case_floats(n), v = case_floats(n);
    memcpy(param, c->param.values, n * sizeof *param);
    memcpy(m, c->m.values, n * sizeof *m);
    memcpy(v, c->v.values, n * sizeof *v);

    under_schedules(run_optimizer, c, outputs, 4);

    if (c->sgd)
        ref_sgd(NULL, NULL, param, c->grad.values, c->momentum ? m : NULL, n, &c->sgd_h,
                c->step.grad_scale * (c->step.grad_scale_device == NULL ? 1 : *c->step.grad_scale_device),
                c->step.step);
    else
        ref_adamw(NULL, NULL, param, c->grad.values, m, v, n, &c->adamw,
                  c->step.grad_scale * (c->step.grad_scale_device == NULL ? 1 : *c->step.grad_scale_device),
                  c->step.step);
    expect_exact(&c->param, param, "param");
    expect_exact(&c->m, m, "m");
    expect_exact(&c->v, v, "v");
    for (size_t t = 0, at = 0; t < N_TENSORS; at += length_of(t), t++)
        for (size_t i = 0; i < length_of(t); i++)
            cr_assert_eq(((uint16_t *)c->copy.data)[at + i], rounded(c, t, i, param[at + i]),
                         "copy %zu of %zu", i, t);
    cases_end();
}

Test(emulated_lists, adamw_keeps_refs_bits)
{
    const float clip = 0.25f;

    for (int v = 0; v < 8; v++) {
        struct optimizer_case c = { .adamw = { 1e-2, 0.9, 0.95, 1e-8, v & 1 ? 0.1 : 0 },
                                    .step = { .grad_scale = 0.7f,
                                              .grad_scale_device = v & 2 ? &clip : NULL,
                                              .step = v & 4 ? 1 : 300,
                                              .stochastic_rounding = v & 1 } };

        check_optimizer(&c, v & 2 ? FSDP_BF16 : FSDP_F32);
    }
}

Test(emulated_lists, sgd_keeps_refs_bits)
{
    for (int v = 0; v < 8; v++) {
        struct optimizer_case c = { .sgd = true,
                                    .momentum = v & 1,
                                    .sgd_h = { 1e-1, v & 1 ? 0.9 : 0, v & 2 ? 0.01 : 0 },
                                    .step = { .grad_scale = 0.5f, .step = v & 4 ? 1 : 2 } };

        check_optimizer(&c, v & 2 ? FSDP_BF16 : FSDP_F32);
    }
}

Test(emulated_lists, stochastic_rounding_is_right_on_average)
{
    enum { N = 4096 };
    struct optimizer_case c = { .adamw = { 0, 0.9, 0.95, 1e-8, 0 },
                                .step = { .grad_scale = 1, .step = 1, .stochastic_rounding = true } };
    const float value = 1.0f + 0x1p-9f; /* a quarter of the way from 1 to its neighbour above, 1 + 2^-7 */
    int above = 0;

    c.param = operand_empty(FSDP_F32, N);
    c.grad = operand_random(FSDP_F32, N, 1, 1.0f);
    c.m = operand_random(FSDP_F32, N, 1, 0.0f);
    c.v = operand_random(FSDP_F32, N, 1, 0.0f);
    c.copy = operand_empty(FSDP_BF16, N);
    for (size_t i = 0; i < N; i++)
        ((float *)c.param.data)[i] = value;
    c.tensors[0] =
        (struct kernel_adamw_tensor){ c.param.data,        c.grad.data, c.m.data, c.v.data, c.copy.data, N, 0,
                                      rng_key(1, "round"), FSDP_F32 };

    cr_assert_eq(kernel_adamw(NULL, c.tensors, 1, &c.adamw, &c.step), 0);

    operand_read(&c.copy);
    for (size_t i = 0; i < N; i++) {
        cr_assert(c.copy.values[i] == 1.0f || c.copy.values[i] == 1.0f + 0x1p-7f);
        above += c.copy.values[i] > 1.0f;
    }
    cr_assert(above > N / 4 - 140 && above < N / 4 + 140, "%d of %d", above,
              N); /* five standard deviations */
}

struct cast_case {
    struct kernel_cast_entry casts[N_TENSORS];
    float scale;
    bool accumulate;
    struct operand to, from;
};

static void run_cast(void *context)
{
    struct cast_case *c = context;

    cr_assert_eq(kernel_cast(NULL, c->casts, N_TENSORS, c->scale, c->accumulate), 0);
}

Test(emulated_lists, cast_is_the_cpus_bit_for_bit)
{
    for (int v = 0; v < 16; v++) {
        const enum fsdp_dtype to = v & 1 ? FSDP_BF16 : FSDP_F32, from = v & 2 ? FSDP_BF16 : FSDP_F32;
        struct cast_case c = { .scale = v & 4 ? 0.3f : 1.0f, .accumulate = v & 8 };
        struct operand *outputs[] = { &c.to }, expected;
        size_t n = 0;

        for (size_t i = 0; i < N_TENSORS; i++)
            n += length_of(i);
        c.to = operand_random(to, n, 1, 1.0f);
        c.from = operand_random(from, n, 2, 1.0f);
        expected = operand_copy(&c.to);
        for (size_t i = 0, at = 0; i < N_TENSORS; at += length_of(i), i++)
            c.casts[i] = (struct kernel_cast_entry){ (char *)c.to.data + at * fsdp_dtype_size(to),
                                                     (char *)c.from.data + at * fsdp_dtype_size(from),
                                                     length_of(i), to, from };

        under_schedules(run_cast, &c, outputs, 1);

        cpu_cast_elems(expected.data, to, c.from.data, from, n, c.scale, c.accumulate);
        cr_assert_arr_eq(c.to.data, expected.data, n * fsdp_dtype_size(to), "variant %d", v);
        cases_end();
    }
}

Test(emulated_lists, what_is_no_float_is_refused)
{
    const struct kernel_cast_entry cast = { NULL, NULL, 1, FSDP_F32, FSDP_I32 };
    const struct kernel_span span = { NULL, 1, FSDP_I64 };
    const struct kernel_adamw_tensor tensor = { .n_elems = 1, .grad_dtype = FSDP_F64 };
    const struct kernel_step step = { .grad_scale = 1, .step = 1 };
    const struct adamw h = { 1, 0.9, 0.95, 1, 0 };
    const uint64_t before = emulate_launches();
    double out;

    cr_assert_eq(kernel_cast(NULL, &cast, 1, 1, false), 1);
    cr_assert_eq(kernel_sum_powers(NULL, &span, 1, 2, &out, NULL), 1);
    cr_assert_eq(kernel_adamw(NULL, &tensor, 1, &h, &step), 1);
    cr_assert_eq(emulate_launches(), before);
}

struct power_case {
    struct kernel_span spans[N_TENSORS + 1];
    size_t n_spans;
    double p;
    struct operand x, out; /* out: the double, as two float32 */
    void *scratch;
};

static void run_powers(void *context)
{
    struct power_case *c = context;

    cr_assert_eq(kernel_sum_powers(NULL, c->spans, c->n_spans, c->p, c->out.data, c->scratch), 0);
}

static double powers_of(struct power_case *c)
{
    struct operand *outputs[] = { &c->out };
    double sum;

    c->out = operand_empty(FSDP_F32, 2);
    c->scratch = case_bytes(kernel_sum_powers_scratch(c->spans, c->n_spans));
    under_schedules(run_powers, c, outputs, 1);
    memcpy(&sum, c->out.data, sizeof sum);
    return sum;
}

Test(emulated_lists, sums_of_powers_are_refs)
{
    static const double orders[] = { 1, 2, 3, 2.5, INFINITY };

    for (size_t v = 0; v < 10; v++) {
        const enum fsdp_dtype dtype = v / 5 ? FSDP_BF16 : FSDP_F32;
        struct power_case c = { .p = orders[v % 5] };
        double got, expected;
        size_t n = 17000; /* the last span, of two chunks */

        for (size_t i = 0; i < N_TENSORS; i++)
            n += length_of(i);
        c.x = operand_random(dtype, n, v, 1.0f);
        for (size_t i = 0, at = 0; i <= N_TENSORS; i++) {
            const size_t length = i < N_TENSORS ? length_of(i) : 17000;

            c.spans[c.n_spans++] =
                (struct kernel_span){ (char *)c.x.data + at * fsdp_dtype_size(dtype), length, dtype };
            at += length;
        }

        got = powers_of(&c);

        expected = ref_sum_powers(NULL, NULL, c.x.values, n, c.p);
        cr_assert(fabs(got - expected) <= 1e-13 * expected, "p = %g: %.17g, not %.17g", c.p, got, expected);
        cases_end();
    }
}

Test(emulated_lists, a_nan_is_seen_in_every_norm_and_nothing_is_zero)
{
    static const double orders[] = { 1, 2, INFINITY };

    for (size_t v = 0; v < 3; v++) {
        struct power_case c = { .p = orders[v], .n_spans = 1 };

        c.x = operand_random(FSDP_F32, 500, v, 1.0f);
        ((float *)c.x.data)[v * 200] = NAN;
        c.spans[0] = (struct kernel_span){ c.x.data, 500, FSDP_F32 };
        cr_assert(isnan(powers_of(&c)));
        c.n_spans = 0;
        cr_assert_eq(powers_of(&c), 0);
    }
}

Test(emulated_lists, the_clipping_coefficient_is_pytorchs)
{
    static const struct {
        double powers, p, max_norm;
        float coefficient, norm;
    } cases[] = {
        { 25, 2, 1, 0.2f, 5 }, { 0.25, 2, 1, 1, 0.5f }, { 8, 3, 1, 0.5f, 2 }, { 4, INFINITY, 1, 0.25f, 4 }
    };

    for (size_t i = 0; i < 4; i++) {
        float coefficient, norm;

        cr_assert_eq(kernel_clip_coefficient(NULL, &cases[i].powers, cases[i].p, cases[i].max_norm,
                                             &coefficient, &norm),
                     0);
        cr_assert_float_eq(coefficient, cases[i].coefficient, 1e-6f);
        cr_assert_float_eq(norm, cases[i].norm, 1e-6f);
    }
}
