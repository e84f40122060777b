#include "shard_runtime/state/load_readers.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"

static enum fsdp_status agree(void *user, enum fsdp_status own, struct fsdp_err *err)
{
    return context_agree(user, own, err);
}

/*
 * Ranks may give different numbers of words, but an all-gather needs equal blocks. So each block has room for
 * the largest number.
 */
static enum fsdp_status gather(void *user, const uint64_t *words, size_t n_words, uint64_t **all,
                               size_t *stride, struct fsdp_err *err)
{
    struct fsdp_context *context = user;
    struct device_stream *stream = context->streams[PLAN_COMPUTE];
    enum fsdp_status status = FSDP_OK;
    int64_t most = (int64_t)n_words;
    size_t total;

    *all = NULL;
    if (context->W > 1)
        OK_OR_RETURN(fsdp_all_reduce(context->comm, &most, 1, FSDP_I64, FSDP_MAX, stream, err));
    *stride = (size_t)most;
    if (__builtin_mul_overflow((size_t)context->W, *stride, &total) ||
        (*all = alloc_array(total, sizeof **all)) == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu words of %d ranks", *stride, context->W);
    status = context_agree(context, status, err);
    if (status != FSDP_OK)
        return status;
    memcpy(*all + (size_t)context->rank * *stride, words, n_words * sizeof *words);
    if (context->W == 1)
        return FSDP_OK;
    return fsdp_all_gather(context->comm, *all + (size_t)context->rank * *stride, *all, *stride, FSDP_I64,
                           stream, err);
}

struct checkpoint_readers load_readers(struct fsdp_context *context)
{
    return (struct checkpoint_readers){ .agree = agree, .gather = gather, .user = context };
}
