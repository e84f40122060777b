/*
 * What a model promises in addition to its arithmetic: initial weights, refusals, ignored targets,
 * evaluation, clipping, and that every allocation may fail.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

enum { BATCH = 4, N_TOKENS = BATCH * 6, OUTPUT_ELEMS = 19 * 12 };

static void start(struct rig *rig, struct fsdp_context *context)
{
    rig_init(rig, context);
    rig->options = (struct fsdp_model_options){ .batch = BATCH, .seq = 6, .seed = 5, .accumulates = true };
    rig_model(rig);
}

/* Initial weights */

static void check_initial(struct fsdp_context *context, void *user)
{
    struct rig rig;

    (void)user;
    start(&rig, context);
    for (size_t i = 0; i < fsdp_model_parameter_count(rig.model); i++) {
        struct fsdp_parameter_info info;
        float *got, *want;
        char purpose[128];

        fsdp_model_parameter(rig.model, i, &info, NULL);
        got = calloc(info.n_elems, sizeof *got);
        want = calloc(info.n_elems, sizeof *want);
        fsdp_parameter_gather(rig.model, info.name, FSDP_VALUE, got, info.n_elems, NULL);
        snprintf(purpose, sizeof purpose, "init:%s", info.name);
        if (info.n_dims == 2)
            rng_fill_normal(rng_key(5, purpose), 0, want, info.n_elems, 0.02f);
        for (size_t e = 0; strstr(info.name, "norm.weight") != NULL && e < info.n_elems; e++)
            want[e] = 1.0f;
        cr_expect(memcmp(got, want, info.n_elems * sizeof *got) == 0, "%s", info.name);
        free(got);
        free(want);
    }
    rig_close(&rig);
}

WorldTest(model, initial_weights_are_a_function_of_seed_and_name_at_every_world_size, check_initial, 1, 2, 3,
          4, 5);

/* Losses */

/* Rank 0 ignores half of its targets, the others all of them but one. */
static void ignore_some(int rank, int32_t *targets)
{
    for (size_t i = 0; i < N_TOKENS; i++)
        if (rank == 0 ? i % 2 == 0 : i != 3)
            targets[i] = FSDP_IGNORED_TARGET;
}

struct ignoring {
    int W;
    double mean, norm;
    uint64_t n_targets;
};

static void step_with_ignored(struct fsdp_context *context, void *user)
{
    struct ignoring *t = user;
    const int rank = fsdp_context_rank(context);
    struct rig rig;
    double norm;

    start(&rig, context);
    rig.n_micro = t->W == 1 ? 3 : 1;
    rig_fill(&rig, 0);
    for (size_t m = 0; m < rig.n_micro; m++)
        ignore_some(t->W == 1 ? (int)m : rank, rig.targets + m * N_TOKENS);
    must(rig_run(&rig), &rig.err);
    must(fsdp_clip_grad_norm(rig.model, 0, &norm, &rig.err), &rig.err);
    if (rank == 0)
        *t = (struct ignoring){ t->W, rig.loss.mean, norm, rig.loss.n_targets };
    rig_close(&rig);
}

Test(model, ignored_targets_weigh_nothing_however_they_are_spread)
{
    struct ignoring one = { .W = 1 }, three = { .W = 3 };

    world_run(1, step_with_ignored, &one);
    world_run(3, step_with_ignored, &three);

    cr_expect(one.n_targets == BATCH * 3 + 2 && three.n_targets == one.n_targets);
    cr_expect(fabs(one.mean - three.mean) < 1e-6 * one.mean, "%g, %g", one.mean, three.mean);
    cr_expect(fabs(one.norm - three.norm) < 5e-6 * one.norm, "%g, %g", one.norm, three.norm);
}

/* Refusals */

static void bad_batches(struct fsdp_context *context, void *user)
{
    const bool culprit = fsdp_context_rank(context) == fsdp_context_world_size(context) - 1;
    struct rig rig;

    (void)user;
    start(&rig, context);
    for (int bad = 0; bad < 4; bad++) {
        rig_fill(&rig, 0);
        if (culprit) {
            rig.tokens[5] = bad == 0 ? 19 : bad == 1 ? -1 : rig.tokens[5];
            rig.targets[5] = bad == 2 ? 19 : bad == 3 ? -7 : rig.targets[5];
        }
        expect_refused(rig_run(&rig), FSDP_ERR_ARG, bad < 2 ? "token" : "target", &rig.err);
        cr_expect((strncmp(rig.err.message, "rank 2: ", 8) == 0) == !culprit, "%s", rig.err.message);
    }
    rig_close(&rig);
}

WorldTest(model, all_ranks_refuse_a_step_whose_data_one_cannot_use, bad_batches, 1, 3);

static struct fsdp_value *broken_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    switch (*(const int *)user) {
    case 0:
        return x; /* computes nothing */
    case 1:
        return fsdp_call(fsdp_module_child(self, "nobody"), x);
    case 2:
        return fsdp_call(fsdp_module_child(self, "linear"), x); /* of tokens */
    case 3:
        return fsdp_call(fsdp_module_child(self, "linear"), fsdp_call(fsdp_module_child(self, "wide"), x));
    case 4:
        return fsdp_add(fsdp_call(fsdp_module_child(self, "wide"), x),
                        fsdp_call(fsdp_module_child(self, "narrow"), x));
    case 5:
        return fsdp_call(self, x); /* for ever */
    case 6:
        return fsdp_embed(fsdp_module_child(self, "narrow"), fsdp_module_child(self, "short"), x);
    case 7:
        return fsdp_call(fsdp_module_child(fsdp_module_child(self, "unit"), "inner"),
                         fsdp_call(fsdp_module_child(self, "narrow"), x));
    default:
        return fsdp_dropout(fsdp_call(fsdp_module_child(self, "narrow"), x), 1.0f);
    }
}

static void broken_models(struct fsdp_context *context, void *user)
{
    static const char *const words[] = { "nothing to compute", "does not exist",          "tokens",
                                         "takes 4 features",   "(1, 6, 8) and (1, 6, 4)", "deep",
                                         "has 3 positions",    "is not running",          "[0, 1)" };

    (void)user;
    for (int kind = 0; kind < 9; kind++) {
        const struct fsdp_model_options options = { .batch = 1, .seq = 6 };
        struct fsdp_module *root = fsdp_module_create(broken_forward, &kind), *unit;
        struct fsdp_model *model;
        struct fsdp_err err = { 0 };

        fsdp_embedding(root, "wide", 11, 8);
        fsdp_embedding(root, "narrow", 11, 4);
        fsdp_embedding(root, "short", 3, 4);
        fsdp_linear(root, "linear", 4, 11, true);
        unit = fsdp_module_add(root, "unit", broken_forward, &kind);
        fsdp_linear(unit, "inner", 4, 11, true);
        fsdp_fully_shard(unit, NULL, NULL);
        fsdp_fully_shard(root, NULL, NULL);
        cr_expect(fsdp_model_create(&model, context, root, &options, &err) == FSDP_ERR_ARG, "case %d", kind);
        cr_expect(model == NULL && strstr(err.message, words[kind]) != NULL, "case %d: %s", kind,
                  err.message);
        fsdp_module_destroy(root);
    }
}

WorldTest(model, forwards_that_make_no_sense_are_refused_with_their_reason, broken_models, 1);

/* Evaluation */

static void evaluate(struct fsdp_context *context, void *user)
{
    struct fsdp_loss evaluated;
    const float *logits, *again;
    double sum = 0;
    struct rig rig;

    (void)user;
    start(&rig, context);
    rig_fill(&rig, 0);
    cr_assert(fsdp_model_evaluate(rig.model, rig.tokens, NULL, &logits, NULL, &rig.err) == FSDP_ERR_ARG,
              "not prepared");
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    must(fsdp_model_prepare_evaluation(rig.model, BATCH, 6, &rig.err), &rig.err);

    must(rig_run(&rig), &rig.err);
    must(fsdp_model_evaluate(rig.model, rig.tokens, rig.targets, &logits, &evaluated, &rig.err), &rig.err);
    cr_expect(fabs(rig.loss.mean - evaluated.mean) < 1e-12, "%.17g, %.17g", rig.loss.mean, evaluated.mean);
    cr_expect(rig.loss.n_targets == evaluated.n_targets);
    for (size_t row = 0; row < N_TOKENS; row++) {
        double total = 0;

        for (size_t c = 0; c < 19; c++)
            total += exp(logits[row * 19 + c]);
        sum += log(total) - logits[row * 19 + (size_t)rig.targets[row]];
    }
    cr_expect(rig.ranks > 1 || fabs(sum - evaluated.sum) < 1e-4, "%g, %g", sum, evaluated.sum);
    must(fsdp_model_evaluate(rig.model, rig.tokens, NULL, &again, NULL, &rig.err), &rig.err);
    cr_expect(again == logits);
    rig_close(&rig);
}

WorldTest(model, evaluation_gives_the_loss_and_the_logits_of_training, evaluate, 1, 3);

static void evaluate_only(struct fsdp_context *context, void *user)
{
    int32_t tokens[6] = { 1, 2, 3, 4, 5, 6 };
    const float *logits;
    struct rig rig;

    (void)user;
    rig_init(&rig, context);
    rig.options.batch = 0;
    rig_model(&rig);
    cr_expect(fsdp_model_forward_backward(rig.model, NULL, 1, &rig.loss, NULL) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_create(&rig.optimizer, rig.model, &rig.updates, NULL) == FSDP_ERR_ARG);
    must(fsdp_model_prepare_evaluation(rig.model, 1, 6, &rig.err), &rig.err);
    must(fsdp_model_evaluate(rig.model, tokens, NULL, &logits, NULL, &rig.err), &rig.err);
    cr_expect(fsdp_model_prepare_evaluation(rig.model, 1, 7, NULL) == FSDP_ERR_ARG,
              "more tokens than positions");
    rig_close(&rig);
}

WorldTest(model, without_training_it_holds_no_gradients_and_still_evaluates, evaluate_only, 2);

/* Clipping, reading */

static enum fsdp_status gather_output(struct rig *rig, float *out)
{
    return fsdp_parameter_gather(rig->model, "output.weight", FSDP_GRADIENT, out, OUTPUT_ELEMS, &rig->err);
}

static void clip(struct fsdp_context *context, void *user)
{
    static const double orders[] = { 1, 2, 3, INFINITY };
    float before[OUTPUT_ELEMS], after[OUTPUT_ELEMS];
    double norm, clipped, unclipped;
    struct rig rig;

    (void)user;
    start(&rig, context);
    for (int o = 0; o < 4; o++) {
        must(rig_backward(&rig, 0, RIG_IN_ONE_CALL), &rig.err);
        must(gather_output(&rig, before), &rig.err);
        must(fsdp_clip_grad_norm_of(rig.model, INFINITY, orders[o], &norm, &rig.err), &rig.err);
        must(fsdp_clip_grad_norm_of(rig.model, norm * 2, orders[o], &unclipped, &rig.err), &rig.err);
        cr_expect(unclipped == norm);
        must(fsdp_clip_grad_norm_of(rig.model, norm / 4, orders[o], &unclipped, &rig.err), &rig.err);
        cr_expect(unclipped == norm, "the norm is that before clipping");
        must(fsdp_clip_grad_norm_of(rig.model, 0, orders[o], &clipped, &rig.err), &rig.err);
        cr_expect(fabs(clipped - norm / 4) < 1e-5 * norm, "order %g: clipped to %g", orders[o], clipped);
        must(gather_output(&rig, after), &rig.err);
        for (int i = 0; i < OUTPUT_ELEMS; i++)
            cr_expect(fabsf(after[i] - before[i] / 4) <= 1e-5f * fabsf(before[i]) + 1e-12f);
    }
    cr_expect(fsdp_clip_grad_norm(rig.model, NAN, &norm, NULL) == FSDP_ERR_ARG);
    cr_expect(fsdp_parameter_gather(rig.model, "output.weight", FSDP_VALUE, after, 7, NULL) == FSDP_ERR_ARG);
    cr_expect(fsdp_parameter_gather(rig.model, "nothing", FSDP_VALUE, after, 7, NULL) == FSDP_ERR_ARG);
    rig_close(&rig);
}

WorldTest(model, clipping_scales_what_is_read_afterwards, clip, 2);

/* A classifier of features: no tokens, no sequence */

static struct fsdp_value *classify(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "out"),
                     fsdp_gelu(fsdp_call(fsdp_module_child(self, "hidden"), x)));
}

static void train_classifier(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = 32, .seq = 1, .input_features = 3, .seed = 2 };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_module *root = fsdp_module_create(classify, NULL);
    float features[32 * 3];
    int32_t targets[32];
    const struct fsdp_batch micro = { .input = features, .targets = targets };
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model;
    struct fsdp_loss loss, first = { 0 };
    struct fsdp_err err = { 0 };

    (void)user;
    rng_fill_normal(9, (uint64_t)fsdp_context_rank(context) * 96, features, 96, 1.0f);
    for (int i = 0; i < 32; i++)
        targets[i] = features[3 * i] * features[3 * i + 1] > 0 ? 1 : 0; /* no linear model can tell */
    fsdp_linear(root, "hidden", 3, 16, true);
    fsdp_linear(root, "out", 16, 2, true);
    fsdp_fully_shard(root, NULL, &err);
    updates.lr = 0.02;
    updates.weight_decay = 0;
    must(fsdp_model_create(&model, context, root, &options, &err), &err);
    must(fsdp_optimizer_create(&optimizer, model, &updates, &err), &err);
    for (int step = 0; step < 200; step++) {
        must(fsdp_model_forward_backward(model, &micro, 1, &loss, &err), &err);
        must(fsdp_optimizer_step(optimizer, &err), &err);
        first = step == 0 ? loss : first;
    }
    cr_expect(first.mean > 0.6 && loss.mean < 0.15, "%g, %g", first.mean, loss.mean);
    world_drop(optimizer, model, root);
}

WorldTest(model, learns_from_features_as_well, train_classifier, 2);

/* Out of memory */

static void fail_every_allocation(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = 1, .seq = 6, .accumulates = true };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct tiny tiny = tiny_defaults;
    unsigned long nth = 0;
    bool whole = false;

    (void)user;
    tiny.layers = 1;
    while (!whole) {
        struct fsdp_optimizer *optimizer = NULL;
        struct fsdp_model *model = NULL;
        struct fsdp_module *root;
        struct fsdp_err err = { 0 };
        enum fsdp_status status;

        alloc_fail_nth(++nth);
        root = tiny_build(&tiny, &err);
        status = root == NULL ? FSDP_ERR_NOMEM : fsdp_model_create(&model, context, root, &options, &err);
        if (status == FSDP_OK)
            status = fsdp_optimizer_create(&optimizer, model, &updates, &err);
        alloc_fail_nth(0);

        whole = status == FSDP_OK;
        cr_expect(whole || status == FSDP_ERR_NOMEM, "failing call %lu: %s", nth, err.message);
        cr_expect((optimizer != NULL) == whole);
        world_drop(optimizer, model, root);
    }
    cr_expect(nth > 200, "only %lu allocations", nth);
}

Test(model, every_allocation_may_fail, .timeout = 2400)
{
    world_run(1, fail_every_allocation, NULL);
}
