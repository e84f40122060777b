/*
 * Tensor parallelism, as in torch.distributed.tensor.parallel. The weight of a Linear is cut over the ranks
 * of one mesh dimension, and each rank computes with its part. The other mesh dimension shards what remains.
 *
 *   column-parallel  cuts weight (out, in) and bias (out) along `out`. Every rank gets the whole input and
 *                    computes its part of the output's features. Backward all-reduces the input's gradient
 *   row-parallel     cuts weight along `in`; every rank has the whole bias. Every rank gets its part of the
 *                    input's features. Forward all-reduces the outputs
 *
 * A block with one all-reduce in forward and one in backward begins with a column-parallel Linear. Then come
 * operations on each feature alone (GELU, sums), or attention, whose heads the ranks divide. It ends with a
 * row-parallel Linear. All ranks of a tensor group get the same samples. Names and initial values are those
 * of the whole parameter, so they do not depend on the size of either dimension.
 *
 * Every rank of the group updates its own copy of what is not split. If ranks compute with different machines
 * (fsdp_context_describe()), roundings differ. fsdp_optimizer_step() then replaces these copies by those of
 * part 0. It leaves ignored parameters alone. A program that updates parameters without it sends them itself.
 *
 *   struct fsdp_device_mesh *mesh, *dp, *tp;
 *   fsdp_init_device_mesh(&mesh, context, 2, (int[]){ 2, 2 }, (const char *[]){ "dp", "tp" }, &err);
 *   fsdp_device_mesh_slice(&dp, mesh, (const char *[]){ "dp" }, 1, &err);
 *   fsdp_device_mesh_slice(&tp, mesh, (const char *[]){ "tp" }, 1, &err);
 *   fsdp_parallelize_module(root, tp, rules, n_rules, &err);
 *   fsdp_fully_shard(root, &(struct fsdp_fully_shard_options){ .mesh = dp }, &err);
 */
#ifndef FSDP_TENSOR_PARALLEL_H
#define FSDP_TENSOR_PARALLEL_H

#include <stddef.h>

#include <fsdp/module.h>

FSDP_BEGIN_DECLS

struct fsdp_device_mesh;

enum fsdp_parallel_style { FSDP_COLWISE_PARALLEL, FSDP_ROWWISE_PARALLEL };

/**
 * ColwiseParallel(): make one Linear column-parallel, before fsdp_fully_shard() takes it.
 *
 *   mesh  of one dimension; it must outlive the models of the tree
 *   FSDP_ERR_ARG  `linear` is no Linear, is split or sharded already, or shares its weight; or the number of
 *                 ranks does not divide its features
 */
FSDP_API enum fsdp_status fsdp_colwise_parallel(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                                struct fsdp_err *err);

/** RowwiseParallel(): the same for a row-parallel Linear. */
FSDP_API enum fsdp_status fsdp_rowwise_parallel(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                                struct fsdp_err *err);

/**
 * One rule of a parallelize plan. It names modules by their path below the module that the plan is applied
 * to.
 */
struct fsdp_parallel_rule {
    const char *pattern; /* "layers.*.w1" */
    enum fsdp_parallel_style style;
};

/**
 * parallelize_module(): apply every rule to every module below `module` that it names. `mesh` and errors are
 * as above; a rule that names no module is FSDP_ERR_ARG, too.
 *
 * If one of these three functions fails on one rank alone, the other ranks learn of it as for
 * fsdp_fully_shard(). The tree never forgets such a failure, because some modules may be split by then.
 */
FSDP_API enum fsdp_status fsdp_parallelize_module(struct fsdp_module *module, struct fsdp_device_mesh *mesh,
                                                  const struct fsdp_parallel_rule *rules, size_t n_rules,
                                                  struct fsdp_err *err);

FSDP_END_DECLS

#endif
