/*
 * Setters called while a model is there: the next step is that of a model that was made with the same
 * setting. Its bits, its collectives, its plan and its arena are the same. PyTorch's loop, which calls some
 * of them before each micro-step, needs one plan.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

enum { MICRO = 3, STEPS = 3, MAX_RANKS = 4, OUTPUT_ELEMS = 19 * 12 };

/* What a rank saw of a run. */
struct seen {
    double losses[STEPS];
    uint64_t calls[STEPS]; /* collectives */
    float *gradients;      /* of the last step */
    size_t bytes;
};

typedef void (*setter)(struct fsdp_module *root, bool on);

/*
 * With `in_loop` the setter is called before each micro-step, on for the last one. Otherwise it is called
 * once, before the model is made or before step `from_step`.
 */
static struct way {
    int W, replicate;
    bool halves; /* a forward and a backward are calls of their own */
    setter set;
    bool in_loop;
    int from_step;
    struct seen seen[MAX_RANKS];
} ways[2];

static void begin(struct rig *rig, struct fsdp_context *context)
{
    rig_init(rig, context);
    rig->options.accumulates = true;
    rig->options.gradient_sync = FSDP_SYNC_EVERY;
    rig->options.overlap = FSDP_OVERLAP_OFF;
}

/* The model as it is made by default, and the samples of a micro-step. */
static void start(struct rig *rig, struct fsdp_context *context)
{
    begin(rig, context);
    rig_model(rig);
    rig_fill(rig, 0);
}

static double step(struct rig *rig, const struct way *way, int number)
{
    double sum = 0;

    rig->n_micro = MICRO;
    rig_fill(rig, number);
    for (size_t m = 0; m < MICRO; m++) {
        if (way->in_loop)
            way->set(rig->root, m + 1 == MICRO);
        must(rig_call(rig, m, way->halves ? RIG_IN_HALVES : RIG_CALL_BY_CALL), &rig->err);
        sum += rig->loss.sum;
    }
    rig->n_micro = 1;
    return sum;
}

static void train(struct fsdp_context *context, void *user)
{
    struct way *way = user;
    struct seen *seen = &way->seen[fsdp_context_rank(context)];
    struct rig rig;
    char *arena = NULL;

    begin(&rig, context);
    rig_mesh(&rig, way->replicate, 1);
    if (!way->in_loop && way->from_step == 0)
        way->set(rig_root(&rig), false);
    rig_open(&rig);
    for (int s = 0; s < STEPS; s++) {
        const uint64_t before = context->progress->collective_seq;

        if (!way->in_loop && s == way->from_step && s > 0)
            way->set(rig.root, false);
        seen->losses[s] = step(&rig, way, s);
        seen->calls[s] = context->progress->collective_seq - before;
        must(fsdp_optimizer_step(rig.optimizer, &rig.err), &rig.err);
        cr_expect(s == 0 || !way->in_loop || rig.model->training.arena == arena, "planned again in step %d",
                  s);
        arena = rig.model->training.arena;
    }
    seen->bytes = rig.model->memory[PLACE_DEVICE].gradient_bytes;
    seen->gradients = rig_copy(&rig, FSDP_GRADIENT);
    rig_close(&rig);
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

/*
 * None of these changes a bit. So a run in which they come late ends as one in which they were there from the
 * start.
 */
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

static void do_nothing(struct fsdp_module *root, bool on)
{
    (void)root, (void)on;
}

static void separate(struct fsdp_module *root, bool on)
{
    fsdp_module_set_separate_reduce_scatter_group(root, !on, false);
}

Test(setters, of_a_communicator_for_reductions_change_no_bit, .timeout = 600)
{
    for (int W = 2; W <= 3; W++)
        expect_alike("a group of its own", &(struct way){ .W = W, .set = do_nothing },
                     &(struct way){ .W = W, .set = separate });
}

static void expect_plan_of(struct rig *rig, setter set, const char *what)
{
    struct rig made;
    char *want, *got;

    begin(&made, rig->context);
    if (set != NULL)
        set(rig_root(&made), false);
    rig_model(&made);
    want = fsdp_model_plan_text(made.model);
    got = fsdp_model_plan_text(rig->model);
    cr_expect_str_eq(got, want, "%s", what);
    free(want);
    free(got);
    rig_close(&made);
}

static enum fsdp_status gather_output(struct rig *rig, float *gradient)
{
    return fsdp_parameter_gather(rig->model, "output.weight", FSDP_GRADIENT, gradient, OUTPUT_ELEMS,
                                 &rig->err);
}

static enum fsdp_status evaluate(struct rig *rig, struct fsdp_loss *loss)
{
    return fsdp_model_evaluate(rig->model, rig->tokens, rig->targets, NULL, loss, &rig->err);
}

static void change(struct fsdp_context *context, void *user)
{
    static const struct way way = { .W = 2 };
    struct rig rig;
    struct fsdp_memory before, kept;
    struct fsdp_loss loss, again;
    float gradient[OUTPUT_ELEMS], kept_gradient[OUTPUT_ELEMS];

    (void)user;
    start(&rig, context);
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    step(&rig, &way, 0);
    expect_plan_of(&rig, NULL, "as it was made");
    fsdp_model_memory(rig.model, &before);
    must(evaluate(&rig, &loss), &rig.err);

    must(gather_output(&rig, gradient), &rig.err);
    reshard_false(rig.root, false);
    must(evaluate(&rig, &again), &rig.err);
    must(gather_output(&rig, kept_gradient), &rig.err);
    cr_expect(memcmp(gradient, kept_gradient, sizeof gradient) == 0,
              "gradients outlive the plan they are of");
    cr_expect(memcmp(&loss, &again, sizeof loss) == 0, "an evaluation follows, and its bits are the same");
    expect_plan_of(&rig, reshard_false, "evaluation plans the step too");
    step(&rig, &way, 1);
    expect_plan_of(&rig, reshard_false, "reshard_after_forward false");
    fsdp_model_memory(rig.model, &kept);
    cr_expect_gt(kept.gather, before.gather, "parameters that are kept need room");
    reshard_true(rig.root, false);
    step(&rig, &way, 2);
    expect_plan_of(&rig, reshard_true, "reshard_after_forward true");
    rig_close(&rig);
}

WorldTest(setters, give_the_plan_of_a_model_that_was_made_so, change, 2);

static void be_late(struct fsdp_context *context, void *user)
{
    struct rig rig;

    (void)user;
    start(&rig, context);
    fsdp_module_set_is_last_backward(rig.model, false);
    must(rig_run(&rig), &rig.err);
    sync(rig.root, false); /* the first micro-step reduced, the second is not to: no plan does that */
    expect_refused(rig_run(&rig), FSDP_ERR_ARG, "within a step", &rig.err);
    sync(rig.root, true);
    must(rig_run(&rig), &rig.err);
    reshard_false(rig.root, false);
    cr_expect_eq(rig_run(&rig), FSDP_ERR_ARG);
    must(fsdp_module_reset_iteration(rig.model, &rig.err), &rig.err);
    fsdp_module_set_is_last_backward(rig.model, true);
    must(rig_run(&rig), &rig.err);

    fsdp_module_requires_grad(fsdp_module_child(rig.root, "norm"), false);
    expect_refused(rig_run(&rig), FSDP_ERR_ARG, "settled when the model is made", &rig.err);
    fsdp_module_requires_grad(fsdp_module_child(rig.root, "norm"), true);
    must(rig_run(&rig), &rig.err);
    rig_close(&rig);
}

WorldTest(setters, that_come_too_late_are_refused_and_nothing_is_lost, be_late, 2);

static enum fsdp_status look_on(void *row, size_t n_elems, enum fsdp_dtype dtype,
                                struct device_stream *stream, void *user, struct fsdp_err *err)
{
    (void)row, (void)n_elems, (void)dtype, (void)stream, (void)user, (void)err;
    return FSDP_OK;
}

/* Between a forward and its backward, on all ranks or on one. */
static void take_hook_away(struct fsdp_context *context, void *user)
{
    const int rank = fsdp_context_rank(context);
    struct fsdp_loss before;
    struct rig rig;

    (void)user;
    begin(&rig, context);
    fsdp_module_set_all_reduce_hook(rig_root(&rig), look_on, NULL);
    rig_model(&rig);
    rig_fill(&rig, 0);
    for (int alone = 0; alone < 2; alone++) {
        must(fsdp_model_forward(rig.model, rig.micro, &before, &rig.err), &rig.err);
        if (!alone || rank == 1)
            fsdp_module_set_all_reduce_hook(rig.root, NULL, NULL);
        expect_refused(fsdp_model_backward(rig.model, &rig.err), FSDP_ERR_ARG, "within a step", &rig.err);
        cr_expect((strstr(rig.err.message, "rank 1: ") != NULL) == (alone && rank == 0), "%s",
                  rig.err.message);
        fsdp_module_set_all_reduce_hook(rig.root, look_on, NULL);
        must(fsdp_module_reset_iteration(rig.model, &rig.err), &rig.err);
        must(rig_call(&rig, 0, RIG_IN_HALVES), &rig.err);
        cr_expect(memcmp(&before, &rig.loss, sizeof before) == 0, "other bits");
    }
    rig_close(&rig);
}

WorldTest(setters, between_a_forward_and_its_backward_are_too_late, take_hook_away, 2);

/* What is reduced in the last micro-step is not there before. */
static void gather_within(struct fsdp_context *context, void *user)
{
    const bool reduces_each = *(const bool *)user;
    float gradient[OUTPUT_ELEMS];
    struct rig rig;

    begin(&rig, context);
    sync(rig_root(&rig), reduces_each);
    rig_model(&rig);
    rig_fill(&rig, 0);
    fsdp_module_set_is_last_backward(rig.model, false);
    must(rig_run(&rig), &rig.err);
    if (reduces_each)
        must(gather_output(&rig, gradient), &rig.err);
    else
        expect_refused(gather_output(&rig, gradient), FSDP_ERR_ARG, "yet to come", &rig.err);
    fsdp_module_set_is_last_backward(rig.model, true);
    must(rig_run(&rig), &rig.err);
    must(gather_output(&rig, gradient), &rig.err);
    rig_close(&rig);
}

Test(setters, of_what_is_reduced_settle_when_gradients_can_be_gathered, .timeout = 600)
{
    bool reduces_each = false;

    world_run(2, gather_within, &reduces_each);
    reduces_each = true;
    world_run(2, gather_within, &reduces_each);
}

static void reshard_after_backward(struct fsdp_module *root, bool on)
{
    fsdp_module_set_reshard_after_backward(root, on, true);
}

static void prepare_after_a_loop(struct fsdp_context *context, void *user)
{
    static const struct way way = { .W = 2, .in_loop = true, .set = reshard_after_backward };
    struct fsdp_loss first, second;
    struct rig rig;
    double sum;

    (void)user;
    start(&rig, context);
    sum = step(&rig, &way, 0);
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    must(evaluate(&rig, &first), &rig.err);
    cr_expect(step(&rig, &way, 0) == sum, "other bits in the next step");
    must(evaluate(&rig, &second), &rig.err);
    cr_expect(memcmp(&first, &second, sizeof first) == 0, "other bits in the next evaluation");
    rig_close(&rig);
}

WorldTest(setters, of_the_last_micro_step_are_followed_where_an_evaluation_is_prepared, prepare_after_a_loop,
          2);

static enum fsdp_status refuse_memory(struct device *device, size_t size_bytes, void **out,
                                      struct fsdp_err *err)
{
    (void)device;
    *out = NULL;
    return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes are too many, as the test wants it", size_bytes);
}

static enum fsdp_status work(struct rig *rig, bool evaluates)
{
    return evaluates ? evaluate(rig, &rig->loss) : rig_run(rig);
}

static void run_short(struct fsdp_context *context, void *user)
{
    const struct device_ops *sound = context->device.ops;
    struct device_ops short_of_memory = *sound;
    const int rank = fsdp_context_rank(context);
    struct fsdp_loss before;
    struct rig rig;

    (void)user;
    start(&rig, context);
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    must(rig_run(&rig), &rig.err);
    before = rig.loss;
    short_of_memory.alloc = refuse_memory;
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        (evaluates ? reshard_true : reshard_false)(rig.root, false);
        context->device.ops = rank == 1 ? &short_of_memory : sound;
        expect_refused(work(&rig, evaluates), FSDP_ERR_NOMEM, "as the test wants it", &rig.err);
        cr_expect((strstr(rig.err.message, "rank 1: ") != NULL) == (rank == 0), "%s", rig.err.message);
        context->device.ops = sound;
        must(work(&rig, evaluates), &rig.err);
        cr_expect(memcmp(&before.mean, &rig.loss.mean, sizeof before.mean) == 0, "round %d: other bits",
                  evaluates);
    }
    rig_close(&rig);
}

WorldTest(setters, without_room_for_their_plan_are_tried_again, run_short, 2);

/*
 * An evaluation cannot be prepared, on rank 1 or on all ranks (*user). The model then has no plan, and knows
 * it.
 */
static void prepare_short(struct fsdp_context *context, void *user)
{
    const struct device_ops *sound = context->device.ops;
    struct device_ops short_of_memory = *sound;
    const bool is_short = *(const bool *)user || fsdp_context_rank(context) == 1;
    struct fsdp_loss before, after;
    float gradient[OUTPUT_ELEMS];
    struct rig rig;

    begin(&rig, context);
    reshard_true(rig_root(&rig), false);
    rig_model(&rig);
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    rig_fill(&rig, 0);
    must(rig_run(&rig), &rig.err);
    before = rig.loss;
    reshard_false(rig.root, false);
    short_of_memory.alloc = refuse_memory;
    context->device.ops = is_short ? &short_of_memory : sound;
    cr_expect_eq(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), FSDP_ERR_NOMEM);
    cr_expect((strstr(rig.err.message, "rank 1: ") != NULL) == !is_short, "%s", rig.err.message);
    context->device.ops = sound;
    reshard_true(rig.root, false);

    expect_refused(fsdp_model_backward(rig.model, &rig.err), FSDP_ERR_ARG, "0 of 1 forwards", &rig.err);
    expect_refused(gather_output(&rig, gradient), FSDP_ERR_ARG, "could not be planned", &rig.err);
    cr_expect((strstr(rig.err.message, "rank 1: ") != NULL) == !is_short, "%s", rig.err.message);
    must(rig_run(&rig), &rig.err);
    cr_expect(memcmp(&before, &rig.loss, sizeof before) == 0, "other bits in the next step");
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    must(evaluate(&rig, &after), &rig.err);
    cr_expect(memcmp(&before.mean, &after.mean, sizeof after.mean) == 0, "other bits in the evaluation");
    rig_close(&rig);
}

Test(setters, without_room_where_an_evaluation_is_prepared_are_tried_again, .timeout = 600)
{
    bool all = false;

    world_run(2, prepare_short, &all);
    all = true;
    world_run(2, prepare_short, &all);
}
