/*
 * Activation checkpointing: drop what a module's forward computed, and compute it again when backward reaches
 * the module. Chen et al., "Training deep nets with sublinear memory cost", 2016; PyTorch's
 * checkpoint_wrapper. Gradients have the same bits, because the same operations run again on the same values,
 * including dropout's.
 */
#ifndef FSDP_ACTIVATION_CHECKPOINT_H
#define FSDP_ACTIVATION_CHECKPOINT_H

#include <fsdp/module.h>

FSDP_BEGIN_DECLS

enum fsdp_activation_checkpoint {
    FSDP_CHECKPOINT_NONE,
    FSDP_CHECKPOINT_FULL,      /* all of the forward runs again: a third more arithmetic, least memory */
    FSDP_CHECKPOINT_SELECTIVE, /* results of products and attention are kept, cheaper operations run again */
};

/**
 * Checkpoint each call of the forward of `module`. Call it before fsdp_model_create(), which returns
 * FSDP_ERR_ARG if `mode` is not a value of the enum. Inside a module that is checkpointed itself it has no
 * effect. `module` may be NULL, because the tree remembers a failed construction.
 */
FSDP_API void fsdp_checkpoint_wrapper(struct fsdp_module *module, enum fsdp_activation_checkpoint mode);

FSDP_END_DECLS

#endif
