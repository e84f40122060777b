/*
 * Tensor parallelism, as torch.distributed.tensor.parallel has it: a Linear's weight is cut over the ranks of a mesh
 * dimension, each of which computes with its part, and what is left of the parameters is sharded over the others.
 *
 *   column-parallel   weight (out, in) and bias (out) along `out`: every rank is given the whole input and gives its part of
 *                     the output's features; in backward the input's gradient is all-reduced
 *   row-parallel      weight along `in`, bias whole: every rank is given its part of the input's features; the outputs are
 *                     all-reduced in forward
 *
 * A column-parallel Linear, what works feature by feature (GELU, sums, attention, whose heads the ranks then divide), and
 * a row-parallel one behind it make a block with one all-reduce in forward and one in backward. The ranks of a tensor group
 * are given the same samples. Names and initial values are those of the whole: equal at every size of either dimension.
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

/** ColwiseParallel() and RowwiseParallel() of one Linear, over a mesh of one dimension, which outlives the models of the tree.
 * Before fsdp_fully_shard() takes it.
 *   FSDP_ERR_ARG  no Linear, split or sharded already, a weight that is shared, or features that the ranks do not divide */
FSDP_API enum fsdp_status fsdp_colwise_parallel(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                                struct fsdp_err *err);
FSDP_API enum fsdp_status fsdp_rowwise_parallel(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                                struct fsdp_err *err);

/** A line of a parallelize plan: the modules below whose path, from `module` on, matches the pattern ("layers.*.w1"). */
struct fsdp_parallel_rule {
    const char *pattern;
    enum fsdp_parallel_style style;
};

/** parallelize_module(): every rule on every module below that it names. A rule that names none is an error. A failure on one
 * rank alone reaches the others as one of fsdp_fully_shard() does; that of these three functions is never forgotten, because
 * some modules may be split by then. */
FSDP_API enum fsdp_status fsdp_parallelize_module(struct fsdp_module *module, struct fsdp_device_mesh *mesh,
                                                  const struct fsdp_parallel_rule *rules, size_t n_rules,
                                                  struct fsdp_err *err);

FSDP_END_DECLS

#endif
