/*
 * With activation checkpointing of any kind: the same losses and the same gradients, to the bit, in less
 * memory.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/activation_checkpoint.h>

#include "tests/unit/engine/rig.h"

enum { STEPS = 2 };

enum where { NOWHERE, EVERY_BLOCK, EVERY_SECOND, ATTENTION, ROOT, N_WHERE };

struct try_it {
    enum where where;
    enum fsdp_activation_checkpoint mode;
    bool bf16, cheap; /* cheap: what is cheap is made again, whatever is wrapped */
    double losses[STEPS];
    float gradients[RIG_ELEMS];
    size_t activations;
};

static void wrap(struct fsdp_module *root, const struct try_it *t)
{
    struct fsdp_module *layers = fsdp_module_child(root, "layers");

    if (t->where == ROOT)
        fsdp_checkpoint_wrapper(root, t->mode);
    for (size_t i = 0; i < fsdp_module_child_count(layers); i++) {
        struct fsdp_module *block = fsdp_module_child_at(layers, i);

        if (t->where == EVERY_BLOCK || (t->where == EVERY_SECOND && i % 2 == 0))
            fsdp_checkpoint_wrapper(block, t->mode);
        else if (t->where == ATTENTION)
            fsdp_checkpoint_wrapper(fsdp_module_child(block, "attention"), t->mode);
    }
}

static void train(struct fsdp_context *context, void *user)
{
    static const struct fsdp_mixed_precision_policy half = { .param_dtype = FSDP_BF16,
                                                             .reduce_dtype = FSDP_F32,
                                                             .output_dtype = FSDP_DTYPE_NONE,
                                                             .cast_forward_inputs = true };
    struct try_it scratch = *(struct try_it *)user, *t = fsdp_context_rank(context) == 0 ? user : &scratch;
    struct fsdp_memory memory;
    struct rig rig;

    rig_init(&rig, context);
    rig.options.batch = 3;
    rig.options.recompute = t->cheap ? FSDP_RECOMPUTE_CHEAP : FSDP_RECOMPUTE_NOTHING;
    rig.tiny.layers = 3;
    rig.tiny.dropout = 0.3f;
    rig.tiny.mp_policy = t->bf16 ? &half : NULL;
    wrap(rig_root(&rig), t);
    rig_model(&rig);
    for (int step = 0; step < STEPS; step++) {
        must(rig_backward(&rig, step, RIG_IN_ONE_CALL), &rig.err);
        t->losses[step] = rig.loss.mean;
    }
    (void)rig_gather(&rig, FSDP_GRADIENT, t->gradients);
    fsdp_model_memory(rig.model, &memory);
    t->activations = memory.activations;
    rig_close(&rig);
}

static void compare(const struct try_it *plain, struct try_it *t, int W)
{
    t->bf16 = plain->bf16;
    world_run(W, train, t);
    cr_expect(memcmp(plain->losses, t->losses, sizeof plain->losses) == 0, "W %d, place %d, mode %d", W,
              t->where, t->mode);
    cr_expect(memcmp(plain->gradients, t->gradients, sizeof plain->gradients) == 0, "W %d, place %d, mode %d",
              W, t->where, t->mode);
    if (t->where == EVERY_BLOCK || (t->where == NOWHERE && t->cheap))
        cr_expect(t->activations < plain->activations, "%zu, plain %zu", t->activations, plain->activations);
}

Test(recompute_step, no_bit_changes_wherever_it_is_done, .timeout = 2400)
{
    for (int W = 1; W <= 3; W++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct try_it plain = { .where = NOWHERE, .bf16 = bf16 };
            struct try_it cheap = { .where = NOWHERE, .cheap = true };
            struct try_it both = { .where = EVERY_SECOND, .mode = FSDP_CHECKPOINT_SELECTIVE, .cheap = true };

            world_run(W, train, &plain);
            for (int where = EVERY_BLOCK; where < N_WHERE; where++)
                for (int mode = FSDP_CHECKPOINT_FULL; mode <= FSDP_CHECKPOINT_SELECTIVE; mode++) {
                    struct try_it t = { .where = (enum where)where,
                                        .mode = (enum fsdp_activation_checkpoint)mode };

                    compare(&plain, &t, W);
                }
            compare(&plain, &cheap, W);
            compare(&plain, &both, W);
        }
}
