/*
 * Tensors in device memory for those who save and load: any range of their bytes, through a copy. Nothing on the cpu, where rows are
 * used where they lie.
 */
#ifndef STATE_DEVICE_ROWS_H
#define STATE_DEVICE_ROWS_H

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/engine/context.h"

struct device_rows {
    struct rows_store store;
    struct fsdp_context *context;
    void **rows; /* of each tensor */
};

/** Let those of `tensors` (n_tensors) that are rows in memory be read and written through *rows, which outlives their use and is
 * released also after a failure. */
enum fsdp_status device_rows_use(struct device_rows *rows, struct fsdp_context *context,
                                 struct checkpoint_tensor *tensors, size_t n_tensors, struct fsdp_err *err);
void device_rows_fini(struct device_rows *rows);

#endif
