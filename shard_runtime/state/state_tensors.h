/*
 * Lists a model and its optimizer as the plain array of tensors that checkpoint/ saves and loads. No tensor
 * is copied as a whole. Rows in host memory are used in place. Rows in a file of an offloaded optimizer are
 * read from that file. Rows in device memory are copied in small pieces.
 */
#ifndef STATE_STATE_TENSORS_H
#define STATE_STATE_TENSORS_H

#include <fsdp/optimizer.h>

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/engine/model.h"

struct state_tensors {
    struct checkpoint_tensor *list; /* (n): the model's parameters, then the optimizer's state */
    size_t n;
    /* The rest is for rows in device memory. */
    struct rows_store store;
    struct fsdp_context *context;
    /*
     * (n) device address of this rank's rows of each tensor. NULL on the CPU, where `list` has the addresses.
     */
    void **rows;
};

/**
 * Lists this rank's part of `model` and, unless NULL, of `optimizer`. The list contains pointers to *tensors,
 * so the caller must not move it before state_tensors_free(). The only error is FSDP_ERR_NOMEM, which leaves
 * nothing to free.
 */
enum fsdp_status state_tensors_make(struct state_tensors *tensors, struct fsdp_model *model,
                                    struct fsdp_optimizer *optimizer, struct fsdp_err *err);
/** Frees the list, but not the rows. On zero-initialised storage it is a no-op. */
void state_tensors_free(struct state_tensors *tensors);

#endif
