/*
 * What an entry moves, read off its uses of buffers. For an operation that is its values, what it keeps and
 * its own parameters, though a buffer holds those of a whole unit. Held against the recording.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/plan/models.h"

TestSuite(plan_moved, .fini = planned_drop);

static uint64_t bytes_of(const struct plan *plan, enum plan_entry_kind kind, const char *name)
{
    for (int i = 0; i < plan->n_entries; i++) {
        const struct plan_entry *e = &plan->entries[i];

        if (e->kind == kind && strcmp(plan->graph->ops[e->index]->name, name) == 0)
            return plan_entry_bytes(plan, e);
    }
    cr_assert_fail("no entry of %s", name);
    return 0;
}

static uint64_t scratch_of(const struct plan *plan, enum plan_entry_kind kind, const char *name)
{
    for (size_t i = 0; i < plan->graph->n_ops; i++) {
        const struct graph_op *op = plan->graph->ops[i];

        if (strcmp(op->name, name) == 0)
            return op->saved_bytes[0] + (kind == PLAN_FORWARD ? op->forward_scratch : op->backward_scratch);
    }
    return 0;
}

/* Six rows of 8 go through (8, 12) with a bias, (12, 8) without, and (8, 11), all float32. The table has 11
 * rows, of which forward reads six. */
static void check_operations(int W, bool holds_gradients)
{
    enum { ROWS = 6, DIM = 8, WIDE = 12, VOCAB = 11, F = sizeof(float) };
    static const struct {
        const char *name;
        uint64_t forward, backward;
    } known[] = {
        { "embedding", (ROWS * DIM + ROWS * DIM) * F, (ROWS * DIM + VOCAB * DIM) * F },
        { "layers.0.w1", (ROWS * DIM + DIM * WIDE + WIDE + ROWS * WIDE) * F,
          (ROWS * WIDE + ROWS * DIM + DIM * WIDE + WIDE + ROWS * DIM * 2 + DIM * WIDE + WIDE) * F },
        { "layers.0.w2", (ROWS * WIDE + DIM * WIDE + ROWS * DIM) * F,
          (ROWS * DIM + ROWS * WIDE + DIM * WIDE + ROWS * WIDE + DIM * WIDE) * F },
        { "output", (ROWS * DIM + DIM * VOCAB + ROWS * VOCAB) * F,
          (ROWS * VOCAB + ROWS * DIM + DIM * VOCAB + ROWS * DIM + DIM * VOCAB) * F },
    };
    struct blocks blocks = { .n_blocks = 2 };
    struct plan_options options = options_for(W);

    options.holds_gradients = holds_gradients;
    plan_it(&made, blocks_build(&blocks), &options, true);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const uint64_t forward = bytes_of(&made.plan, PLAN_FORWARD, known[i].name) -
                                 scratch_of(&made.plan, PLAN_FORWARD, known[i].name),
                       backward = bytes_of(&made.plan, PLAN_BACKWARD, known[i].name) -
                                  scratch_of(&made.plan, PLAN_BACKWARD, known[i].name);

        cr_assert(forward == known[i].forward, "W %d: forward of %s: %lu bytes, not %lu", W, known[i].name,
                  (unsigned long)forward, (unsigned long)known[i].forward);
        cr_assert(backward == known[i].backward, "W %d: backward of %s: %lu bytes, not %lu", W, known[i].name,
                  (unsigned long)backward, (unsigned long)known[i].backward);
    }
}

Test(plan_moved, an_operation_moves_its_values_and_its_own_parameters)
{
    for (int W = 1; W <= 3; W++) {
        check_operations(W, false);
        check_operations(W, true);
    }
}

/* Of a unit: all of its rows where these are gathered, cut or packed, one of them where it is stored. The
 * loss reads logits and writes their gradient. What only ends something moves nothing. */
Test(plan_moved, a_group_moves_its_rows_and_the_end_of_parameters_nothing)
{
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    bool seen[PLAN_COMPLETE + 1] = { false };

    mp.param_dtype = mp.reduce_dtype = FSDP_BF16;
    plan_blocks(3, (struct blocks){ .n_blocks = 2, .mp_policy = &mp });
    for (int i = 0; i < made.plan.n_entries; i++) {
        const struct plan_entry *e = &made.plan.entries[i];
        const struct plan_group *group =
            &made.plan.groups[e->kind == PLAN_FORWARD || e->kind == PLAN_BACKWARD ? 0 : e->index];
        const uint64_t bytes = plan_entry_bytes(&made.plan, e);
        const uint64_t logits = 6 * 11 * sizeof(float);

        seen[e->kind] = true;
        if (e->kind == PLAN_LOSS)
            cr_assert(bytes == 2 * graph_value_bytes(made.graph.result) && bytes <= 2 * logits);
        else if (e->kind == PLAN_GATHER)
            cr_assert(bytes == 3 * group->gather_row_bytes + group->row_elems * sizeof(float));
        else if (e->kind == PLAN_UNPACK)
            cr_assert(bytes == 3 * group->gather_row_bytes + plan_whole_bytes(group));
        else if (e->kind == PLAN_STORE) /* the shards of gradients are not in this arena */
            cr_assert(bytes == group->grad_row_elems * 2);
        else if (e->kind == PLAN_RESHARD || e->kind == PLAN_COMPLETE)
            cr_assert(bytes == 0);
    }
    cr_assert(seen[PLAN_GATHER] && seen[PLAN_UNPACK] && seen[PLAN_STORE] && seen[PLAN_RESHARD]);
}
