/*
 * What units were told, as numbers. Every setter moves the one that it belongs to and no other. Telling a
 * unit what it was told before moves none. And what a step does about it, in every case.
 */
#include <criterion/criterion.h>

#include "shard_runtime/plan/policies.h"
#include "tests/unit/plan/models.h"

static enum fsdp_status hook(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                             void *user, struct fsdp_err *err)
{
    (void)row, (void)n_elems, (void)dtype, (void)stream, (void)user, (void)err;
    return FSDP_OK;
}

static enum fsdp_status post_hook(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model, (void)group, (void)user, (void)err;
    return FSDP_OK;
}

/* Setter number `i` on a unit, to what it is not by default or back; false: there are no more. */
static bool call_setter(int i, struct fsdp_module *unit, struct fsdp_module *other, bool changed)
{
    switch (i) {
    case 0:
        fsdp_module_set_requires_gradient_sync(unit, changed, false);
        return true;
    case 1:
        fsdp_module_set_requires_all_reduce(unit, !changed, false);
        return true;
    case 2:
        fsdp_module_set_reshard_after_backward(unit, !changed, false);
        return true;
    case 3:
        fsdp_module_set_reshard_after_forward(unit, !changed, false);
        return true;
    case 4:
        fsdp_module_set_gradient_divide_factor(unit, changed ? 3.0 : 0.0, false);
        return true;
    case 5:
        fsdp_module_set_force_sum_reduction_for_comms(unit, changed, false);
        return true;
    case 6:
        fsdp_module_set_all_reduce_hook(unit, changed ? hook : NULL, NULL);
        return true;
    case 7:
        fsdp_module_register_post_accumulate_grad_hook(unit, changed ? post_hook : NULL, NULL, false);
        return true;
    case 8:
        return fsdp_module_set_modules_to_forward_prefetch(unit, &other, changed, NULL) == FSDP_OK;
    case 9:
        return fsdp_module_set_modules_to_backward_prefetch(unit, &other, changed, NULL) == FSDP_OK;
    case 10:
        fsdp_module_set_unshard_in_backward(unit, !changed);
        return true;
    case 11:
        return fsdp_module_set_reduce_scatter_max_input_buffers(unit, changed ? 2 : 1, false, NULL) ==
               FSDP_OK;
    case 12:
        fsdp_checkpoint_wrapper(unit, changed ? FSDP_CHECKPOINT_FULL : FSDP_CHECKPOINT_NONE);
        return true;
    case 13:
        fsdp_module_set_reduce_scatter_unused_params(unit, changed, false);
        return true;
    case 14:
        fsdp_module_set_separate_reduce_scatter_group(unit, changed, false);
        return true;
    case 15:
        fsdp_module_requires_grad(unit, !changed);
        return true;
    default:
        return false;
    }
}

Test(policies, each_setter_moves_the_number_it_belongs_to_and_back)
{
    enum { FLAGS = 3, PLANNED = 13, SETTLED = 16 };
    struct blocks blocks = { .n_blocks = 2, .reshard_blocks = FSDP_RESHARD_TRUE };
    struct fsdp_module *root = blocks_build(&blocks), *layers = fsdp_module_child(root, "layers");
    struct fsdp_module *unit = fsdp_module_child_at(layers, 0), *other = fsdp_module_child_at(layers, 1);
    int n = 0;

    cr_assert(fsdp_module_set_reduce_scatter_max_input_buffers(unit, 1, false, NULL) == FSDP_OK);
    for (; call_setter(n, unit, other, false); n++) {
        const struct policies before = policies_read(root, FSDP_SYNC_LAST);
        struct policies changed, after;

        call_setter(n, unit, other, true);
        changed = policies_read(root, FSDP_SYNC_LAST);
        call_setter(n, unit, other, false);
        after = policies_read(root, FSDP_SYNC_LAST);

        cr_expect((changed.flags != before.flags) == (n < FLAGS), "setter %d: flags", n);
        cr_expect((changed.planned != before.planned) == (n >= FLAGS && n < PLANNED), "setter %d: planned",
                  n);
        cr_expect((changed.settled != before.settled) == (n >= PLANNED), "setter %d: settled", n);
        cr_expect(after.flags == before.flags && after.planned == before.planned &&
                      after.settled == before.settled,
                  "setter %d: not the same again", n);
    }
    cr_assert_eq(n, SETTLED);
    fsdp_module_destroy(root);
}

Test(policies, what_a_unit_was_not_told_is_the_models)
{
    struct blocks blocks = { .n_blocks = 1 };
    struct fsdp_module *root = blocks_build(&blocks);
    const uint64_t every = policies_read(root, FSDP_SYNC_EVERY).flags;

    cr_expect(policies_read(root, FSDP_SYNC_LAST).flags != every);
    fsdp_module_set_requires_gradient_sync(root, true, true);
    cr_expect(policies_read(root, FSDP_SYNC_LAST).flags == every);
    fsdp_module_destroy(root);
}

Test(policies, every_case_has_its_verdict)
{
    const struct policies then = { 1, 2, 3 };

    for (int bits = 0; bits < 64; bits++) {
        const bool settled = bits & 1, planned = bits & 2, flags = bits & 4, within = bits & 8;
        const bool is_last = bits & 16, single = bits & 32;
        const struct policies now = { 1 + settled, 2 + planned, 3 + flags };
        /* Micro-steps before the last that would do something else than planned. */
        const bool flags_matter = flags && !(is_last && (within || single));
        const enum policies_verdict want = settled ? POLICIES_SETTLED
                                           : planned || flags_matter
                                               ? within ? POLICIES_TOO_LATE : POLICIES_NEED_PLAN
                                               : POLICIES_AS_PLANNED;

        cr_expect_eq(policies_compare(&now, &then, within, is_last, single), want, "case %d", bits);
    }
}
