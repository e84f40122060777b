/*
 * Weights in and out of a sharded model: from files of other tools, and whole on one rank. After PyTorch's
 * torch.distributed.checkpoint.state_dict with full_state_dict and broadcast_from_rank0.
 */
#ifndef FSDP_STATE_DICT_H
#define FSDP_STATE_DICT_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/model.h>
#include <fsdp/optimizer.h>

FSDP_BEGIN_DECLS

/** Which tensors of a file matched the model's parameters by name and shape. */
struct fsdp_load_report {
    size_t n_loaded, n_missing, n_unexpected, n_mismatched;
    /*
     * One line per difference: "missing NAME", "unexpected NAME" or "mismatched NAME: ...". NULL when the
     * file could not be listed. Freed by fsdp_load_report_fini().
     */
    char *lines;
};

/** Free what a report holds. */
FSDP_API void fsdp_load_report_fini(struct fsdp_load_report *report);

/**
 * Load weights, without optimizer state, from `path`; collective, each rank reads its own rows. `path` is one
 * of:
 *   - a .safetensors file, as safetensors.torch.save_file() writes it
 *   - a directory of such files: Hugging Face's, or what PyTorch's HuggingFaceStorageWriter saved, as whole
 *     tensors or shards
 *   - the index of such a directory, model.safetensors.index.json: exactly the files that it names are read
 *   - a step directory of an fsdprun checkpoint
 * Symbolic links are followed, except inside a step directory. The values become float32: bfloat16 and
 * float16 exactly, float64 by rounding.
 *
 *   strict   true: the file must have every parameter and nothing else. false: a parameter that the file does
 *            not have keeps its value
 *   *report  filled in on every rank on success and after FSDP_ERR_MISMATCH; the caller frees it
 *
 *   FSDP_ERR_MISMATCH   a shape differs, or with `strict` a name; no parameter was changed
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_FORMAT, FSDP_ERR_IO   the message names the file
 *   any                 another rank could not load it (<fsdp/fsdp.h>): parameters are undefined on all ranks
 */
FSDP_API enum fsdp_status fsdp_model_load_weights(struct fsdp_model *model, const char *path, bool strict,
                                                  struct fsdp_load_report *report, struct fsdp_err *err);

/** How the names in a file differ from those of the tree. */
struct fsdp_weight_names {
    const char *prefix; /* a parameter's name in the file may begin with this; NULL: no prefix */
    /* Patterns of fnmatch(3), without the prefix, for tensors that are neither loaded nor reported. */
    const char *const *passed_over;
    size_t n_passed_over;
};

/** fsdp_model_load_weights() for a file whose names differ as `names` says. */
FSDP_API enum fsdp_status fsdp_model_load_weights_named(struct fsdp_model *model, const char *path,
                                                        bool strict, const struct fsdp_weight_names *names,
                                                        struct fsdp_load_report *report,
                                                        struct fsdp_err *err);

/** A whole parameter: n_elems values of its shape, row-major. */
struct fsdp_full_tensor {
    const char *name; /* borrowed from the model's tree, or the caller's */
    int n_dims;
    size_t shape[FSDP_MAX_DIMS];
    size_t n_elems;
    float *data;
};

struct fsdp_full_state_dict {
    struct fsdp_full_tensor *tensors;
    size_t n_tensors; /* 0 on ranks other than the model's first */
};

/**
 * Gather all parameters in the memory of the model's first rank; collective over the model's ranks.
 *
 * The first rank is the lowest: rank 0 of the world. If the model is sharded over a slice of a mesh, it is
 * rank 0 of each group of that slice. Every other rank needs room for the largest parameter only, and gets an
 * empty *out.
 *   FSDP_ERR_NOMEM  a rank has no room. All room is made before the first parameter is gathered, and all
 *                   ranks return this status
 */
FSDP_API enum fsdp_status fsdp_get_full_state_dict(struct fsdp_model *model, struct fsdp_full_state_dict *out,
                                                   struct fsdp_err *err);

/** Free what fsdp_get_full_state_dict() allocated. */
FSDP_API void fsdp_full_state_dict_fini(struct fsdp_full_state_dict *state);

/**
 * Broadcast whole parameters from the model's first rank (see above); each rank takes its rows. Collective
 * over the model's ranks.
 *
 *   state  read on the first rank only; other ranks may pass NULL. It must have every parameter, and nothing
 *          else, in any order
 *   FSDP_ERR_MISMATCH  it does not match the model: the same on every rank, and nothing was changed
 */
FSDP_API enum fsdp_status fsdp_set_full_state_dict(struct fsdp_model *model,
                                                   const struct fsdp_full_state_dict *state,
                                                   struct fsdp_err *err);

/**
 * The same for the optimizer's state: gather all of it in the memory of the model's first rank; collective
 * over the model's ranks.
 *
 *   out  for a parameter P, "optimizer.exp_avg.P" and so on, of P's shape, in the order of
 *        fsdp_optimizer_state(); empty on the other ranks. The names belong to the optimizer. The caller
 *        frees it with fsdp_full_state_dict_fini()
 *
 * The count of updates is fsdp_optimizer_step_count(), the same on every rank.
 *   FSDP_ERR_NOMEM  a rank has no room; all ranks return this status
 *   FSDP_ERR_IO     with an offload_dir: a rank cannot read its part; all ranks return this status
 */
FSDP_API enum fsdp_status fsdp_get_full_optimizer_state(struct fsdp_optimizer *optimizer,
                                                        struct fsdp_full_state_dict *out,
                                                        struct fsdp_err *err);

/**
 * Broadcast the optimizer's whole state from the model's first rank; each rank takes its rows. Collective
 * over the model's ranks. The caller sets the count of updates with fsdp_optimizer_set_step_count().
 *
 *   state  read on the first rank only; other ranks may pass NULL. It must have every tensor of the state,
 *          and nothing else, in any order
 *   FSDP_ERR_MISMATCH  it does not match the optimizer: the same on every rank, and nothing was changed
 *   FSDP_ERR_IO        with an offload_dir: a rank cannot write its part; the state is undefined
 */
FSDP_API enum fsdp_status fsdp_set_full_optimizer_state(struct fsdp_optimizer *optimizer,
                                                        const struct fsdp_full_state_dict *state,
                                                        struct fsdp_err *err);

FSDP_END_DECLS

#endif
