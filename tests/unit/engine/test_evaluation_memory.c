/*
 * A process that trains and evaluates in turns holds what its forecast says. The peak of RssAnon + RssShmem,
 * less what it held before, is within 5 % of the plan. Once it has done both, neither takes a page more.
 */
#include <criterion/criterion.h>
#include <fsdp/forecast.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "shard_runtime/core/process_memory.h"
#include "tests/unit/engine/rig.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool sanitized = true; /* its shadow is memory too */
#else
static const bool sanitized = false;
#endif

enum { BATCH = 1, EVALUATED = 16, STEPS = 3, FIRST_QUIET = 1 };

static const struct tiny large = {
    .layers = 6, .dim = 512, .heads = 8, .vocab = 256, .seq = 64, .hidden = 2048
};
static const struct tiny small = {
    .layers = 1, .dim = 32, .heads = 2, .vocab = 256, .seq = 64, .hidden = 64
};

struct job {
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    size_t peak;
    long faults; /* of steps and evaluations from FIRST_QUIET on */
};

static void see(struct job *job)
{
    const size_t now = process_memory_now();

    job->peak = now > job->peak ? now : job->peak;
}

static void work(struct job *job, const struct tiny *tiny)
{
    int32_t tokens[EVALUATED * 64], targets[EVALUATED * 64];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    const float *logits;
    struct fsdp_loss loss;
    struct rusage before, after;

    tiny_samples(tiny, 0, EVALUATED, tokens, targets);
    for (int step = 0; step < STEPS; step++) {
        if (step == FIRST_QUIET)
            getrusage(RUSAGE_SELF, &before);
        cr_assert(fsdp_model_forward_backward(job->model, &micro, 1, &loss, NULL) == FSDP_OK);
        see(job);
        cr_assert(fsdp_optimizer_step(job->optimizer, NULL) == FSDP_OK);
        cr_assert(fsdp_model_evaluate(job->model, tokens, targets, &logits, &loss, NULL) == FSDP_OK);
        see(job);
    }
    getrusage(RUSAGE_SELF, &after);
    job->faults = after.ru_minflt - before.ru_minflt;
}

static void run(struct fsdp_context *context, const struct tiny *tiny, struct job *job)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = tiny->seq };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };

    *job = (struct job){ .root = tiny_build(tiny, &err) };
    must(fsdp_model_create(&job->model, context, job->root, &options, &err), &err);
    must(fsdp_optimizer_create(&job->optimizer, job->model, &updates, &err), &err);
    must(fsdp_model_prepare_evaluation(job->model, EVALUATED, tiny->seq, &err), &err);
    work(job, tiny);
}

static void end(struct job *job)
{
    world_drop(job->optimizer, job->model, job->root);
}

static size_t planned(const struct tiny *tiny, size_t *evaluation)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = tiny->seq };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    const struct fsdp_forecast_world world = { .size = 1,
                                               .ranks_per_host = 1,
                                               .threads = 1,
                                               .n_micro = 1,
                                               .evaluation_batch = EVALUATED,
                                               .evaluation_seq = tiny->seq };
    struct fsdp_module *root = tiny_build(tiny, NULL);
    struct fsdp_forecast f;

    cr_assert(fsdp_model_forecast(root, &options, &updates, &world, &f, NULL) == FSDP_OK);
    fsdp_module_destroy(root);
    *evaluation = f.memory.evaluation;
    return f.memory.parameters + f.memory.gradients + f.optimizer + f.memory.arena + f.memory.evaluation;
}

static void measure(struct fsdp_context *context, void *user)
{
    size_t evaluation, before, plan = planned(&large, &evaluation);
    struct job job;

    (void)user;
    cr_assert(plan >= (size_t)256 << 20 && evaluation > plan / 64, "a plan that would show it: %zu of %zu",
              evaluation, plan);
    run(context, &small, &job); /* libraries settle */
    end(&job);
    before = process_memory_now();
    run(context, &large, &job);
    end(&job);

    cr_expect((double)(job.peak - before) < 1.05 * (double)plan &&
                  (double)(job.peak - before) > 0.95 * (double)plan,
              "planned %zu, measured %zu", plan, job.peak - before);
    /* Two of each; what an allocator adds to them is a handful of pages, an arena thousands. */
    cr_expect(job.faults < 256, "%ld pages", job.faults);
}

Test(evaluation, beside_training_it_takes_what_was_forecast, .timeout = 3000)
{
    if (sanitized)
        cr_skip("a sanitizer's shadow is memory too");
    world_run_on(1, "auto", measure, NULL);
}
