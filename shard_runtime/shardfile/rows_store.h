/*
 * Access to the rows of tensors that are not completely in memory. The owner of the rows implements this
 * interface: it reads or writes any range of their bytes. The code that saves or loads a checkpoint supplies
 * the buffers.
 */
#ifndef SHARDFILE_ROWS_STORE_H
#define SHARDFILE_ROWS_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

/* The two functions that an owner of rows supplies. Both receive `user`, which is the owner's. */
struct rows_store {
    void *user;
    /**
     * Each transfers `size_bytes` bytes of tensor number `index`. `offset` counts bytes from the start of
     * this rank's rows of that tensor.
     */
    enum fsdp_status (*read)(void *user, size_t index, uint64_t offset, void *bytes, size_t size_bytes,
                             struct fsdp_err *err);
    enum fsdp_status (*write)(void *user, size_t index, uint64_t offset, const void *bytes, size_t size_bytes,
                              struct fsdp_err *err);
};

#endif
