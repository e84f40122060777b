/* Kernels over lists of tensors: optimizers, casts, norms. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "shard_runtime/device/cpu_cast.h"
#include "tests/emulation/cases.h"
#include "tests/emulation/emulate.h"

TestSuite(emulated_lists, .fini = cases_end);

/* More tensors than the shorter of the two lists holds; one of them empty, one longer than a chunk. */
enum { N_TENSORS = 65 };

static size_t length_of(size_t i)
{
    return i == 3 ? 0 : i == 7 ? 4099 : 1 + i * 7 % 90;
}

struct optimizer_case {
    bool sgd, momentum;
    double decay;
    uint64_t step;
    struct adamw adamw;
    struct sgd sgd_h;
    struct kernel_update updates[N_TENSORS];
    struct operand param, grad, m, v; /* all tensors, one after the other */
};

static void run_optimizer(void *context)
{
    struct optimizer_case *c = context;

    if (c->sgd)
        cr_assert_eq(kernel_sgd(NULL, c->updates, N_TENSORS, &c->sgd_h, c->step), 0);
    else
        cr_assert_eq(kernel_adamw(NULL, c->updates, N_TENSORS, &c->adamw, c->step), 0);
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
    for (size_t i = 0; i < n; i++)
        ((float *)c->v.data)[i] = c->v.values[i] = fabsf(c->v.values[i]);
    for (size_t i = 0, at = 0; i < N_TENSORS; at += length_of(i), i++)
        c->updates[i] = (struct kernel_update){
            .param = (float *)c->param.data + at,
            .grad = (const char *)c->grad.data + at * fsdp_dtype_size(grad_dtype),
            .m = c->sgd && !c->momentum ? NULL : (float *)c->m.data + at,
            .v = (float *)c->v.data + at,
            .n_elems = length_of(i),
            .grad_dtype = grad_dtype,
            .lr = 1e-2 / (1 + (double)(i % 3)),
            .weight_decay = i % 4 == 0 ? 0 : c->decay,
            .grad_scale = i % 5 == 0 ? 1.0f : 0.7f,
        };
}

/* The same by ref, one tensor at a time, each with its own rates. */
static void update_as_ref(const struct optimizer_case *c, const struct kernel_update *update, float *param,
                          const float *grad, float *m, float *v)
{
    const float scale = update->grad_scale;
    struct adamw adamw = c->adamw;
    struct sgd sgd = c->sgd_h;

    adamw.lr = sgd.lr = update->lr;
    adamw.weight_decay = sgd.weight_decay = update->weight_decay;
    if (c->sgd)
        ref_sgd(NULL, NULL, param, grad, c->momentum ? m : NULL, update->n_elems, &sgd, scale, c->step);
    else
        ref_adamw(NULL, NULL, param, grad, m, v, update->n_elems, &adamw, scale, c->step);
}

static void check_optimizer(struct optimizer_case *c, enum fsdp_dtype grad_dtype)
{
    struct operand *outputs[] = { &c->param, &c->m, &c->v };
    float *param, *m, *v;
    size_t n;

    prepare(c, grad_dtype);
    n = c->param.n_elems;
    param = case_floats(n), m = case_floats(n), v = case_floats(n);
    memcpy(param, c->param.values, n * sizeof *param);
    memcpy(m, c->m.values, n * sizeof *m);
    memcpy(v, c->v.values, n * sizeof *v);

    under_schedules(run_optimizer, c, outputs, 3);

    for (size_t t = 0, at = 0; t < N_TENSORS; at += length_of(t), t++)
        update_as_ref(c, &c->updates[t], param + at, c->grad.values + at, m + at, v + at);
    expect_exact(&c->param, param, "param");
    expect_exact(&c->m, m, "m");
    expect_exact(&c->v, v, "v");
    cases_end();
}

Test(emulated_lists, adamw_keeps_refs_bits)
{
    for (int v = 0; v < 8; v++) {
        struct optimizer_case c = { .decay = v & 1 ? 0.1 : 0,
                                    .adamw = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8 },
                                    .step = v & 4 ? 1 : 300 };

        check_optimizer(&c, v & 2 ? FSDP_BF16 : FSDP_F32);
    }
}

Test(emulated_lists, sgd_keeps_refs_bits)
{
    for (int v = 0; v < 8; v++) {
        struct optimizer_case c = { .sgd = true,
                                    .momentum = v & 1,
                                    .decay = v & 2 ? 0.01 : 0,
                                    .sgd_h = { .momentum = v & 1 ? 0.9 : 0 },
                                    .step = v & 4 ? 1 : 2 };

        check_optimizer(&c, v & 2 ? FSDP_BF16 : FSDP_F32);
    }
}

struct cast_case {
    struct device_cast casts[N_TENSORS];
    float scale;
    bool accumulate;
    struct operand to, from;
};

static void run_cast(void *context)
{
    struct cast_case *c = context;

    cr_assert_eq(kernel_cast(NULL, c->casts, N_TENSORS, c->scale, c->accumulate), 0);
}

/* The padding of a gradient's rows goes in the same list. */
static bool is_zeros(const struct cast_case *c, size_t i)
{
    return !c->accumulate && i % 6 == 1;
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
            c.casts[i] =
                (struct device_cast){ (char *)c.to.data + at * fsdp_dtype_size(to),
                                      is_zeros(&c, i) ? NULL
                                                      : (char *)c.from.data + at * fsdp_dtype_size(from),
                                      length_of(i), to, from };

        under_schedules(run_cast, &c, outputs, 1);

        cpu_cast_elems(expected.data, to, c.from.data, from, n, c.scale, c.accumulate);
        for (size_t i = 0, at = 0; i < N_TENSORS; at += length_of(i), i++)
            if (is_zeros(&c, i))
                memset((char *)expected.data + at * fsdp_dtype_size(to), 0,
                       length_of(i) * fsdp_dtype_size(to));
        cr_assert_arr_eq(c.to.data, expected.data, n * fsdp_dtype_size(to), "variant %d", v);
        cases_end();
    }
}

struct rounding_case {
    struct device_rounding roundings[N_TENSORS];
    struct operand to, from;
};

static void run_round(void *context)
{
    struct rounding_case *c = context;

    cr_assert_eq(kernel_round(NULL, c->roundings, N_TENSORS, 9), 0);
}

/* Shards begin anywhere in their parameter; what is not finite or nearly so is among the elements. */
Test(emulated_lists, rounding_draws_what_the_cpu_draws)
{
    static const float specials[] = { NAN,  INFINITY, -INFINITY, 3.4e38f, -3.4e38f,
                                      0.0f, -0.0f,    1.0f,      1e-41f,  -1e-45f };
    enum { N_SPECIALS = sizeof specials / sizeof *specials };
    struct rounding_case c = { 0 };
    struct operand *outputs[] = { &c.to }, expected;
    size_t n = 0;

    for (size_t i = 0; i < N_TENSORS; i++)
        n += length_of(i);
    c.to = operand_empty(FSDP_BF16, n);
    expected = operand_copy(&c.to);
    c.from = operand_random(FSDP_F32, n, 2, 1.0f);
    for (size_t i = 0; i < n; i += 17)
        ((float *)c.from.data)[i] = specials[i / 17 % N_SPECIALS];
    for (size_t i = 0, at = 0; i < N_TENSORS; at += length_of(i), i++) {
        struct device_rounding *r = &c.roundings[i];

        *r = (struct device_rounding){ .to = (uint16_t *)c.to.data + at,
                                       .from = (const float *)c.from.data + at,
                                       .n_elems = length_of(i),
                                       .key = UINT64_C(0x9e3779b97f4a7c15) * (i / 2 + 1),
                                       .first = i % 3 == 0 ? i : (UINT64_C(1) << 33) + 5 * i };
        cpu_round_elems((uint16_t *)expected.data + at, r->from, r->n_elems, r->key, 9, r->first);
    }

    under_schedules(run_round, &c, outputs, 1);

    cr_assert_arr_eq(c.to.data, expected.data, n * sizeof(uint16_t));
}

Test(emulated_lists, what_is_no_float_is_refused)
{
    const float one = 1;
    const struct device_cast cast = { NULL, &one, 1, FSDP_F32, FSDP_I32 },
                             sum_of_zeros = { NULL, NULL, 1, FSDP_F32, FSDP_F32 };
    const struct kernel_span span = { NULL, 1, FSDP_I64 };
    const struct kernel_update update = { .n_elems = 1, .grad_dtype = FSDP_F64 };
    const struct adamw h = { 1, 0.9, 0.95, 1, 0 };
    const uint64_t before = emulate_launches();
    double out;

    cr_assert_eq(kernel_cast(NULL, &cast, 1, 1, false), 1);
    cr_assert_eq(kernel_sum_powers(NULL, &span, 1, 2, &out, NULL), 1);
    cr_assert_eq(kernel_cast(NULL, &sum_of_zeros, 1, 1, true), 1);
    cr_assert_eq(kernel_adamw(NULL, &update, 1, &h, 1), 1);
    cr_assert_eq(emulate_launches(), before);
}

enum { N_SPANS = N_TENSORS + 1, LAST_SPAN = 17000 }; /* the last one is of two chunks */

struct power_case {
    struct kernel_span spans[N_SPANS];
    size_t n_spans;
    double p;
    struct operand x, out; /* out: doubles, each as two float32 */
    void *scratch;
};

static void run_powers(void *context)
{
    struct power_case *c = context;

    cr_assert_eq(kernel_sum_powers(NULL, c->spans, c->n_spans, c->p, c->out.data, c->scratch), 0);
}

static void take_powers(struct power_case *c, double *sums)
{
    struct operand *outputs[] = { &c->out };

    c->out = operand_empty(FSDP_F32, 2 * c->n_spans);
    c->scratch = case_bytes(kernel_sum_powers_scratch(c->spans, c->n_spans));
    under_schedules(run_powers, c, outputs, 1);
    memcpy(sums, c->out.data, c->n_spans * sizeof *sums);
}

static size_t span_length(size_t i)
{
    return i < N_TENSORS ? length_of(i) : LAST_SPAN;
}

static void prepare_powers(struct power_case *c, enum fsdp_dtype dtype, uint64_t seed)
{
    size_t n = 0;

    for (size_t i = 0; i < N_SPANS; i++)
        n += span_length(i);
    c->x = operand_random(dtype, n, seed, 1.0f);
    for (size_t i = 0, at = 0; i < N_SPANS; at += span_length(i), i++)
        c->spans[i] =
            (struct kernel_span){ (char *)c->x.data + at * fsdp_dtype_size(dtype), span_length(i), dtype };
    c->n_spans = N_SPANS;
}

Test(emulated_lists, sums_of_powers_are_refs)
{
    static const double orders[] = { 1, 2, 3, 2.5, INFINITY };

    for (size_t v = 0; v < 10; v++) {
        struct power_case c = { .p = orders[v % 5] };
        double got[N_SPANS];

        prepare_powers(&c, v / 5 ? FSDP_BF16 : FSDP_F32, v);

        take_powers(&c, got);

        for (size_t i = 0, at = 0; i < N_SPANS; at += span_length(i), i++) {
            const double expected = ref_sum_powers(NULL, NULL, c.x.values + at, span_length(i), c.p);

            cr_assert(fabs(got[i] - expected) <= 1e-13 * expected, "p = %g, span %zu: %.17g, not %.17g", c.p,
                      i, got[i], expected);
        }
        cases_end();
    }
}

Test(emulated_lists, a_span_has_the_bits_that_it_has_alone)
{
    struct power_case all = { .p = 2 };
    double together[N_SPANS], alone;

    prepare_powers(&all, FSDP_F32, 3);
    take_powers(&all, together);

    for (size_t i = 0; i < N_SPANS; i++) {
        struct power_case one = { .p = 2, .n_spans = 1, .spans = { all.spans[i] } };

        take_powers(&one, &alone);
        cr_assert_eq(memcmp(&alone, &together[i], sizeof alone), 0, "span %zu: %.17g, not %.17g", i,
                     together[i], alone);
    }
}

Test(emulated_lists, a_nan_is_seen_in_every_norm)
{
    static const double orders[] = { 1, 2, INFINITY };

    for (size_t v = 0; v < 3; v++) {
        struct power_case c = { .p = orders[v], .n_spans = 1 };
        double sum;

        c.x = operand_random(FSDP_F32, 500, v, 1.0f);
        ((float *)c.x.data)[v * 200] = NAN;
        c.spans[0] = (struct kernel_span){ c.x.data, 500, FSDP_F32 };
        take_powers(&c, &sum);
        cr_assert(isnan(sum));
    }
}

/* What a launch holds is told in kernels.h; here, that it is so, and that the pieces of a longer list join. */
Test(emulated_lists, a_group_is_one_launch)
{
    enum { N = 1700 };
    static const struct {
        size_t n;
        uint64_t launches;
    } copies[] = { { 0, 0 }, { 1, 1 }, { 99, 1 }, { 100, 1 }, { 790, 1 }, { N, 3 } };
    static struct device_cast casts[N];
    static struct kernel_update updates[600];
    const struct adamw h = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8 };
    struct operand from = operand_random(FSDP_F32, N, 1, 1.0f), to = operand_empty(FSDP_BF16, N),
                   m = operand_random(FSDP_F32, N, 1, 0.0f), v = operand_random(FSDP_F32, N, 1, 0.0f);
    uint64_t before;

    for (size_t i = 0; i < N; i++)
        casts[i] =
            (struct device_cast){ (uint16_t *)to.data + i, (float *)from.data + i, 1, FSDP_BF16, FSDP_F32 };
    for (size_t i = 0; i < 600; i++)
        updates[i] = (struct kernel_update){ .param = (float *)from.data + i,
                                             .grad = (float *)from.data + i,
                                             .m = (float *)m.data + i,
                                             .v = (float *)v.data + i,
                                             .n_elems = 1,
                                             .grad_dtype = FSDP_F32 };

    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        before = emulate_launches();
        cr_assert_eq(kernel_cast(NULL, casts, copies[i].n, 1, false), 0);
        cr_assert_eq(emulate_launches() - before, copies[i].launches, "%zu copies", copies[i].n);
    }
    operand_read(&to);
    expect_exact(&to, from.values, "copies of three launches");
    before = emulate_launches();
    cr_assert_eq(kernel_adamw(NULL, updates, 470, &h, 1), 0);
    cr_assert_eq(emulate_launches() - before, 1);
    cr_assert_eq(kernel_adamw(NULL, updates, 600, &h, 1), 0);
    cr_assert_eq(emulate_launches() - before, 3);
}
