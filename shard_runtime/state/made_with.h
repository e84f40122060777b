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

/** The words of one rank, with zeros after them. */
struct made_with {
    char words[FSDP_MADE_WITH_BYTES];
};

/**
 * Gathers the words of all ranks of the world, and makes the member of them. Collective; every rank gets the
 * same status. The caller frees *json.
 */
enum fsdp_status made_with_gather(const struct fsdp_context *context, char **json, struct fsdp_err *err);

/** Returns `numerics` as JSON, made from the words of `W` ranks of `threads` each. NULL: out of memory. */
char *made_with_json(const struct made_with *ranks, int W, int threads);

/**
 * Reads the words of a rank. They are empty if the manifest has none. A rank that did not save gets those of
 * rank 0.
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status made_with_read(const struct manifest *manifest, int rank, struct made_with *out,
                                struct fsdp_err *err);

#endif
