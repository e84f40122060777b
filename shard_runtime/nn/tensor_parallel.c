/*
 * The two collectives of tensor parallelism as operations. Each is the backward of the other. Shoeybi et al.,
 * "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019, section 3,
 * call them f and g.
 *   copy      y = x                    dx = sum over the group of dy
 *   reduce    y = sum over the group   dx = dy
 * This file also has the functions that mark the modules of a tree for these operations.
 */
#include <fsdp/comm.h>
#include <fsdp/mesh.h>

#include <fnmatch.h>
#include <stdint.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/nn/nn.h"

/* The operations */

static void copy_over(const struct nn_run *run, const struct graph_op *op, const void *from, void *to)
{
    if (from != to)
        run->device->ops->copy(run->stream, to, from, graph_value_bytes(op->output), DEVICE_COPY_WITHIN);
}

static enum fsdp_status all_reduce(const struct nn_run *run, const struct graph_op *op, void *buffer,
                                   struct fsdp_err *err)
{
    return fsdp_all_reduce(run->tensor, buffer, graph_value_elems(op->output), op->output->dtype, FSDP_SUM,
                           run->stream, err);
}

static enum fsdp_status copy_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    (void)err;
    copy_over(run, op, run->input[0], run->output);
    return FSDP_OK;
}

static enum fsdp_status copy_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    if (run->d_input[0] == NULL)
        return FSDP_OK;
    copy_over(run, op, run->d_output, run->d_input[0]);
    return all_reduce(run, op, run->d_input[0], err);
}

static enum fsdp_status reduce_forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    copy_over(run, op, run->input[0], run->output);
    return all_reduce(run, op, run->output, err);
}

static enum fsdp_status reduce_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    (void)err;
    if (run->d_input[0] != NULL)
        copy_over(run, op, run->d_output,
                  /* copied, never added: no other operation reads the terms of the sum */
                  run->d_input[0]);
    return FSDP_OK;
}

static const struct graph_kind copy_kind = {
    .name = "tensor_copy",
    .grad = { GRAPH_GRAD_WRITE },
    .output_is_input = true,
    .forward_in_place = { true },
    .grad_in_place = true,
    .takes_bf16 = true,
    .reduces_grad = true,
    .forward = copy_forward,
    .backward = copy_backward,
};

static const struct graph_kind reduce_kind = {
    .name = "tensor_reduce",
    .costly = true,
    .grad = { GRAPH_GRAD_COPY },
    .forward_in_place = { true },
    .takes_bf16 = true,
    .reduces_output = true,
    .forward = reduce_forward,
    .backward = reduce_backward,
};

static struct fsdp_value *append(const struct graph_kind *kind, struct fsdp_value *x,
                                 const struct fsdp_module *module)
{
    struct graph_op *op = graph_append(x->graph, kind, module, false, &x, 1, NULL, 0, x->features);

    if (op == NULL)
        return NULL;
    op->attrs.tensor = module->tensor.mesh;
    op->attrs.n_parts = module->tensor.n_parts;
    return op->output;
}

struct fsdp_value *nn_tensor_copy(struct fsdp_value *x, const struct fsdp_module *module)
{
    const struct graph *graph = x->graph;

    for (size_t i = graph->n_ops; i-- > 0;) {
        const struct graph_op *op = graph->ops[i];

        if (op->kind == &copy_kind && op->inputs[0] == x && op->attrs.tensor == module->tensor.mesh &&
            op->visit == graph->open_visits[graph->n_open - 1])
            return op->output;
    }
    return append(&copy_kind, x, module);
}

struct fsdp_value *nn_tensor_reduce(struct fsdp_value *x, const struct fsdp_module *module)
{
    return append(&reduce_kind, x, module);
}

/* Marking the modules of a tree */

static enum fsdp_status check(const struct fsdp_module *linear, const struct fsdp_device_mesh *mesh,
                              struct fsdp_err *err)
{
    const struct fsdp_parameter *weight, *bias;

    if (linear == NULL || mesh == NULL || fsdp_device_mesh_ndim(mesh) != 1)
        return fsdp_fail(err, FSDP_ERR_ARG, "parallelize: it takes a linear and a mesh of one dimension");
    if (!nn_is_linear(linear))
        return fsdp_fail(err, FSDP_ERR_ARG, "parallelize: \"%s\" is no linear: only these are split",
                         linear->path);
    weight = module_parameter(linear, "weight");
    bias = module_parameter(linear, "bias");
    if (linear->tensor.mesh != NULL || module_unit(linear) != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "parallelize: \"%s\" is %s already", linear->path,
                         linear->tensor.mesh != NULL ? "split" : "sharded");
    if (weight->owner != linear || (bias != NULL && bias->owner != linear))
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "parallelize: \"%s\" shares its weight with another module", linear->path);
    for (const struct fsdp_module *m = linear->root; m != NULL; m = module_next(linear->root, m))
        for (size_t i = 0; i < m->n_aliases; i++)
            if (m->aliases[i].parameter->owner == linear)
                return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                                 "parallelize: \"%s\" shares its weight with \"%s\"", linear->path, m->path);
    return FSDP_OK;
}

static struct fsdp_parameter *own(struct fsdp_module *module, const char *name)
{
    /* the caller may change the tree */
    return (struct fsdp_parameter *)(uintptr_t)module_parameter(module, name);
}

static enum fsdp_status parallelize(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                    enum fsdp_parallel_style style, struct fsdp_err *err)
{
    /* dimension of the weight (out, in) that is split */
    const int dim = style == FSDP_COLWISE_PARALLEL ? 0 : 1;
    struct fsdp_parameter *weight, *bias;
    enum fsdp_status status = check(linear, mesh, err);
    int n_parts, part;

    if (status != FSDP_OK)
        return status;
    n_parts = fsdp_device_mesh_size(mesh, 0);
    part = fsdp_device_mesh_get_local_rank(mesh, 0);
    weight = own(linear, "weight");
    bias = own(linear, "bias");
    if (weight->shape[dim] % (size_t)n_parts != 0)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "parallelize: %d ranks do not divide the %zu %s features of \"%s\"", n_parts,
                         weight->shape[dim], dim == 0 ? "output" : "input", linear->path);
    if (n_parts == 1)
        return FSDP_OK;
    parameter_split(weight, dim, n_parts, part);
    if (bias != NULL && style == FSDP_COLWISE_PARALLEL)
        parameter_split(bias, 0, n_parts, part);
    linear->tensor = (struct module_tensor){ .mesh = mesh, .style = style, .n_parts = n_parts, .part = part };
    return FSDP_OK;
}

/*
 * Stores in the tree that a split over tensor ranks failed, and into how many parts it was to be. From the
 * parts follows which ranks share the failed model, so that all of them can be told.
 */
static enum fsdp_status refuse(struct fsdp_module *module, const struct fsdp_device_mesh *mesh,
                               const struct fsdp_err *own_words, struct fsdp_err *err)
{
    const enum fsdp_status status = module_refuse(module, NULL, own_words, err);

    if (module != NULL && mesh != NULL && fsdp_device_mesh_ndim(mesh) == 1)
        module->root->refusal.n_parts = fsdp_device_mesh_size(mesh, 0);
    return status;
}

/* Splits a linear; a failure is stored in the tree. */
static enum fsdp_status parallelize_one(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                        enum fsdp_parallel_style style, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };

    return parallelize(linear, mesh, style, &own) == FSDP_OK ? FSDP_OK : refuse(linear, mesh, &own, err);
}

enum fsdp_status fsdp_colwise_parallel(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                       struct fsdp_err *err)
{
    return parallelize_one(linear, mesh, FSDP_COLWISE_PARALLEL, err);
}

enum fsdp_status fsdp_rowwise_parallel(struct fsdp_module *linear, struct fsdp_device_mesh *mesh,
                                       struct fsdp_err *err)
{
    return parallelize_one(linear, mesh, FSDP_ROWWISE_PARALLEL, err);
}

/* The path of `module` relative to `top`. */
static const char *path_below(const struct fsdp_module *top, const struct fsdp_module *module)
{
    const size_t skip = top->path[0] == '\0' ? 0 : strlen(top->path) + 1;

    return module == top ? "" : module->path + skip;
}

static enum fsdp_status apply_rules(struct fsdp_module *module, struct fsdp_device_mesh *mesh,
                                    const struct fsdp_parallel_rule *rules, size_t n_rules,
                                    struct fsdp_err *err)
{
    OK_OR_RETURN(fsdp_module_check(module, err));
    for (size_t r = 0; r < n_rules; r++) {
        bool found = false;

        if (rules == NULL || rules[r].pattern == NULL || (unsigned)rules[r].style > FSDP_ROWWISE_PARALLEL)
            return fsdp_fail(err, FSDP_ERR_ARG, "parallelize: rule %zu has no pattern or an unknown style",
                             r);

        for (const struct fsdp_module *m = module; m != NULL; m = module_next(module, m)) {
            if (fnmatch(rules[r].pattern, path_below(module, m), 0) != 0)
                continue;
            found = true;
            OK_OR_RETURN(parallelize((struct fsdp_module *)(uintptr_t)m, mesh, rules[r].style, err));
        }
        if (!found)
            return fsdp_fail(err, FSDP_ERR_ARG, "parallelize: no module below \"%s\" is called %s",
                             module->path, rules[r].pattern);
    }
    return FSDP_OK;
}

enum fsdp_status fsdp_parallelize_module(struct fsdp_module *module, struct fsdp_device_mesh *mesh,
                                         const struct fsdp_parallel_rule *rules, size_t n_rules,
                                         struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };

    return apply_rules(module, mesh, rules, n_rules, &own) == FSDP_OK ? FSDP_OK
                                                                      : refuse(module, mesh, &own, err);
}
