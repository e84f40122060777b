/*
 * Several forwards before a backward, call by call: what may come when, what lies between, what is refused. That the
 * gradients are right and the order is PyTorch's: tests/unit/parity/.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, N = 3 };

struct data {
    int32_t tokens[N][BATCH * 6], targets[N][BATCH * 6];
    struct fsdp_batch batches[N];
};

static void fill(struct data *data, int rank)
{
    for (int m = 0; m < N; m++) {
        const uint64_t first = (uint64_t)(m * 7 + rank * BATCH);

        tiny_samples(&tiny_defaults, first, BATCH, data->tokens[m], data->targets[m]);
        data->batches[m] = (struct fsdp_batch){ .input = data->tokens[m],
                                                .targets = data->targets[m],
                                                .first_sample = first };
    }
}

static struct fsdp_model *make(struct fsdp_context *context, struct fsdp_module *root,
                               const struct fsdp_model_options *how)
{
    struct fsdp_model_options options = *how;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };

    options.batch = BATCH;
    options.seq = tiny_defaults.seq;
    options.seed = 5;
    cr_assert(fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK, "%s", err.message);
    return model;
}

static void expect_refused(enum fsdp_status status, const struct fsdp_err *err, const char *words)
{
    cr_expect(status == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err->message, words), "\"%s\", not \"%s\"", err->message, words);
}

static void call_out_of_order(struct fsdp_context *context, void *user)
{
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
    struct fsdp_model *model = make(context, root, &(struct fsdp_model_options){ .forwards = 2 });
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer;
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    struct data data;
    double norm;

    (void)user;
    fill(&data, fsdp_context_rank(context));
    cr_assert(fsdp_optimizer_create(&optimizer, model, &updates, &err) == FSDP_OK, "%s", err.message);
    expect_refused(fsdp_model_backward(model, &err), &err, "0 of 2 forwards have run");
    expect_refused(fsdp_model_forward_backward(model, data.batches, 1, &loss, &err), &err,
                   "1 batches in a model that runs 2 forwards before a backward");
    expect_refused(fsdp_model_forward_backward(model, data.batches, 4, &loss, &err), &err,
                   "2 micro-steps in a model that was made for one");
    cr_assert(fsdp_model_forward(model, &data.batches[0], &loss, &err) == FSDP_OK, "%s", err.message);
    cr_expect(loss.n_targets > 0 && loss.mean > 0);
    expect_refused(fsdp_model_backward(model, &err), &err, "1 of 2 forwards have run");
    expect_refused(fsdp_model_forward_backward(model, data.batches, 2, &loss, &err), &err,
                   "a forward is waiting for its backward");
    expect_refused(fsdp_module_unshard(model, root, false, NULL, &err), &err,
                   "a forward is waiting for its backward");
    expect_refused(fsdp_optimizer_step(optimizer, &err), &err, "yet to come");
    expect_refused(fsdp_clip_grad_norm(model, 1, &norm, &err), &err, "yet to come");
    cr_assert(fsdp_model_forward(model, &data.batches[1], &loss, &err) == FSDP_OK, "%s", err.message);
    expect_refused(fsdp_model_forward(model, &data.batches[1], &loss, &err), &err, "all 2 forwards have run");
    fsdp_module_set_is_last_backward(model, false);
    expect_refused(fsdp_model_backward(model, &err), &err, "made for one micro-step");
    fsdp_module_set_is_last_backward(model, true);
    cr_assert(fsdp_model_backward(model, &err) == FSDP_OK, "%s", err.message);
    expect_refused(fsdp_model_backward(model, &err), &err, "0 of 2 forwards have run");
    cr_expect(fsdp_optimizer_step(optimizer, &err) == FSDP_OK, "%s", err.message);
    /* A refused batch, or fsdp_module_reset_iteration(), and the first forward is next. */
    cr_assert(fsdp_model_forward(model, &data.batches[0], &loss, &err) == FSDP_OK);
    data.tokens[1][0] = -1;
    cr_expect(fsdp_model_forward(model, &data.batches[1], &loss, &err) == FSDP_ERR_ARG);
    expect_refused(fsdp_model_backward(model, &err), &err, "0 of 2 forwards have run");
    cr_assert(fsdp_model_forward(model, &data.batches[0], &loss, &err) == FSDP_OK);
    cr_assert(fsdp_module_reset_iteration(model, &err) == FSDP_OK);
    expect_refused(fsdp_model_backward(model, &err), &err, "0 of 2 forwards have run");
    expect_refused(fsdp_optimizer_step(optimizer, &err), &err, "the last step left no gradients");
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(forwards, come_before_backwards_and_nothing_else_in_between)
{
    world_run(1, call_out_of_order, NULL);
    world_run(2, call_out_of_order, NULL);
}

/* --- gradients, to the bit or nearly ----------------------------------------------------------------------- */

struct way {
    int W;
    float dropout;
    size_t n;
    bool evaluates; /* between the halves */
};

static double apart(const float *a, const float *b, size_t n)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(difference / size);
}

static void run_halves(struct fsdp_model *model, const struct way *way, struct data *data, size_t n_backwards)
{
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    const float *logits;

    for (size_t f = 0; f < way->n; f++) {
        cr_assert(fsdp_model_forward(model, &data->batches[f], &loss, &err) == FSDP_OK, "%s", err.message);
        if (way->evaluates)
            cr_assert(fsdp_model_evaluate(model, data->tokens[0], data->targets[0], &logits, &loss, &err) ==
                          FSDP_OK,
                      "%s", err.message);
    }
    for (size_t b = 0; b < n_backwards; b++)
        cr_assert(fsdp_model_backward(model, &err) == FSDP_OK, "%s", err.message);
}

/* What is reduced, and the scale that its readers apply. */
static void copy_gradients(const struct fsdp_model *model, float *out)
{
    for (size_t i = 0; i < model->memory[PLACE_DEVICE].gradient_bytes / sizeof(float); i++)
        out[i] = model->memory[PLACE_DEVICE].gradients[i] * (float)model->loss_scale;
}

static void compare(struct fsdp_context *context, void *user)
{
    const struct way *way = user;
    struct tiny tiny = tiny_defaults;
    struct fsdp_model *micro, *sum, *each;
    float *want, *got;
    struct fsdp_module *roots[3];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    struct data data;
    size_t n;

    tiny.dropout = way->dropout;
    fill(&data, fsdp_context_rank(context));
    for (int i = 0; i < 3; i++)
        roots[i] = tiny_build(&tiny, NULL);
    micro = make(context, roots[0], &(struct fsdp_model_options){ .accumulates = true });
    sum = make(context, roots[1], &(struct fsdp_model_options){ .forwards = way->n });
    each = make(context, roots[2],
                &(struct fsdp_model_options){ .forwards = way->n, .backwards = FSDP_BACKWARD_OF_EACH });
    cr_assert(fsdp_model_prepare_evaluation(sum, BATCH, 6, &err) == FSDP_OK &&
              fsdp_model_prepare_evaluation(each, BATCH, 6, &err) == FSDP_OK);
    n = micro->memory[PLACE_DEVICE].gradient_bytes / sizeof(float);
    want = malloc(n * sizeof *want);
    got = malloc(n * sizeof *got);
    for (size_t m = 0; m < way->n; m++) {
        fsdp_module_set_is_last_backward(micro, m + 1 == way->n);
        cr_assert(fsdp_model_forward_backward(micro, &data.batches[m], 1, &loss, &err) == FSDP_OK);
    }
    copy_gradients(micro, want);
    run_halves(each, way, &data, way->n);
    copy_gradients(each, got);
    cr_expect(memcmp(got, want, n * sizeof *want) == 0, "a backward of each: other bits");
    run_halves(sum, way, &data, 1);
    copy_gradients(sum, got);
    cr_expect(apart(got, want, n) < 1e-6, "one backward: %g", apart(got, want, n));
    free(want);
    free(got);
    fsdp_model_destroy(micro);
    fsdp_model_destroy(sum);
    fsdp_model_destroy(each);
    for (int i = 0; i < 3; i++)
        fsdp_module_destroy(roots[i]);
}

/* Dropout goes by the operation's name and the sample: what a forward drops does not depend on how many ran before. */
Test(forwards, give_the_gradients_of_as_many_micro_steps_dropout_included)
{
    static const struct way ways[] = { { .W = 1, .n = 2 },
                                       { .W = 2, .n = 2, .evaluates = true },
                                       { .W = 2, .n = 3, .dropout = 0.3f },
                                       { .W = 3, .n = 2, .dropout = 0.3f, .evaluates = true } };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        world_run(ways[i].W, compare, (void *)(uintptr_t)&ways[i]);
}

/* --- what is recorded --------------------------------------------------------------------------------------- */

static struct fsdp_value *remembers(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    struct fsdp_value **kept = user, *x = fsdp_call(fsdp_module_child(self, "embedding"), tokens);

    if (*kept == NULL)
        *kept = x;
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_add(x, *kept));
}

Test(forwards, read_nothing_of_one_another)
{
    const struct graph_input input = { .dtype = FSDP_I32, .batch = 2, .seq = 3, .n_forwards = 2 };
    const struct fsdp_fully_shard_options options = { 0 };
    struct fsdp_value *kept = NULL;
    struct fsdp_module *root = fsdp_module_create(remembers, &kept);
    struct fsdp_err err = { 0 };
    struct graph graph;

    fsdp_embedding(root, "embedding", 11, 8);
    fsdp_linear(root, "output", 8, 11, false);
    cr_assert(fsdp_fully_shard(root, &options, &err) == FSDP_OK);
    cr_expect(graph_record(&graph, root, &input, true, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "a value of an earlier forward"), "%s", err.message);
    graph_fini(&graph);
    fsdp_module_destroy(root);
}

static void measure(struct fsdp_context *context, void *user)
{
    struct fsdp_memory memory[3];

    (void)user;
    for (size_t n = 1; n <= 3; n++) {
        struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);
        struct fsdp_model *model = make(context, root, &(struct fsdp_model_options){ .forwards = n });

        fsdp_model_memory(model, &memory[n - 1]);
        fsdp_model_destroy(model);
        fsdp_module_destroy(root);
    }
    for (int n = 1; n < 3; n++) {
        cr_expect(memory[n].parameters == memory[0].parameters);
        /* The embeddings, which forward alone reads, stay until the last one has read them. */
        cr_expect(memory[n].gather <= memory[0].gather + (240 + 80) * sizeof(float) &&
                      memory[n].gather == memory[1].gather,
                  "%zu, %zu of one forward", memory[n].gather, memory[0].gather);
        cr_expect(memory[n].activations > memory[n - 1].activations + memory[0].activations / 3);
        cr_expect(memory[n].activations < memory[n - 1].activations + memory[0].activations);
    }
}

Test(forwards, take_a_set_of_activations_each_and_no_more_parameters)
{
    world_run(2, measure, NULL);
}
