/*
 * A group's copies over a grid of rows, worlds and dtypes. What is gathered becomes the whole parameters.
 * What is packed is cut as the shards are, and nothing but padding is between. In float8 too, and over fewer
 * ranks.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/core/e4m3.h"
#include "shard_runtime/device/cpu_cast.h"
#include "shard_runtime/shard/layout.h"
#include "shard_runtime/shard/param_group.h"

enum { MAX_ROWS = 11, MAX_W = 7, N_PARAMS = 2, MAX_ELEMS = 4096 };

/* Two parameters, (rows, 3) and (other), in one group of a world of W. */
struct laid_out {
    struct fsdp_module *root;
    struct graph graph;
    struct plan plan;
};

static int along_columns(const char *name, int n_dims, const size_t *shape, void *user)
{
    (void)name;
    (void)shape;
    (void)user;
    return n_dims > 1 ? 1 : 0;
}

/* `columns` 0: along rows. k 0: nothing is kept between forward and backward. */
static void lay_out(struct laid_out *l, size_t rows, size_t columns, size_t other, int W,
                    enum fsdp_dtype param, enum fsdp_dtype reduce, bool float8, int k)
{
    struct fsdp_mixed_precision_policy precision = fsdp_mixed_precision_defaults();
    const struct fsdp_fully_shard_options options = {
        .mp_policy = &precision,
        .reshard_after_forward = k > 0 ? FSDP_RESHARD_TO : FSDP_RESHARD_AUTO,
        .reshard_size = k,
        .shard_placement_fn = columns > 0 ? along_columns : NULL,
    };

    precision.param_dtype = (int)param;
    precision.reduce_dtype = (int)reduce;
    precision.float8_gather = float8;
    *l = (struct laid_out){ .root = fsdp_linear(fsdp_module_create(NULL, NULL), "unit",
                                                columns > 0 ? columns : 3, rows, true) };
    fsdp_module_add_parameter(l->root, "other", 1, &other, FSDP_INIT_ZEROS, NULL);
    cr_assert(fsdp_fully_shard(l->root, &options, NULL) == FSDP_OK);
    /* there is no forward that uses them */
    fsdp_module_set_reduce_scatter_unused_params(l->root, true, false);
    l->plan = (struct plan){ .options = { .W = W, .chunk_rows = layout_chunk }, .graph = &l->graph };
    cr_assert(plan_form_groups(&l->plan, l->root, NULL) == FSDP_OK);
}

static void take_down(struct laid_out *l)
{
    plan_fini(&l->plan);
    fsdp_module_destroy(l->root);
}

/* A number that both dtypes hold exactly: which parameter, which element. */
static float mark(int param, size_t element)
{
    return (float)((element % 100 + 1) * (param == 0 ? 1 : 2));
}

static float read_at(const char *array, enum fsdp_dtype dtype, size_t i)
{
    float value;

    cpu_cast_elems(&value, FSDP_F32, array + i * fsdp_dtype_size(dtype), dtype, 1, 1.0f, false);
    return value;
}

/* This rank's row of shards, element by element of the whole: who owns it, and where it then stands. */
static void fill_shards(const struct plan *plan, int rank, float *row)
{
    const int W = plan->options.W;

    memset(row, 0, plan->groups[0].row_elems * sizeof *row);
    for (int p = 0; p < plan->n_params; p++) {
        const struct plan_param *param = &plan->params[p];
        const struct fsdp_parameter *shape = param->parameter;
        const size_t inner = shape->shard_dim == 0 ? shape->row_elems : 1;
        const size_t n = shape->shape[shape->shard_dim], chunk = (n + (size_t)W - 1) / (size_t)W;

        for (size_t i = 0; i < shape->n_elems; i++) {
            const size_t place = i / inner % n, before = i / inner / n;

            if (place / chunk == (size_t)rank)
                row[param->row_offset + (before * chunk + place % chunk) * inner + i % inner] = mark(p, i);
        }
    }
}

static void check(struct device *device, struct device_stream *stream, size_t rows, size_t columns, int W,
                  enum fsdp_dtype param, enum fsdp_dtype reduce)
{
    static float shards[MAX_ELEMS], gathered[MAX_ELEMS], grads[N_PARAMS + 1][MAX_ELEMS], row[MAX_ELEMS];
    static char whole[MAX_ELEMS * 4], packed[MAX_ELEMS * 4];
    const void *whole_grads[N_PARAMS + 1];
    struct laid_out l;
    struct param_group group;
    const struct plan_group *g;

    lay_out(&l, rows, columns, 2 * rows - 1, W, param, reduce, false, 0);
    g = &l.plan.groups[0];
    group = (struct param_group){ .layout = &l.plan, .shards = shards };
    cr_assert(g->row_elems * (size_t)W < MAX_ELEMS && plan_whole_bytes(g) < sizeof whole);
    for (int rank = 0; rank < W; rank++) {
        fill_shards(&l.plan, rank, row);
        cpu_cast_elems((char *)gathered + (size_t)rank * g->row_elems * fsdp_dtype_size(param), param, row,
                       FSDP_F32, g->row_elems, 1.0f, false);
        if (W == 1)
            memcpy(shards, row, g->row_elems * sizeof *row);
    }

    memset(whole, 0x5a, sizeof whole);
    param_group_unpack(&group, device, W > 1 ? gathered : NULL, W, shards, NULL,
                       (void *const[]){ whole, whole + plan_part_offset(g, PLAN_BOTH_WAYS) }, stream);

    for (int p = 0; p < l.plan.n_params; p++) {
        const struct plan_param *at = &l.plan.params[p];

        for (size_t i = 0; i < at->parameter->n_elems; i++) {
            cr_assert(read_at(whole + plan_part_offset(g, at->part), param, at->whole_offset + i) ==
                          mark(p, i),
                      "rows %zu W %d: parameter %d [%zu]", rows, W, p, i);
            grads[p][i] = mark(p, i);
        }
        cpu_cast_elems(grads[p], g->grad_dtype, memcpy(row, grads[p], sizeof row), FSDP_F32,
                       at->parameter->n_elems, 1.0f, false);
        whole_grads[p] = grads[p];
    }
    memset(packed, 0x5a, sizeof packed);
    param_group_pack(&group, device, NULL, whole_grads, packed, stream);
    for (int rank = 0; rank < W; rank++) {
        fill_shards(&l.plan, rank, row);
        for (size_t i = 0; i < g->row_elems; i++)
            cr_assert(read_at(packed, reduce, (size_t)rank * g->row_elems + i) == row[i],
                      "rows %zu W %d: row %d [%zu]", rows, W, rank, i);
    }
    take_down(&l);
}

/* Float8 */

/* The other ranks' rows are written where they would be gathered to. */
static enum fsdp_status leave_in_place(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                       struct fsdp_err *err)
{
    const struct plan_group *layout = user;

    (void)stream;
    (void)err;
    cr_assert(dtype == FSDP_U8 && n_elems == layout->gather_row_bytes);
    cr_assert((const char *)send == (char *)recv + n_elems * (size_t)group->rank);
    return FSDP_OK;
}

/* What the whole parameters are: the weight by its codes, the rest as it is. */
static void expect_decoded(const struct laid_out *l, const float *amax, const char *whole,
                           enum fsdp_dtype dtype, const char *what)
{
    for (int p = 0; p < l->plan.n_params; p++) {
        const struct plan_param *at = &l->plan.params[p];

        cr_assert((at->coded == 0) == (p == 0), "the weight alone is coded");
        for (size_t i = 0; i < at->parameter->n_elems; i++) {
            float value = mark(p, i);
            char rounded[sizeof value];

            if (p == 0)
                value = e4m3_value(e4m3_of_f32(value / e4m3_scale(*amax)), *amax);
            cpu_cast_elems(rounded, dtype, &value, FSDP_F32, 1, 1.0f, false);
            cr_assert(read_at(whole + plan_part_offset(&l->plan.groups[0], at->part), dtype,
                              at->whole_offset + i) == read_at(rounded, dtype, 0),
                      "%s: parameter %d [%zu]", what, p, i);
        }
    }
}

/* Every way to cut `whole` over k ranks and gather it from there gives it back. */
static void check_slices(struct device *device, struct device_stream *stream, const struct laid_out *l,
                         const struct param_group *group, const float *amax, void *const whole[PLAN_N_PARTS],
                         enum fsdp_dtype dtype)
{
    static char rows[MAX_ELEMS * 4], again[MAX_ELEMS * 4];
    const struct plan_group *g = &l->plan.groups[0];

    memset(rows, 0x5a, sizeof rows);
    memset(again, 0x5a, sizeof again);
    for (int rank = 0; rank < g->k; rank++)
        param_group_slice(group, device, whole, rank, amax, rows + g->slice_row_bytes * (size_t)rank, stream);
    param_group_unpack(group, device, rows, g->k, NULL, amax,
                       (void *const[]){ again, again + plan_part_offset(g, PLAN_BOTH_WAYS) }, stream);
    expect_decoded(l, amax, again, dtype, "from slices");
    cr_assert(rows[g->slice_row_bytes * (size_t)g->k] == 0x5a, "k %d: written behind the last row", g->k);
}

static void check_float8(struct device *device, struct device_stream *stream, size_t rows, size_t columns,
                         int W, int k, enum fsdp_dtype param)
{
    static float shards[MAX_ELEMS];
    static char gathered[MAX_ELEMS * 4], whole[MAX_ELEMS * 4];
    struct fsdp_comm comm = { .size = W };
    float amax = 0;
    struct laid_out l;
    struct param_group group;
    const struct plan_group *g;
    void *parts[PLAN_N_PARTS];
    size_t codes, others;

    lay_out(&l, rows, columns, 2 * rows - 1, W, param, FSDP_F32, true, k);
    g = &l.plan.groups[0];
    parts[PLAN_FORWARD_ONLY] = whole;
    parts[PLAN_BOTH_WAYS] = whole + plan_part_offset(g, PLAN_BOTH_WAYS);
    fsdp_module_set_custom_all_gather(l.root, leave_in_place, (void *)(uintptr_t)g);
    group = (struct param_group){ .layout = &l.plan, .shards = shards };
    codes = l.plan.params[0].chunk_elems;
    others = g->row_elems - codes;
    cr_assert(g->gather_row_bytes == (others * fsdp_dtype_size(param) + codes + 15) / 16 * 16);
    for (size_t i = 0; i < l.plan.params[0].parameter->n_elems; i++)
        amax = mark(0, i) > amax ? mark(0, i) : amax;
    memset(gathered, 0x5a, sizeof gathered);
    memset(whole, 0x5a, sizeof whole);

    for (comm.rank = 0; comm.rank < W; comm.rank++) {
        fill_shards(&l.plan, comm.rank, shards);
        cr_assert(param_group_gather(&group, device, &comm, shards, &amax, gathered, stream, NULL) ==
                  FSDP_OK);
    }
    param_group_unpack(&group, device, gathered, W, NULL, &amax, parts, stream);

    expect_decoded(&l, &amax, whole, param, "gathered");
    cr_assert(gathered[g->gather_row_bytes * (size_t)W] == 0x5a, "W %d: written behind the last row", W);
    if (g->k > 0)
        check_slices(device, stream, &l, &group, &amax, parts, param);
    take_down(&l);
}

/* Over everything */

static struct device_stream *open_device(struct device *device)
{
    struct device_stream *stream;

    cr_assert(device_open(device, &(struct device_config){ .name = "cpu", .local_rank = 0 }, NULL) ==
              FSDP_OK);
    cr_assert(device->ops->stream_create(device, &stream, false, NULL) == FSDP_OK);
    return stream;
}

static void close_device(struct device *device, struct device_stream *stream)
{
    device->ops->stream_destroy(stream);
    device_close(device);
}

static const enum fsdp_dtype dtypes[] = { FSDP_F32, FSDP_BF16 };

Test(param_group, unpacks_and_packs_over_rows_worlds_and_dtypes)
{
    struct device device;
    struct device_stream *stream = open_device(&device);

    for (size_t rows = 1; rows <= MAX_ROWS; rows++)
        for (int W = 1; W <= MAX_W; W++)
            for (int pair = 0; pair < 4; pair++) {
                check(&device, stream, rows, 0, W, dtypes[pair & 1], dtypes[pair >> 1]);
                for (size_t each = 1; each <= 3; each++)
                    check(&device, stream, rows, each * (size_t)W, W, dtypes[pair & 1], dtypes[pair >> 1]);
            }
    close_device(&device, stream);
}

Test(param_group, float8_is_gathered_over_rows_worlds_and_slices)
{
    struct device device;
    struct device_stream *stream = open_device(&device);

    for (size_t rows = 1; rows <= MAX_ROWS; rows++)
        for (int W = 1; W <= MAX_W; W++)
            for (int k = 0; k <= W; k++)
                for (int d = 0; d < 2 && (k == 0 || W % k == 0); d++) {
                    check_float8(&device, stream, rows, 0, W, k, dtypes[d]);
                    check_float8(&device, stream, rows, 2 * (size_t)W, W, k, dtypes[d]);
                }
    close_device(&device, stream);
}

/* What a padded head's product reads behind its weight is zero, however the weight came there. */
Test(param_group, unpacks_zeros_behind_a_parameter_that_wants_them)
{
    enum { ROWS = 5, ZEROS = 21 };
    static const struct rounding_draws draws = { .seed = 3, .step = 1 };
    static float shards[MAX_ELEMS];
    static uint16_t whole[MAX_ELEMS];
    struct device device;
    struct device_stream *stream = open_device(&device);

    for (int rounds = 0; rounds < 2; rounds++) {
        struct laid_out l;
        struct param_group group = { .layout = &l.plan, .shards = shards, .draws = &draws };
        struct plan_param *last;
        const uint16_t *behind;

        lay_out(&l, ROWS, 0, 2 * ROWS - 1, 1, FSDP_BF16, FSDP_F32, false, 0);
        l.root->policy.precision.stochastic_rounding = rounds != 0;
        last = &l.plan.params[l.plan.n_params - 1];
        last->zero_elems = ZEROS;
        behind = whole + last->whole_offset + last->parameter->n_elems;
        fill_shards(&l.plan, 0, shards);
        memset(whole, 0x5a, sizeof whole);

        param_group_unpack(&group, &device, NULL, 1, shards, NULL, (void *const[]){ whole, NULL }, stream);

        for (int i = 0; i < ZEROS; i++)
            cr_expect(behind[i] == 0, "rounds %d: element %d", rounds, i);
        cr_expect(behind[-1] != 0x5a5a && behind[ZEROS] == 0x5a5a);
        take_down(&l);
    }
    close_device(&device, stream);
}
