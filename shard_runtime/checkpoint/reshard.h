/*
 * Plans which bytes of which files a rank reads when it loads a state that another number of ranks saved.
 * Pure functions.
 *
 * A shard of whole rows is one range of bytes in its file. So each wanted shard needs only a few ranges, and
 * each range is read exactly once. If a shard was saved or is wanted along a dimension other than 0, it needs
 * one range per row.
 */
#ifndef CHECKPOINT_RESHARD_H
#define CHECKPOINT_RESHARD_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/rows_store.h"

/**
 * A box of a tensor that a rank wants, and where its elements go: to memory at `to`, or to tensor `in_store`
 * of a store.
 */
struct reshard_want {
    uint32_t tensor; /* index in the contents' manifest */
    struct box box;
    unsigned char *to;
    const struct rows_store *store; /* NULL: in memory */
    size_t in_store;
};

/** One read: a range of a file, and where its bytes go. */
struct reshard_read {
    uint32_t file; /* index in the contents' manifest */
    uint64_t offset, size_bytes;
    unsigned char *to; /* NULL: the bytes go to the store's tensor `in_store`, from byte `at` */
    const struct rows_store *store;
    size_t in_store;
    uint64_t at;
};

/**
 * Plans the reads that fill all of `wants`. *reads receives an array of *n_reads elements, which the caller
 * frees. The reads are sorted by file and offset; adjacent reads are joined.
 *   FSDP_ERR_ARG: a wanted box is not within its tensor
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status reshard_plan(const struct contents *contents, const struct reshard_want *wants,
                              size_t n_wants, struct reshard_read **reads, size_t *n_reads,
                              struct fsdp_err *err);

#endif
