/*
 * A step: checks what it is given, agrees on the number of targets, runs the program's calls, adds up the loss.
 */
#include <math.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/engine/timing.h"
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
 * comes here, whatever it thinks of its data (`own`). *same_plan: all of them gave the same `plan`. */
static enum fsdp_status compare_in_tensor_group(const struct fsdp_model *model,
                                                const struct fsdp_batch *micro, size_t n_micro,
                                                uint32_t plan, bool *same_plan, enum fsdp_status own,
                                                struct fsdp_err *err)
{
    const int64_t hash = own == FSDP_OK ? hash_batches(model, micro, n_micro) : 0;
    int64_t most[4] = { hash, -hash, plan, -(int64_t)plan };
    enum fsdp_status status;

    *same_plan = true;
    if (model->T == 1)
        return FSDP_OK;
    status = fsdp_all_reduce(model->tensor, most, 4, FSDP_I64, FSDP_MAX,
                             model->context->streams[PLAN_COMPUTE], err);
    *same_plan = most[2] == -most[3];
    if (status != FSDP_OK || most[0] == -most[1])
        return status;
    return fsdp_fail(
        err, FSDP_ERR_MISMATCH,
        "the ranks of a tensor group were given different samples: they must compute on the same ones");
}

/* --- do all ranks run the same plan? ---------------------------------------------------------------------- */

/*
 * On a device each collective is compared between ranks before it is queued (device_comm.c). That is over when ranks know that they
 * make the same ones:
 *   1. Every call that begins with forwards exchanges a word, with the sum of targets that the ranks exchange anyway. It hashes
 *      the plan, its calls of the user's functions, the batches that this rank was given, and whether a whole step of this plan was compared before.
 *   2. If the words differ, the ranks compare each collective of this step, and the first that differs is told with its words.
 *   3. If they are equal, and a step was compared before, no rank compares.
 *   4. A step in which they were equal to its end counts as compared.
 * Words that differ are seen by all ranks, so that either all of them compare or none.
 */
static uint32_t word_of_plan(const struct fsdp_model *model, size_t n_micro)
{
    uint64_t hash = model->training.hash;
    const uint64_t more[] = { n_micro, model->more_to_come, model->training.compared };

    hash = hash_bytes(hash, more, sizeof more);
    for (int e = 0; e < model->training.plan.n_entries; e++) {
        const bool calls = program_runs_users_function(&model->training, &model->training.plan.entries[e]);

        hash = hash_bytes(hash, &calls, sizeof calls);
    }
    return (uint32_t)(hash ^ hash >> 32);
}

enum { WORD_SUMS = 4 };

/* Halves of the word and their squares: sums of them are exact in double for up to 2^21 ranks. A rank whose tensor group differs
 * gives squares of no number, so that its data ranks see it too. */
static void write_word(uint32_t word, bool same_in_tensor_group, double sums[WORD_SUMS])
{
    for (int half = 0; half < 2; half++) {
        const double value = word >> 16 * half & 0xffff;

        sums[2 * half] = value;
        sums[2 * half + 1] = value * value + !same_in_tensor_group;
    }
}

/* Did all n_ranks give `word`? Their sum is n times a rank's own on a rank with the mean, but that of squares only if all are equal. */
static bool all_gave(uint32_t word, const double sums[WORD_SUMS], int n_ranks)
{
    double own[WORD_SUMS];
    bool same = true;

    write_word(word, true, own);
    for (int i = 0; i < WORD_SUMS; i++)
        same = same && sums[i] == n_ranks * own[i];
    return same;
}

/* All ranks come here, or none. */
static void settle_calls(struct fsdp_model *model, bool same)
{
    if (model->n_micro_done == 0 && model->training.next_call == 0)
        model->same_plan = true;
    model->same_plan = model->same_plan && same;
    if (!same) /* on all ranks, or the words of later steps would differ by this alone */
        model->training.compared = false;
    model->training.calls_known = same && model->training.compared;
}

/* Backwards in each run of the program. */
static size_t backwards_of(const struct fsdp_model *model)
{
    return model->options.backwards == FSDP_BACKWARD_OF_EACH ? model_forwards(model) : 1;
}

/*
 * Targets of these batches over all ranks, with a plan that follows the setters, and what was unsharded by hand being there. `own`
 * is what the rank thinks of the call so far. Ranks whose call or data is unusable tell the others in the same all-reduce, so that
 * all of them refuse the step together.
 */
static enum fsdp_status agree_on_targets(struct fsdp_model *model, const struct fsdp_batch *micro,
                                         size_t n_micro, enum fsdp_status own, uint64_t *n_targets,
                                         struct fsdp_err *err)
{
    const bool within = model->n_micro_done > 0 || model->training.next_call > 0;
    const bool single = backwards_of(model) == 1 && n_micro <= model_forwards(model);
    const struct graph *graph = &model->training.graph;
    struct fsdp_err theirs = { 0 }, settled = { 0 };
    enum fsdp_status status = unshard_settle(model, &settled);
    uint64_t n_own = 0;
    double sums[1 + WORD_SUMS];
    bool same_in_tensor_group;
    uint32_t word;

    if (own == FSDP_OK && status != FSDP_OK)
        own = fsdp_fail(err, status, "%s", settled.message);
    model->replanned = false;
    if (own == FSDP_OK)
        own = model_follow_setters(model, within, !model->more_to_come, single, err);
    if (own == FSDP_OK && micro == NULL)
        own = fsdp_fail(err, FSDP_ERR_ARG, "a step is given no batch");
    for (size_t m = 0; m < n_micro && own == FSDP_OK; m++)
        own = check_batch(model, &micro[m], nn_input_rows(graph), graph->result->features, &n_own, err);
    word = word_of_plan(model, n_micro);
    status = compare_in_tensor_group(model, micro, n_micro, word, &same_in_tensor_group, own, &theirs);
    if (own == FSDP_OK && status != FSDP_OK)
        own = fsdp_fail(err, status, "%s", theirs.message);
    sums[0] = (double)n_own; /* exact: a whole number far below 2^53 */
    write_word(word, same_in_tensor_group, &sums[1]);
    status = model_agree(model, sums, 1 + WORD_SUMS, own, err);
    if (status != FSDP_OK)
        model_plan_again(model);
    else
        settle_calls(model, all_gave(word, &sums[1], model->data_ranks));
    *n_targets = (uint64_t)sums[0];
    return status;
}

/*
 * A call is over, on this rank with `status`: agree on that and on `sums` (n). With the last backward of a
 * step (`last`) every rank also says whether its gradients are finite.
 */
static enum fsdp_status agree_on_end(struct fsdp_model *model, bool last, double *sums, size_t n,
                                     enum fsdp_status status, struct fsdp_err *err)
{
    bool finite = true, nonfinite;

    if (last && status == FSDP_OK)
        status = gradients_measure(model, &finite, err);
    nonfinite = !finite;
    status = model_agree_with_flag(model, sums, n, &nonfinite, status, err);
    return status == FSDP_OK && nonfinite ? gradients_agree_on_nonfinite(model, err) : status;
}

/* The same with the loss: `sum` is this rank's part, over n_targets of all ranks. */
static enum fsdp_status agree_on_loss(struct fsdp_model *model, bool last, double sum, uint64_t n_targets,
                                      struct fsdp_loss *loss, enum fsdp_status status, struct fsdp_err *err)
{
    model->own_loss_sum = sum;
    status = agree_on_end(model, last, &sum, 1, status, err);
    if (status != FSDP_OK)
        return status;
    model->loss_is_nonfinite = model->loss_is_nonfinite || !isfinite(sum);
    *loss = (struct fsdp_loss){ .mean = n_targets > 0 ? sum / (double)n_targets : NAN,
                                .sum = sum,
                                .n_targets = n_targets };
    return FSDP_OK;
}

/* Before a backward that updates parameters. All ranks know of the loss, and come to the same. */
static enum fsdp_status check_loss(const struct fsdp_model *model, struct fsdp_err *err)
{
    return !model->loss_is_nonfinite
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOT_FINITE,
                           "the loss is not finite: backward, which updates parameters, was not run");
}

/* --- the state of a step --------------------------------------------------------------------------------- */

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
    const enum fsdp_status status = check_training(model, err);

    if (status != FSDP_OK)
        return status;
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

/* Targets of all ranks in one micro-step, if none is ignored: what the parts of a step are divided by whose own number
 * is not known yet. */
static double usual_targets(const struct fsdp_model *model)
{
    return (double)model->data_ranks * (double)(model->options.batch * model->options.seq);
}

/* The gradients of such a step are there: what is left of their scale. */
static void scale_parts(struct fsdp_model *model)
{
    model->loss_scale = model->step_targets > 0 ? usual_targets(model) / (double)model->step_targets : 0.0;
}

/* A step begins, or goes on: what became of the last one is history. */
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

/* Micro-steps `n_micro` of it are done, or it failed. */
static void leave_step(struct fsdp_model *model, size_t n_micro, enum fsdp_status status)
{
    model->n_micro_done = status == FSDP_OK && model->more_to_come ? model->n_micro_done + n_micro : 0;
    model->has_gradients = status == FSDP_OK && model->n_micro_done == 0 && model->step_targets > 0;
    model->training.compared = model->training.compared || (model->has_gradients && model->same_plan);
    if (model->n_micro_done == 0)
        model->step_targets = 0;
    for (int g = 0; g < model->layout.n_groups; g++) /* from here on has_gradients says whether they are there */
        model->in_step[g].final = false;
    if (status != FSDP_OK)
        program_rewind(&model->training);
}

/* --- a step in one call ---------------------------------------------------------------------------------- */

/*
 * By what the loss's gradient is multiplied, and (model->loss_scale) what is reduced of it afterwards, so that together it is
 * the mean over the targets of the whole step. Of a step that is one call their number is known before; of several calls the
 * parts are made with a constant in its place, and the last call knows.
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

/* The next n_calls of the program. A failure of this rank is kept in *status and err, and it goes on with the
 * collectives, as the others know nothing of it yet. False: a group is broken, and nothing goes on. */
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

/* All calls of the program but its backwards, and the loss of the step with that; then the backwards, which
 * update parameters, if no rank failed and the loss is finite. *ran: they were run. */
static enum fsdp_status run_checked(struct fsdp_model *model, struct program_input *input, uint64_t n_targets,
                                    bool *ran, struct fsdp_loss *loss, enum fsdp_status status,
                                    struct fsdp_err *err)
{
    const int n_forwards = (int)model_forwards(model);

    (void)run_calls(model, input, n_forwards, &status, err);
    status = agree_on_loss(model, false, *input->loss_sum, n_targets, loss, status, err);
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
    const size_t n_backwards = backwards_of(model), n_all = n_runs * n_backwards;
    uint64_t n_targets = 0, n_seen = 0;
    bool goes_on = true, ran = true;
    struct program_input input;
    enum fsdp_status status;
    double sum = 0;

    *loss = (struct fsdp_loss){ .mean = NAN };
    status = check_call(model, n_micro, err);
    enter_step(model);
    status = agree_on_targets(model, micro, n_micro, status, &n_targets, err);
    if (status == FSDP_OK)
        model->step_targets += n_targets;
    if (status != FSDP_OK || (last && model->step_targets == 0)) {
        if (model->training.next_call == 0) /* else a call out of order, which the step outlives */
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
        status = agree_on_loss(model, last, sum, n_targets, loss, status, err);
    else if (ran)
        status = agree_on_end(model, true, NULL, 0, status, err);
    if (checks && ran && status != FSDP_OK)
        status = model_tell_updates(model, status, err);
    leave_step(model, n_all, status);
    return status;
}

/* --- a step in halves ------------------------------------------------------------------------------------ */

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
    status = agree_on_targets(model, batch, 1, status, &n_targets, err);
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
        status = agree_on_loss(model, false, sum, n_targets, loss, status, err);
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
    const size_t n_backwards = backwards_of(model);
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

    /* All of this is the same on all ranks, which agreed on each forward. */
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
    status = agree_on_end(model, ends_step, NULL, 0, status, err);
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
