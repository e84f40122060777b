/*
 * A step: checks what it is given, agrees on the number of targets, runs the micro-steps, adds up the loss.
 */
#include <math.h>

#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/unshard.h"

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

/* FNV-1a: Fowler, Noll and Vo. Of what a rank was given, for ranks that must be given the same. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static int64_t hash_batches(const struct fsdp_model *model, const struct fsdp_batch *micro, size_t n_micro)
{
    const size_t n = model->options.batch * model->options.seq, features = model->options.input_features;
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t m = 0; m < n_micro; m++) {
        hash = hash_bytes(hash, micro[m].input, n * (features > 0 ? features : 1) * sizeof(int32_t));
        hash = hash_bytes(hash, micro[m].targets, n * sizeof *micro[m].targets);
        hash = hash_bytes(hash, &micro[m].first_sample, sizeof micro[m].first_sample);
    }
    return (int64_t)(hash >> 1);
}

/* The ranks of a tensor group compute on the same samples, or what they add up is nothing. Collective over the group; every rank
 * comes here, whatever it thinks of its data (`own`). */
static enum fsdp_status compare_in_tensor_group(const struct fsdp_model *model,
                                                const struct fsdp_batch *micro, size_t n_micro,
                                                enum fsdp_status own, struct fsdp_err *err)
{
    const int64_t hash = own == FSDP_OK ? hash_batches(model, micro, n_micro) : 0;
    int64_t most[2] = { hash, -hash };
    enum fsdp_status status;

    if (model->T == 1)
        return FSDP_OK;
    status = fsdp_all_reduce(model->tensor, most, 2, FSDP_I64, FSDP_MAX,
                             model->context->streams[PLAN_COMPUTE], err);
    if (status != FSDP_OK || most[0] == -most[1])
        return status;
    return fsdp_fail(
        err, FSDP_ERR_MISMATCH,
        "the ranks of a tensor group were given different samples: they must compute on the same ones");
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
    struct fsdp_err theirs = { 0 };
    uint64_t n_own = 0;
    int64_t sums[2];

    for (size_t m = 0; m < n_micro && own == FSDP_OK; m++)
        own = check_batch(model, &micro[m], n_rows, n_classes, &n_own, err);
    status = compare_in_tensor_group(model, micro, n_micro, own, &theirs);
    if (own == FSDP_OK && status != FSDP_OK)
        own = fsdp_fail(err, status, "%s", theirs.message);
    sums[0] = (int64_t)n_own;
    sums[1] = own != FSDP_OK;
    status = model_reduce_over_data(model, sums, 2, FSDP_I64, FSDP_SUM, &theirs);
    if (status != FSDP_OK)
        return own != FSDP_OK ? own : fsdp_fail(err, status, "%s", theirs.message);
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
    const enum fsdp_status status = model_reduce_over_data(model, &sum, 1, FSDP_F64, FSDP_SUM, err);

    *loss = (struct fsdp_loss){ .mean = n_targets > 0 ? sum / (double)n_targets : NAN,
                                .sum = sum,
                                .n_targets = n_targets };
    return status;
}

void fsdp_module_set_is_last_backward(struct fsdp_model *model, bool is_last_backward)
{
    model->more_to_come = !is_last_backward;
}

static enum fsdp_status check_call(const struct fsdp_model *model, size_t n_micro, struct fsdp_err *err)
{
    if (model->options.batch == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "the model was made for evaluation only");
    if (n_micro == 0 || (n_micro > 1 && !model->options.accumulates))
        return fsdp_fail(err, FSDP_ERR_ARG, "%zu micro-steps in a model that was made %s", n_micro,
                         model->options.accumulates ? "for one or more" : "for one");
    if (model->more_to_come && !model->options.accumulates)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "a backward that is not the step's last in a model that was made for one micro-step");
    return FSDP_OK;
}

/*
 * By what the loss's gradient is multiplied, and (model->loss_scale) what is reduced of it afterwards, so that together it is
 * the mean over the targets of the whole step. Of a step that is one call their number is known before; of several calls the
 * parts are made with a constant in its place, and the last call knows.
 */
static float scale_of_loss(struct fsdp_model *model, bool in_parts, uint64_t n_targets)
{
    const double W = model->data_ranks, unit = W * (double)(model->options.batch * model->options.seq);

    model->loss_scale = 1.0;
    if (!in_parts)
        return (float)(W / (double)n_targets);
    if (!model->more_to_come)
        model->loss_scale = model->step_targets > 0 ? unit / (double)model->step_targets : 0.0;
    return (float)(W / unit);
}

enum fsdp_status fsdp_model_forward_backward(struct fsdp_model *model, const struct fsdp_batch *micro,
                                             size_t n_micro, struct fsdp_loss *loss, struct fsdp_err *err)
{
    const size_t n_before = model->n_micro_done;
    const bool in_parts = n_before > 0 || model->more_to_come;
    uint64_t n_targets = 0, n_seen = 0;
    enum fsdp_status status;
    double sum = 0;
    float scale;

    *loss = (struct fsdp_loss){ .mean = NAN };
    status = check_call(model, n_micro, err);
    if (status == FSDP_OK)
        status = unshard_settle(model, err);
    if (status == FSDP_OK)
        status = agree_on_targets(model, micro, n_micro, &n_targets, err);
    if (status != FSDP_OK || (n_targets == 0 && !in_parts))
        return status;
    model->grad_scale = 1.0;
    model->step_targets += n_targets;
    scale = scale_of_loss(model, in_parts, n_targets);
    model->n_micro_done = 0; /* also after a failure: the next call begins a step */
    for (size_t m = 0; m < n_micro && status == FSDP_OK; m++) {
        const struct program_input input = {
            .input = micro[m].input,
            .targets = micro[m].targets,
            .first_sample = micro[m].first_sample,
            .micro = n_before + m,
            .n_micro = model->more_to_come ? SIZE_MAX : n_before + n_micro,
            .scale = scale,
            .loss_sum = &sum,
            .n_targets = &n_seen,
        };

        status = program_run(&model->training, model, &input, err);
    }
    if (status == FSDP_OK && model->more_to_come)
        model->n_micro_done = n_before + n_micro;
    if (model->n_micro_done == 0)
        model->step_targets = 0;
    return status == FSDP_OK ? add_up_loss(model, sum, n_targets, loss, err) : status;
}

enum fsdp_status fsdp_module_reset_iteration(struct fsdp_model *model, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    enum fsdp_status status = FSDP_OK;

    unshard_drop_all(model);
    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK; s++)
        status = context->device.ops->synchronize(context->streams[s], err);
    if (model->gradients != NULL && model->gradient_bytes > 0)
        context->device.ops->fill_zero(context->streams[PLAN_COMPUTE], model->gradients,
                                       model->gradient_bytes);
    model->grad_scale = model->loss_scale = 1.0;
    model->n_micro_done = 0;
    model->step_targets = 0;
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
    status = unshard_settle(model, err); /* its thread may be at it */
    if (status != FSDP_OK)
        return status;
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
        status = unshard_settle(model, err);
    if (status == FSDP_OK)
        status = program_run(program, model, &in, err);
    if (status != FSDP_OK)
        return status;
    last = &program->plan.entries[program->plan.n_entries - 1];
    if (logits != NULL)
        status = program_io_logits(
            program,
            (const float *)(const void *)(program->arena + program->plan.buffers[last->input[0]].offset),
            logits, err);
    if (status != FSDP_OK || targets == NULL)
        return status;
    sums[1] = (double)n_targets;
    status = model_reduce_over_data(model, sums, 2, FSDP_F64, FSDP_SUM, err);
    *loss = (struct fsdp_loss){ .mean = sums[1] > 0 ? sums[0] / sums[1] : NAN,
                                .sum = sums[0],
                                .n_targets = (uint64_t)sums[1] };
    return status;
}
