/*
 * What the files of the nccl back end share: the library's functions, a group, and how every call on a group
 * is checked.
 *
 *   nccl.c          groups and their collectives; owns every field of struct device_group
 *   nccl_library.c  opens the library, once; owns `nccl`
 *   nccl_memory.c   memory that NCCL allocates and registers; owns no field
 *   nccl_check.c    compares nccl_api.h with NCCL's own header while it compiles
 */
#ifndef CUDA_NCCL_IMPL_H
#define CUDA_NCCL_IMPL_H

#include <stdint.h>

#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/cuda/nccl_api.h"
#include "shard_runtime/cuda/state.h"

struct device_group {
    struct device_group_config config;
    char name[64];
    struct nccl_communicator *comm; /* NULL once aborted */
    struct fsdp_err broken;         /* status other than FSDP_OK: the first failure; it stays */
    uint64_t deadline_ns; /* deadline of the current wait; 0: none, and only the watch can end the wait */
};

/* The library's functions, filled in by nccl_open_library(). */
extern struct nccl_api nccl;

/**
 * Open the library, once. `device` is for messages. FSDP_ERR_UNSUPPORTED: it is not there, or lacks a
 * function.
 */
enum fsdp_status nccl_open_library(const struct cuda_device *device, struct fsdp_err *err);
/** Write the name and version, "NCCL 2.28.9", to `buffer`. */
void nccl_describe(char *buffer, size_t size);

/** Put a failed call that belongs to no group into words: the call, file and line, rank and device. */
enum fsdp_status nccl_call_failed(const struct cuda_device *device, enum nccl_result result, const char *call,
                                  const char *file, int line, struct fsdp_err *err);
/**
 * Bring a call to its end: if it is in progress, ask until it is done. A failure breaks and aborts the group.
 */
enum fsdp_status nccl_finish(struct device_group *group, enum nccl_result result, const char *call,
                             const char *file, int line, struct fsdp_err *err);
/** The failure that broke the group. */
enum fsdp_status nccl_failed(const struct device_group *group, struct fsdp_err *err);

#define NCCL_TRY(group, call, err)                                                                           \
    ((group)->comm == NULL ? nccl_failed((group), (err))                                                     \
                           : nccl_finish((group), nccl.call, "nccl" #call, __FILE__, __LINE__, (err)))

/* Slots of the table: see struct device_collectives. */
enum fsdp_status nccl_alloc_memory(struct device *device, size_t size_bytes, void **out,
                                   struct fsdp_err *err);
enum fsdp_status nccl_register_memory(struct device_group *group, void *memory, size_t size_bytes,
                                      void **handle, struct fsdp_err *err);
void nccl_unregister_memory(struct device_group *group, void *handle);

#endif
