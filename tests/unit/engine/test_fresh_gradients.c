/*
 * An update takes gradients that a whole step has just made, and that are numbers, or it is refused on every
 * rank with no weight changed. What the targets of a step are that is made of several calls.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, SEQ = 6 };

struct run {
    struct fsdp_context *context;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    struct fsdp_err err;
};

struct samples {
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    struct fsdp_batch batch;
};

static void open_run(struct run *run, struct fsdp_context *context, struct fsdp_module *root)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = SEQ, .seed = 4, .accumulates = true };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();

    *run = (struct run){ .context = context, .root = root };
    cr_assert(fsdp_model_create(&run->model, context, root, &options, &run->err) == FSDP_OK, "%s",
              run->err.message);
    cr_assert(fsdp_optimizer_create(&run->optimizer, run->model, &updates, &run->err) == FSDP_OK, "%s",
              run->err.message);
}

static void close_run(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
}

/* Number `number` of the samples of this rank; without targets all of them are ignored. */
static const struct fsdp_batch *fill(struct samples *samples, const struct run *run, int number, bool targets)
{
    const uint64_t first = (uint64_t)(number * 40 + fsdp_context_rank(run->context) * BATCH);

    tiny_samples(&tiny_defaults, first, BATCH, samples->tokens, samples->targets);
    for (int i = 0; i < BATCH * SEQ && !targets; i++)
        samples->targets[i] = FSDP_IGNORED_TARGET;
    samples->batch =
        (struct fsdp_batch){ .input = samples->tokens, .targets = samples->targets, .first_sample = first };
    return &samples->batch;
}

static enum fsdp_status call(struct run *run, int number, bool targets, struct fsdp_loss *loss)
{
    struct samples samples;

    return fsdp_model_forward_backward(run->model, fill(&samples, run, number, targets), 1, loss, &run->err);
}

static void must(struct run *run, enum fsdp_status status)
{
    cr_assert(status == FSDP_OK, "%s", run->err.message);
}

/* Clipping and each kind of update refuse what there is, with these words, and change nothing. */
static void expect_no_update(struct run *run, enum fsdp_status status, const char *words, const char *when)
{
    const struct model_memory *memory = &run->model->memory[PLACE_DEVICE];
    const uint64_t step = fsdp_optimizer_step_count(run->optimizer);
    float *before = malloc(memory->parameter_bytes);

    memcpy(before, memory->parameters, memory->parameter_bytes);
    fsdp_err_clear(&run->err);
    cr_expect_eq(fsdp_optimizer_step_group(run->optimizer, 0, &run->err), status, "%s: %s", when,
                 run->err.message);
    cr_expect_not_null(strstr(run->err.message, words), "%s: \"%s\"", when, run->err.message);
    fsdp_err_clear(&run->err);
    cr_expect_eq(fsdp_optimizer_step(run->optimizer, &run->err), status, "%s: %s", when, run->err.message);
    cr_expect_not_null(strstr(run->err.message, words), "%s: \"%s\"", when, run->err.message);
    cr_expect_eq(fsdp_optimizer_step_count(run->optimizer), step, "%s: it counts", when);
    cr_expect(memcmp(before, memory->parameters, memory->parameter_bytes) == 0, "%s: weights changed", when);
    free(before);
}

static void expect_no_clipping(struct run *run, enum fsdp_status status, const char *words, const char *when)
{
    double norm = 0;

    fsdp_err_clear(&run->err);
    cr_expect_eq(fsdp_clip_grad_norm(run->model, 1.0, &norm, &run->err), status, "%s: %s", when,
                 run->err.message);
    cr_expect_not_null(strstr(run->err.message, words), "%s: \"%s\"", when, run->err.message);
}

static void expect_no_gradients(struct run *run, const char *words, const char *when)
{
    expect_no_clipping(run, FSDP_ERR_ARG, words, when);
    expect_no_update(run, FSDP_ERR_ARG, words, when);
}

/* --- stale ones --------------------------------------------------------------------------------------------
 * */

static void step_on_stale(struct fsdp_context *context, void *user)
{
    const bool is_last = fsdp_context_rank(context) + 1 == fsdp_context_world_size(context);
    struct samples samples;
    struct fsdp_loss loss;
    const float *logits;
    struct run run;
    double norm;

    (void)user;
    open_run(&run, context, tiny_build(&tiny_defaults, NULL));
    must(&run, fsdp_model_prepare_evaluation(run.model, BATCH, SEQ, &run.err));
    expect_no_gradients(&run, "no backward", "before the first step");

    must(&run, call(&run, 1, true, &loss));
    (void)fill(&samples, &run, 9, true);
    must(&run, fsdp_model_evaluate(run.model, samples.tokens, NULL, &logits, NULL, &run.err));
    must(&run, fsdp_clip_grad_norm(run.model, 1.0, &norm, &run.err));
    must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    expect_no_update(&run, FSDP_ERR_ARG, "used already", "a second time");
    must(&run, fsdp_clip_grad_norm(run.model, 1.0, &norm, &run.err)); /* they may still be looked at */

    must(&run, call(&run, 2, false, &loss));
    cr_expect(loss.n_targets == 0 && isnan(loss.mean));
    expect_no_gradients(&run, "left no gradients", "without targets");

    must(&run, call(&run, 3, true, &loss));
    (void)fill(&samples, &run, 4, true);
    samples.tokens[0] = is_last ? -1 : samples.tokens[0];
    cr_expect_eq(fsdp_model_forward_backward(run.model, &samples.batch, 1, &loss, &run.err), FSDP_ERR_ARG);
    expect_no_gradients(&run, "left no gradients", "after a refused batch");

    must(&run, call(&run, 5, true, &loss));
    must(&run, fsdp_module_reset_iteration(run.model, &run.err));
    expect_no_gradients(&run, "left no gradients", "after a step that was dropped");
    close_run(&run);
}

Test(fresh_gradients, are_what_an_update_takes_once)
{
    world_run(1, step_on_stale, NULL);
    world_run(3, step_on_stale, NULL);
}

/* --- targets over several calls ----------------------------------------------------------------------------
 * */

enum way { IN_ONE_CALL, CALL_BY_CALL, IN_HALVES, N_WAYS };

/* A step of two micro-steps; which have targets is in `with`. *n: the targets that the calls said, in all. */
static double two_micro_steps(struct run *run, enum way way, const bool with[2], uint64_t *n)
{
    struct samples samples[2];
    struct fsdp_batch micro[2];
    struct fsdp_loss loss;
    double sum = 0;

    *n = 0;
    for (int m = 0; m < 2; m++)
        micro[m] = *fill(&samples[m], run, m, with[m]);
    if (way == IN_ONE_CALL) {
        must(run, fsdp_model_forward_backward(run->model, micro, 2, &loss, &run->err));
        *n = loss.n_targets;
        return loss.sum;
    }
    for (int m = 0; m < 2; m++) {
        fsdp_module_set_is_last_backward(run->model, m == 1);
        if (way == CALL_BY_CALL) {
            must(run, fsdp_model_forward_backward(run->model, &micro[m], 1, &loss, &run->err));
        } else {
            must(run, fsdp_model_forward(run->model, &micro[m], &loss, &run->err));
            must(run, fsdp_model_backward(run->model, &run->err));
        }
        cr_expect_eq(loss.n_targets, with[m] ? (uint64_t)run->model->data_ranks * BATCH * SEQ : 0);
        cr_expect_eq(isnan(loss.mean) != 0, !with[m]);
        *n += loss.n_targets;
        sum += loss.sum;
        if (m == 0) {
            expect_no_clipping(run, FSDP_ERR_ARG, "yet to come", "within a step");
            expect_no_update(run, FSDP_ERR_ARG, "yet to come", "within a step");
        }
    }
    return sum;
}

static void count_targets(struct fsdp_context *context, void *user)
{
    static const bool with[][2] = { { true, true }, { false, true }, { true, false }, { false, false } };
    double want_sum = 0, want_norm = 0, norm;
    struct run run;

    (void)user;
    open_run(&run, context, tiny_build(&tiny_defaults, NULL));
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < N_WAYS; way++) {
            const uint64_t all = (uint64_t)(with[i][0] + with[i][1]) * (uint64_t)run.model->data_ranks;
            uint64_t n;
            const double sum = two_micro_steps(&run, (enum way)way, with[i], &n);

            cr_expect_eq(n, all * BATCH * SEQ);
            if (n == 0) {
                expect_no_gradients(&run, "left no gradients", "no call had targets");
                continue;
            }
            must(&run, fsdp_clip_grad_norm(run.model, 0, &norm, &run.err));
            want_sum = way == IN_ONE_CALL ? sum : want_sum;
            want_norm = way == IN_ONE_CALL ? norm : want_norm;
            cr_expect(fabs(sum - want_sum) < 1e-6 * want_sum && fabs(norm - want_norm) < 1e-5 * want_norm,
                      "targets %d, way %d: sum %g, norm %g, not %g and %g", i, way, sum, norm, want_sum,
                      want_norm);
        }
    close_run(&run);
}

Test(fresh_gradients, are_of_all_targets_of_a_step_however_many_calls_it_has)
{
    world_run(1, count_targets, NULL);
    world_run(2, count_targets, NULL);
}

/* A refused batch ends the step: what came before it is no part of the next one. */
static void refuse_within(struct fsdp_context *context, void *user)
{
    struct samples samples;
    struct fsdp_loss loss;
    struct run run;
    double want, norm;

    (void)user;
    open_run(&run, context, tiny_build(&tiny_defaults, NULL));
    must(&run, call(&run, 7, true, &loss));
    must(&run, fsdp_clip_grad_norm(run.model, 0, &want, &run.err));
    fsdp_module_set_is_last_backward(run.model, false);
    must(&run, call(&run, 1, true, &loss));
    fsdp_module_set_is_last_backward(run.model, true);
    (void)fill(&samples, &run, 2, true);
    samples.targets[0] = 99;
    cr_expect_eq(fsdp_model_forward_backward(run.model, &samples.batch, 1, &loss, &run.err), FSDP_ERR_ARG);
    expect_no_gradients(&run, "left no gradients", "after a refused last batch");
    must(&run, call(&run, 7, true, &loss));
    must(&run, fsdp_clip_grad_norm(run.model, 0, &norm, &run.err));
    cr_expect(norm == want, "%g, not %g: of the refused step something is left", norm, want);
    close_run(&run);
}

Test(fresh_gradients, of_a_step_are_gone_where_one_of_its_batches_is_refused)
{
    world_run(1, refuse_within, NULL);
    world_run(2, refuse_within, NULL);
}

/* --- ones that are no numbers ------------------------------------------------------------------------------
 * */

struct sick {
    int W, replicate, tensor;
    int victim;
    float value;
    int first; /* element of the victim's row */
    const char *name;
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
    static const char *const names[] = { "replicate", "shard", "tensor" };
    const struct sick *sick = user;
    const int sizes[] = { sick->replicate, sick->W / sick->replicate / sick->tensor, sick->tensor };
    struct spoiler spoiler = { .value = sick->value, .at = sick->first };
    struct tiny tiny = tiny_defaults;
    struct fsdp_device_mesh *mesh, *data, *tensor;
    struct fsdp_err err = { 0 };
    struct fsdp_module *root;
    struct fsdp_loss loss;
    struct run run;
    double norm;

    tiny.heads = 4; /* two tensor ranks divide them */
    cr_assert(fsdp_init_device_mesh(&mesh, context, 3, sizes, names, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_device_mesh_slice(&data, mesh, names, 2, &err) == FSDP_OK, "%s", err.message);
    cr_assert(fsdp_device_mesh_slice(&tensor, mesh, names + 2, 1, &err) == FSDP_OK, "%s", err.message);
    tiny.mesh = data;
    tiny.tensor = sick->tensor > 1 ? tensor : NULL;
    root = tiny_build(&tiny, &err);
    cr_assert_not_null(root, "%s", err.message);
    fsdp_module_set_all_reduce_hook(fsdp_module_child_at(fsdp_module_child(root, "layers"), 1), spoil,
                                    &spoiler);
    open_run(&run, context, root);
    for (int clips = 0; clips < 2; clips++) {
        struct samples samples;

        spoiler.on = fsdp_context_rank(context) == sick->victim;
        (void)fill(&samples, &run, 0, true);
        tiny_samples(&tiny, 3, BATCH, samples.tokens, samples.targets); /* the same on every rank */
        samples.batch.first_sample = 3;
        must(&run, fsdp_model_forward_backward(run.model, &samples.batch, 1, &loss, &run.err));
        cr_expect(isfinite(loss.mean), "the loss shows nothing of it");
        if (clips) {
            expect_no_clipping(&run, FSDP_ERR_NOT_FINITE, sick->name, "clipping");
            cr_expect_eq(fsdp_clip_grad_norm(run.model, 1.0, &norm, &run.err), FSDP_ERR_NOT_FINITE);
            cr_expect(!isfinite(norm) || sick->tensor > 1 || sick->replicate > 1, /* one copy counts */
                      "%g is measured", norm);
        }
        expect_no_update(&run, FSDP_ERR_NOT_FINITE, sick->name, "an update");
        spoiler.on = false;
        must(&run, fsdp_model_forward_backward(run.model, &samples.batch, 1, &loss, &run.err));
        must(&run, fsdp_clip_grad_norm(run.model, 1.0, &norm, &run.err));
        must(&run, fsdp_optimizer_step(run.optimizer, &run.err));
    }
    close_run(&run);
    fsdp_device_mesh_destroy(tensor);
    fsdp_device_mesh_destroy(data);
    fsdp_device_mesh_destroy(mesh);
}

Test(fresh_gradients, that_are_no_numbers_on_one_rank_are_refused_by_all_with_the_parameter)
{
    static const struct sick all[] = {
        { .W = 1,
          .replicate = 1,
          .tensor = 1,
          .victim = 0,
          .value = NAN,
          .name = "\"layers.1.attention_norm.weight\"" },
        { .W = 3,
          .replicate = 1,
          .tensor = 1,
          .victim = 2,
          .value = INFINITY,
          .name = "\"layers.1.attention_norm.weight\"" },
        { .W = 3,
          .replicate = 1,
          .tensor = 1,
          .victim = 1,
          .value = -INFINITY,
          .first = 4,
          .name = "\"layers.1.attention_norm.bias\"" },
        { .W = 4,
          .replicate = 2,
          .tensor = 1,
          .victim = 3,
          .value = NAN,
          .name = "\"layers.1.attention_norm.weight\"" },
        { .W = 4,
          .replicate = 1,
          .tensor = 2,
          .victim = 2,
          .value = NAN,
          .name = "\"layers.1.attention_norm.weight\"" },
        { .W = 4,
          .replicate = 1,
          .tensor = 2,
          .victim = 1,
          .value = NAN,
          .name = "\"layers.1.attention_norm.weight\"" },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        world_run(all[i].W, step_on_sick, (void *)(uintptr_t)&all[i]);
}
