/*
 * Optimizer state in a file (state_file.h), with a window of it in memory. While one chunk is updated, a
 * second thread reads the next one and writes the previous one. That thread only moves bytes: it never enters
 * OpenMP.
 *
 * An update works element by element, so cutting it into chunks changes no bit.
 *
 * Thread: the one that created it.
 */
#ifndef OPTIM_OFFLOAD_H
#define OPTIM_OFFLOAD_H

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

/** The work on each chunk. */
struct offload_visitor {
    void *user;
    /** Returns whether this tensor is updated in this run. */
    bool (*wants)(void *user, int tensor);
    /**
     * Updates elements first ... first + n_elems - 1 of `tensor`, whose states begin at state[0], state[1],
     * ... The update is complete when the call returns.
     */
    enum fsdp_status (*update)(void *user, int tensor, size_t first, size_t n_elems, float *const *state,
                               struct fsdp_err *err);
};

/**
 * Creates room for `n_states` (at most 2) states of tensors with n_elems[0] ... n_elems[n_tensors - 1]
 * elements; all are zero. The memory is that of `device`, which must be the host. Errors as
 * state_file_open(), and FSDP_ERR_NOMEM.
 */
enum fsdp_status offload_create(struct offload **out, struct device *device, const size_t *n_elems,
                                int n_tensors, int n_states, const struct offload_options *options,
                                struct fsdp_err *err);
/** NULL is a no-op. */
void offload_destroy(struct offload *offload);

/**
 * Streams through the file, and updates the tensors that the visitor wants. On return all state is in the
 * file. After FSDP_ERR_IO, a part is updated and a part is not: the model must be loaded again.
 */
enum fsdp_status offload_run(struct offload *offload, const struct offload_visitor *visitor,
                             struct fsdp_err *err);

/**
 * Returns the states, numbered `tensor * n_states + state`, for a checkpoint to read and write between runs.
 */
const struct rows_store *offload_store(const struct offload *offload);

size_t offload_memory_bytes(const struct offload *offload);
uint64_t offload_file_bytes(const struct offload *offload);

#endif
