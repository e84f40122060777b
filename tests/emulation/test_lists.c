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

/* Where tensor i begins among all of them, one after the other; of N_TENSORS: their length. */
static size_t start_of(size_t i)
{
    size_t at = 0;

    while (i > 0)
        at += length_of(--i);
    return at;
}

/* Element `at` of an operand. */
static void *place(const struct operand *operand, size_t at)
{
    return (char *)operand->data + at * fsdp_dtype_size(operand->dtype);
}

struct optimizer_case {
    bool sgd;
    double decay;
    uint64_t step;
    struct op_rates h;
    struct numerics_update updates[N_TENSORS];
    struct operand param, grad, m, v; /* all tensors, one after the other */
};

static int run_optimizer(void *context)
{
    struct optimizer_case *c = context;
    const struct numerics_sgd sgd = {
        .updates = c->updates, .n_updates = N_TENSORS, .momentum = c->h.momentum, .step = c->step
    };
    const struct numerics_adamw adamw = { .updates = c->updates,
                                          .n_updates = N_TENSORS,
                                          .beta1 = c->h.beta1,
                                          .beta2 = c->h.beta2,
                                          .eps = c->h.eps,
                                          .step = c->step };

    return c->sgd ? kernel_sgd(NULL, &sgd) : kernel_adamw(NULL, &adamw);
}

/* The same by ref, one tensor at a time, each with its own rates. */
static void update_as_ref(const struct optimizer_case *c, const struct numerics_update *update, size_t at)
{
    float *param = c->param.expected + at, *m = c->m.expected + at, *v = c->v.expected + at;
    const float *grad = c->grad.values + at;
    struct op_rates h = c->h;

    h.lr = update->lr;
    h.weight_decay = update->weight_decay;
    if (c->sgd)
        op_sgd(OP_REF, NULL, param, grad, update->m != NULL ? m : NULL, update->n_elems, &h,
               update->grad_scale, c->step);
    else
        op_adamw(OP_REF, NULL, param, grad, m, v, update->n_elems, &h, update->grad_scale, c->step);
}

static void check_optimizer(struct optimizer_case c, enum fsdp_dtype grad_dtype)
{
    const size_t n = start_of(N_TENSORS);

    c.param = operand_random(FSDP_F32, n, 1, 1.0f);
    c.grad = operand_random(grad_dtype, n, 2, 0.1f);
    c.m = operand_random(FSDP_F32, n, 3, 0.1f);
    c.v = operand_random(FSDP_F32, n, 4, 0.1f);
    for (size_t i = 0; i < n; i++)
        ((float *)c.v.data)[i] = c.v.expected[i] = fabsf(c.v.values[i]);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const size_t at = start_of(i);

        c.updates[i] = (struct numerics_update){
            .param = place(&c.param, at),
            .grad = place(&c.grad, at),
            .m = c.sgd && c.h.momentum <= 0 ? NULL : place(&c.m, at),
            .v = place(&c.v, at),
            .n_elems = length_of(i),
            .grad_dtype = grad_dtype,
            .lr = 1e-2 / (1 + (double)(i % 3)),
            .weight_decay = i % 4 == 0 ? 0 : c.decay,
            .grad_scale = i % 5 == 0 ? 1.0f : 0.7f,
        };
    }

    under_schedules(run_optimizer, &c, &c.param, &c.m, &c.v, NULL);

    for (size_t i = 0; i < N_TENSORS; i++)
        update_as_ref(&c, &c.updates[i], start_of(i));
    expect_exact(&c.param, "param");
    expect_exact(&c.m, "m");
    expect_exact(&c.v, "v");
    cases_end();
}

Test(emulated_lists, optimizers_keep_refs_bits)
{
    for (int v = 0; v < 16; v++) {
        struct optimizer_case adamw = { .decay = v & 1 ? 0.1 : 0,
                                        .h = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8 },
                                        .step = v & 4 ? 1 : 300 };
        struct optimizer_case sgd = { .sgd = true,
                                      .decay = v & 2 ? 0.01 : 0,
                                      .h = { .momentum = v & 1 ? 0.9 : 0 },
                                      .step = v & 4 ? 1 : 2 };

        check_optimizer(v & 8 ? adamw : sgd, v & 2 ? FSDP_BF16 : FSDP_F32);
    }
}

struct cast_case {
    struct device_cast casts[N_TENSORS];
    float scale;
    bool accumulate;
    struct operand to, from;
};

static int run_cast(void *context)
{
    struct cast_case *c = context;

    return kernel_cast(NULL, c->casts, N_TENSORS, c->scale, c->accumulate);
}

/* The padding of a gradient's rows goes in the same list: zeros, which come from nowhere. */
Test(emulated_lists, cast_is_the_cpus_bit_for_bit)
{
    for (int v = 0; v < 16; v++) {
        const enum fsdp_dtype to = v & 1 ? FSDP_BF16 : FSDP_F32, from = v & 2 ? FSDP_BF16 : FSDP_F32;
        const size_t n = start_of(N_TENSORS);
        struct cast_case c = { .scale = v & 4 ? 0.3f : 1.0f, .accumulate = v & 8 };
        struct operand expected;

        c.to = operand_random(to, n, 1, 1.0f);
        c.from = operand_random(from, n, 2, 1.0f);
        expected = operand_copy(&c.to);
        cpu_cast_elems(expected.data, to, c.from.data, from, n, c.scale, c.accumulate);
        for (size_t i = 0; i < N_TENSORS; i++) {
            const size_t at = start_of(i);
            const bool is_zeros = !c.accumulate && i % 6 == 1;

            c.casts[i] = (struct device_cast){ place(&c.to, at), is_zeros ? NULL : place(&c.from, at),
                                               length_of(i), to, from };
            if (is_zeros)
                memset(place(&expected, at), 0, length_of(i) * fsdp_dtype_size(to));
        }

        under_schedules(run_cast, &c, &c.to, NULL);

        cr_assert_arr_eq(c.to.data, expected.data, n * fsdp_dtype_size(to), "variant %d", v);
        cases_end();
    }
}

struct rounding_case {
    struct device_rounding roundings[N_TENSORS];
    struct operand to, from;
};

static int run_round(void *context)
{
    struct rounding_case *c = context;

    return kernel_round(NULL, c->roundings, N_TENSORS, 9);
}

/* Shards begin anywhere in their parameter; what is not finite or nearly so is among the elements. */
Test(emulated_lists, rounding_draws_what_the_cpu_draws)
{
    static const float specials[] = { NAN,  INFINITY, -INFINITY, 3.4e38f, -3.4e38f,
                                      0.0f, -0.0f,    1.0f,      1e-41f,  -1e-45f };
    enum { N_SPECIALS = sizeof specials / sizeof *specials };
    const size_t n = start_of(N_TENSORS);
    struct rounding_case c = { .to = operand_empty(FSDP_BF16, n),
                               .from = operand_random(FSDP_F32, n, 2, 1.0f) };
    struct operand expected = operand_copy(&c.to);

    for (size_t i = 0; i < n; i += 17)
        ((float *)c.from.data)[i] = specials[i / 17 % N_SPECIALS];
    for (size_t i = 0; i < N_TENSORS; i++) {
        struct device_rounding *r = &c.roundings[i];

        *r = (struct device_rounding){ .to = place(&c.to, start_of(i)),
                                       .from = place(&c.from, start_of(i)),
                                       .n_elems = length_of(i),
                                       .key = UINT64_C(0x9e3779b97f4a7c15) * (i / 2 + 1),
                                       .first = i % 3 == 0 ? i : (UINT64_C(1) << 33) + 5 * i };
        cpu_round_elems(place(&expected, start_of(i)), r->from, r->n_elems, r->key, 9, r->first);
    }

    under_schedules(run_round, &c, &c.to, NULL);

    cr_assert_arr_eq(c.to.data, expected.data, n * sizeof(uint16_t));
}

Test(emulated_lists, what_is_no_float_is_refused)
{
    const float one = 1;
    const struct device_cast cast = { NULL, &one, 1, FSDP_F32, FSDP_I32 },
                             sum_of_zeros = { NULL, NULL, 1, FSDP_F32, FSDP_F32 };
    const struct numerics_span span = { NULL, 1, FSDP_I64 };
    const struct numerics_update update = { .n_elems = 1, .grad_dtype = FSDP_F64 };
    const struct numerics_adamw adamw = { .updates = &update, .n_updates = 1, .step = 1 };
    const uint64_t before = emulate_launches();
    double out;

    cr_assert_eq(kernel_cast(NULL, &cast, 1, 1, false), 1);
    cr_assert_eq(kernel_sum_powers(NULL, &span, 1, 2, &out, NULL), 1);
    cr_assert_eq(kernel_cast(NULL, &sum_of_zeros, 1, 1, true), 1);
    cr_assert_eq(kernel_adamw(NULL, &adamw), 1);
    cr_assert_eq(emulate_launches(), before);
}

enum { N_SPANS = N_TENSORS + 1, LAST_SPAN = 17000 }; /* the last one is of two chunks */

struct power_case {
    struct numerics_span spans[N_SPANS];
    size_t n_spans;
    double p;
    struct operand x, out; /* out: doubles, each as two float32 */
    void *scratch;
};

static int run_powers(void *context)
{
    struct power_case *c = context;

    return kernel_sum_powers(NULL, c->spans, c->n_spans, c->p, c->out.data, c->scratch);
}

static void take_powers(struct power_case *c, double *sums)
{
    c->out = operand_empty(FSDP_F32, 2 * c->n_spans);
    c->scratch = case_bytes(kernel_sum_powers_bytes(c->spans, c->n_spans));
    under_schedules(run_powers, c, &c->out, NULL);
    memcpy(sums, c->out.data, c->n_spans * sizeof *sums);
}

/* A span has the bits that it has alone. */
static void check_alone(const struct power_case *all, const double *together)
{
    double alone;

    for (size_t i = 0; i < N_SPANS; i++) {
        struct power_case one = { .p = all->p, .n_spans = 1, .spans = { all->spans[i] } };

        take_powers(&one, &alone);
        cr_assert_eq(memcmp(&alone, &together[i], sizeof alone), 0, "span %zu: %.17g, not %.17g", i,
                     together[i], alone);
    }
}

Test(emulated_lists, sums_of_powers_are_refs_and_have_the_bits_that_each_has_alone)
{
    static const double orders[] = { 1, 2, 3, 2.5, INFINITY };

    for (size_t v = 0; v < 10; v++) {
        struct power_case c = { .p = orders[v % 5], .n_spans = N_SPANS };
        double got[N_SPANS];

        c.x = operand_random(v / 5 ? FSDP_BF16 : FSDP_F32, start_of(N_TENSORS) + LAST_SPAN, v, 1.0f);
        for (size_t i = 0; i < N_SPANS; i++)
            c.spans[i] = (struct numerics_span){ place(&c.x, start_of(i)),
                                                 i < N_TENSORS ? length_of(i) : LAST_SPAN, c.x.dtype };

        take_powers(&c, got);

        for (size_t i = 0; i < N_SPANS; i++) {
            const double expected =
                op_sum_powers(OP_REF, NULL, c.x.values + start_of(i), c.spans[i].n_elems, c.p);

            cr_assert(fabs(got[i] - expected) <= 1e-13 * expected, "p = %g, span %zu: %.17g, not %.17g", c.p,
                      i, got[i], expected);
        }
        if (v == 1)
            check_alone(&c, got);
        cases_end();
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
        c.spans[0] = (struct numerics_span){ c.x.data, 500, FSDP_F32 };
        take_powers(&c, &sum);
        cr_assert(isnan(sum));
    }
}

/*
 * What a launch holds is told in kernels.h; here, that it is so, and that the pieces of a longer list join.
 */
Test(emulated_lists, a_group_is_one_launch)
{
    enum { N = 1700 };
    static const struct {
        size_t n;
        uint64_t launches;
    } copies[] = { { 0, 0 }, { 1, 1 }, { 99, 1 }, { 100, 1 }, { 790, 1 }, { N, 3 } };
    static struct device_cast casts[N];
    static struct numerics_update updates[600];
    struct numerics_adamw adamw = { .updates = updates, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1 };
    struct operand from = operand_random(FSDP_F32, N, 1, 1.0f), to = operand_empty(FSDP_BF16, N),
                   m = operand_random(FSDP_F32, N, 1, 0.0f), v = operand_random(FSDP_F32, N, 1, 0.0f);
    uint64_t before;

    for (size_t i = 0; i < N; i++)
        casts[i] = (struct device_cast){ place(&to, i), place(&from, i), 1, FSDP_BF16, FSDP_F32 };
    for (size_t i = 0; i < 600; i++)
        updates[i] = (struct numerics_update){ .param = place(&from, i),
                                               .grad = place(&from, i),
                                               .m = place(&m, i),
                                               .v = place(&v, i),
                                               .n_elems = 1,
                                               .grad_dtype = FSDP_F32 };

    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        before = emulate_launches();
        cr_assert_eq(kernel_cast(NULL, casts, copies[i].n, 1, false), 0);
        cr_assert_eq(emulate_launches() - before, copies[i].launches, "%zu copies", copies[i].n);
    }
    operand_read(&to);
    to.expected = from.expected;
    expect_exact(&to, "copies of three launches");
    for (size_t launches = 1; launches <= 2; launches++) {
        adamw.n_updates = launches == 1 ? 470 : 600;
        before = emulate_launches();
        cr_assert_eq(kernel_adamw(NULL, &adamw), 0);
        cr_assert_eq(emulate_launches() - before, launches);
    }
}
