/*
 * What the ranks tell each other at the end of what they compute together: their sums, and whether one of them failed on
 * its own. It took part in every collective all the same (run.c), so that its groups are sound, and the others learn its
 * words here, in a second exchange that no step without a failure pays for.
 */
#include <string.h>

#include "shard_runtime/engine/model.h"

enum { WORDS_ELEMS = FSDP_ERR_MESSAGE_BYTES / sizeof(int64_t) };

/* What the lowest rank that failed has to say; zeros from all others, so that a sum carries it. */
struct last_words {
    int64_t status;
    int64_t words[WORDS_ELEMS];
};

/* Number of the lowest rank with a failure; -1: none. *completed: did any rank call hooks on what it took for gradients? */
static enum fsdp_status find_first(struct fsdp_model *model, bool failed, int *first, struct fsdp_err *err)
{
    const int W = model->context->W;
    int64_t most[2] = { failed ? W - model->context->rank : 0, model->completed };
    const enum fsdp_status status = model_reduce_over_all(model, most, 2, FSDP_I64, FSDP_MAX, err);

    *first = most[0] > 0 ? W - (int)most[0] : -1;
    model->spoiled = model->spoiled || most[1] != 0;
    return status;
}

static enum fsdp_status tell(struct fsdp_model *model, enum fsdp_status own, struct fsdp_err *err)
{
    struct last_words last = { 0 };
    struct fsdp_err theirs = { 0 };
    enum fsdp_status status;
    int first;

    status = find_first(model, own != FSDP_OK, &first, &theirs);
    if (status == FSDP_OK && first == model->context->rank) {
        last.status = own;
        if (err != NULL)
            memcpy(last.words, err->message, sizeof err->message);
    }
    if (status == FSDP_OK)
        status =
            model_reduce_over_all(model, &last, sizeof last / sizeof(int64_t), FSDP_I64, FSDP_SUM, &theirs);
    if (own != FSDP_OK)
        return own;
    if (status != FSDP_OK)
        return fsdp_fail(err, status, "%s", theirs.message);
    memcpy(theirs.message, last.words, sizeof theirs.message);
    theirs.message[sizeof theirs.message - 1] = '\0';
    return fsdp_fail(err,
                     last.status > 0 && last.status < FSDP_STATUS_COUNT ? (enum fsdp_status)last.status
                                                                        : FSDP_ERR_PEER,
                     "rank %d: %s", first, theirs.message);
}

enum fsdp_status model_agree(struct fsdp_model *model, double *sums, size_t n, enum fsdp_status own,
                             struct fsdp_err *err)
{
    double all[MODEL_MAX_SUMS + 1] = { own != FSDP_OK };
    struct fsdp_err theirs = { 0 };
    enum fsdp_status status;

    /* Of a device that failed nothing more is to be had: this rank ends, and the others are told by that. */
    if (own == FSDP_ERR_DEVICE || (own != FSDP_OK && model_is_broken(model)))
        return own;
    for (size_t i = 0; i < n; i++)
        all[1 + i] = sums[i];
    status = model_reduce_over_data(model, all, 1 + n, FSDP_F64, FSDP_SUM, &theirs);
    if (status == FSDP_OK && model->T > 1)
        status = fsdp_all_reduce(model->tensor, all, 1, FSDP_F64, FSDP_SUM,
                                 model->context->streams[PLAN_COMPUTE], &theirs);
    if (status != FSDP_OK)
        return own != FSDP_OK ? own : fsdp_fail(err, status, "%s", theirs.message);
    for (size_t i = 0; i < n; i++)
        sums[i] = all[1 + i];
    return all[0] == 0 ? FSDP_OK : tell(model, own, err);
}
