/*
 * Makes a checkpoint of weights that other programs wrote, so that a job resumes from it. Tensors are copied
 * in blocks, and floating-point types become float32, in which parameters are kept.
 */
#ifndef CKPT_IMPORT_H
#define CKPT_IMPORT_H

#include "shard_runtime/ckpt/import_name.h"
#include "shard_runtime/shardfile/contents.h"

struct import_options {
    int64_t step;
    uint64_t seed, cursor;
    uint32_t ranks;  /* files, each with the rows that this many ranks have */
    const char *job; /* JSON of the job that will resume; NULL: none is known */
    struct import_names names;
    /*
     * States of the optimizer that every parameter must have, such as "exp_avg". What the source lacks
     * becomes zero, as in an optimizer that has done no step.
     */
    const char *const *states;
    size_t n_states;
};

struct import_result {
    size_t n_weights, n_states, n_zeroed, n_passed_over;
    uint64_t optimizer_step;
    uint64_t bytes; /* of tensors */
};

/**
 * Publishes the tensors of `source`, whose files are in `source_directory`, as the checkpoint of
 * options->step in `directory`, which is created if it is missing. The caller holds the directory's lock.
 *   FSDP_ERR_CONFIG       the step has a checkpoint already
 *   FSDP_ERR_MISMATCH     two tensors would have one name, or nothing is a weight
 *   FSDP_ERR_UNSUPPORTED  a tensor has a type that is not read
 *   FSDP_ERR_FORMAT, FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status import_tensors(struct fsdp_io *io, const struct contents *source,
                                const char *source_directory, const char *directory,
                                const struct import_options *options, struct import_result *result,
                                struct fsdp_err *err);

#endif
