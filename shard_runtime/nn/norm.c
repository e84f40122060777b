/*
 * LayerNorm (Ba, Kiros, Hinton, "Layer Normalization", 2016) and RMSNorm (Zhang and Sennrich, "Root Mean
 * Square Layer Normalization", 2019) over the last dimension. They compute what torch.nn.LayerNorm and
 * torch.nn.RMSNorm do. Both keep the input and 1/std of each row for backward; LayerNorm also keeps the mean.
 * RMSNorm has no bias and no mean, so their addresses are NULL.
 */

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/nn/nn.h"

enum { RSTD, MEAN };   /* indices of saved values */
enum { WEIGHT, BIAS }; /* indices of parameters */

static enum fsdp_status prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err)
{
    const struct numerics_ops *ops = kernels->numerics->ops;
    const size_t rows = nn_rows(op->output), features = op->output->features;

    (void)err;
    op->takes_bf16 = nn_is_bf16(kernels, op) && features <= NUMERICS_BF16_MAX_COLS;
    op->saved_bytes[RSTD] = rows * sizeof(float);
    op->saved_bytes[MEAN] = op->n_params > BIAS ? rows * sizeof(float) : 0;
    if (training)
        op->backward_scratch = ops->norm_scratch(kernels->numerics, nn_dtype(op), rows, features);
    return FSDP_OK;
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_norm norm = { .dtype = nn_dtype(op),
                                        .x = run->input[0],
                                        .weight = run->params[WEIGHT],
                                        .bias = run->params[BIAS],
                                        .y = run->output,
                                        .mean = run->saved[MEAN],
                                        .rstd = run->saved[RSTD],
                                        .rows = nn_rows(op->output),
                                        .cols = op->output->features,
                                        .eps = op->attrs.eps };

    (void)err;
    run->numerics->ops->norm(run->numerics, run->stream, &norm);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_norm_backward norm = { .dtype = nn_dtype(op),
                                                 .dy = run->d_output,
                                                 .x = run->input[0],
                                                 .weight = run->params[WEIGHT],
                                                 .mean = run->saved[MEAN],
                                                 .rstd = run->saved[RSTD],
                                                 .dx = run->d_input[0],
                                                 .accumulate_dx = run->add_d_input[0],
                                                 .dweight = run->d_param[WEIGHT],
                                                 .dbias = run->d_param[BIAS],
                                                 .dweight_dtype = run->d_param_dtype[WEIGHT],
                                                 .dbias_dtype = run->d_param_dtype[BIAS],
                                                 .accumulate_dweight = run->add_d_param[WEIGHT],
                                                 .accumulate_dbias = run->add_d_param[BIAS],
                                                 .rows = nn_rows(op->output),
                                                 .cols = op->output->features,
                                                 .scratch = run->scratch };

    (void)err;
    run->numerics->ops->norm_backward(run->numerics, run->stream, &norm);
    return FSDP_OK;
}

#define SHARED_BY_BOTH                                                                                       \
    .backward_reads_params = true, .keeps_input = { true }, .cheap = true, .grad = { GRAPH_GRAD_ADD },       \
    .prepare = prepare, .forward = forward, .backward = backward

static const struct graph_kind layer = { .name = "layer_norm", SHARED_BY_BOTH };
static const struct graph_kind rms = { .name = "rms_norm", SHARED_BY_BOTH };

bool nn_norm_takes_sum(const struct graph_op *sum, const struct graph_op *norm)
{
    return nn_is_sum(sum) && norm->kind->forward == forward && norm->inputs[0] == sum->output &&
           !sum->converts && !norm->converts && sum->takes_bf16 == norm->takes_bf16;
}

void nn_sum_and_norm(struct nn_run *sum_run, const struct graph_op *sum, struct nn_run *norm_run,
                     const struct graph_op *norm)
{
    const struct dropout dropout = nn_dropout(sum_run, sum, sum->output->seq);
    const struct numerics_add_norm both = { .dtype = nn_dtype(norm),
                                            .a = sum_run->input[0],
                                            .b = sum_run->input[1],
                                            .dropout = sum->attrs.p > 0 ? &dropout : NULL,
                                            .x = sum_run->output,
                                            .y = norm_run->output,
                                            .weight = norm_run->params[WEIGHT],
                                            .bias = norm_run->params[BIAS],
                                            .mean = norm_run->saved[MEAN],
                                            .rstd = norm_run->saved[RSTD],
                                            .rows = nn_rows(norm->output),
                                            .cols = norm->output->features,
                                            .eps = norm->attrs.eps };

    sum_run->numerics->ops->add_norm(sum_run->numerics, sum_run->stream, &both);
}

static struct fsdp_value *apply(struct fsdp_module *self, struct fsdp_value *x, const struct graph_kind *kind)
{
    const struct fsdp_parameter *params[GRAPH_MAX_PARAMS] = { module_parameter(self, "weight"),
                                                              module_parameter(self, "bias") };
    struct graph_op *op;

    if (!nn_is_tensor(x, kind->name))
        return NULL;
    if (x->features != params[WEIGHT]->n_elems)
        return graph_fail(x->graph, FSDP_ERR_ARG, "%s \"%s\" takes %zu features and is given %zu", kind->name,
                          self->path, params[WEIGHT]->n_elems, x->features);
    op = graph_append(x->graph, kind, self, true, &x, 1, params, params[BIAS] != NULL ? 2 : 1, x->features);
    if (op == NULL)
        return NULL;
    op->attrs.eps = *(const float *)self->owned;
    return op->output;
}

static struct fsdp_value *call_layer(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return apply(self, x, &layer);
}

static struct fsdp_value *call_rms(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return apply(self, x, &rms);
}

static struct fsdp_module *create(struct fsdp_module *parent, const char *name, fsdp_forward_fn call,
                                  size_t dim, float eps, const struct graph_kind *kind)
{
    struct fsdp_module *module = fsdp_module_add(parent, name, call, NULL);

    if (module == NULL)
        return NULL;
    if (!(eps > 0)) {
        module_fail(module, FSDP_ERR_ARG, "%s \"%s\": eps must be positive", kind->name, module->path);
        return NULL;
    }
    module->owned = alloc_array(1, sizeof eps);
    if (module->owned == NULL) {
        module_fail(module, FSDP_ERR_NOMEM, "%s \"%s\": out of memory", kind->name, module->path);
        return NULL;
    }
    *(float *)module->owned = eps;
    if (fsdp_module_add_parameter(module, "weight", 1, &dim, FSDP_INIT_ONES, NULL) != FSDP_OK)
        return NULL;
    if (kind == &layer &&
        fsdp_module_add_parameter(module, "bias", 1, &dim, FSDP_INIT_ZEROS, NULL) != FSDP_OK)
        return NULL;
    return module;
}

struct fsdp_module *fsdp_layer_norm(struct fsdp_module *parent, const char *name, size_t dim, float eps)
{
    return create(parent, name, call_layer, dim, eps, &layer);
}

struct fsdp_module *fsdp_rms_norm(struct fsdp_module *parent, const char *name, size_t dim, float eps)
{
    return create(parent, name, call_rms, dim, eps, &rms);
}
