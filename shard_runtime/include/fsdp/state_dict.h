/*
 * Weights in and out of a sharded model: from files of other tools, and whole on one rank. After PyTorch's
 * torch.distributed.checkpoint.state_dict with full_state_dict and broadcast_from_rank0.
 */
#ifndef FSDP_STATE_DICT_H
#define FSDP_STATE_DICT_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/model.h>

FSDP_BEGIN_DECLS

/** What of a file fitted. `lines`: "missing NAME", "unexpected NAME", "mismatched NAME: ...", one a line. */
struct fsdp_load_report {
    size_t n_loaded, n_missing, n_unexpected, n_mismatched;
    char *lines; /* owned; fsdp_load_report_fini(). NULL when the file could not be listed */
};
FSDP_API void fsdp_load_report_fini(struct fsdp_load_report *report);

/**
 * Load weights alone from `path`, which may be:
 *   - a .safetensors file, as safetensors.torch.save_file() writes it
 *   - a directory of them: Hugging Face's, or what PyTorch's HuggingFaceStorageWriter saved, whole tensors or shards
 *   - their index, model.safetensors.index.json: exactly the files that it names
 *   - a step directory of ours
 * Symbolic links are followed, except inside a step directory. float32, bfloat16, float16 (both exact) and float64
 * (rounded) become float32. Collective; each rank reads its own rows. *report is filled in on every rank, also after
 * FSDP_ERR_MISMATCH.
 *   strict              every parameter must be there and nothing else; else what is missing keeps its value
 *   FSDP_ERR_MISMATCH   it does not fit (a shape never may differ); no parameter was changed
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_FORMAT, FSDP_ERR_IO   the message names the file
 *   any                 another rank could not load it (<fsdp/fsdp.h>): parameters are undefined on all ranks
 */
FSDP_API enum fsdp_status fsdp_model_load_weights(struct fsdp_model *model, const char *path, bool strict,
                                                  struct fsdp_load_report *report, struct fsdp_err *err);

/** What another program calls things, where it does not as the tree does. */
struct fsdp_weight_names {
    const char *prefix; /* a parameter may stand there with this in front of its name; NULL: none */
    const char *const
        *passed_over; /* patterns of fnmatch(3), without the prefix: neither wanted nor unexpected */
    size_t n_passed_over;
};
/** The same by such names. */
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

/** All parameters whole in the memory of the model's first rank; collective over the model's ranks. The first rank is the
 * lowest: rank 0 of the world or, if the model is sharded over a slice of a mesh, rank 0 of each group of that slice. The other ranks need room for the largest parameter alone. All room is
 * made before the first parameter is gathered: FSDP_ERR_NOMEM on some rank is told to all. */
FSDP_API enum fsdp_status fsdp_get_full_state_dict(struct fsdp_model *model, struct fsdp_full_state_dict *out,
                                                   struct fsdp_err *err);
/** Release what fsdp_get_full_state_dict() made. */
FSDP_API void fsdp_full_state_dict_fini(struct fsdp_full_state_dict *state);

/**
 * Broadcast the `state` of the model's first rank (see above) to the model's ranks; each takes its rows of it. Collective over
 * them. Only the first rank's `state` is read; others may pass NULL.
 * Every parameter must be there, and nothing else, in any order.
 *   FSDP_ERR_MISMATCH  it does not fit the model: the same on every rank, and nothing was changed
 */
FSDP_API enum fsdp_status fsdp_set_full_state_dict(struct fsdp_model *model,
                                                   const struct fsdp_full_state_dict *state,
                                                   struct fsdp_err *err);

FSDP_END_DECLS

#endif
