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
void plan_it(struct planned *p, struct fsdp_module *root, const struct plan_options *options, bool training);
/** The same with several forwards before a backward. */
void plan_forwards(struct planned *p, struct fsdp_module *root, const struct plan_options *options,
                   bool training, size_t n_forwards);
/** The same, and an error is returned; *p is to be ended all the same. */
enum fsdp_status plan_try(struct planned *p, struct fsdp_module *root, const struct plan_options *options,
                          bool training, size_t n_forwards, struct fsdp_err *err);
void planned_fini(struct planned *p);

/**
 * Fails the test unless the plan's gathers and reductions, in order, are `want`. Each is a letter and the
 * unit's name: A for the agreement on largest sizes, U gather, PB reduce-scatter, AR all-reduce, with `frees`
 * F reshard. A 1 at its end marks what only the first micro-step does. "|" is the loss.
 */
void expect_events(const struct plan *plan, bool frees, const char *want);

/** The plan of most tests. Each suite that uses it has planned_drop() as its .fini. */
extern struct planned made;
void planned_drop(void);

/** The blocks over W ranks, planned for training into `made`. */
void plan_blocks(int W, struct blocks blocks);

/** How many entries of that kind the plan has. */
int count_entries(const struct plan *plan, enum plan_entry_kind kind);

/** The options that most tests vary; what is cheap is kept. */
struct plan_options options_for(int W);

#endif
