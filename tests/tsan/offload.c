/*
 * Links libfsdp.
 *
 * Steps of a small model at two ranks, each with a thread for collectives, under the thread sanitizer. The
 * optimizer's state is in a file: another thread reads ahead and writes behind while the first one updates.
 * The state is saved and loaded between the steps. world.c makes ranks of threads; it and the model are the
 * unit tests' own, without their framework.
 */
#include <fsdp/fsdp.h>
#include <unistd.h>

#include "tests/unit/engine/tiny.c"
#include "tests/unit/engine/world.c"

enum { WINDOW_BYTES = 4096 }; /* far less than the state: many turns of the window */

static void check(enum fsdp_status status, const struct fsdp_err *err)
{
    require(status == FSDP_OK, err->message);
}

static void run_step(struct fsdp_model *model, struct fsdp_optimizer *optimizer, uint64_t sample, double *sum)
{
    int32_t tokens[2 * 8], targets[2 * 8];
    const struct fsdp_batch one = { .input = tokens, .targets = targets, .first_sample = sample };
    const struct fsdp_batch batch[2] = { one, one };
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    double norm;

    tiny_samples(&tiny_defaults, sample, 2, tokens, targets);
    check(fsdp_model_forward_backward(model, batch, 2, &loss, &err), &err);
    check(fsdp_clip_grad_norm(model, 1.0, &norm, &err), &err);
    check(fsdp_optimizer_step(optimizer, &err), &err);
    *sum += loss.mean;
}

/* Every state is read through the store and written back, as a checkpoint does. */
static void pass_through(struct fsdp_optimizer *optimizer)
{
    const size_t n = fsdp_optimizer_state_count(optimizer);
    struct fsdp_tensor_shard *states = calloc(n, sizeof *states);
    struct fsdp_err err = { 0 };
    float one;

    require(states != NULL, "no memory");
    fsdp_optimizer_state(optimizer, states);
    for (size_t i = 0; i < n; i++)
        if (states[i].n_rows > 0) {
            check(fsdp_optimizer_read_state(optimizer, i, 0, 1, &one, &err), &err);
            check(fsdp_optimizer_write_state(optimizer, i, 0, 1, &one, &err), &err);
        }
    free(states);
}

static void train(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = {
        .batch = 2, .seq = tiny_defaults.seq, .seed = 5, .accumulates = true, .overlap = FSDP_OVERLAP_ON
    };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model;
    double sum = 0;

    updates.offload_dir = user;
    updates.offload_window_bytes = WINDOW_BYTES;
    check(fsdp_model_create(&model, context, root, &options, &err), &err);
    check(fsdp_optimizer_create(&optimizer, model, &updates, &err), &err);
    for (uint64_t step = 0; step < 3; step++) {
        run_step(model, optimizer, step * 4 + (uint64_t)fsdp_context_rank(context) * 2, &sum);
        pass_through(optimizer);
    }
    require(sum > 0, "nothing was learned");
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

int main(void)
{
    char directory[] = "/var/tmp/fsdp-tsan-XXXXXX";

    require(mkdtemp(directory) != NULL, "no directory");
    world_run(2, train, directory);
    return rmdir(directory) == 0 ? 0 : 1; /* the files have no names */
}
