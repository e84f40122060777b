/*
 * Activation checkpointing: what a module's forward computed is dropped when the forward is left, and computed again
 * when backward comes to the module: Chen et al., "Training deep nets with sublinear memory cost", 2016. After PyTorch's
 * checkpoint_wrapper. Gradients are the same bits: the same operations run again on the same values, dropout's included.
 */
#ifndef FSDP_ACTIVATION_CHECKPOINT_H
#define FSDP_ACTIVATION_CHECKPOINT_H

#include <fsdp/module.h>

FSDP_BEGIN_DECLS

enum fsdp_activation_checkpoint {
    FSDP_CHECKPOINT_NONE,
    FSDP_CHECKPOINT_FULL, /* all of the forward runs again: a third more arithmetic, least memory */
    FSDP_CHECKPOINT_SELECTIVE, /* what products and attention gave is kept, what is cheap between them runs again */
};

/**
 * Checkpoint each call of `module`'s forward. Within a module that is checkpointed this changes nothing: the outermost
 * one counts. To be called before fsdp_model_create(), which returns FSDP_ERR_ARG if `mode` was none of these. `module` may
 * be NULL (a failed construction, remembered).
 */
FSDP_API void fsdp_checkpoint_wrapper(struct fsdp_module *module, enum fsdp_activation_checkpoint mode);

FSDP_END_DECLS

#endif
