/*
 * The model that most tests train: a small transformer of which no size divides evenly, sharded in this way
 * or that.
 */
#ifndef TEST_ENGINE_TINY_H
#define TEST_ENGINE_TINY_H

#include <fsdp/fsdp.h>

struct tiny {
    size_t layers, dim, heads, vocab, seq, hidden;
    float dropout;
    bool causal;
    int visits;        /* times each block is called; 0: once */
    const char *skips; /* path of a block whose feed_forward this rank goes past; NULL: of none */
    enum fsdp_reshard reshard;
    int reshard_size;
    bool one_group; /* only the root is a unit */
    bool keep_after_backward;
    const struct fsdp_mixed_precision_policy *mp_policy; /* of all units; NULL: none */
    struct fsdp_device_mesh *mesh;                       /* NULL: all ranks */
    /* splits attention and feed_forward of the blocks; NULL: they are not split */
    struct fsdp_device_mesh *tensor;
    bool tied;   /* output.weight is tok_embeddings.weight; both with the norm are one list */
    bool listed; /* the same list, untied, and the two first blocks another */
    bool rms;    /* RMSNorms in place of LayerNorms */
    /* of each block the attention, but for wo, and ffn_norm.bias (rms: its weight); and the positions */
    bool frozen;
    bool columns;            /* matrices are cut along dimension 1 */
    bool root_in_f32;        /* the root does without it */
    bool offloads, unpinned; /* all units; the second: to memory that is not page-locked */
};

/** layers 2, dim 12, heads 3, vocab 19, seq 6, hidden 20, causal: nothing divides evenly. */
extern const struct tiny tiny_defaults;

/** `marks` with the sizes and the mask of tiny_defaults. */
struct tiny tiny_with(struct tiny marks);

/**
 * A transformer as in the job file's kind: transformer, not sharded nor split yet; `tiny` outlives it.
 * Destroyed with fsdp_module_destroy().
 */
struct fsdp_module *tiny_tree(const struct tiny *tiny);

/** The same, sharded. NULL: err says why. */
struct fsdp_module *tiny_build(const struct tiny *tiny, struct fsdp_err *err);

/** A text of 40 tokens, over and over: the tokens and targets of samples first ... first + batch - 1. */
void tiny_samples(const struct tiny *tiny, uint64_t first, size_t batch, int32_t *tokens, int32_t *targets);

#endif
