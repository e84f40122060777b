/*
 * Setters called while a model is there: the next step is that of a model which was told so when it was made, in its bits, its
 * collectives, its plan and its arena. PyTorch's loop, which calls some of them before each micro-step, needs one plan.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, MICRO = 3, STEPS = 3, MAX_RANKS = 4 };

/* What a rank saw of a run. */
struct seen {
    double losses[STEPS];
    uint64_t calls[STEPS]; /* collectives */
    float *gradients;      /* of the last step */
    size_t bytes;
};

typedef void (*setter)(struct fsdp_module *root, bool on);

static struct way {
    int W, replicate;
    bool halves; /* a forward and a backward are calls of their own */
    setter set;
    bool
        in_loop; /* `set` is called before each micro-step, on for the last; else once, before the model, or */
    int from_step; /* before this step */
    struct seen seen[MAX_RANKS];
} ways[2];

static void must(enum fsdp_status status, const struct fsdp_err *err)
{
    cr_assert(status == FSDP_OK, "%s", err->message);
}

static void fill(int rank, int step, int micro, struct fsdp_batch *batch, int32_t *tokens, int32_t *targets)
{
    const uint64_t first = (uint64_t)(step * 40 + micro * 9 + rank * BATCH);

    tiny_samples(&tiny_defaults, first, BATCH, tokens, targets);
    *batch = (struct fsdp_batch){ .input = tokens, .targets = targets, .first_sample = first };
}

static enum fsdp_status call(struct fsdp_model *model, const struct way *way, const struct fsdp_batch *batch,
                             double *sum, struct fsdp_err *err)
{
    struct fsdp_loss loss;
    enum fsdp_status status = way->halves ? fsdp_model_forward(model, batch, &loss, err)
                                          : fsdp_model_forward_backward(model, batch, 1, &loss, err);

    *sum += loss.sum;
    return status == FSDP_OK && way->halves ? fsdp_model_backward(model, err) : status;
}

static double step(struct fsdp_model *model, const struct way *way, int number)
{
    const int rank = fsdp_context_rank(fsdp_model_context(model));
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    struct fsdp_batch batch;
    struct fsdp_err err = { 0 };
    double sum = 0;

    for (int m = 0; m < MICRO; m++) {
        fill(rank, number, m, &batch, tokens, targets);
        if (way->in_loop)
            way->set(model->root, m + 1 == MICRO);
        fsdp_module_set_is_last_backward(model, m + 1 == MICRO);
        must(call(model, way, &batch, &sum, &err), &err);
    }
    return sum;
}

static struct fsdp_model *make(struct fsdp_context *context, struct fsdp_module *root, bool accumulates)
{
    const struct fsdp_model_options options = { .batch = BATCH,
                                                .seq = tiny_defaults.seq,
                                                .seed = 4,
                                                .accumulates = accumulates,
                                                .gradient_sync = FSDP_SYNC_EVERY,
                                                .overlap = FSDP_OVERLAP_OFF };
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };

    must(fsdp_model_create(&model, context, root, &options, &err), &err);
    return model;
}

static void train(struct fsdp_context *context, void *user)
{
    static const char *const names[] = { "replicate", "shard" };
    struct way *way = user;
    struct seen *seen = &way->seen[fsdp_context_rank(context)];
    const int R = way->replicate > 1 ? way->replicate : 1;
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct tiny tiny = tiny_defaults;
    struct fsdp_device_mesh *mesh;
    struct fsdp_optimizer *optimizer;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };
    char *arena = NULL;

    must(fsdp_init_device_mesh(&mesh, context, 2, (int[]){ R, way->W / R }, names, &err), &err);
    tiny.mesh = mesh;
    root = tiny_build(&tiny, &err);
    if (!way->in_loop && way->from_step == 0)
        way->set(root, false);
    model = make(context, root, true);
    must(fsdp_optimizer_create(&optimizer, model, &updates, &err), &err);
    for (int s = 0; s < STEPS; s++) {
        const uint64_t before = context->progress->collective_seq;

        if (!way->in_loop && s == way->from_step && s > 0)
            way->set(root, false);
        seen->losses[s] = step(model, way, s);
        seen->calls[s] = context->progress->collective_seq - before;
        must(fsdp_optimizer_step(optimizer, &err), &err);
        cr_expect(s == 0 || !way->in_loop || model->training.arena == arena, "planned anew in step %d", s);
        arena = model->training.arena;
    }
    seen->bytes = model->memory[PLACE_DEVICE].gradient_bytes;
    seen->gradients = malloc(seen->bytes);
    memcpy(seen->gradients, model->memory[PLACE_DEVICE].gradients, seen->bytes);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(mesh);
}

/* Steps from the first on in which both were told the same must be the same. */
static void expect_alike(const char *what, const struct way *one, const struct way *other)
{
    ways[0] = *one;
    ways[1] = *other;
    world_run(one->W, train, &ways[0]);
    world_run(other->W, train, &ways[1]);
    for (int r = 0; r < one->W; r++) {
        struct seen *a = &ways[0].seen[r], *b = &ways[1].seen[r];

        for (int s = other->from_step; s < STEPS; s++) {
            cr_expect(memcmp(&a->losses[s], &b->losses[s], sizeof a->losses[s]) == 0, "%s: losses of step %d",
                      what, s);
            cr_expect_eq(a->calls[s], b->calls[s], "%s: rank %d, step %d has %lu collectives, not %lu", what,
                         r, s, (unsigned long)b->calls[s], (unsigned long)a->calls[s]);
        }
        cr_expect(a->bytes == b->bytes && memcmp(a->gradients, b->gradients, a->bytes) == 0, "%s: gradients",
                  what);
        free(a->gradients);
        free(b->gradients);
    }
}

/* --- flags of micro-steps ---------------------------------------------------------------------------------- */

static void sync(struct fsdp_module *root, bool on)
{
    fsdp_module_set_requires_gradient_sync(root, on, true);
}

static void all_reduce(struct fsdp_module *root, bool on)
{
    fsdp_module_set_requires_all_reduce(root, on, true);
}

static void sync_and_reshard(struct fsdp_module *root, bool on)
{
    fsdp_module_set_requires_gradient_sync(root, on, true);
    fsdp_module_set_reshard_after_backward(root, on, true);
}

Test(setters, before_each_micro_step_are_the_plan_that_says_it_of_all_but_the_last, .timeout = 600)
{
    static const struct {
        const char *what;
        setter set;
        int W, replicate;
    } flags[] = {
        { "requires_gradient_sync", sync, 2, 1 },
        { "requires_gradient_sync over copies", sync, 4, 2 },
        { "requires_all_reduce", all_reduce, 4, 2 },
        { "requires_gradient_sync and reshard_after_backward", sync_and_reshard, 3, 1 },
    };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        for (int halves = 0; halves < 2; halves++) {
            const struct way planned = {
                .W = flags[i].W, .replicate = flags[i].replicate, .halves = halves, .set = flags[i].set
            };
            struct way in_loop = planned;

            in_loop.in_loop = true;
            expect_alike(flags[i].what, &planned, &in_loop);
        }
}

/* --- between steps ----------------------------------------------------------------------------------------- */

static void reshard_false(struct fsdp_module *root, bool on)
{
    (void)on;
    fsdp_module_set_reshard_after_forward(root, false, true);
}

static void reshard_true(struct fsdp_module *root, bool on)
{
    (void)on;
    fsdp_module_set_reshard_after_forward(root, true, true);
}

static void prefetch(struct fsdp_module *root, bool on)
{
    struct fsdp_module *layers = fsdp_module_child(root, "layers");
    struct fsdp_module *first = fsdp_module_child_at(layers, 0), *last = fsdp_module_child_at(layers, 1);

    (void)on;
    cr_assert(fsdp_module_set_modules_to_forward_prefetch(first, &last, 1, NULL) == FSDP_OK);
    cr_assert(fsdp_module_set_modules_to_backward_prefetch(last, &first, 1, NULL) == FSDP_OK);
}

static void recompute(struct fsdp_module *root, bool on)
{
    (void)on;
    fsdp_checkpoint_wrapper(fsdp_module_child_at(fsdp_module_child(root, "layers"), 0), FSDP_CHECKPOINT_FULL);
}

/* None of these changes a bit, so that a run in which they come late ends as one in which they were there from the start. */
Test(setters, between_steps_are_what_the_next_one_is_planned_from, .timeout = 600)
{
    static const struct {
        const char *what;
        setter set;
    } modes[] = {
        { "reshard_after_forward false", reshard_false },
        { "reshard_after_forward true", reshard_true },
        { "explicit prefetch", prefetch },
        { "activation checkpointing", recompute },
    };

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const struct way planned = { .W = 2, .set = modes[i].set };
        struct way late = planned;

        late.from_step = STEPS - 1;
        expect_alike(modes[i].what, &planned, &late);
    }
}

/* --- what is told, and when it is too late ----------------------------------------------------------------- */

static void expect_plan_of(struct fsdp_model *model, struct fsdp_context *context, setter set,
                           const char *what)
{
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_model *made;
    char *want, *got;

    if (set != NULL)
        set(root, false);
    made = make(context, root, true);
    want = fsdp_model_plan_text(made);
    got = fsdp_model_plan_text(model);
    cr_expect_str_eq(got, want, "%s", what);
    free(want);
    free(got);
    fsdp_model_destroy(made);
    fsdp_module_destroy(root);
}

static void one_step(struct fsdp_model *model, int number)
{
    static const struct way way = { .W = 2 };

    (void)step(model, &way, number);
}

static void change(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_model *model = make(context, root, true);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    struct fsdp_memory before, kept;
    struct fsdp_batch batch;
    struct fsdp_loss loss, again;
    float gradient[19 * 12], kept_gradient[19 * 12];
    const float *logits;

    (void)user;
    must(fsdp_model_prepare_evaluation(model, BATCH, 6, &err), &err);
    one_step(model, 0);
    expect_plan_of(model, context, NULL, "as it was made");
    fsdp_model_memory(model, &before);
    fill(fsdp_context_rank(context), 1, 0, &batch, tokens, targets);
    must(fsdp_model_evaluate(model, tokens, targets, &logits, &loss, &err), &err);

    must(fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, gradient, 19 * 12, &err), &err);
    reshard_false(root, false);
    must(fsdp_model_evaluate(model, tokens, targets, &logits, &again, &err), &err);
    must(fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, kept_gradient, 19 * 12, &err), &err);
    cr_expect(memcmp(gradient, kept_gradient, sizeof gradient) == 0,
              "gradients outlive the plan they are of");
    cr_expect(memcmp(&loss, &again, sizeof loss) == 0, "an evaluation follows, and its bits are the same");
    expect_plan_of(model, context, reshard_false, "evaluation plans the step too");
    one_step(model, 1);
    expect_plan_of(model, context, reshard_false, "reshard_after_forward false");
    fsdp_model_memory(model, &kept);
    cr_expect_gt(kept.gather, before.gather, "parameters that are kept need room");
    reshard_true(root, false);
    one_step(model, 2);
    expect_plan_of(model, context, reshard_true, "reshard_after_forward true");
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(setters, give_the_plan_of_a_model_that_was_made_so, .timeout = 600)
{
    world_run(2, change, NULL);
}

static void be_late(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_model *model = make(context, root, true);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const int rank = fsdp_context_rank(context);
    struct fsdp_batch batch;
    struct fsdp_loss loss;

    (void)user;
    fill(rank, 0, 0, &batch, tokens, targets);
    fsdp_module_set_is_last_backward(model, false);
    must(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);
    sync(root, false); /* the first micro-step reduced, the second is not to: no plan does that */
    cr_expect_eq(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "within a step"), "%s", err.message);
    sync(root, true);
    must(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);
    reshard_false(root, false);
    cr_expect_eq(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), FSDP_ERR_ARG);
    must(fsdp_module_reset_iteration(model, &err), &err);
    fsdp_module_set_is_last_backward(model, true);
    must(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);

    fsdp_module_requires_grad(fsdp_module_child(root, "norm"), false);
    cr_expect_eq(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "settled when the model is made"), "%s", err.message);
    fsdp_module_requires_grad(fsdp_module_child(root, "norm"), true);
    must(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(setters, that_come_too_late_are_refused_and_nothing_is_lost, .timeout = 600)
{
    world_run(2, be_late, NULL);
}

static enum fsdp_status look_on(void *row, size_t n_elems, enum fsdp_dtype dtype,
                                struct device_stream *stream, void *user, struct fsdp_err *err)
{
    (void)row, (void)n_elems, (void)dtype, (void)stream, (void)user, (void)err;
    return FSDP_OK;
}

/* Between a forward and its backward, on all ranks or on one. */
static void take_hook_away(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const int rank = fsdp_context_rank(context);
    struct fsdp_model *model;
    struct fsdp_batch batch;
    struct fsdp_loss before, after;

    (void)user;
    fsdp_module_set_all_reduce_hook(root, look_on, NULL);
    model = make(context, root, true);
    fill(rank, 0, 0, &batch, tokens, targets);
    for (int alone = 0; alone < 2; alone++) {
        must(fsdp_model_forward(model, &batch, &before, &err), &err);
        if (!alone || rank == 1)
            fsdp_module_set_all_reduce_hook(root, NULL, NULL);
        cr_expect_eq(fsdp_model_backward(model, &err), FSDP_ERR_ARG);
        cr_expect_not_null(strstr(err.message, "within a step"), "%s", err.message);
        cr_expect((strstr(err.message, "rank 1: ") != NULL) == (alone && rank == 0), "%s", err.message);
        fsdp_module_set_all_reduce_hook(root, look_on, NULL);
        must(fsdp_module_reset_iteration(model, &err), &err);
        must(fsdp_model_forward(model, &batch, &after, &err), &err);
        must(fsdp_model_backward(model, &err), &err);
        cr_expect(memcmp(&before, &after, sizeof after) == 0, "other bits");
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(setters, between_a_forward_and_its_backward_are_too_late, .timeout = 600)
{
    world_run(2, take_hook_away, NULL);
}

/* What is reduced in the last micro-step is not there before. */
static void gather_within(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    const bool reduces_each = *(const bool *)user;
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    struct fsdp_model *model;
    struct fsdp_batch batch;
    struct fsdp_loss loss;
    float gradient[19 * 12];
    enum fsdp_status status;

    sync(root, reduces_each);
    model = make(context, root, true);
    fill(fsdp_context_rank(context), 0, 0, &batch, tokens, targets);
    fsdp_module_set_is_last_backward(model, false);
    must(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);
    status = fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, gradient, 19 * 12, &err);
    cr_expect_eq(status, reduces_each ? FSDP_OK : FSDP_ERR_ARG);
    cr_expect(reduces_each || strstr(err.message, "yet to come") != NULL, "%s", err.message);
    fsdp_module_set_is_last_backward(model, true);
    must(fsdp_model_forward_backward(model, &batch, 1, &loss, &err), &err);
    must(fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, gradient, 19 * 12, &err), &err);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(setters, of_what_is_reduced_settle_when_gradients_can_be_gathered, .timeout = 600)
{
    bool reduces_each = false;

    world_run(2, gather_within, &reduces_each);
    reduces_each = true;
    world_run(2, gather_within, &reduces_each);
}

/* --- an evaluation is prepared ----------------------------------------------------------------------------- */

static void reshard_after_backward(struct fsdp_module *root, bool on)
{
    fsdp_module_set_reshard_after_backward(root, on, true);
}

static void prepare_behind_a_loop(struct fsdp_context *context, void *user)
{
    static const struct way way = { .W = 2, .in_loop = true, .set = reshard_after_backward };
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_model *model = make(context, root, true);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    struct fsdp_loss first, second;
    struct fsdp_batch batch;
    const float *logits;
    double sum;

    (void)user;
    fill(fsdp_context_rank(context), 0, 0, &batch, tokens, targets);
    sum = step(model, &way, 0);
    must(fsdp_model_prepare_evaluation(model, BATCH, 6, &err), &err);
    must(fsdp_model_evaluate(model, tokens, targets, &logits, &first, &err), &err);
    cr_expect(step(model, &way, 0) == sum, "other bits in the next step");
    must(fsdp_model_evaluate(model, tokens, targets, &logits, &second, &err), &err);
    cr_expect(memcmp(&first, &second, sizeof first) == 0, "other bits in the next evaluation");
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(setters, of_the_last_micro_step_are_followed_where_an_evaluation_is_prepared, .timeout = 600)
{
    world_run(2, prepare_behind_a_loop, NULL);
}

/* --- no room for the new arena ----------------------------------------------------------------------------- */

static enum fsdp_status refuse_memory(struct device *device, size_t size_bytes, void **out,
                                      struct fsdp_err *err)
{
    (void)device;
    *out = NULL;
    return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes are too many, as the test wants it", size_bytes);
}

static void run_short(struct fsdp_context *context, void *user)
{
    const struct device_ops *sound = context->device.ops;
    struct device_ops short_of_memory = *sound;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    struct fsdp_model *model = make(context, root, true);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const int rank = fsdp_context_rank(context);
    struct fsdp_batch batch;
    struct fsdp_loss before, after;
    const float *logits;

    (void)user;
    must(fsdp_model_prepare_evaluation(model, BATCH, 6, &err), &err);
    fill(rank, 0, 0, &batch, tokens, targets);
    must(fsdp_model_forward_backward(model, &batch, 1, &before, &err), &err);
    short_of_memory.alloc = refuse_memory;
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        (evaluates ? reshard_true : reshard_false)(root, false);
        context->device.ops = rank == 1 ? &short_of_memory : sound;
        cr_expect_eq(evaluates ? fsdp_model_evaluate(model, tokens, targets, &logits, &after, &err)
                               : fsdp_model_forward_backward(model, &batch, 1, &after, &err),
                     FSDP_ERR_NOMEM);
        cr_expect_not_null(strstr(err.message, "as the test wants it"), "%s", err.message);
        cr_expect((strstr(err.message, "rank 1: ") != NULL) == (rank == 0), "%s", err.message);
        context->device.ops = sound;
        must(evaluates ? fsdp_model_evaluate(model, tokens, targets, &logits, &after, &err)
                       : fsdp_model_forward_backward(model, &batch, 1, &after, &err),
             &err);
        cr_expect(memcmp(&before.mean, &after.mean, sizeof after.mean) == 0, "round %d: other bits",
                  evaluates);
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(setters, without_room_for_their_plan_are_tried_again, .timeout = 600)
{
    world_run(2, run_short, NULL);
}

/* An evaluation cannot be prepared, on rank 1 or on all (*user): it is remembered that there is no plan any more. */
static void prepare_short(struct fsdp_context *context, void *user)
{
    const struct device_ops *sound = context->device.ops;
    struct device_ops short_of_memory = *sound;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&tiny_defaults, &err);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const int rank = fsdp_context_rank(context);
    const bool is_short = *(const bool *)user || rank == 1;
    struct fsdp_loss before, after;
    struct fsdp_model *model;
    struct fsdp_batch batch;
    float gradient[19 * 12];
    const float *logits;

    reshard_true(root, false);
    model = make(context, root, true);
    must(fsdp_model_prepare_evaluation(model, BATCH, 6, &err), &err);
    fill(rank, 0, 0, &batch, tokens, targets);
    must(fsdp_model_forward_backward(model, &batch, 1, &before, &err), &err);
    reshard_false(root, false);
    short_of_memory.alloc = refuse_memory;
    context->device.ops = is_short ? &short_of_memory : sound;
    cr_expect_eq(fsdp_model_prepare_evaluation(model, BATCH, 6, &err), FSDP_ERR_NOMEM);
    cr_expect((strstr(err.message, "rank 1: ") != NULL) == !is_short, "%s", err.message);
    context->device.ops = sound;
    reshard_true(root, false);

    cr_expect_eq(fsdp_model_backward(model, &err), FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "0 of 1 forwards"), "%s", err.message);
    cr_expect_eq(fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, gradient, 19 * 12, &err),
                 FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "could not be planned"), "%s", err.message);
    cr_expect((strstr(err.message, "rank 1: ") != NULL) == !is_short, "%s", err.message);
    must(fsdp_model_forward_backward(model, &batch, 1, &after, &err), &err);
    cr_expect(memcmp(&before, &after, sizeof after) == 0, "other bits in the next step");
    must(fsdp_model_prepare_evaluation(model, BATCH, 6, &err), &err);
    must(fsdp_model_evaluate(model, tokens, targets, &logits, &after, &err), &err);
    cr_expect(memcmp(&before.mean, &after.mean, sizeof after.mean) == 0, "other bits in the evaluation");
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(setters, without_room_where_an_evaluation_is_prepared_are_tried_again, .timeout = 600)
{
    bool all = false;

    world_run(2, prepare_short, &all);
    all = true;
    world_run(2, prepare_short, &all);
}
