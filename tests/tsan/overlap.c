/* Links libfsdp.
 *
 * Steps of a small model at two ranks, each with its second thread for collectives, under the thread sanitizer.
 * world.c makes ranks of threads; it and the model are the unit tests' own, without their framework.
 */
#include <fsdp/fsdp.h>

#include "tests/unit/engine/tiny.c"
#include "tests/unit/engine/world.c"

static void check(enum fsdp_status status, const struct fsdp_err *err)
{
    require(status == FSDP_OK, err->message);
}

static void train(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = {
        .batch = 2, .seq = tiny_defaults.seq, .seed = 5, .accumulates = true, .overlap = FSDP_OVERLAP_ON
    };
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_model *model;

    check(fsdp_model_create(&model, context, root, &options, &err), &err);
    for (uint64_t step = 0; step < 3; step++) {
        const uint64_t sample = step * 4 + (uint64_t)fsdp_context_rank(context) * 2;
        int32_t tokens[2 * 8], targets[2 * 8];
        const struct fsdp_batch one = { .input = tokens, .targets = targets, .first_sample = sample };
        const struct fsdp_batch batch[2] = { one, one };
        struct fsdp_loss loss;
        double norm;

        tiny_samples(&tiny_defaults, sample, 2, tokens, targets);
        check(fsdp_model_forward_backward(model, batch, 2, &loss, &err), &err);
        check(fsdp_clip_grad_norm(model, 1.0, &norm, &err), &err);
        if (fsdp_context_rank(context) == 0)
            *(double *)user += loss.mean + norm;
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

int main(void)
{
    double sum = 0;

    world_run(2, train, &sum);
    return sum > 0 ? 0 : 1;
}
