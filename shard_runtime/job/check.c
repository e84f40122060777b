#include "shard_runtime/job/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/job/rules.h"

struct checking {
    job_misfit *report;
    void *context;
    size_t n;
};

static void misfit(struct checking *checking, const char *keys, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void misfit(struct checking *checking, const char *keys, const char *format, ...)
{
    char words[FSDP_ERR_MESSAGE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(words, sizeof words, format, args);
    va_end(args);
    checking->n++;
    checking->report(checking->context, keys, FSDP_ERR_CONFIG, words);
}

static void check_model(const struct job *job, struct checking *checking)
{
    if (job->model.dim % job->model.heads != 0)
        misfit(checking, "model.heads|model.dim", "%" PRIu64 " heads do not divide model.dim %" PRIu64,
               job->model.heads, job->model.dim);
    if (strcmp(job->model.kind, "gpt2") != 0 && job->model.preset != JOB_PRESET_NONE)
        misfit(checking, "model.preset|model.kind", "is for model.kind: gpt2");
    if (strcmp(job->model.kind, "gpt2") == 0 && !job->model.tied)
        misfit(checking, "model.tied|model.kind", "cannot be false: the head of a gpt2 is its embedding");
    if (strcmp(job->model.kind, "gpt2") == 0 && !job->model.causal)
        misfit(checking, "model.causal|model.kind", "cannot be false: a gpt2 sees only what is before it");
    if (strcmp(job->model.kind, "gpt2") == 0 && job->model.norm != JOB_LAYERNORM)
        misfit(checking, "model.norm|model.kind", "cannot be rmsnorm: a gpt2 has LayerNorms");
    if (strcmp(job->data.tokenizer, "byte") == 0 && job->model.vocab < 256)
        misfit(checking, "model.vocab|data.tokenizer",
               "must be at least 256 for data.tokenizer byte, not %" PRIu64, job->model.vocab);
}

static void check_optimizer(const struct job *job, struct checking *checking)
{
    /* Without steps there is no warm-up: train.steps 0 only initialises the model. */
    if (job->train.steps != 0 && job->optimizer.warmup_steps > job->train.steps)
        misfit(checking, "optimizer.warmup_steps|train.steps",
               "%" PRIu64 " is more than train.steps %" PRIu64, job->optimizer.warmup_steps,
               job->train.steps);
    if (job->optimizer.kind == JOB_ADAMW && job->optimizer.momentum != 0)
        misfit(checking, "optimizer.momentum|optimizer.kind", "is sgd's: adamw has betas");
    if (job->optimizer.in_backward && job->train.clip_norm != 0)
        misfit(checking, "optimizer.in_backward|train.clip_norm",
               "needs train.clip_norm: 0: weights are updated before the whole gradient's norm is known");
}

static void check_batch(const struct job *job, struct checking *checking)
{
    const uint64_t W = job->launch.nproc_per_node * job->launch.nnodes;
    uint64_t batch, n_micro;
    struct fsdp_err err = { 0 };

    if (job->train.batch > JOB_MAX_TOKENS / job->model.seq)
        misfit(checking, "train.batch|model.seq",
               "%" PRIu64 " sequences of %" PRIu64 " tokens: a micro-step has at most %" PRIu64 " tokens",
               job->train.batch, job->model.seq, (uint64_t)JOB_MAX_TOKENS);
    if (job->train.global_batch != 0 && job->train.grad_accumulation != 1)
        misfit(checking, "train.global_batch|train.grad_accumulation",
               "stands in place of train.grad_accumulation: give one of them");
    else if (job->parallel.tensor > 0 && W % job->parallel.tensor == 0 &&
             job_split_batch(job, (int)(W / job->parallel.tensor), &batch, &n_micro, &err) != FSDP_OK)
        misfit(checking, "train.global_batch|launch.nproc_per_node|launch.nnodes", "%s", err.message);
}

static void check_parallel(const struct job *job, struct checking *checking)
{
    const uint64_t W = job->launch.nproc_per_node * job->launch.nnodes;

    const uint64_t T = job->parallel.tensor;

    if (T == 0 || W % T != 0)
        misfit(checking, "parallel.tensor|launch.nproc_per_node|launch.nnodes",
               "groups of %" PRIu64 " do not divide %" PRIu64 " ranks", T, W);
    else if (job->parallel.replicate == 0 || W / T % job->parallel.replicate != 0)
        misfit(checking, "parallel.replicate|launch.nproc_per_node|launch.nnodes",
               "%" PRIu64 " copies of the model do not divide %" PRIu64 " ranks%s", job->parallel.replicate,
               W / T, T > 1 ? ", parallel.tensor counted once" : "");
    if (T > 1 && W % T == 0 && (job->model.heads % T != 0 || 4 * job->model.dim % T != 0))
        misfit(checking, "parallel.tensor|model.heads|model.dim",
               "%" PRIu64 " ranks do not divide %" PRIu64 " heads and %" PRIu64 " features between them", T,
               job->model.heads, 4 * job->model.dim);
    if (T > 1 && strcmp(job->model.kind, "transformer") != 0)
        misfit(checking, "parallel.tensor|model.kind",
               "is not supported for model.kind %s: only transformer is split", job->model.kind);
    if (T > 1 && job->model.dropout > 0)
        misfit(checking, "parallel.tensor|model.dropout",
               "needs model.dropout: 0: heads of attention are dropped whole");
    if (job->parallel.offload_dir != NULL && job->parallel.offload_dir[0] != '\0' &&
        job->parallel.offload != JOB_OFFLOAD_NVME)
        misfit(checking, "parallel.offload_dir|parallel.offload", "is for parallel.offload: nvme");
}

/*
 * Returns the reason why parallel.stochastic_rounding does not fit the other keys, or NULL. Stochastic
 * rounding needs weights that are gathered in bfloat16.
 */
static const char *misfit_of_rounding(const struct job *job)
{
    if (!job->parallel.stochastic_rounding)
        return NULL;
    if (job->parallel.param_dtype != JOB_BFLOAT16)
        return "needs param_dtype: bfloat16: nothing is rounded to float32";
    return job->parallel.float8_gather ? "is not supported with float8_gather: codes are rounded to nearest"
                                       : NULL;
}

static void check_rounding(const struct job *job, struct checking *checking)
{
    const struct job_rules *rules = job->parallel.groups;
    const char *words = misfit_of_rounding(job);

    if (words != NULL)
        misfit(checking, "parallel.stochastic_rounding|parallel.param_dtype|parallel.float8_gather", "%s",
               words);
    for (size_t i = 0; words == NULL && rules != NULL && i < rules->n; i++) {
        struct job own;
        const char *of_rule;

        job_rule_apply(&rules->list[i], job, &own);
        of_rule = misfit_of_rounding(&own);
        if (of_rule != NULL)
            misfit(checking, "parallel.groups|parallel.stochastic_rounding",
                   "stochastic_rounding of rule %zu %s", i, of_rule);
    }
}

static void check_checkpoint(const struct job *job, struct checking *checking)
{
    if (job->checkpoint.replicas > 0 && job->checkpoint.snapshot_every == 0 &&
        (job->checkpoint.every == 0 || !job->checkpoint.async))
        misfit(checking, "checkpoint.replicas|checkpoint.snapshot_every|checkpoint.async",
               "has nothing to copy: set checkpoint.snapshot_every, or checkpoint.every with async");
}

size_t job_check(const struct job *job, job_misfit *report, void *context)
{
    struct checking checking = { .report = report, .context = context };

    check_model(job, &checking);
    check_batch(job, &checking);
    check_optimizer(job, &checking);
    check_parallel(job, &checking);
    check_rounding(job, &checking);
    check_checkpoint(job, &checking);
    return checking.n;
}
