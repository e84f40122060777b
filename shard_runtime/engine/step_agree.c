/*
 * What the ranks tell each other in a step. Before it: whether the call and its batches are usable, how many
 * targets all of them have, and whether all run the same plan. After it: the loss, and how the step ended.
 */
#include "shard_runtime/engine/step_impl.h"

#include <math.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/unshard.h"
#include "shard_runtime/plan/hash.h"

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

/* Returns a hash of the samples that a rank was given. Ranks of a tensor group must be given the same. */
static int64_t hash_batches(const struct fsdp_model *model, const struct fsdp_batch *micro, size_t n_micro)
{
    const size_t n = model->options.batch * model->options.seq, features = model->options.input_features;
    uint64_t hash = HASH_BASIS;

    for (size_t m = 0; m < n_micro; m++) {
        hash = hash_bytes(hash, micro[m].input, n * (features > 0 ? features : 1) * sizeof(int32_t));
        hash = hash_bytes(hash, micro[m].targets, n * sizeof *micro[m].targets);
        hash = hash_bytes(hash, &micro[m].first_sample, sizeof micro[m].first_sample);
    }
    return (int64_t)(hash >> 1);
}

/*
 * Check that the ranks of a tensor group were given the same samples, without which their sums mean nothing.
 * Collective over the tensor group: every rank calls it, even if its own data is unusable (`own`). *same_plan
 * says whether all gave the same `plan`.
 */
static enum fsdp_status compare_in_tensor_group(const struct fsdp_model *model,
                                                const struct fsdp_batch *micro, size_t n_micro, uint32_t plan,
                                                bool *same_plan, enum fsdp_status own, struct fsdp_err *err)
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

/*
 * On a device the ranks compare each collective before they queue it (device_comm.c). They stop once they
 * know that they make the same ones:
 *   1. In every call that begins with forwards the ranks exchange a word, together with the sum of targets.
 *      The word hashes the plan, the entries that call the user's functions, and the number of batches. It
 *      also tells whether a whole step of this plan was compared before.
 *   2. If the words differ, the ranks compare each collective of this step. The first one that differs fails,
 *      with both ranks' words.
 *   3. If the words are equal and a step was compared before, the ranks do not compare.
 *   4. A step whose words are equal to its end counts as compared.
 * Every rank sees that words differ, so either all ranks compare or none.
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

/*
 * Write the halves of the word and their squares: sums of these are exact in double for up to 2^21 ranks. A
 * rank whose tensor group has different plans adds 1 to its squares. They then belong to no number, so its
 * data ranks notice it too.
 */
static void write_word(uint32_t word, bool same_in_tensor_group, double sums[WORD_SUMS])
{
    for (int half = 0; half < 2; half++) {
        const double value = word >> 16 * half & 0xffff;

        sums[2 * half] = value;
        sums[2 * half + 1] = value * value + !same_in_tensor_group;
    }
}

/*
 * Did all n_ranks give `word`? The sum of the halves can be n times this rank's half by chance. If the sum of
 * their squares is n times its square too, all halves are equal.
 */
static bool all_gave(uint32_t word, const double sums[WORD_SUMS], int n_ranks)
{
    double own[WORD_SUMS];
    bool same = true;

    write_word(word, true, own);
    for (int i = 0; i < WORD_SUMS; i++)
        same = same && sums[i] == n_ranks * own[i];
    return same;
}

/*
 * Note whether all ranks run the same plan, and so whether they compare collectives in this call. All ranks
 * call it, or none.
 */
static void settle_calls(struct fsdp_model *model, bool same)
{
    if (model->n_micro_done == 0 && model->training.next_call == 0)
        model->same_plan = true;
    model->same_plan = model->same_plan && same;
    if (!same) /* cleared on all ranks; otherwise the words of later steps would differ because of it */
        model->training.compared = false;
    model->training.calls_known = same && model->training.compared;
}

enum fsdp_status step_agree_on_targets(struct fsdp_model *model, const struct fsdp_batch *micro,
                                       size_t n_micro, enum fsdp_status own, uint64_t *n_targets,
                                       struct fsdp_err *err)
{
    const bool within = model->n_micro_done > 0 || model->training.next_call > 0;
    const bool single = step_backwards(model) == 1 && n_micro <= model_forwards(model);
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

enum fsdp_status step_agree_on_end(struct fsdp_model *model, bool last, double *sums, size_t n,
                                   enum fsdp_status status, struct fsdp_err *err)
{
    bool finite = true, nonfinite;

    if (last && status == FSDP_OK)
        status = gradients_measure(model, &finite, err);
    nonfinite = !finite;
    status = model_agree_with_flag(model, sums, n, &nonfinite, status, err);
    return status == FSDP_OK && nonfinite ? gradients_agree_on_nonfinite(model, err) : status;
}

enum fsdp_status step_agree_on_loss(struct fsdp_model *model, bool last, double sum, uint64_t n_targets,
                                    struct fsdp_loss *loss, enum fsdp_status status, struct fsdp_err *err)
{
    model->own_loss_sum = sum;
    OK_OR_RETURN(step_agree_on_end(model, last, &sum, 1, status, err));
    model->loss_is_nonfinite = model->loss_is_nonfinite || !isfinite(sum);
    *loss = (struct fsdp_loss){ .mean = n_targets > 0 ? sum / (double)n_targets : NAN,
                                .sum = sum,
                                .n_targets = n_targets };
    return FSDP_OK;
}
