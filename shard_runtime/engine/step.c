/*
 * A step of training: forwards, backwards and what the model knows about them, in one call or in halves.
 * step_agree.c has what the ranks tell each other.
 */
#include "shard_runtime/engine/step_impl.h"

#include <math.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/timing.h"
#include "shard_runtime/engine/unshard.h"

/* Before a backward that updates parameters: is the loss finite? All ranks know it, and decide alike. */
static enum fsdp_status check_loss(const struct fsdp_model *model, struct fsdp_err *err)
{
    return !model->loss_is_nonfinite
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOT_FINITE,
                           "the loss is not finite: backward, which updates parameters, was not run");
}

void fsdp_module_set_is_last_backward(struct fsdp_model *model, bool is_last_backward)
{
    if (model != NULL)
        model->more_to_come = !is_last_backward;
}

static enum fsdp_status check_training(const struct fsdp_model *model, struct fsdp_err *err)
{
    if (model->options.batch == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "the model was made for evaluation only");
    if (model->more_to_come && !model->options.accumulates)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "a backward that is not the step's last in a model that was made for one micro-step");
    return FSDP_OK;
}

static enum fsdp_status check_call(const struct fsdp_model *model, size_t n_micro, struct fsdp_err *err)
{
    const size_t n_forwards = model_forwards(model);

    OK_OR_RETURN(check_training(model, err));
    if (model->training.next_call != 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "a forward is waiting for its backward");
    if (n_micro == 0 || n_micro % n_forwards != 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "%zu batches in a model that runs %zu forwards before a backward",
                         n_micro, n_forwards);
    if (n_micro > n_forwards && !model->options.accumulates)
        return fsdp_fail(err, FSDP_ERR_ARG, "%zu micro-steps in a model that was made for one",
                         n_micro / n_forwards);
    return FSDP_OK;
}

/*
 * Targets of all ranks in one micro-step if none is ignored. Parts of a step are divided by this number while
 * the step's own is not known.
 */
static double usual_targets(const struct fsdp_model *model)
{
    return (double)model->data_ranks * (double)(model->options.batch * model->options.seq);
}

/*
 * The gradients of a step in parts are complete: set the factor that makes them the mean over the step's
 * targets.
 */
static void scale_parts(struct fsdp_model *model)
{
    model->loss_scale = model->step_targets > 0 ? usual_targets(model) / (double)model->step_targets : 0.0;
}

/* A step begins or goes on. When it begins, forget what happened to the last one. */
static void enter_step(struct fsdp_model *model)
{
    if (model->n_micro_done > 0 || model->training.next_call > 0)
        return;
    timing_begin_step(model->context);
    model_note_dropped(model);
    model->completed = model->spoiled = model->has_gradients = model->used = false;
    model->loss_is_nonfinite = false;
    model->nonfinite_parameter = -1;
    memset(model->in_step, 0, (size_t)model->layout.n_groups * sizeof *model->in_step);
    model->n_steps_begun++;
}

/* Call it when n_micro more micro-steps of the step are done, or when the step has failed with `status`. */
static void leave_step(struct fsdp_model *model, size_t n_micro, enum fsdp_status status)
{
    model->n_micro_done = status == FSDP_OK && model->more_to_come ? model->n_micro_done + n_micro : 0;
    model->has_gradients = status == FSDP_OK && model->n_micro_done == 0 && model->step_targets > 0;
    model->training.compared = model->training.compared || (model->has_gradients && model->same_plan);
    if (model->n_micro_done == 0)
        model->step_targets = 0;
    /* from now on has_gradients alone says whether there are gradients */
    for (int g = 0; g < model->layout.n_groups; g++)
        model->in_step[g].final = false;
    if (status != FSDP_OK)
        program_rewind(&model->training);
}

/*
 * The factor for the loss's gradient. Together with model->loss_scale, which is applied to reduced gradients,
 * it makes gradients the mean over all targets of the step. For a step of one call their number is known
 * beforehand. For a step of several calls a constant stands for it, and loss_scale corrects that after the
 * last call.
 */
static float scale_of_loss(struct fsdp_model *model, bool in_parts, uint64_t n_targets)
{
    const double W = model->data_ranks;

    model->loss_scale = 1.0;
    if (!in_parts)
        return (float)(W / (double)n_targets);
    if (!model->more_to_come)
        scale_parts(model);
    return (float)(W / usual_targets(model));
}

/*
 * Runs the next n_calls of the program. If this rank fails, *status and err keep that. It goes on with the
 * collectives, because the other ranks do not know of the failure yet. Returns false if a group is broken:
 * then nothing goes on.
 */
static bool run_calls(struct fsdp_model *model, struct program_input *input, int n_calls,
                      enum fsdp_status *status, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };
    enum fsdp_status now;

    input->n_calls = n_calls;
    input->fails = *status != FSDP_OK;
    input->why = err;
    now = program_run(&model->training, model, input, &own);
    if (now != FSDP_OK && (*status == FSDP_OK || (model_is_broken(model) && *status != FSDP_ERR_DEVICE)))
        *status = fsdp_fail(err, now, "%s", own.message);
    return *status == FSDP_OK || !model_is_broken(model);
}

/*
 * The last run of a step whose backwards update parameters. Run the forwards and agree on the loss of the
 * step. Then run the backwards, if no rank failed and the loss is finite; *ran says whether they ran.
 */
static enum fsdp_status run_checked(struct fsdp_model *model, struct program_input *input, uint64_t n_targets,
                                    bool *ran, struct fsdp_loss *loss, enum fsdp_status status,
                                    struct fsdp_err *err)
{
    const int n_forwards = (int)model_forwards(model);

    (void)run_calls(model, input, n_forwards, &status, err);
    status = step_agree_on_loss(model, false, *input->loss_sum, n_targets, loss, status, err);
    if (status == FSDP_OK)
        status = check_loss(model, err);
    *ran = status == FSDP_OK;
    if (*ran)
        (void)run_calls(model, input, program_calls(&model->training) - n_forwards, &status, err);
    return status;
}

enum fsdp_status fsdp_model_forward_backward(struct fsdp_model *model, const struct fsdp_batch *micro,
                                             size_t n_micro, struct fsdp_loss *loss, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(loss, err);

    const bool in_parts = model->n_micro_done > 0 || model->more_to_come, last = !model->more_to_come;
    const bool checks = last && model_updates_in_backward(model);
    const size_t n_forwards = model_forwards(model), n_runs = n_micro / n_forwards;
    const size_t n_backwards = step_backwards(model), n_all = n_runs * n_backwards;
    uint64_t n_targets = 0, n_seen = 0;
    bool goes_on = true, ran = true;
    struct program_input input;
    enum fsdp_status status;
    double sum = 0;

    *loss = (struct fsdp_loss){ .mean = NAN };
    status = check_call(model, n_micro, err);
    enter_step(model);
    status = step_agree_on_targets(model, micro, n_micro, status, &n_targets, err);
    if (status == FSDP_OK)
        model->step_targets += n_targets;
    if (status != FSDP_OK || (last && model->step_targets == 0)) {
        /* otherwise the program is in the middle of a step, which such a call must not end */
        if (model->training.next_call == 0)
            leave_step(model, n_all, status);
        return status;
    }
    model->grad_scale = 1.0;
    input = (struct program_input){ .n_micro = last ? model->n_micro_done + n_all : SIZE_MAX,
                                    .scale = scale_of_loss(model, in_parts, n_targets),
                                    .loss_sum = &sum,
                                    .n_targets = &n_seen };
    for (size_t run = 0; run < n_runs && goes_on; run++) {
        input.batches = &micro[run * n_forwards];
        input.micro = model->n_micro_done + run * n_backwards;
        if (checks && run + 1 == n_runs)
            status = run_checked(model, &input, n_targets, &ran, loss, status, err);
        else
            goes_on = run_calls(model, &input, program_calls(&model->training), &status, err);
    }
    if (!checks)
        status = step_agree_on_loss(model, last, sum, n_targets, loss, status, err);
    else if (ran)
        status = step_agree_on_end(model, true, NULL, 0, status, err);
    if (checks && ran && status != FSDP_OK)
        status = model_tell_updates(model, status, err);
    leave_step(model, n_all, status);
    return status;
}

enum fsdp_status fsdp_model_forward(struct fsdp_model *model, const struct fsdp_batch *batch,
                                    struct fsdp_loss *loss, struct fsdp_err *err)
{
    REQUIRE(model, err);
    REQUIRE(loss, err);

    struct program *program = &model->training;
    uint64_t n_targets = 0, n_seen = 0;
    struct program_input input;
    enum fsdp_status status;
    double sum = 0;

    *loss = (struct fsdp_loss){ .mean = NAN };
    status = check_training(model, err);
    if (program->next_call >= (int)model_forwards(model)) /* on all ranks */
        return fsdp_fail(err, FSDP_ERR_ARG, "all %zu forwards have run: a backward is next",
                         model_forwards(model));
    enter_step(model);
    status = step_agree_on_targets(model, batch, 1, status, &n_targets, err);
    input = (struct program_input){ .batches = batch,
                                    .n_calls = 1,
                                    .micro = model->n_micro_done,
                                    .n_micro = SIZE_MAX,
                                    .scale = (float)(model->data_ranks / usual_targets(model)),
                                    .loss_sum = &sum,
                                    .n_targets = &n_seen };
    if (status == FSDP_OK) {
        model->grad_scale = 1.0;
        status = program_run(program, model, &input, err);
        status = step_agree_on_loss(model, false, sum, n_targets, loss, status, err);
    }
    model->step_targets += n_targets;
    if (status != FSDP_OK)
        leave_step(model, 0, status);
    return status;
}

enum fsdp_status fsdp_model_backward(struct fsdp_model *model, struct fsdp_err *err)
{
    REQUIRE(model, err);

    struct program *program = &model->training;
    const size_t n_backwards = step_backwards(model);
    const size_t n_forwards = model_forwards(model); /* also where there is no plan */
    struct fsdp_err own = { 0 };
    struct program_input input = { .n_calls = 1,
                                   .micro = model->n_micro_done,
                                   .n_micro =
                                       model->more_to_come ? SIZE_MAX : model->n_micro_done + n_backwards };
    const bool is_last = program->next_call + 1 == program_calls(program);
    const bool ends_step = is_last && !model->more_to_come;
    const bool checks = ends_step && model_updates_in_backward(model);
    enum fsdp_status status = check_training(model, err), ran;

    /* The condition is the same on all ranks, because they agreed on each forward. */
    if (status == FSDP_OK && (size_t)program->next_call < n_forwards)
        status = fsdp_fail(err, FSDP_ERR_ARG, "%d of %zu forwards have run: a backward is not next",
                           program->next_call, n_forwards);
    if (status != FSDP_OK)
        return status;
    if (checks)
        status = check_loss(model, err);
    if (status != FSDP_OK || (ends_step && model->step_targets == 0)) {
        leave_step(model, n_backwards, status);
        program_rewind(program);
        return status;
    }
    model->loss_scale = 1.0;
    if (ends_step)
        scale_parts(model);
    status = model_follow_setters(model, true, !model->more_to_come, false, err);
    input.fails = status != FSDP_OK; /* the others know nothing of it yet */
    input.why = err;
    ran = program_run(program, model, &input, &own);
    if (ran != FSDP_OK && (status == FSDP_OK || model_is_broken(model)))
        status = fsdp_fail(err, ran, "%s", own.message);
    status = step_agree_on_end(model, ends_step, NULL, 0, status, err);
    if (checks && status != FSDP_OK)
        status = model_tell_updates(model, status, err);
    if (is_last || status != FSDP_OK)
        leave_step(model, n_backwards, status);
    return status;
}

enum fsdp_status fsdp_module_reset_iteration(struct fsdp_model *model, struct fsdp_err *err)
{
    REQUIRE(model, err);

    struct fsdp_context *context = model->context;
    enum fsdp_status status = FSDP_OK;

    unshard_drop_all(model);
    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK; s++)
        status = context->device.ops->synchronize(context->streams[s], err);
    for (int p = 0; p < N_PLACES; p++)
        if (model->memory[p].gradients != NULL)
            place_fill_zero(context, (enum shard_place)p, model->memory[p].gradients,
                            model->memory[p].gradient_bytes);
    model->grad_scale = model->loss_scale = 1.0;
    model_note_dropped(model);
    model->has_gradients = false;
    model->n_micro_done = 0;
    model->step_targets = 0;
    program_rewind(&model->training);
    if (status == FSDP_OK)
        status = context->device.ops->synchronize(context->streams[PLAN_COMPUTE], err);
    if (status == FSDP_OK && model->spoiled)
        status = fsdp_fail(
            err, FSDP_ERR_UNSUPPORTED,
            "hooks were given gradients of the failed step: parameters that they updated are not what "
            "they were, a checkpoint has them");
    model->completed = model->spoiled = false;
    return status;
}
