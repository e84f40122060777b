/*
 * Evaluation: a program of its own, forward alone.
 */
#include <math.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/unshard.h"

static void drop(struct fsdp_model *model)
{
    program_destroy(&model->evaluation);
    model->eval_batch = model->eval_seq = 0;
}

static enum fsdp_status prepare(struct fsdp_model *model, size_t batch, size_t seq, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    if (batch == 0 || seq == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "an evaluation of %zu samples of %zu tokens", batch, seq);
    drop(model); /* set before planning, so that no later call plans the program a second time */
    /*
     * All programs must have one layout, and it depends on setters that the user called: follow those first.
     */
    if (model->n_micro_done == 0 && model->training.next_call == 0)
        OK_OR_RETURN(model_follow_setters(model, false, true, false, err));
    status = program_create(&model->evaluation, model, batch, false, seq, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "preparing an evaluation");
    model->eval_batch = batch;
    model->eval_seq = seq;
    return status;
}

enum fsdp_status fsdp_model_prepare_evaluation(struct fsdp_model *model, size_t batch, size_t seq,
                                               struct fsdp_err *err)
{
    REQUIRE(model, err);

    enum fsdp_status status = unshard_settle(model, err); /* its second thread may be gathering */

    model->replanned = false;
    if (status == FSDP_OK)
        status = prepare(model, batch, seq, err);
    status = model_agree(model, NULL, 0, status, err);
    if (status != FSDP_OK) {
        model_plan_again(model);
        drop(model);
    }
    return status;
}

/*
 * Between two steps an evaluation follows the setters that the user has called; within a step it uses the
 * plans of that step. A rank that made new plans tells the others whether that worked. If one failed, all
 * ranks make new plans the next time.
 */
static enum fsdp_status follow_setters(struct fsdp_model *model, struct fsdp_err *err)
{
    enum fsdp_status status;

    if (model->n_micro_done > 0 || model->training.next_call > 0)
        return FSDP_OK;
    status = model_follow_setters(model, false, true, true, err); /* an evaluation has no micro-steps */
    if (!model->replanned)
        return status;
    status = model_agree(model, NULL, 0, status, err);
    if (status != FSDP_OK)
        model_plan_again(model);
    return status;
}

static enum fsdp_status check_evaluation(const struct program *program, const void *input,
                                         const int32_t *targets, struct fsdp_err *err)
{
    const struct graph *graph = &program->graph;
    const size_t n = nn_rows(graph->result), n_rows = nn_input_rows(graph);
    const int32_t *tokens = graph->input->dtype == FSDP_I32 ? input : NULL;

    for (size_t i = 0; i < n; i++) {
        if (tokens != NULL && (tokens[i] < 0 || (n_rows > 0 && (size_t)tokens[i] >= n_rows)))
            return fsdp_fail(err, FSDP_ERR_ARG, "token %d is not in the embedding's %zu rows", tokens[i],
                             n_rows);
        if (targets != NULL && targets[i] != FSDP_IGNORED_TARGET &&
            (targets[i] < 0 || (size_t)targets[i] >= graph->result->features))
            return fsdp_fail(err, FSDP_ERR_ARG, "target %d is not in [0, %zu)", targets[i],
                             graph->result->features);
    }
    return FSDP_OK;
}

enum fsdp_status fsdp_model_evaluate(struct fsdp_model *model, const void *input, const int32_t *targets,
                                     const float **logits, struct fsdp_loss *loss, struct fsdp_err *err)
{
    REQUIRE(model, err);

    struct program *program = &model->evaluation;
    double sums[2] = { 0, 0 };
    uint64_t n_targets = 0;
    const struct fsdp_batch batch = { .input = input, .targets = targets };
    struct program_input in = {
        .batches = &batch, .n_calls = 1, .n_micro = 1, .loss_sum = &sums[0], .n_targets = &n_targets
    };
    const struct plan_entry *last;
    enum fsdp_status status;

    if (model->eval_batch == 0) /* the same on all ranks */
        return fsdp_fail(err, FSDP_ERR_ARG, "no evaluation was prepared");
    model->replanned = false;
    status = unshard_settle(model, err);
    if (status == FSDP_OK)
        status = follow_setters(model, err);
    if (status != FSDP_OK && model->replanned) /* on all ranks */
        return status;
    if (status == FSDP_OK && (input == NULL || (targets != NULL && loss == NULL)))
        status = fsdp_fail(err, FSDP_ERR_ARG, "an evaluation without input or place for its loss");
    if (status == FSDP_OK)
        status = check_evaluation(program, input, targets, err);
    in.fails = status != FSDP_OK; /* the other ranks have not heard of this rank's failure yet */
    in.why = err;
    if (status == FSDP_OK || !model_is_broken(model)) {
        struct fsdp_err run = { 0 };
        const enum fsdp_status ran = program_run(program, model, &in, &run);

        if (ran != FSDP_OK)
            status = fsdp_fail(err, ran, "%s", run.message);
    }
    sums[1] = (double)n_targets;
    OK_OR_RETURN(model_agree(model, sums, 2, status, err));
    last = &program->plan.entries[program->plan.n_entries - 1];
    if (logits != NULL)
        OK_OR_RETURN(program_io_logits(
            program,
            (const float *)(const void *)(program->arena + program->plan.buffers[last->loss.logits].offset),
            logits, err));
    if (targets == NULL)
        return FSDP_OK;
    *loss = (struct fsdp_loss){ .mean = sums[1] > 0 ? sums[0] / sums[1] : NAN,
                                .sum = sums[0],
                                .n_targets = (uint64_t)sums[1] };
    return FSDP_OK;
}
