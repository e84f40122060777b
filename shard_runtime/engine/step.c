/*
 * A step: checks what it is given, agrees on the number of targets, runs the micro-steps, adds up the loss.
 */
#include <math.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/shard/clip.h"

/* Is every token below `n_rows` and every target below `n_classes`, or ignored? Counts the targets. */
static enum fsdp_status check_batch(const struct fsdp_model *model, const struct fsdp_batch *batch,
                                    size_t n_rows, size_t n_classes, uint64_t *n_targets,
                                    struct fsdp_err *err)
{
    const size_t n = model->options.batch * model->options.seq;
    const int32_t *tokens = model->options.input_features == 0 ? batch->input : NULL;

    if (batch->input == NULL || batch->targets == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "a batch has no input or no targets");
    for (size_t i = 0; i < n && tokens != NULL; i++)
        if (tokens[i] < 0 || (n_rows > 0 && (size_t)tokens[i] >= n_rows))
            return fsdp_fail(err, FSDP_ERR_ARG, "token %d of sample %zu is not in the embedding's %zu rows",
                             tokens[i], i / model->options.seq, n_rows);
    for (size_t i = 0; i < n; i++) {
        const int32_t target = batch->targets[i];

        if (target == FSDP_IGNORED_TARGET)
            continue;
        if (target < 0 || (size_t)target >= n_classes)
            return fsdp_fail(err, FSDP_ERR_ARG, "target %d of sample %zu is not in [0, %zu)", target,
                             i / model->options.seq, n_classes);
        (*n_targets)++;
    }
    return FSDP_OK;
}

/*
 * Targets of the whole step over all ranks. Ranks whose data is unusable tell the others in the same
 * all-reduce, so that all of them refuse the step together instead of waiting for each other.
 */
static enum fsdp_status agree_on_targets(const struct fsdp_model *model, const struct fsdp_batch *micro,
                                         size_t n_micro, uint64_t *n_targets, struct fsdp_err *err)
{
    const struct graph *graph = &model->training.graph;
    const size_t n_rows = nn_input_rows(graph), n_classes = graph->result->features;
    enum fsdp_status own = FSDP_OK, status;
    uint64_t n_own = 0;
    int64_t sums[2];

    for (size_t m = 0; m < n_micro && own == FSDP_OK; m++)
        own = check_batch(model, &micro[m], n_rows, n_classes, &n_own, err);
    sums[0] = (int64_t)n_own;
    sums[1] = own != FSDP_OK;
    if (model->context->W > 1) {
        struct fsdp_err theirs = { 0 };

        status = fsdp_all_reduce(model->context->comm, sums, 2, FSDP_I64, FSDP_SUM,
                                 model->context->streams[PLAN_COMPUTE], &theirs);
        if (status != FSDP_OK)
            return own != FSDP_OK ? own : fsdp_fail(err, status, "%s", theirs.message);
    }
    if (own != FSDP_OK)
        return own;
    if (sums[1] != 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "another rank refused its batch");
    *n_targets = (uint64_t)sums[0];
    return FSDP_OK;
}

static enum fsdp_status add_up_loss(const struct fsdp_model *model, double sum, uint64_t n_targets,
                                    struct fsdp_loss *loss, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    if (model->context->W > 1)
        status = fsdp_all_reduce(model->context->comm, &sum, 1, FSDP_F64, FSDP_SUM,
                                 model->context->streams[PLAN_COMPUTE], err);
    *loss = (struct fsdp_loss){ .mean = n_targets > 0 ? sum / (double)n_targets : NAN,
                                .sum = sum,
                                .n_targets = n_targets };
    return status;
}

enum fsdp_status fsdp_model_forward_backward(struct fsdp_model *model, const struct fsdp_batch *micro,
                                             size_t n_micro, struct fsdp_loss *loss, struct fsdp_err *err)
{
    uint64_t n_targets = 0, n_seen = 0;
    enum fsdp_status status;
    double sum = 0;

    *loss = (struct fsdp_loss){ .mean = NAN };
    if (model->options.batch == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "the model was made for evaluation only");
    if (n_micro == 0 || (n_micro > 1 && !model->options.accumulates))
        return fsdp_fail(err, FSDP_ERR_ARG, "%zu micro-steps in a model that was made %s", n_micro,
                         model->options.accumulates ? "for one or more" : "for one");
    status = agree_on_targets(model, micro, n_micro, &n_targets, err);
    if (status != FSDP_OK || n_targets == 0)
        return status;
    model->grad_scale = 1.0;
    for (size_t m = 0; m < n_micro && status == FSDP_OK; m++) {
        const struct program_input input = {
            .input = micro[m].input,
            .targets = micro[m].targets,
            .first_sample = micro[m].first_sample,
            .micro = m,
            .n_micro = n_micro,
            .scale = (float)((double)model->context->W / (double)n_targets),
            .loss_sum = &sum,
            .n_targets = &n_seen,
        };

        status = program_run(&model->training, model, &input, err);
    }
    if (status != FSDP_OK)
        return status;
    return add_up_loss(model, sum, n_targets, loss, err);
}

enum fsdp_status fsdp_clip_grad_norm_of(struct fsdp_model *model, double max_norm, double norm_type,
                                        double *norm, struct fsdp_err *err)
{
    struct numerics *numerics = &model->context->numerics;
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];
    const size_t n_elems = model->reduced_elems;
    double part, coefficient;
    enum fsdp_status status;

    if (model->gradients == NULL || !(max_norm >= 0) || !(norm_type >= 1))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         model->gradients == NULL ? "the model was made for evaluation only"
                         : !(max_norm >= 0)       ? "max_norm must be 0 or more"
                                                  : "norm_type must be 1 or more");
    part = norm_type == 2 ? numerics->ops->sum_squares(numerics, stream, model->gradients, n_elems)
                          : numerics->ops->sum_powers(numerics, stream, model->gradients, n_elems, norm_type);
    if (norm_type == 2)
        part *= model->grad_scale * model->grad_scale;
    else
        part *= isinf(norm_type) ? model->grad_scale : pow(model->grad_scale, norm_type);
    status = clip_coefficient_p(model->shards, part, norm_type, max_norm, norm, &coefficient, stream, err);
    if (status == FSDP_OK)
        model->grad_scale *= coefficient;
    return status;
}

enum fsdp_status fsdp_clip_grad_norm(struct fsdp_model *model, double max_norm, double *norm,
                                     struct fsdp_err *err)
{
    return fsdp_clip_grad_norm_of(model, max_norm, 2, norm, err);
}

enum fsdp_status fsdp_module_reset_iteration(struct fsdp_model *model, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    enum fsdp_status status = FSDP_OK;

    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK; s++)
        status = context->device.ops->synchronize(context->streams[s], err);
    if (model->gradients != NULL && model->gradient_bytes > 0)
        context->device.ops->fill_zero(context->streams[PLAN_COMPUTE], model->gradients,
                                       model->gradient_bytes);
    model->grad_scale = 1.0;
    if (status == FSDP_OK)
        status = context->device.ops->synchronize(context->streams[PLAN_COMPUTE], err);
    return status;
}

/* --- evaluation
 * ------------------------------------------------------------------------------------------------ */

enum fsdp_status fsdp_model_prepare_evaluation(struct fsdp_model *model, size_t batch, size_t seq,
                                               struct fsdp_err *err)
{
    enum fsdp_status status;

    if (batch == 0 || seq == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "an evaluation of %zu samples of %zu tokens", batch, seq);
    program_destroy(&model->evaluation);
    status = program_create(&model->evaluation, model, batch, false, seq, err);
    if (status != FSDP_OK) {
        program_destroy(&model->evaluation);
        fsdp_wrap(err, "preparing an evaluation");
    }
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
    struct program *program = &model->evaluation;
    double sums[2] = { 0, 0 };
    uint64_t n_targets = 0;
    const struct program_input in = {
        .input = input, .targets = targets, .n_micro = 1, .loss_sum = &sums[0], .n_targets = &n_targets
    };
    const struct plan_entry *last;
    enum fsdp_status status;

    if (program->context == NULL || input == NULL || (targets != NULL && loss == NULL))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         program->context == NULL ? "no evaluation was prepared"
                                                  : "an evaluation without input or place for its loss");
    status = check_evaluation(program, input, targets, err);
    if (status == FSDP_OK)
        status = program_run(program, model, &in, err);
    if (status != FSDP_OK)
        return status;
    last = &program->plan.entries[program->plan.n_entries - 1];
    if (logits != NULL)
        *logits =
            (const float *)(const void *)(program->arena + program->plan.buffers[last->input[0]].offset);
    if (targets == NULL)
        return FSDP_OK;
    sums[1] = (double)n_targets;
    if (model->context->W > 1)
        status = fsdp_all_reduce(model->context->comm, sums, 2, FSDP_F64, FSDP_SUM,
                                 model->context->streams[PLAN_COMPUTE], err);
    *loss = (struct fsdp_loss){ .mean = sums[1] > 0 ? sums[0] / sums[1] : NAN,
                                .sum = sums[0],
                                .n_targets = (uint64_t)sums[1] };
    return status;
}
