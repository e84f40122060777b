/*
 * The tokens of one step. The order of samples (data/order.h) determines which samples this rank takes; they
 * are copied out of the data file.
 */
#ifndef TRAINER_BATCH_H
#define TRAINER_BATCH_H

#include <stdint.h>

#include <fsdp/model.h>
#include <fsdp/status.h>

#include "shard_runtime/data/order.h"
#include "shard_runtime/data/tokens.h"

struct batch {
    uint64_t size, seq, n_micro; /* samples per micro-step, tokens per sample, micro-steps per step */
    /* owned; (n_micro, 2, size, seq): for each micro-step its inputs, then its targets */
    int32_t *tokens;
    struct fsdp_batch *micro; /* owned: (n_micro), pointing into tokens */
};

/**
 * Allocates the batch. Fails with FSDP_ERR_NOMEM. The caller may call batch_fini() after any result, and on a
 * zeroed struct.
 */
enum fsdp_status batch_init(struct batch *batch, uint64_t size, uint64_t seq, uint64_t n_micro,
                            struct fsdp_err *err);
void batch_fini(struct batch *batch);

/**
 * Fills in the tokens of the step that begins at `cursor`, for rank `rank` of W. Fails as tokens_read() does.
 */
enum fsdp_status batch_fill(struct batch *batch, const struct tokens *tokens, const struct order *order,
                            uint64_t cursor, int rank, int W, struct fsdp_err *err);

#endif
