/*
 * One rank fails in the middle of a step, the others do not: at every operation, forward and backward, in turn. Nobody
 * waits for ever (a world of threads meets at barriers), every rank is told who failed and why, and after
 * fsdp_module_reset_iteration() the run goes on with the bits it would have had. Between real processes and over real
 * transports: tests/system/test_lone_failure.sh.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, MICRO = 2, MAX_OPS = 128 };

struct way {
    int W, replicate, victim;
    enum fsdp_reshard reshard;
    int reshard_size;
    bool halves, each, overlaps, updates, float8;
    size_t n_micro;
    enum fsdp_gradient_sync sync;
};

/* What is to fail on this thread's rank: the operation, and in which pass; NULL: nothing. */
static _Thread_local const struct graph_op *doomed;
static _Thread_local bool in_backward;
static _Thread_local const struct graph_kind *real[MAX_OPS];
static _Thread_local struct graph_kind false_kinds[MAX_OPS];
static _Thread_local const struct graph *whose;

static int number_of(const struct graph_op *op)
{
    int i = 0;

    while (whose->ops[i] != op)
        i++;
    return i;
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    if (op == doomed && !in_backward)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory, as the test wants it");
    return real[number_of(op)]->forward(run, op, err);
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    if (op == doomed && in_backward)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory, as the test wants it");
    return real[number_of(op)]->backward(run, op, err);
}

/* Every operation of the model runs through the two above; those that fuse are run apart, with the same bits. */
static void lay_fuses(struct fsdp_model *model)
{
    whose = &model->training.graph;
    cr_assert(whose->n_ops <= MAX_OPS);
    for (size_t i = 0; i < whose->n_ops; i++) {
        real[i] = whose->ops[i]->kind;
        false_kinds[i] = *real[i];
        false_kinds[i].forward = forward;
        false_kinds[i].backward = real[i]->backward != NULL ? backward : NULL;
        whose->ops[i]->kind = &false_kinds[i];
    }
    for (int e = 0; e < model->training.plan.n_entries; e++)
        model->training.plan.entries[e].with_next = model->training.plan.entries[e].with_before = false;
}

static void take_away_fuses(struct fsdp_model *model)
{
    for (size_t i = 0; i < whose->n_ops; i++)
        model->training.graph.ops[i]->kind = real[i];
}

static enum fsdp_status update(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model;
    (void)group;
    (void)user;
    (void)err;
    return FSDP_OK;
}

static enum fsdp_status step(struct fsdp_model *model, const struct way *way, int number,
                             struct fsdp_err *err)
{
    int32_t tokens[2 * MICRO][BATCH * 6], targets[2 * MICRO][BATCH * 6];
    struct fsdp_batch micro[2 * MICRO];
    enum fsdp_status status = FSDP_OK;
    struct fsdp_loss loss;

    for (size_t m = 0; m < way->n_micro; m++) {
        const uint64_t first =
            (uint64_t)(number * 40 + (int)m * 9 + fsdp_context_rank(fsdp_model_context(model)) * BATCH);

        tiny_samples(&tiny_defaults, first, BATCH, tokens[m], targets[m]);
        micro[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m], .first_sample = first };
    }
    if (!way->halves)
        return fsdp_model_forward_backward(model, micro, way->n_micro, &loss, err);
    for (size_t m = 0; m < way->n_micro && status == FSDP_OK; m++)
        status = fsdp_model_forward(model, &micro[m], &loss, err);
    for (size_t m = 0; m < (way->each ? way->n_micro : 1) && status == FSDP_OK; m++)
        status = fsdp_model_backward(model, err);
    return status;
}

/* Gradients of one sound step, in `out` (n), and how many there are. */
static size_t gradients(struct fsdp_model *model, const struct way *way, float *out)
{
    struct fsdp_err err = { 0 };

    cr_assert(step(model, way, 1, &err) == FSDP_OK, "%s", err.message);
    if (out != NULL)
        memcpy(out, model->memory[PLACE_DEVICE].gradients, model->memory[PLACE_DEVICE].gradient_bytes);
    return model->memory[PLACE_DEVICE].gradient_bytes;
}

static void expect_words(enum fsdp_status status, const struct fsdp_err *err, const struct way *way, int rank,
                         const char *what)
{
    char prefix[24];

    snprintf(prefix, sizeof prefix, "rank %d: ", way->victim);
    cr_expect(status == FSDP_ERR_NOMEM, "%s: %s", what, err->message);
    cr_expect_not_null(strstr(err->message, "no memory, as the test wants it"), "%s: %s", what, err->message);
    cr_expect((strncmp(err->message, prefix, strlen(prefix)) == 0) == (rank != way->victim), "%s: %s", what,
              err->message);
}

static void fail_everywhere(struct fsdp_context *context, void *user)
{
    static const char *const names[] = { "replicate", "shard" };
    const struct way *way = user;
    const int R = way->replicate > 1 ? way->replicate : 1, sizes[] = { R, way->W / R };
    const int rank = fsdp_context_rank(context);
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny_defaults.seq,
                                                .seed = 4,
                                                .accumulates = way->n_micro > 1 && !way->halves,
                                                .forwards = way->halves ? way->n_micro : 1,
                                                .backwards =
                                                    way->each ? FSDP_BACKWARD_OF_EACH : FSDP_BACKWARD_OF_SUM,
                                                .gradient_sync = way->sync,
                                                .overlap =
                                                    way->overlaps ? FSDP_OVERLAP_ON : FSDP_OVERLAP_OFF };
    struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
    struct tiny tiny = tiny_defaults;
    struct fsdp_device_mesh *mesh;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };
    float *want, *got;
    size_t bytes;

    cr_assert(fsdp_init_device_mesh(&mesh, context, 2, sizes, names, &err) == FSDP_OK, "%s", err.message);
    tiny.mesh = mesh;
    tiny.reshard = way->reshard;
    tiny.reshard_size = way->reshard_size;
    mp.float8_gather = true;
    mp.reduce_dtype = FSDP_F32;
    tiny.heads = way->float8 ? 4 : tiny.heads;
    tiny.mp_policy = way->float8 ? &mp : NULL;
    root = tiny_build(&tiny, &err);
    if (way->updates)
        fsdp_module_register_post_accumulate_grad_hook(root, update, NULL, true);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    bytes = gradients(model, way, NULL);
    want = malloc(bytes);
    got = malloc(bytes);
    gradients(model, way, want);
    lay_fuses(model);
    for (size_t i = 0; i < 2 * whose->n_ops; i++) {
        const struct graph_op *op = whose->ops[i / 2];
        enum fsdp_status status;
        char what[96];

        if (i % 2 == 1 && (real[i / 2]->backward == NULL || !op->output->needs_grad))
            continue;
        snprintf(what, sizeof what, "%s of %s", i % 2 == 1 ? "backward" : "forward", op->name);
        doomed = rank == way->victim ? op : NULL;
        in_backward = i % 2 == 1;
        expect_words(step(model, way, 7, &err), &err, way, rank, what);
        doomed = NULL;
        status = fsdp_module_reset_iteration(model, &err);
        /* A rank that fails in forward ends the step before any hook is called. */
        cr_expect(status == (way->updates && in_backward ? FSDP_ERR_UNSUPPORTED : FSDP_OK), "%s: %s", what,
                  err.message);
        gradients(model, way, got);
        cr_expect(memcmp(got, want, bytes) == 0, "%s: other bits afterwards", what);
    }
    take_away_fuses(model);
    free(want);
    free(got);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(mesh);
}

Test(lone_failure, of_any_operation_is_told_to_all_and_changes_no_bit_afterwards, .timeout = 3000)
{
    static const struct way ways[] = {
        { .W = 1, .victim = 0, .n_micro = 1 },
        { .W = 2, .victim = 1, .n_micro = 1 },
        { .W = 3, .victim = 0, .n_micro = 2 },
        { .W = 2, .victim = 0, .n_micro = 2, .sync = FSDP_SYNC_EVERY, .reshard = FSDP_RESHARD_TRUE },
        { .W = 2, .victim = 1, .n_micro = 1, .overlaps = true },
        { .W = 4, .victim = 2, .n_micro = 1, .replicate = 2 },
        { .W = 4, .victim = 3, .n_micro = 1, .reshard_size = 2, .reshard = FSDP_RESHARD_TO },
        { .W = 2, .victim = 1, .n_micro = 2, .halves = true },
        { .W = 3, .victim = 1, .n_micro = 2, .halves = true, .each = true, .sync = FSDP_SYNC_EVERY },
        { .W = 2, .victim = 0, .n_micro = 2, .halves = true, .each = true, .overlaps = true },
        { .W = 2, .victim = 1, .n_micro = 1, .float8 = true },
        { .W = 2, .victim = 0, .n_micro = 1, .float8 = true, .overlaps = true },
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        world_run(ways[i].W, fail_everywhere, (void *)(uintptr_t)&ways[i]);
}

/* Of parameters that hooks updated inside the failed backward nobody says that they are what they were. */
Test(lone_failure, behind_hooks_on_final_gradients_is_not_undone, .timeout = 3000)
{
    struct way way = { .W = 2, .victim = 1, .n_micro = 1, .updates = true };

    world_run(way.W, fail_everywhere, &way);
}

/* --- hooks that call collectives ---------------------------------------------------------------------------- */

static enum fsdp_status talk(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                             void *user, struct fsdp_err *err)
{
    return user != NULL ? fsdp_all_reduce(user, row, n_elems, dtype, FSDP_MAX, stream, err) : FSDP_OK;
}

struct talking {
    bool talks, overlaps;
    size_t n_micro;
};

/* Where others' hooks would wait for this rank's it leaves the groups, with the words of what failed. (Those that wait are real
 * processes: tests/support/lone_failure.c.) */
static void fail_before_hook(struct fsdp_context *context, void *user)
{
    const struct talking *how = user;
    const struct way way = { .W = 1, .n_micro = how->n_micro };
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny_defaults.seq,
                                                .seed = 4,
                                                .accumulates = way.n_micro > 1,
                                                .overlap =
                                                    how->overlaps ? FSDP_OVERLAP_ON : FSDP_OVERLAP_OFF };
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };

    fsdp_module_set_all_reduce_hook(fsdp_module_child_at(fsdp_module_child(root, "layers"), 0), talk,
                                    how->talks ? context->comm : NULL);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(step(model, &way, 1, &err) == FSDP_OK, "%s", err.message);
    cr_expect_eq(model->hooks_talk, how->talks);
    lay_fuses(model);
    doomed = whose->ops[whose->n_ops - 1];
    in_backward = false;
    expect_words(step(model, &way, 7, &err), &err, &way, 0, "before a hook");
    doomed = NULL;
    take_away_fuses(model);
    cr_expect_eq(model_is_broken(model), how->talks);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(lone_failure, before_a_hook_that_talks_leaves_nobody_waiting_in_it)
{
    for (int i = 0; i < 8; i++) {
        struct talking how = { .talks = i & 1, .overlaps = i & 2, .n_micro = i & 4 ? 2 : 1 };

        world_run(1, fail_before_hook, &how);
    }
}

/* --- an optimizer in backward ------------------------------------------------------------------------------ */

enum { UPDATES = 4, FAILS_IN = 2 };

static enum fsdp_status step_group(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model;
    return fsdp_optimizer_step_group(*(struct fsdp_optimizer **)user, group, err);
}

struct updated {
    bool fails;
    double norms[2][UPDATES]; /* of each rank, of the weights in the end of each step: any bit shows */
};

static double sum_of(const float *x, size_t bytes)
{
    double sum = 0;

    for (size_t i = 0; i < bytes / sizeof *x; i++)
        sum += x[i] * (double)(i + 1);
    return sum;
}

/* The failed step: told to all, with what it left of the weights; then they are what they were before it. */
static void fail_and_load(struct fsdp_model *model, const struct way *way, int rank)
{
    float *const weights = model->memory[PLACE_DEVICE].parameters;
    const size_t bytes = model->memory[PLACE_DEVICE].parameter_bytes;
    float *checkpoint = malloc(bytes);
    struct fsdp_err err = { 0 };

    memcpy(checkpoint, weights, bytes);
    lay_fuses(model);
    doomed = rank == way->victim ? whose->ops[whose->n_ops / 4]
                                 : NULL; /* of the first block: backward did the last */
    in_backward = true;
    expect_words(step(model, way, 7, &err), &err, way, rank, "an optimizer in backward");
    doomed = NULL;
    take_away_fuses(model);
    cr_expect(memcmp(weights, checkpoint, bytes) != 0, "rank %d updated nothing before the failure", rank);
    cr_expect_eq(fsdp_module_reset_iteration(model, &err), FSDP_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(err.message, "a checkpoint has them"), "%s", err.message);
    cr_expect_eq(fsdp_module_reset_iteration(model, &err), FSDP_OK, "it is said once");
    memcpy(weights, checkpoint, bytes);
    free(checkpoint);
}

static void update_in_backward(struct fsdp_context *context, void *user)
{
    static const struct way way = { .W = 2, .victim = 1, .n_micro = 1 };
    const struct fsdp_model_options options = { .batch = BATCH, .seq = tiny_defaults.seq, .seed = 4 };
    struct fsdp_optimizer_options sgd = fsdp_optimizer_defaults();
    struct updated *updated = user;
    const int rank = fsdp_context_rank(context);
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };

    sgd.kind = FSDP_SGD;
    fsdp_module_register_post_accumulate_grad_hook(root, step_group, &optimizer, true);
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &sgd, &err) == FSDP_OK, "%s", err.message);
    for (int i = 0; i < UPDATES; i++) {
        if (updated->fails && i == FAILS_IN)
            fail_and_load(model, &way, rank);
        cr_assert(step(model, &way, i, &err) == FSDP_OK, "%s", err.message);
        cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK, "%s", err.message);
        updated->norms[rank][i] =
            sum_of(model->memory[PLACE_DEVICE].parameters, model->memory[PLACE_DEVICE].parameter_bytes);
    }
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

/* Weights are not undone: those of each rank are loaded again. Groups, plan and the optimizer's own memory are sound. */
Test(lone_failure, of_an_optimizer_in_backward_goes_on_from_a_checkpoint)
{
    struct updated sound = { .fails = false }, failed = { .fails = true };

    world_run(2, update_in_backward, &sound);
    world_run(2, update_in_backward, &failed);
    cr_expect(sound.norms[0][UPDATES - 1] != sound.norms[0][UPDATES - 2]);
    cr_expect(memcmp(sound.norms, failed.norms, sizeof sound.norms) == 0, "other bits afterwards");
}

/* --- what a rank is given, and evaluation ------------------------------------------------------------------ */

static void refuse(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = tiny_defaults.seq, .seed = 4 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    const int rank = fsdp_context_rank(context), victim = *(const int *)user;
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch batch = { .input = tokens, .targets = targets };
    struct fsdp_model *model;
    struct fsdp_loss loss;
    struct fsdp_err err = { 0 };
    const float *logits;

    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_prepare_evaluation(model, BATCH, 6, &err) == FSDP_OK, "%s", err.message);
    for (int round = 0; round < 3; round++) {
        tiny_samples(&tiny_defaults, (uint64_t)(rank * BATCH), BATCH, tokens, targets);
        cr_assert(fsdp_model_forward_backward(model, &batch, 1, &loss, &err) == FSDP_OK, "%s", err.message);
        tokens[3] = rank == victim ? 19 : tokens[3];
        cr_expect(fsdp_model_forward_backward(model, &batch, 1, &loss, &err) == FSDP_ERR_ARG);
        cr_expect_not_null(strstr(err.message, "token 19 of sample 0"), "%s", err.message);
        cr_expect((strstr(err.message, "rank 1: ") != NULL) == (rank != victim), "%s", err.message);
        /* Evaluations know of each other's tokens as little, and end together too. */
        cr_expect(fsdp_model_evaluate(model, tokens, NULL, &logits, NULL, &err) == FSDP_ERR_ARG);
        cr_expect_not_null(strstr(err.message, "token 19 is not in the embedding"), "%s", err.message);
        cr_expect((strstr(err.message, "rank 1: ") != NULL) == (rank != victim), "%s", err.message);
        tokens[3] = 1;
        cr_expect(fsdp_model_evaluate(model, tokens, targets, &logits, &loss, &err) == FSDP_OK, "%s",
                  err.message);
        /* Nor is there anything to give where data cannot be had. */
        cr_expect(fsdp_model_forward_backward(
                      model,
                      &(struct fsdp_batch){ .input = rank == victim ? NULL : tokens, .targets = targets }, 1,
                      &loss, &err) == FSDP_ERR_ARG);
        cr_expect_not_null(strstr(err.message, "a batch has no input"), "%s", err.message);
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(lone_failure, a_refused_batch_is_told_with_the_rank_it_was_given_to)
{
    int victim = 1;

    world_run(3, refuse, &victim);
}
