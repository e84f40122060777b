/*
 * An update takes gradients that a whole step has just made, and that are finite. Any other is refused on
 * every rank, and changes no weight. Also: how the targets count in a step of several calls.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

enum { MICRO_TOKENS = 2 * 6 };

static void start(struct rig *rig, struct fsdp_context *context)
{
    rig_init(rig, context);
    rig->options.accumulates = true;
    rig_open(rig);
}

/* No sample of micro-step `m` has a target. */
static void ignore_targets(struct rig *rig, size_t m)
{
    for (size_t i = m * MICRO_TOKENS; i < (m + 1) * MICRO_TOKENS; i++)
        rig->targets[i] = FSDP_IGNORED_TARGET;
}

/* Clipping and each kind of update refuse what there is, with these words, and change nothing. */
static void expect_no_update(struct rig *rig, enum fsdp_status status, const char *words, const char *when)
{
    const uint64_t step = fsdp_optimizer_step_count(rig->optimizer);
    float *before = rig_copy(rig, FSDP_VALUE);

    fsdp_err_clear(&rig->err);
    expect_refused(fsdp_optimizer_step_group(rig->optimizer, 0, &rig->err), status, words, &rig->err);
    fsdp_err_clear(&rig->err);
    expect_refused(fsdp_optimizer_step(rig->optimizer, &rig->err), status, words, &rig->err);
    cr_expect_eq(fsdp_optimizer_step_count(rig->optimizer), step, "%s: it counts", when);
    cr_expect(rig_is(rig, FSDP_VALUE, before), "%s: weights changed", when);
    free(before);
}

static void expect_no_clipping(struct rig *rig, enum fsdp_status status, const char *words, const char *when)
{
    double norm = 0;

    fsdp_err_clear(&rig->err);
    cr_expect_eq(fsdp_clip_grad_norm(rig->model, 1.0, &norm, &rig->err), status, "%s: %s", when,
                 rig->err.message);
    cr_expect_not_null(strstr(rig->err.message, words), "%s: \"%s\"", when, rig->err.message);
}

static void expect_no_gradients(struct rig *rig, const char *words, const char *when)
{
    expect_no_clipping(rig, FSDP_ERR_ARG, words, when);
    expect_no_update(rig, FSDP_ERR_ARG, words, when);
}

/* Stale ones */

static void step_on_stale(struct fsdp_context *context, void *user)
{
    const bool is_last = fsdp_context_rank(context) + 1 == fsdp_context_world_size(context);
    static _Thread_local float gradients[RIG_ELEMS];
    struct rig rig;
    double norm;

    (void)user;
    start(&rig, context);
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    expect_no_gradients(&rig, "no backward", "before the first step");

    must(rig_backward(&rig, 1, RIG_IN_ONE_CALL), &rig.err);
    rig_fill(&rig, 9);
    must(fsdp_model_evaluate(rig.model, rig.tokens, NULL, NULL, NULL, &rig.err), &rig.err);
    must(fsdp_clip_grad_norm(rig.model, 1.0, &norm, &rig.err), &rig.err);
    must(fsdp_optimizer_step(rig.optimizer, &rig.err), &rig.err);
    expect_no_update(&rig, FSDP_ERR_ARG, "used already", "a second time");
    must(fsdp_clip_grad_norm(rig.model, 1.0, &norm, &rig.err), &rig.err); /* they may still be looked at */

    rig_fill(&rig, 2);
    ignore_targets(&rig, 0);
    must(rig_run(&rig), &rig.err);
    cr_expect(rig.loss.n_targets == 0 && isnan(rig.loss.mean));
    expect_no_gradients(&rig, "left no gradients", "without targets");

    must(rig_backward(&rig, 3, RIG_IN_ONE_CALL), &rig.err);
    rig_fill(&rig, 4);
    rig.tokens[0] = is_last ? -1 : rig.tokens[0];
    cr_expect_eq(rig_run(&rig), FSDP_ERR_ARG);
    expect_no_gradients(&rig, "left no gradients", "after a refused batch");

    must(rig_backward(&rig, 5, RIG_IN_ONE_CALL), &rig.err);
    must(fsdp_module_reset_iteration(rig.model, &rig.err), &rig.err);
    expect_no_gradients(&rig, "left no gradients", "after a step that was dropped");
    for (size_t i = rig_gather(&rig, FSDP_GRADIENT, gradients); i > 0; i--)
        cr_assert_eq(gradients[i - 1], 0, "a gradient of the dropped step can be read");
    rig_close(&rig);
}

WorldTest(fresh_gradients, are_what_an_update_takes_once, step_on_stale, 1, 3);

/* Targets over several calls */

/* A step of two micro-steps, of which `with` says whether they have targets. *n: the targets of all calls. */
static double two_micro_steps(struct rig *rig, enum rig_way way, const bool with[2], uint64_t *n)
{
    double sum = 0;

    rig->n_micro = 2;
    rig_fill(rig, 0);
    for (size_t m = 0; m < 2; m++)
        if (!with[m])
            ignore_targets(rig, m);
    *n = 0;
    if (way == RIG_IN_ONE_CALL) {
        must(rig_run(rig), &rig->err);
        *n = rig->loss.n_targets;
        return rig->loss.sum;
    }
    for (size_t m = 0; m < 2; m++) {
        must(rig_call(rig, m, way), &rig->err);
        cr_expect_eq(rig->loss.n_targets, with[m] ? (uint64_t)rig->model->data_ranks * MICRO_TOKENS : 0);
        cr_expect_eq(isnan(rig->loss.mean) != 0, !with[m]);
        *n += rig->loss.n_targets;
        sum += rig->loss.sum;
        if (m == 0)
            expect_no_gradients(rig, "yet to come", "within a step");
    }
    return sum;
}

static void count_targets(struct fsdp_context *context, void *user)
{
    static const bool with[][2] = { { true, true }, { false, true }, { true, false }, { false, false } };
    double want_sum = 0, want_norm = 0, norm;
    struct rig rig;

    (void)user;
    start(&rig, context);
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < RIG_N_WAYS; way++) {
            const uint64_t all = (uint64_t)(with[i][0] + with[i][1]) * (uint64_t)rig.model->data_ranks;
            uint64_t n;
            const double sum = two_micro_steps(&rig, (enum rig_way)way, with[i], &n);

            cr_expect_eq(n, all * MICRO_TOKENS);
            if (n == 0) {
                expect_no_gradients(&rig, "left no gradients", "no call had targets");
                continue;
            }
            must(fsdp_clip_grad_norm(rig.model, 0, &norm, &rig.err), &rig.err);
            want_sum = way == RIG_IN_ONE_CALL ? sum : want_sum;
            want_norm = way == RIG_IN_ONE_CALL ? norm : want_norm;
            cr_expect(fabs(sum - want_sum) < 1e-6 * want_sum && fabs(norm - want_norm) < 1e-5 * want_norm,
                      "targets %d, way %d: sum %g, norm %g, not %g and %g", i, way, sum, norm, want_sum,
                      want_norm);
        }
    rig_close(&rig);
}

WorldTest(fresh_gradients, are_of_all_targets_of_a_step_however_many_calls_it_has, count_targets, 1, 2);

/* A refused batch ends the step: what came before it is no part of the next one. */
static void refuse_within(struct fsdp_context *context, void *user)
{
    struct rig rig;
    double want, norm;

    (void)user;
    start(&rig, context);
    must(rig_backward(&rig, 7, RIG_IN_ONE_CALL), &rig.err);
    must(fsdp_clip_grad_norm(rig.model, 0, &want, &rig.err), &rig.err);
    fsdp_module_set_is_last_backward(rig.model, false);
    must(rig_backward(&rig, 1, RIG_IN_ONE_CALL), &rig.err);
    fsdp_module_set_is_last_backward(rig.model, true);
    rig_fill(&rig, 2);
    rig.targets[0] = 99;
    cr_expect_eq(rig_run(&rig), FSDP_ERR_ARG);
    expect_no_gradients(&rig, "left no gradients", "after a refused last batch");
    must(rig_backward(&rig, 7, RIG_IN_ONE_CALL), &rig.err);
    must(fsdp_clip_grad_norm(rig.model, 0, &norm, &rig.err), &rig.err);
    cr_expect(norm == want, "%g, not %g: of the refused step something is left", norm, want);
    rig_close(&rig);
}

WorldTest(fresh_gradients, of_a_step_are_gone_where_one_of_its_batches_is_refused, refuse_within, 1, 2);

/* Ones that are no numbers */

struct sick {
    int W, replicate, tensor; /* 0 counts as 1 */
    int victim;
    float value;
    int first; /* element of the victim's row */
    const char *parameter;
};

struct spoiler {
    bool on;
    float value;
    int at;
};

/* What a fault of one rank's memory leaves after the reduction: in that rank's shard alone. */
static enum fsdp_status spoil(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                              void *user, struct fsdp_err *err)
{
    const struct spoiler *spoiler = user;

    (void)stream;
    (void)err;
    cr_assert(dtype == FSDP_F32 && (size_t)spoiler->at < n_elems);
    if (spoiler->on)
        ((float *)row)[spoiler->at] = spoiler->value;
    return FSDP_OK;
}

static void step_on_sick(struct fsdp_context *context, void *user)
{
    const struct sick *sick = user;
    struct spoiler spoiler = { .value = sick->value, .at = sick->first };
    struct rig rig;
    double norm;

    rig_init(&rig, context);
    rig.options.accumulates = true;
    rig.tiny.heads = 4; /* two tensor ranks divide them */
    rig_mesh(&rig, sick->replicate, sick->tensor);
    fsdp_module_set_all_reduce_hook(rig_block(&rig, 1), spoil, &spoiler);
    rig_open(&rig);
    for (int clips = 0; clips < 2; clips++) {
        spoiler.on = fsdp_context_rank(context) == sick->victim;
        must(rig_backward(&rig, 3, RIG_IN_ONE_CALL), &rig.err);
        cr_expect(isfinite(rig.loss.mean), "the loss shows nothing of it");
        if (clips) {
            expect_no_clipping(&rig, FSDP_ERR_NOT_FINITE, sick->parameter, "clipping");
            cr_expect_eq(fsdp_clip_grad_norm(rig.model, 1.0, &norm, &rig.err), FSDP_ERR_NOT_FINITE);
            cr_expect(!isfinite(norm) || sick->tensor > 1 || sick->replicate > 1, /* one copy counts */
                      "%g is measured", norm);
        }
        expect_no_update(&rig, FSDP_ERR_NOT_FINITE, sick->parameter, "an update");
        spoiler.on = false;
        must(rig_run(&rig), &rig.err);
        must(fsdp_clip_grad_norm(rig.model, 1.0, &norm, &rig.err), &rig.err);
        must(fsdp_optimizer_step(rig.optimizer, &rig.err), &rig.err);
    }
    rig_close(&rig);
}

Test(fresh_gradients, that_are_no_numbers_on_one_rank_are_refused_by_all_with_the_parameter)
{
    static const char weight[] = "\"layers.1.attention_norm.weight\"",
                      bias[] = "\"layers.1.attention_norm.bias\"";
    static const struct sick all[] = {
        { .W = 1, .victim = 0, .value = NAN, .parameter = weight },
        { .W = 3, .victim = 2, .value = INFINITY, .parameter = weight },
        { .W = 3, .victim = 1, .value = -INFINITY, .first = 4, .parameter = bias },
        { .W = 4, .replicate = 2, .victim = 3, .value = NAN, .parameter = weight },
        { .W = 4, .tensor = 2, .victim = 2, .value = NAN, .parameter = weight },
        { .W = 4, .tensor = 2, .victim = 1, .value = NAN, .parameter = weight },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        world_run(all[i].W, step_on_sick, (void *)(uintptr_t)&all[i]);
}
