/*
 * What the bits of a run depend on: machine, threads and instruction set of every rank, as
 * fsdp_context_describe() writes them. A manifest keeps them as its member `numerics`: the words of rank 0,
 * and those of each rank that differ from them.
 */
#ifndef STATE_MADE_WITH_H
#define STATE_MADE_WITH_H

#include <fsdp/checkpoint.h>

#include "shard_runtime/engine/context.h"
#include "shard_runtime/shardfile/manifest.h"

/** What one rank's bits depend on, as text. The rest of the array is zero. */
struct made_with {
    char words[FSDP_MADE_WITH_BYTES];
};

/**
 * Gathers these texts from all ranks of the world, and makes the manifest's member `numerics` of them in
 * *json, which the caller frees. Collective; every rank gets the same status.
 */
enum fsdp_status made_with_gather(const struct fsdp_context *context, char **json, struct fsdp_err *err);

/**
 * Returns the manifest's member `numerics` for `W` ranks with `threads` threads each. NULL: out of memory.
 */
char *made_with_json(const struct made_with *ranks, int W, int threads);

/**
 * Reads the text of `rank`. It is empty if the manifest has none. If that rank did not take part in the save,
 * it gets the text of rank 0.
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status made_with_read(const struct manifest *manifest, int rank, struct made_with *out,
                                struct fsdp_err *err);

#endif
