/*
 * Optimizer state in a file (state_file.h), and a window of it in memory: while a chunk is updated a second thread reads
 * the next one and writes the one before. The thread only moves bytes: it never enters OpenMP.
 *
 * An update is done element by element, so that cutting it changes no bit.
 *
 * Thread: the one that created it.
 */
#ifndef ENGINE_OFFLOAD_H
#define ENGINE_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/rows_store.h"

struct offload;

struct offload_options {
    struct fsdp_io *io;
    const char *directory;
    int rank;
    size_t window_bytes; /* 0: STATE_WINDOW_BYTES */
};

/** What is done with a chunk. */
struct offload_visitor {
    void *user;
    /** Is this tensor updated this time? */
    bool (*wants)(void *user, int tensor);
    /** Update elements first ... first + n_elems - 1 of `tensor`, whose states begin at state[0], state[1], ... Done when
     * it returns. */
    enum fsdp_status (*update)(void *user, int tensor, size_t first, size_t n_elems, float *const *state,
                               struct fsdp_err *err);
};

/**
 * Room for `n_states` (at most 2) states of tensors of n_elems[0] ... n_elems[n_tensors - 1] elements, all zero. Memory is
 * `device`'s, which must be the host. Errors as state_file_open(), and FSDP_ERR_NOMEM.
 */
enum fsdp_status offload_create(struct offload **out, struct device *device, const size_t *n_elems,
                                int n_tensors, int n_states, const struct offload_options *options,
                                struct fsdp_err *err);
/** NULL is a no-op. */
void offload_destroy(struct offload *offload);

/** Stream through the file, and update what the visitor wants. On return all of it is in the file. After FSDP_ERR_IO part
 * is updated and part is not: what the state belongs to is to be loaded again. */
enum fsdp_status offload_run(struct offload *offload, const struct offload_visitor *visitor,
                             struct fsdp_err *err);

/** The states as `tensor * n_states + state`, for a checkpoint to read and write between runs. */
const struct rows_store *offload_store(const struct offload *offload);

size_t offload_memory_bytes(const struct offload *offload);
uint64_t offload_file_bytes(const struct offload *offload);

#endif
