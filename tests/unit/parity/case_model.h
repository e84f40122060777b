/*
 * The model of a stored case, and the ways in which it is sharded: what a rank of case_run() builds.
 */
#ifndef TEST_PARITY_CASE_MODEL_H
#define TEST_PARITY_CASE_MODEL_H

#include "tests/unit/engine/world.h"
#include "tests/unit/parity/case.h"

/** Fails the test with the error's words unless it is none. */
void case_must(enum fsdp_status status, const struct fsdp_err *err);

/**
 * The sizes of a case that is no pair of linears; they outlive its tree. `skips`: this rank's samples are of
 * the half that goes past a feed_forward.
 */
struct tiny case_tiny(const struct reference *reference, bool skips);
/** The tree, in one piece. */
struct fsdp_module *case_build(const struct reference *reference, const struct tiny *tiny);
/** requires_grad false for all that the pattern leaves out. */
void case_freeze(struct fsdp_module *root, const char *trains);

struct case_meshes {
    struct fsdp_device_mesh *all, *data, *flat, *tensor; /* the others are of the first; NULL: not needed */
};

void case_open_meshes(struct case_meshes *meshes, struct fsdp_context *context, const struct way *way);
void case_close_meshes(struct case_meshes *meshes);
/** Ranks that split each linear, 1 where none do; and ranks with samples of their own. */
int case_data_ranks(const struct way *way);

/**
 * Tensor parallelism over `mesh`, where the way has it; then fully_shard and all that the way asks of units.
 */
void case_split(struct fsdp_module *root, const struct way *way, struct fsdp_device_mesh *mesh);
void case_shard(struct fsdp_module *root, const struct reference *reference, const struct way *way,
                const struct case_meshes *meshes);

#endif
