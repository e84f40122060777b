#include "shard_runtime/trainer/batch.h"

#include <stdlib.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"

enum fsdp_status batch_init(struct batch *batch, uint64_t size, uint64_t seq, uint64_t n_micro,
                            struct fsdp_err *err)
{
    size_t n_elems;

    *batch = (struct batch){ .size = size, .seq = seq, .n_micro = n_micro };
    if (!checked_mul(size, seq, &n_elems) || !checked_mul(n_elems, 2 * n_micro, &n_elems))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "the tokens of a step do not fit in memory");
    batch->tokens = calloc(n_elems, sizeof *batch->tokens);
    batch->micro = calloc(n_micro, sizeof *batch->micro);
    if (batch->tokens == NULL || batch->micro == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the tokens of a step");
    for (uint64_t m = 0; m < n_micro; m++) {
        batch->micro[m].input = batch->tokens + 2 * m * size * seq;
        batch->micro[m].targets = batch->tokens + (2 * m + 1) * size * seq;
    }
    return FSDP_OK;
}

void batch_fini(struct batch *batch)
{
    free(batch->tokens);
    free(batch->micro);
    *batch = (struct batch){ 0 };
}

enum fsdp_status batch_fill(struct batch *batch, const struct tokens *tokens, const struct order *order,
                            uint64_t cursor, int rank, int W, struct fsdp_err *err)
{
    for (uint64_t m = 0; m < batch->n_micro; m++, cursor = order_advance(cursor, W, batch->size)) {
        const uint64_t first = order_first(cursor, rank, batch->size);
        int32_t *input = batch->tokens + 2 * m * batch->size * batch->seq;
        int32_t *target = input + batch->size * batch->seq;

        batch->micro[m].first_sample = first;
        for (uint64_t i = 0; i < batch->size; i++) {
            OK_OR_RETURN(tokens_read(tokens, order_sample(order, first + i), input + i * batch->seq,
                                     target + i * batch->seq, err));
        }
    }
    return FSDP_OK;
}
