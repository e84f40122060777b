/*
 * Rows of tensors that are not in memory as a whole: whoever keeps them gives and takes any range of their bytes. What
 * is saved and loaded passes through the buffers of whoever saves and loads.
 */
#ifndef SHARDFILE_ROWS_STORE_H
#define SHARDFILE_ROWS_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

struct rows_store {
    void *user;
    /** `size_bytes` of tensor `index`, from byte `offset` of this rank's rows of it. */
    enum fsdp_status (*read)(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                             struct fsdp_err *err);
    enum fsdp_status (*write)(void *user, size_t index, uint64_t offset, const void *bytes, size_t size_bytes,
                              struct fsdp_err *err);
};

#endif
