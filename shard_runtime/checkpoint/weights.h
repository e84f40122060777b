/*
 * Load weights, and nothing else, from wherever they come: a checkpoint of ours, a file that PyTorch wrote, a model
 * directory of Hugging Face. Each rank reads its own rows. Types may differ: bfloat16, float16 (both
 * exact) and float64 (rounded) become float32.
 */
#ifndef CHECKPOINT_WEIGHTS_H
#define CHECKPOINT_WEIGHTS_H

#include <stdbool.h>

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/shardfile/io.h"

/** What fitted and what did not. `lines`: one a name, "missing NAME", "unexpected NAME", "mismatched NAME: ..."; owned. */
struct weights_report {
    size_t n_loaded, n_missing, n_unexpected, n_mismatched;
    char *lines; /* never NULL after a call that got so far; free() it */
};

/** What other programs call things. Zeros: as we do. */
struct weights_names {
    const char *prefix; /* a tensor may stand there with this in front of its name; NULL: none */
    const char *const
        *passed_over; /* patterns of fnmatch(3): what there is nobody's, and not unexpected; without prefix */
    size_t n_passed_over;
};

/**
 * Fill `rows` of every tensor from `path` (shardfile/weights.h says what it may be).
 *   missing     wanted, and not there       unexpected  there, and not wanted (optimizer state is not looked at)
 *   mismatched  there with another shape, or in a type that is not read
 * `strict`: any of these is FSDP_ERR_MISMATCH, and nothing was written. Otherwise what is missing keeps its rows and
 * what is unexpected is left alone; a mismatch is an error all the same, as in PyTorch. `names` may be NULL.
 * `filled` (n_tensors): which tensors had their rows filled, after FSDP_OK; may be NULL.
 */
enum fsdp_status weights_load(struct fsdp_io *io, const char *path, int W, int rank,
                              const struct checkpoint_tensor *tensors, size_t n_tensors, bool strict,
                              const struct weights_names *names, struct weights_report *report, bool *filled,
                              struct fsdp_err *err);

#endif
