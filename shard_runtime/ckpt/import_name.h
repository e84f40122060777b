/*
 * What a tensor in the files of other programs is called in a checkpoint of ours. Pure.
 */
#ifndef CKPT_IMPORT_NAME_H
#define CKPT_IMPORT_NAME_H

#include <stdbool.h>
#include <stddef.h>

enum { IMPORT_NAME_BYTES = 1024 };

enum import_kind {
    IMPORT_WEIGHT,
    IMPORT_STATE, /* of the optimizer: "optimizer.exp_avg.P" */
    IMPORT_STEP,  /* the optimizer's count of steps, one for each parameter */
    IMPORT_OTHER, /* nothing of ours: passed over */
};

/* How the names in the files differ from ours. */
struct import_names {
    /* What may precede a parameter's name. They are taken away in this order, each at most once. */
    const char *prefixes[3];
    const char *const
        /* patterns of fnmatch(3): a name that matches, after its prefixes are taken away, is IMPORT_OTHER */
        *passed_over;
    size_t n_passed_over;
};

/**
 * Writes our name of `name` to `out`, and returns what it is. The states of PyTorch's optimizers are known as
 * torch.distributed.checkpoint.state_dict names them: "optim.state.P.exp_avg", with "optimizer" or nothing in
 * place of "optim". A name that is too long is IMPORT_OTHER.
 */
enum import_kind import_name(const struct import_names *names, const char *name, char out[IMPORT_NAME_BYTES]);

#endif
