/*
 * With activation checkpointing of any kind: the same losses and the same gradients, to the bit, in less memory.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/activation_checkpoint.h>

#include "tests/unit/engine/world.h"

enum { STEPS = 2, BATCH = 3, MAX_ELEMS = 1 << 16 };

enum where { NOWHERE, EVERY_BLOCK, EVERY_SECOND, ATTENTION, ROOT, N_WHERE };

struct try_it {
    enum where where;
    enum fsdp_activation_checkpoint mode;
    bool bf16, cheap; /* cheap: what is cheap is made again, whatever is wrapped */
    double losses[STEPS];
    float *gradients; /* of rank 0's rows */
    size_t n_elems, activations;
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

static void keep_gradients(struct fsdp_model *model, struct try_it *t)
{
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;

        fsdp_model_parameter(model, i, &info, NULL);
        cr_assert(t->n_elems + info.n_elems < MAX_ELEMS);
        cr_assert(fsdp_parameter_gather(model, info.name, FSDP_GRADIENT, t->gradients + t->n_elems,
                                        info.n_elems, NULL) == FSDP_OK);
        t->n_elems += info.n_elems;
    }
}

static void train(struct fsdp_context *context, void *user)
{
    static const struct fsdp_mixed_precision_policy half = { .param_dtype = FSDP_BF16,
                                                             .reduce_dtype = FSDP_F32,
                                                             .output_dtype = FSDP_DTYPE_NONE,
                                                             .cast_forward_inputs = true };
    const bool first = fsdp_context_rank(context) == 0;
    struct try_it scratch = *(struct try_it *)user, *t = first ? user : &scratch;
    struct tiny tiny = tiny_defaults;
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny.seq,
                                                .seed = 5,
                                                .recompute = t->cheap ? FSDP_RECOMPUTE_CHEAP
                                                                      : FSDP_RECOMPUTE_NOTHING };
    struct fsdp_err err = { 0 };
    struct fsdp_memory memory;
    struct fsdp_module *root;
    struct fsdp_model *model;

    tiny.layers = 3;
    tiny.dropout = 0.3f;
    tiny.mp_policy = t->bf16 ? &half : NULL;
    root = tiny_build(&tiny, &err);
    wrap(root, t);
    t->gradients = calloc(MAX_ELEMS, sizeof *t->gradients);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[BATCH * 8], targets[BATCH * 8];
        const uint64_t sample = (uint64_t)(step * 8 + fsdp_context_rank(context)) * BATCH;
        struct fsdp_batch batch = { .input = tokens, .targets = targets, .first_sample = sample };
        struct fsdp_loss loss;

        tiny_samples(&tiny, sample, BATCH, tokens, targets);
        cr_assert(fsdp_model_forward_backward(model, &batch, 1, &loss, &err) == FSDP_OK, "%s", err.message);
        t->losses[step] = loss.mean;
    }
    keep_gradients(model, t);
    fsdp_model_memory(model, &memory);
    t->activations = memory.activations;
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    if (!first)
        free(t->gradients);
}

static void compare(const struct try_it *plain, struct try_it *t, int W)
{
    world_run(W, train, t);
    cr_expect(memcmp(plain->losses, t->losses, sizeof plain->losses) == 0, "W %d, place %d, mode %d", W,
              t->where, t->mode);
    cr_expect(plain->n_elems == t->n_elems &&
                  memcmp(plain->gradients, t->gradients, t->n_elems * sizeof(float)) == 0,
              "W %d, place %d, mode %d", W, t->where, t->mode);
    if (t->where == EVERY_BLOCK || (t->where == NOWHERE && t->cheap))
        cr_expect(t->activations < plain->activations, "%zu, plain %zu", t->activations, plain->activations);
    free(t->gradients);
}

Test(recompute_step, no_bit_changes_wherever_it_is_done, .timeout = 2400)
{
    for (int W = 1; W <= 3; W++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct try_it plain = { .where = NOWHERE, .bf16 = bf16 };

            world_run(W, train, &plain);
            for (int where = EVERY_BLOCK; where < N_WHERE; where++)
                for (int mode = FSDP_CHECKPOINT_FULL; mode <= FSDP_CHECKPOINT_SELECTIVE; mode++) {
                    struct try_it t = { .where = (enum where)where,
                                        .mode = (enum fsdp_activation_checkpoint)mode,
                                        .bf16 = bf16 };

                    compare(&plain, &t, W);
                }
            compare(&plain, &(struct try_it){ .where = NOWHERE, .bf16 = bf16, .cheap = true }, W);
            compare(
                &plain,
                &(struct try_it){
                    .where = EVERY_SECOND, .mode = FSDP_CHECKPOINT_SELECTIVE, .bf16 = bf16, .cheap = true },
                W);
            free(plain.gradients);
        }
}
