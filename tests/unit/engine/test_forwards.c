/*
 * Several forwards before a backward, call by call: what may come when, what lies between, what is refused.
 * That the gradients are right and the order is PyTorch's: tests/unit/parity/.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"

static void begin(struct rig *rig, struct fsdp_context *context, size_t n_micro, size_t n_forwards,
                  enum fsdp_backwards backwards)
{
    rig_init(rig, context);
    rig->n_micro = n_micro;
    rig->options.forwards = n_forwards;
    rig->options.backwards = backwards;
    rig->options.accumulates = n_forwards == 0;
}

static enum fsdp_status forward(struct rig *rig, size_t m)
{
    return fsdp_model_forward(rig->model, &rig->micro[m], &rig->loss, &rig->err);
}

static enum fsdp_status run(struct rig *rig, size_t n_batches)
{
    return fsdp_model_forward_backward(rig->model, rig->micro, n_batches, &rig->loss, &rig->err);
}

static void call_out_of_order(struct fsdp_context *context, void *user)
{
    struct fsdp_model *model;
    struct fsdp_err *err;
    struct rig rig;
    double norm;

    (void)user;
    begin(&rig, context, 4, 2, FSDP_BACKWARD_OF_SUM);
    rig_open(&rig);
    rig_fill(&rig, 0);
    model = rig.model;
    err = &rig.err;
    expect_refused(fsdp_model_backward(model, err), FSDP_ERR_ARG, "0 of 2 forwards have run", err);
    expect_refused(run(&rig, 1), FSDP_ERR_ARG, "1 batches in a model that runs 2 forwards before a backward",
                   err);
    expect_refused(run(&rig, 4), FSDP_ERR_ARG, "2 micro-steps in a model that was made for one", err);
    must(forward(&rig, 0), err);
    cr_expect(rig.loss.n_targets > 0 && rig.loss.mean > 0);
    expect_refused(fsdp_model_backward(model, err), FSDP_ERR_ARG, "1 of 2 forwards have run", err);
    expect_refused(run(&rig, 2), FSDP_ERR_ARG, "a forward is waiting for its backward", err);
    expect_refused(fsdp_module_unshard(model, rig.root, false, NULL, err), FSDP_ERR_ARG,
                   "a forward is waiting for its backward", err);
    expect_refused(fsdp_optimizer_step(rig.optimizer, err), FSDP_ERR_ARG, "yet to come", err);
    expect_refused(fsdp_clip_grad_norm(model, 1, &norm, err), FSDP_ERR_ARG, "yet to come", err);
    must(forward(&rig, 1), err);
    expect_refused(forward(&rig, 1), FSDP_ERR_ARG, "all 2 forwards have run", err);
    fsdp_module_set_is_last_backward(model, false);
    expect_refused(fsdp_model_backward(model, err), FSDP_ERR_ARG, "made for one micro-step", err);
    fsdp_module_set_is_last_backward(model, true);
    must(fsdp_model_backward(model, err), err);
    expect_refused(fsdp_model_backward(model, err), FSDP_ERR_ARG, "0 of 2 forwards have run", err);
    must(fsdp_optimizer_step(rig.optimizer, err), err);
    /* A refused batch, or fsdp_module_reset_iteration(), and the first forward is next. */
    must(forward(&rig, 0), err);
    rig.tokens[2 * 6] = -1;
    cr_expect_eq(forward(&rig, 1), FSDP_ERR_ARG);
    expect_refused(fsdp_model_backward(model, err), FSDP_ERR_ARG, "0 of 2 forwards have run", err);
    must(forward(&rig, 0), err);
    must(fsdp_module_reset_iteration(model, err), err);
    expect_refused(fsdp_model_backward(model, err), FSDP_ERR_ARG, "0 of 2 forwards have run", err);
    expect_refused(fsdp_optimizer_step(rig.optimizer, err), FSDP_ERR_ARG, "the last step left no gradients",
                   err);
    rig_close(&rig);
}

WorldTest(forwards, come_before_backwards_and_nothing_else_in_between, call_out_of_order, 1, 2);

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

/* The gradients of all forwards and then all backwards, whole. Returns how many there are. */
static size_t run_halves(struct fsdp_context *context, const struct way *way, enum fsdp_backwards backwards,
                         float *out)
{
    struct rig rig;
    size_t n;

    begin(&rig, context, way->n, way->n, backwards);
    rig.tiny.dropout = way->dropout;
    rig_model(&rig);
    must(fsdp_model_prepare_evaluation(rig.model, 2, 6, &rig.err), &rig.err);
    rig_fill(&rig, 0);
    for (size_t f = 0; f < way->n; f++) {
        must(forward(&rig, f), &rig.err);
        if (way->evaluates)
            must(fsdp_model_evaluate(rig.model, rig.tokens, rig.targets, NULL, &rig.loss, &rig.err),
                 &rig.err);
    }
    for (size_t b = 0; b < (backwards == FSDP_BACKWARD_OF_EACH ? way->n : 1); b++)
        must(fsdp_model_backward(rig.model, &rig.err), &rig.err);
    n = rig_gather(&rig, FSDP_GRADIENT, out);
    rig_close(&rig);
    return n;
}

static void compare(struct fsdp_context *context, void *user)
{
    static _Thread_local float want[RIG_ELEMS], got[RIG_ELEMS];
    const struct way *way = user;
    struct rig micro;
    size_t n;

    begin(&micro, context, way->n, 0, FSDP_BACKWARD_OF_SUM);
    micro.tiny.dropout = way->dropout;
    rig_model(&micro);
    must(rig_backward(&micro, 0, RIG_CALL_BY_CALL), &micro.err);
    n = rig_gather(&micro, FSDP_GRADIENT, want);
    rig_close(&micro);
    cr_assert_eq(run_halves(context, way, FSDP_BACKWARD_OF_EACH, got), n);
    cr_expect(memcmp(got, want, n * sizeof *want) == 0, "a backward of each: other bits");
    cr_assert_eq(run_halves(context, way, FSDP_BACKWARD_OF_SUM, got), n);
    cr_expect(apart(got, want, n) < 1e-6, "one backward: %g", apart(got, want, n));
}

/*
 * Dropout goes by the operation's name and the sample: what a forward drops does not depend on how many ran
 * before.
 */
Test(forwards, give_the_gradients_of_as_many_micro_steps_dropout_included)
{
    static const struct way ways[] = { { .W = 1, .n = 2 },
                                       { .W = 2, .n = 2, .evaluates = true },
                                       { .W = 2, .n = 3, .dropout = 0.3f },
                                       { .W = 3, .n = 2, .dropout = 0.3f, .evaluates = true } };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        world_run(ways[i].W, compare, (void *)(uintptr_t)&ways[i]);
}

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
    must(fsdp_fully_shard(root, &options, &err), &err);
    expect_refused(graph_record(&graph, root, &input, true, &err), FSDP_ERR_ARG,
                   "a value of an earlier forward", &err);
    graph_fini(&graph);
    fsdp_module_destroy(root);
}

static void measure(struct fsdp_context *context, void *user)
{
    struct fsdp_memory memory[3];

    (void)user;
    for (size_t n = 1; n <= 3; n++) {
        struct rig rig;

        begin(&rig, context, 1, n, FSDP_BACKWARD_OF_SUM);
        rig_model(&rig);
        fsdp_model_memory(rig.model, &memory[n - 1]);
        rig_close(&rig);
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

WorldTest(forwards, take_a_set_of_activations_each_and_no_more_parameters, measure, 2);
