/*
 * The dtypes of a plan's buffers, and the entries that exist because of them, over every policy, world and
 * way to accumulate.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/plan/models.h"

TestSuite(plan_precision, .fini = planned_drop);

struct mode {
    int param, reduce, W;
    bool accumulates;
    enum fsdp_gradient_sync sync;
};

static size_t size_of(int dtype)
{
    return dtype == FSDP_BF16 ? 2 : 4;
}

static void check_buffers(const struct plan *plan, const struct mode *mode)
{
    const int reduce = mode->reduce == FSDP_DTYPE_NONE ? mode->param : mode->reduce;
    const bool whole = mode->accumulates && mode->sync == FSDP_SYNC_LAST;
    const bool both = mode->param == FSDP_BF16 && reduce == FSDP_BF16;
    const size_t grad = whole ? (both ? 2 : 4) : size_of(mode->param);

    for (int b = 0; b < plan->n_buffers; b++) {
        const struct plan_buffer *buffer = &plan->buffers[b];
        const size_t row = plan->groups[buffer->index < plan->n_groups ? buffer->index : 0].row_elems;

        switch (buffer->what) {
        case PLAN_GATHER_ROWS:
            cr_assert(buffer->size_bytes == row * (size_t)mode->W * size_of(mode->param));
            break;
        case PLAN_PACK_ROWS:
            cr_assert(buffer->size_bytes == row * (size_t)mode->W * size_of(reduce));
            break;
        case PLAN_WHOLE_GRAD:
            cr_assert(buffer->size_bytes == plan->params[buffer->index].parameter->n_elems * grad);
            break;
        case PLAN_WHOLE_PARAMS:
            cr_assert(buffer->size_bytes % 64 == 0);
            break;
        case PLAN_VALUE:
        case PLAN_VALUE_GRAD:
            cr_assert(buffer->size_bytes == graph_value_bytes(plan->graph->values[buffer->index]));
            break;
        default:
            break;
        }
    }
    for (int p = 0; p < plan->n_params; p++)
        cr_assert(plan->params[p].whole_offset * size_of(mode->param) % 64 == 0);
}

static void check_entries(const struct plan *plan, const struct mode *mode)
{
    const int reduce = mode->reduce == FSDP_DTYPE_NONE ? mode->param : mode->reduce;
    const bool adds = mode->accumulates && mode->sync == FSDP_SYNC_EVERY;
    const int n_reduces = count_entries(plan, PLAN_REDUCE);

    cr_assert(count_entries(plan, PLAN_GATHER) == (mode->W > 1 ? count_entries(plan, PLAN_UNPACK) : 0));
    cr_assert((count_entries(plan, PLAN_UNPACK) > 0) == (mode->W > 1 || mode->param == FSDP_BF16));
    cr_assert(n_reduces == (mode->W > 1 ? plan->n_groups : 0));
    cr_assert(count_entries(plan, PLAN_STORE) == (reduce == FSDP_BF16 || adds ? n_reduces : 0));
    for (int i = 0; i < plan->n_entries; i++)
        if (plan->entries[i].kind == PLAN_STORE) {
            cr_assert(plan->entries[i - 1].kind == PLAN_REDUCE && !plan->entries[i - 1].reduce.into_shards);
            cr_assert(plan->entries[i].store.adds == adds &&
                      plan->entries[i].store.packed == plan->entries[i - 1].reduce.packed);
        }
}

Test(plan_precision, buffers_and_entries_follow_from_the_policy)
{
    static const int dtypes[] = { FSDP_F32, FSDP_BF16 }, reduces[] = { FSDP_DTYPE_NONE, FSDP_F32, FSDP_BF16 };

    for (int p = 0; p < 2; p++)
        for (int r = 0; r < 3; r++)
            for (int W = 1; W <= 3; W++)
                for (int way = 0; way < 3; way++) {
                    const struct mode mode = { dtypes[p], reduces[r], W, way > 0,
                                               way == 2 ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST };
                    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
                    struct blocks blocks = { .n_blocks = 2, .mp_policy = &mp };
                    struct plan_options options = options_for(W);

                    mp.param_dtype = mode.param;
                    mp.reduce_dtype = mode.reduce;
                    options.accumulates = mode.accumulates;
                    options.gradient_sync = mode.sync;
                    plan_it(&made, blocks_build(&blocks), &options, true);
                    check_buffers(&made.plan, &mode);
                    check_entries(&made.plan, &mode);
                }
}

/* Values are of the parameters' dtype, and what the loss reads is float32, without a cast in between. */
Test(plan_precision, logits_are_float32_and_all_before_them_is_not)
{
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();

    mp.param_dtype = FSDP_BF16;
    plan_blocks(2, (struct blocks){ .n_blocks = 2, .mp_policy = &mp });

    cr_assert(made.graph.result->dtype == FSDP_F32);
    for (size_t i = 0; i < made.graph.n_ops; i++) {
        const struct graph_op *op = made.graph.ops[i];

        cr_expect(strcmp(op->kind->name, "cast") != 0, "%s", op->name);
        cr_expect(op->output == made.graph.result || op->output->dtype == FSDP_BF16, "%s", op->name);
    }
}

/*
 * For a device that asks for it: 11 logits a row are 16 apart, and stay bfloat16 in training. Where the
 * head's weight is used in bfloat16, 5 rows of zeros follow it.
 */
Test(plan_precision, logits_are_padded_and_bfloat16_where_the_device_takes_them)
{
    for (int v = 0; v < 4; v++) {
        const bool training = v % 2 == 1, halves = v / 2 == 1;
        const struct graph_input input = { .dtype = FSDP_I32, .batch = 2, .seq = 3, .result_multiple = 16 };
        const struct plan_options options = options_for(2);
        struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
        struct blocks blocks = { .n_blocks = 1, .mp_policy = &mp };
        const struct plan_param *head;
        const struct fsdp_value *result;

        mp.param_dtype = halves ? FSDP_BF16 : FSDP_F32;
        planned_fini(&made);
        made.root = blocks_build(&blocks);
        cr_assert(graph_record(&made.graph, made.root, &input, training, NULL) == FSDP_OK);
        cr_assert(plan_make(&made.plan, &made.graph, made.root, &options, NULL) == FSDP_OK);
        result = made.graph.result;
        head = &made.plan.params[made.plan.n_params - 1];

        cr_expect(result->dtype == (halves && training ? FSDP_BF16 : FSDP_F32));
        cr_expect(result->features == 11 && result->row_stride == 16);
        cr_expect(graph_value_bytes(result) == 2 * 3 * 16 * fsdp_dtype_size(result->dtype));
        cr_expect(strcmp(head->parameter->name, "output.weight") == 0);
        cr_expect(head->zero_elems == (halves ? 5 * 8 : 0));
        cr_expect(made.plan.groups[head->group].whole_bytes[head->part] >=
                  (head->whole_offset + (11 * 8 + head->zero_elems)) * (halves ? 2 : 4));
        for (int p = 0; p + 1 < made.plan.n_params; p++)
            cr_expect(made.plan.params[p].zero_elems == 0);
    }
}

/* Blocks in bfloat16 below a float32 root: their input is cast on the way in, their output on the way out. */
Test(plan_precision, inputs_and_outputs_of_a_unit_are_cast)
{
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    int n_casts = 0;

    mp.param_dtype = FSDP_BF16;
    mp.output_dtype = FSDP_F32;
    plan_blocks(2, (struct blocks){ .n_blocks = 1, .mp_policy = &mp, .root_in_f32 = true });

    for (size_t i = 0; i < made.graph.n_ops; i++) {
        const struct graph_op *op = made.graph.ops[i];

        if (strcmp(op->kind->name, "cast") == 0)
            cr_expect(op->output->dtype == (n_casts++ == 0 ? FSDP_BF16 : FSDP_F32), "%s", op->name);
    }
    cr_expect(n_casts == 2);
}
