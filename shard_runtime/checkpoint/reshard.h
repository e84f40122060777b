/*
 * Which bytes of which file go where when a state saved by some number of ranks is loaded by another: pure. A shard of whole
 * rows is one range of bytes, so that each wanted one becomes a few ranges, read exactly once; one that was or is to be
 * cut along another dimension becomes one for each row.
 */
#ifndef CHECKPOINT_RESHARD_H
#define CHECKPOINT_RESHARD_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/rows_store.h"

/** A box of a tensor, wanted at `to`, or as tensor `in_store` of a store. */
struct reshard_want {
    uint32_t tensor; /* index in the contents' manifest */
    struct box box;
    unsigned char *to;
    const struct rows_store *store; /* NULL: in memory */
    size_t in_store;
};

struct reshard_read {
    uint32_t file; /* index in the contents' manifest */
    uint64_t offset, size_bytes;
    unsigned char *to; /* NULL: to byte `at` of what the store calls `in_store` */
    const struct rows_store *store;
    size_t in_store;
    uint64_t at;
};

/**
 * The reads that fill all of `wants`, in order of file and offset, neighbours joined. *reads is to be freed.
 *   FSDP_ERR_ARG  a want that reaches out of its tensor
 */
enum fsdp_status reshard_plan(const struct contents *contents, const struct reshard_want *wants,
                              size_t n_wants, struct reshard_read **reads, size_t *n_reads,
                              struct fsdp_err *err);

#endif
