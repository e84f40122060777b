/*
 * Links libfsdp.
 *
 * A unit that is unsharded by hand while the rank's second thread gathers it. Also communicators of a unit's
 * own: collectives that the program brings, and reductions on a group other than that of the gathers. A
 * second model of the context evaluates in between. Steps of two ranks, under the thread sanitizer.
 */
#include <fsdp/fsdp.h>

#include "tests/unit/engine/counted_comm.h"
#include "tests/unit/engine/tiny.c"
#include "tests/unit/engine/world.c"

enum { STEPS = 4, BATCH = 2 };

static void check(enum fsdp_status status, const struct fsdp_err *err)
{
    require(status == FSDP_OK, err->message);
}

static double step(struct fsdp_model *model, uint64_t sample)
{
    int32_t tokens[BATCH * 8], targets[BATCH * 8];
    const struct fsdp_batch batch = { .input = tokens, .targets = targets, .first_sample = sample };
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    tiny_samples(&tiny_defaults, sample, BATCH, tokens, targets);
    check(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);
    return loss.mean;
}

/*
 * Read in turn what was waited for, leave it to the next forward, give it back, leave it to the optimizer
 * step.
 */
static double unshard(struct fsdp_model *model, const struct fsdp_module *unit, int turn)
{
    struct fsdp_unshard_handle *handle;
    struct fsdp_err err = { 0 };
    enum fsdp_dtype dtype;
    const void *data;

    check(fsdp_module_unshard(model, unit, true, &handle, &err), &err);
    if (turn == 0) {
        check(fsdp_unshard_handle_wait(handle, &err), &err);
        check(fsdp_parameter_unsharded(model, "layers.1.feed_forward.w1.weight", &data, &dtype, &err), &err);
        return (double)((const float *)data)[0];
    }
    if (turn == 2)
        fsdp_module_reshard(model, unit);
    return 0;
}

/* Of the second model, while the first one's thread may still gather. */
static void evaluate(struct fsdp_model *model)
{
    int32_t tokens[BATCH * 8], targets[BATCH * 8];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
    check(fsdp_model_evaluate(model, tokens, targets, NULL, &loss, &err), &err);
    require(loss.mean > 0, "the second model has no loss");
}

static void train(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = {
        .batch = BATCH, .seq = tiny_defaults.seq, .seed = 5, .overlap = FSDP_OVERLAP_ON
    };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    const int rank = fsdp_context_rank(context);
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err), *other = tiny_build(&tiny_defaults, &err);
    struct fsdp_module *unit = fsdp_module_child_at(fsdp_module_child(root, "layers"), 1);
    /* written on the thread that runs the collectives, read between steps on the one that computes */
    struct counts counts = { 0 };
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model, *second;
    double sum = 0;

    fsdp_module_set_custom_all_gather(unit, count_gather, &counts);
    fsdp_module_set_custom_reduce_scatter(unit, count_reduce, &counts);
    fsdp_module_set_separate_reduce_scatter_group(root, true, true);
    check(fsdp_model_create(&model, context, root, &options, &err), &err);
    check(fsdp_optimizer_create(&optimizer, model, &updates, &err), &err);
    check(fsdp_model_create(&second, context, other, &options, &err), &err);
    check(fsdp_model_prepare_evaluation(second, BATCH, tiny_defaults.seq, &err), &err);
    for (int i = 0; i < STEPS; i++) {
        sum += unshard(model, unit, i);
        evaluate(second);
        sum += step(model, (uint64_t)(i * 8 + rank * BATCH));
        require(counts.gathers > i && counts.reduces == i + 1, "the unit's own collectives were left out");
        if (i == STEPS - 1)
            (void)unshard(model, unit, i); /* dropped while it is gathered */
        check(fsdp_optimizer_step(optimizer, &err), &err);
    }
    if (rank == 0)
        *(double *)user = sum;
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(second);
    fsdp_model_destroy(model);
    fsdp_module_destroy(other);
    fsdp_module_destroy(root);
}

int main(void)
{
    double sum = 0;

    world_run(2, train, &sum);
    return sum > 0 ? 0 : 1;
}
