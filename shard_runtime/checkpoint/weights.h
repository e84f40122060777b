/*
 * Loads weights, and nothing else. The source is a checkpoint of this project, a file that PyTorch wrote, or
 * a model directory of Hugging Face. Each rank reads its own rows. Types may differ: bfloat16 and float16
 * (both exact) and float64 (rounded) are converted to float32.
 */
#ifndef CHECKPOINT_WEIGHTS_H
#define CHECKPOINT_WEIGHTS_H

#include <stdbool.h>

#include "shard_runtime/checkpoint/tensors.h"
#include "shard_runtime/shardfile/io.h"

/**
 * The result of matching tensors with files. `lines` has one line for each tensor that did not match:
 * "missing NAME", "unexpected NAME" or "mismatched NAME: ...".
 */
struct weights_report {
    size_t n_loaded, n_missing, n_unexpected, n_mismatched;
    char *lines; /* the caller frees it; NULL if the files could not be listed */
};

/** How the files name tensors, if that differs from our names. All zeros: no difference. */
struct weights_names {
    const char *prefix; /* tensors in the files may have this before their name; NULL: none */
    /* Patterns of fnmatch(3) for names without the prefix. Matching tensors do not count as unexpected. */
    const char *const *passed_over;
    size_t n_passed_over;
};

/**
 * Fills `rows` of every tensor from `path`; shardfile/weights.h lists what a path may be. Every tensor is in
 * one of four groups:
 *   loaded      wanted, and in the files
 *   missing     wanted, but not in the files
 *   unexpected  in the files, but not wanted; optimizer state does not count
 *   mismatched  in the files with another shape, or with a type that cannot be converted
 *
 * Arguments:
 *   strict   true: a missing, unexpected or mismatched tensor is FSDP_ERR_MISMATCH, and nothing is written.
 *            false: missing tensors keep their rows and unexpected ones are ignored. A mismatched tensor is
 *            still an error, as in PyTorch
 *   names    how the files name tensors; NULL: with our names
 *   report   receives the counts and names; the caller frees report->lines, even after an error
 *   filled   NULL, or (n_tensors): after FSDP_OK, true for each tensor whose rows were filled
 *
 * Also returns the errors of reading the files; the rows are then undefined.
 */
enum fsdp_status weights_load(struct fsdp_io *io, const char *path, int W, int rank,
                              const struct checkpoint_tensor *tensors, size_t n_tensors, bool strict,
                              const struct weights_names *names, struct weights_report *report, bool *filled,
                              struct fsdp_err *err);

#endif
