/*
 * Recordings to plan: trees that compute nothing, whose operations are given bytes without a numerics
 * library.
 */
#ifndef TEST_PLAN_MODELS_H
#define TEST_PLAN_MODELS_H

#include "shard_runtime/plan/plan.h"

struct planned {
    struct fsdp_module *root;
    struct graph graph;
    struct plan plan;
};

struct blocks {
    int n_blocks;
    enum fsdp_reshard reshard_blocks, reshard_root;
    int reshard_size;
    bool keep_after_backward;
    const struct fsdp_mixed_precision_policy *mp_policy; /* NULL: none */
    bool root_in_f32;                                    /* the root does without it */
    int visits;                                          /* times that each block is called; 0 counts as 1 */
    bool offloads;                                       /* all units, to host memory */
};

/** Root: embedding, blocks of two linears with a residual, output. */
struct fsdp_module *blocks_build(struct blocks *blocks);

/** Record and plan `root`, which is owned from now on; fails the test when that fails. */
void plan_it(struct planned *planned, struct fsdp_module *root, const struct plan_options *options,
             bool training);
/** The same with several forwards before a backward. */
void plan_forwards(struct planned *planned, struct fsdp_module *root, const struct plan_options *options,
                   bool training, size_t n_forwards);
void planned_fini(struct planned *planned);

/** The options that most tests vary; what is cheap is kept. */
struct plan_options options_for(int W);

#endif
