/*
 * What a model promises beside its arithmetic: initial weights, refusals, ignored targets, evaluation,
 * clipping, and that every allocation may fail.
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
#include "tests/unit/engine/world.h"

enum { BATCH = 4 };

static struct fsdp_model *make_model(struct fsdp_context *context, const struct tiny *tiny,
                                     struct fsdp_module **root)
{
    const struct fsdp_model_options options = {
        .batch = BATCH, .seq = tiny->seq, .seed = 5, .accumulates = true
    };
    struct fsdp_err err = { 0 };
    struct fsdp_model *model;

    *root = tiny_build(tiny, &err);
    cr_assert(fsdp_model_create(&model, context, *root, &options, &err) == FSDP_OK, "%s", err.message);
    return model;
}

/* --- initial weights
 * ------------------------------------------------------------------------------------------- */

static void check_initial(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root;
    struct fsdp_model *model = make_model(context, &tiny_defaults, &root);

    (void)user;
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;
        float *got, *want;
        char purpose[128];

        fsdp_model_parameter(model, i, &info, NULL);
        got = calloc(info.n_elems, sizeof *got);
        want = calloc(info.n_elems, sizeof *want);
        fsdp_parameter_gather(model, info.name, FSDP_VALUE, got, info.n_elems, NULL);
        snprintf(purpose, sizeof purpose, "init:%s", info.name);
        if (info.n_dims == 2)
            rng_fill_normal(rng_key(5, purpose), 0, want, info.n_elems, 0.02f);
        for (size_t e = 0; strstr(info.name, "norm.weight") != NULL && e < info.n_elems; e++)
            want[e] = 1.0f;
        cr_expect(memcmp(got, want, info.n_elems * sizeof *got) == 0, "%s", info.name);
        free(got);
        free(want);
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, initial_weights_are_a_function_of_seed_and_name_at_every_world_size)
{
    for (int W = 1; W <= 5; W++)
        world_run(W, check_initial, NULL);
}

/* --- the plan
 * ------------------------------------------------------------------------------------------------- */

static void read_plan(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root;
    struct fsdp_model *model = make_model(context, &tiny_defaults, &root);
    int W = 0, n_groups = 0, n_entries = 0, n_lines = 0;
    char *text = fsdp_model_plan_text(model);
    size_t arena = 0, activations = 0;
    struct fsdp_memory memory;
    const char *last;

    (void)user;
    cr_assert_not_null(text);
    fsdp_model_memory(model, &memory);
    cr_expect_eq(sscanf(text, "# world %d, %d groups, %d entries. ", &W, &n_groups, &n_entries), 3);
    cr_expect(W == 2 && n_groups > 1 && n_entries > n_groups, "%d, %d, %d", W, n_groups, n_entries);
    for (const char *c = text; *c != '\0'; c++)
        n_lines += *c == '\n';
    cr_expect(n_lines == n_entries + 2, "%d lines of %d entries", n_lines, n_entries);
    text[strlen(text) - 1] = '\0';
    last = strrchr(text, '\n') + 1;
    cr_expect_eq(sscanf(last, "# arena %zu bytes; most at once: activations %zu,", &arena, &activations), 2);
    cr_expect(arena == memory.arena && activations == memory.activations, "%s", last);
    free(text);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, its_plan_can_be_read)
{
    world_run(2, read_plan, NULL);
}

/* --- losses
 * ---------------------------------------------------------------------------------------------------- */

/* Rank 0 has half of its targets ignored, the others all of them but one. */
static void ignore_some(int rank, int32_t *targets)
{
    for (size_t i = 0; i < BATCH * 6; i++)
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
    struct fsdp_module *root;
    struct fsdp_model *model = make_model(context, &tiny_defaults, &root);
    int32_t tokens[3][BATCH * 6], targets[3][BATCH * 6];
    struct fsdp_batch micro[3];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    double norm;
    const size_t n_micro = t->W == 1 ? 3 : 1;

    for (size_t m = 0; m < n_micro; m++) {
        const int r = t->W == 1 ? (int)m : rank;

        tiny_samples(&tiny_defaults, (uint64_t)r * BATCH, BATCH, tokens[m], targets[m]);
        ignore_some(r, targets[m]);
        micro[m] = (struct fsdp_batch){ .input = tokens[m],
                                        .targets = targets[m],
                                        .first_sample = (uint64_t)r * BATCH };
    }
    cr_assert(fsdp_model_forward_backward(model, micro, n_micro, &loss, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_clip_grad_norm(model, 0, &norm, &err) == FSDP_OK, "%s", err.message);
    if (rank == 0) {
        t->mean = loss.mean;
        t->norm = norm;
        t->n_targets = loss.n_targets;
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
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

static void all_ignored(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root;
    struct fsdp_model *model = make_model(context, &tiny_defaults, &root);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    (void)user;
    tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
    for (size_t i = 0; i < BATCH * 6; i++)
        targets[i] = FSDP_IGNORED_TARGET;
    cr_expect(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_OK, "%s", err.message);
    cr_expect(loss.n_targets == 0 && isnan(loss.mean));
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, a_step_without_targets_computes_nothing)
{
    world_run(2, all_ignored, NULL);
}

/* --- refusals
 * -------------------------------------------------------------------------------------------------- */

static void bad_batches(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root;
    struct fsdp_model *model = make_model(context, &tiny_defaults, &root);
    const bool culprit = fsdp_context_rank(context) == fsdp_context_world_size(context) - 1;

    (void)user;
    for (int bad = 0; bad < 4; bad++) {
        int32_t tokens[BATCH * 6], targets[BATCH * 6];
        const struct fsdp_batch micro = { .input = tokens, .targets = targets };
        struct fsdp_err err = { 0 };
        struct fsdp_loss loss;

        tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
        if (culprit) {
            tokens[5] = bad == 0 ? 19 : bad == 1 ? -1 : tokens[5];
            targets[5] = bad == 2 ? 19 : bad == 3 ? -7 : targets[5];
        }
        cr_expect(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_ERR_ARG);
        cr_expect(strstr(err.message, bad < 2 ? "token" : "target") != NULL, "%s", err.message);
        cr_expect((strncmp(err.message, "rank 2: ", 8) == 0) == !culprit, "%s", err.message);
    }
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, all_ranks_refuse_a_step_whose_data_one_cannot_use)
{
    world_run(1, bad_batches, NULL);
    world_run(3, bad_batches, NULL);
}

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

Test(model, forwards_that_make_no_sense_are_refused_with_their_reason)
{
    world_run(1, broken_models, NULL);
}

/* --- evaluation
 * ------------------------------------------------------------------------------------------------ */

static void evaluate(struct fsdp_context *context, void *user)
{
    struct tiny tiny = tiny_defaults;
    struct fsdp_module *root;
    struct fsdp_model *model;
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    struct fsdp_loss trained, evaluated;
    const float *logits, *again;
    struct fsdp_err err = { 0 };
    double sum = 0;

    (void)user;
    model = make_model(context, &tiny, &root);
    tiny_samples(&tiny, (uint64_t)fsdp_context_rank(context) * BATCH, BATCH, tokens, targets);
    cr_assert(fsdp_model_evaluate(model, tokens, NULL, &logits, NULL, &err) == FSDP_ERR_ARG, "not prepared");
    cr_assert(fsdp_model_prepare_evaluation(model, 2, tiny.seq, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_prepare_evaluation(model, BATCH, tiny.seq, &err) == FSDP_OK, "%s", err.message);

    cr_assert(fsdp_model_forward_backward(model, &micro, 1, &trained, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_evaluate(model, tokens, targets, &logits, &evaluated, &err) == FSDP_OK, "%s",
              err.message);
    cr_expect(fabs(trained.mean - evaluated.mean) < 1e-12, "%.17g, %.17g", trained.mean, evaluated.mean);
    cr_expect(trained.n_targets == evaluated.n_targets);
    for (size_t row = 0; row < BATCH * tiny.seq; row++) {
        double total = 0;

        for (size_t c = 0; c < tiny.vocab; c++)
            total += exp(logits[row * tiny.vocab + c]);
        sum += log(total) - logits[row * tiny.vocab + (size_t)targets[row]];
    }
    cr_expect(fsdp_context_world_size(context) > 1 || fabs(sum - evaluated.sum) < 1e-4, "%g, %g", sum,
              evaluated.sum);
    cr_assert(fsdp_model_evaluate(model, tokens, NULL, &again, NULL, &err) == FSDP_OK, "%s", err.message);
    cr_expect(again == logits);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, evaluation_gives_the_loss_and_the_logits_of_training)
{
    world_run(1, evaluate, NULL);
    world_run(3, evaluate, NULL);
}

static void evaluate_only(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .seq = 6, .seed = 5 };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    int32_t tokens[6] = { 1, 2, 3, 4, 5, 6 };
    struct fsdp_optimizer *optimizer;
    struct fsdp_model *model;
    struct fsdp_loss loss;
    struct fsdp_err err = { 0 };
    const float *logits;

    (void)user;
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_expect(fsdp_model_forward_backward(model, NULL, 1, &loss, NULL) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_create(&optimizer, model, &updates, NULL) == FSDP_ERR_ARG);
    cr_assert(fsdp_model_prepare_evaluation(model, 1, 6, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_model_evaluate(model, tokens, NULL, &logits, NULL, &err) == FSDP_OK, "%s", err.message);
    cr_expect(fsdp_model_prepare_evaluation(model, 1, 7, NULL) == FSDP_ERR_ARG, "more tokens than positions");
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, without_training_it_holds_no_gradients_and_still_evaluates)
{
    world_run(2, evaluate_only, NULL);
}

/* --- clipping, reading
 * ----------------------------------------------------------------------------------------- */

static void clip(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root;
    struct fsdp_model *model = make_model(context, &tiny_defaults, &root);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    float before[19 * 12], after[19 * 12];
    double norm, clipped, unclipped;
    struct fsdp_loss loss;

    (void)user;
    tiny_samples(&tiny_defaults, 0, BATCH, tokens, targets);
    cr_assert(fsdp_model_forward_backward(model, &micro, 1, &loss, NULL) == FSDP_OK);
    fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, before, 19 * 12, NULL);
    cr_assert(fsdp_clip_grad_norm(model, INFINITY, &norm, NULL) == FSDP_OK);
    cr_assert(fsdp_clip_grad_norm(model, norm * 2, &unclipped, NULL) == FSDP_OK);
    cr_expect(unclipped == norm);
    cr_assert(fsdp_clip_grad_norm(model, norm / 4, &unclipped, NULL) == FSDP_OK);
    cr_expect(unclipped == norm, "the norm is that before clipping");
    cr_assert(fsdp_clip_grad_norm(model, 0, &clipped, NULL) == FSDP_OK);
    cr_expect(fabs(clipped - norm / 4) < 1e-5 * norm);
    fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, after, 19 * 12, NULL);
    for (int i = 0; i < 19 * 12; i++)
        cr_expect(fabsf(after[i] - before[i] / 4) <= 1e-5f * fabsf(before[i]) + 1e-12f);
    cr_expect(fsdp_clip_grad_norm(model, NAN, &norm, NULL) == FSDP_ERR_ARG);
    cr_expect(fsdp_parameter_gather(model, "output.weight", FSDP_VALUE, after, 7, NULL) == FSDP_ERR_ARG);
    cr_expect(fsdp_parameter_gather(model, "nobody", FSDP_VALUE, after, 7, NULL) == FSDP_ERR_ARG);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, clipping_scales_what_is_read_afterwards)
{
    world_run(2, clip, NULL);
}

/* --- a classifier of features: no tokens, no sequence
 * ---------------------------------------------------------- */

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
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK, "%s", err.message);
    for (int step = 0; step < 200; step++) {
        cr_assert(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_OK, "%s", err.message);
        cr_assert(fsdp_optimizer_step(optimizer, &err) == FSDP_OK, "%s", err.message);
        first = step == 0 ? loss : first;
    }
    cr_expect(first.mean > 0.6 && loss.mean < 0.15, "%g, %g", first.mean, loss.mean);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, learns_from_features_as_well)
{
    world_run(2, train_classifier, NULL);
}

/* --- out of memory
 * --------------------------------------------------------------------------------------------- */

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
        fsdp_optimizer_destroy(optimizer);
        fsdp_model_destroy(model);
        fsdp_module_destroy(root);
    }
    cr_expect(nth > 200, "only %lu allocations", nth);
}

Test(model, every_allocation_may_fail, .timeout = 2400)
{
    world_run(1, fail_every_allocation, NULL);
}

/* --- memory
 * ---------------------------------------------------------------------------------------------------- */

static void measure(struct fsdp_context *context, void *user)
{
    struct fsdp_memory *memory = user;
    struct fsdp_module *root;
    struct fsdp_model *model = make_model(context, &tiny_defaults, &root);

    if (fsdp_context_rank(context) == 0)
        fsdp_model_memory(model, memory);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(model, memory_is_known_before_the_first_step)
{
    const size_t n_elems = 19 * 12 + 6 * 12 + 2 * (4 * 12 + 4 * 144 + 2 * 240 + 20 + 12) + 24 + 19 * 12;
    struct fsdp_memory one, four;

    world_run(1, measure, &one);
    world_run(4, measure, &four);

    cr_expect(one.parameters == n_elems * 4 && one.gradients == n_elems * 4, "%zu", one.parameters);
    cr_expect(one.gather == 0 && one.reduce == 0);
    /* Rows cut in four: a quarter, and what 19 and 6 rows are padded with. */
    cr_expect(four.parameters >= n_elems && four.parameters < n_elems + 4 * (2 * 12 + 12), "%zu",
              four.parameters);
    cr_expect(four.gather > 0 && four.reduce > 0);
    cr_expect(four.arena <= four.gather + four.reduce + four.activations + four.scratch);
    cr_expect(four.arena + four.gradients >= four.activations, "which may lie where gradients will be");
}
