/*
 * Ba, Kiros, Hinton, "Layer Normalization", 2016; as torch.nn.LayerNorm over the last dimension. Kept for
 * backward: the input, and mean and 1/std of each row.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/nn/nn.h"

enum { MEAN, RSTD };

static size_t aligned(size_t size_bytes)
{
    return (size_bytes + 63) / 64 * 64;
}

/* Room for the gradients of both parameters where one of them is frozen. */
static size_t nowhere_bytes(const struct graph_op *op)
{
    const size_t both = 2 * op->output->features * sizeof(float);

    return op->params[0]->frozen || op->params[1]->frozen ? aligned(both) : 0;
}

/* Room for the input's gradient where nothing before it learns. */
static size_t unwanted_bytes(const struct graph_op *op)
{
    return op->inputs[0]->needs_grad ? 0
                                     : aligned(nn_rows(op->output) * op->output->features * sizeof(float));
}

static enum fsdp_status prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err)
{
    const struct numerics_ops *ops = kernels->numerics->ops;
    const size_t rows = nn_rows(op->output), features = op->output->features;

    (void)err;
    op->takes_bf16 = nn_is_bf16(kernels, op) && features <= NUMERICS_BF16_MAX_COLS;
    op->saved_bytes[MEAN] = op->saved_bytes[RSTD] = rows * sizeof(float);
    if (training && op->takes_bf16)
        op->backward_scratch = ops->bf16->layer_norm_scratch(kernels->numerics, rows, features);
    else if (training)
        op->backward_scratch = nowhere_bytes(op) + unwanted_bytes(op) +
                               ops->layer_norm_scratch(kernels->numerics, rows, features);
    return FSDP_OK;
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t rows = nn_rows(op->output), features = op->output->features;

    (void)err;
    if (op->takes_bf16)
        ops->bf16->layer_norm(run->numerics, run->stream, run->input[0], run->params[0], run->params[1],
                              run->output, run->saved[MEAN], run->saved[RSTD], rows, features, op->attrs.eps);
    else
        ops->layer_norm(run->numerics, run->stream, run->input[0], run->params[0], run->params[1],
                        run->output, run->saved[MEAN], run->saved[RSTD], rows, features, op->attrs.eps);
    return FSDP_OK;
}

static void backward_bf16(struct nn_run *run, const struct graph_op *op)
{
    const struct numerics_bf16_norm norm = { .dy = run->d_output,
                                             .x = run->input[0],
                                             .weight = run->params[0],
                                             .mean = run->saved[MEAN],
                                             .rstd = run->saved[RSTD],
                                             .dx = run->d_input[0],
                                             .accumulate_dx = run->add_d_input[0],
                                             .dweight = run->d_param[0],
                                             .dbias = run->d_param[1],
                                             .dweight_dtype = run->d_param_dtype[0],
                                             .dbias_dtype = run->d_param_dtype[1],
                                             .accumulate_dweight = run->add_d_param[0],
                                             .accumulate_dbias = run->add_d_param[1] };

    run->numerics->ops->bf16->layer_norm_backward(run->numerics, run->stream, &norm, run->scratch,
                                                  nn_rows(op->output), op->output->features);
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const size_t features = op->output->features;
    float *nowhere = run->scratch;
    char *unwanted = (char *)run->scratch + nowhere_bytes(op);
    void *d_param[2] = { run->d_param[0], run->d_param[1] };
    void *d_input = run->d_input[0] != NULL ? run->d_input[0] : unwanted;

    (void)err;
    if (op->takes_bf16) {
        backward_bf16(run, op);
        return FSDP_OK;
    }
    /* The gradient of a frozen parameter goes nowhere. */
    for (int i = 0; i < 2; i++)
        if (d_param[i] == NULL)
            d_param[i] = nowhere + (size_t)i * features;
    /* The table has one flag for both: bring them to agree. */
    if (run->add_d_param[0] != run->add_d_param[1])
        for (int i = 0; i < 2; i++)
            if (!run->add_d_param[i])
                run->device->ops->fill_zero(run->stream, d_param[i], features * sizeof(float));
    run->numerics->ops->layer_norm_backward(run->numerics, run->stream, run->d_output, run->input[0],
                                            run->params[0], run->saved[MEAN], run->saved[RSTD], d_input,
                                            run->add_d_input[0], d_param[0], d_param[1],
                                            run->add_d_param[0] || run->add_d_param[1],
                                            unwanted + unwanted_bytes(op), nn_rows(op->output), features);
    return FSDP_OK;
}

static const struct graph_kind kind = {
    .backward_reads_params = true,
    .name = "layer_norm",
    .keeps_input = { true },
    .cheap = true,
    .grad = { GRAPH_GRAD_ADD },
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
};

bool nn_norm_takes_sum(const struct nn_kernels *kernels, const struct graph_op *sum,
                       const struct graph_op *norm)
{
    return kernels->numerics->ops->add_layer_norm != NULL && nn_is_sum(sum) && norm->kind == &kind &&
           norm->inputs[0] == sum->output && !sum->converts && !norm->converts &&
           sum->takes_bf16 == norm->takes_bf16;
}

void nn_sum_and_norm(struct nn_run *sum_run, const struct graph_op *sum, struct nn_run *norm_run,
                     const struct graph_op *norm)
{
    const struct dropout dropout = nn_dropout(sum_run, sum, sum->output->seq);
    const struct numerics_add_norm both = { .a = sum_run->input[0],
                                            .b = sum_run->input[1],
                                            .dropout = sum->attrs.p > 0 ? &dropout : NULL,
                                            .x = sum_run->output,
                                            .y = norm_run->output,
                                            .weight = norm_run->params[0],
                                            .bias = norm_run->params[1],
                                            .mean = norm_run->saved[MEAN],
                                            .rstd = norm_run->saved[RSTD],
                                            .rows = nn_rows(norm->output),
                                            .cols = norm->output->features,
                                            .eps = norm->attrs.eps };

    sum_run->numerics->ops->add_layer_norm(sum_run->numerics, sum_run->stream,
                                           norm->takes_bf16 ? FSDP_BF16 : FSDP_F32, &both);
}

static struct fsdp_value *call(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const struct fsdp_parameter *params[2] = { module_parameter(self, "weight"),
                                               module_parameter(self, "bias") };
    struct graph_op *op;

    (void)user;
    if (!nn_is_tensor(x, "layer_norm"))
        return NULL;
    if (x->features != params[0]->n_elems)
        return graph_fail(x->graph, FSDP_ERR_ARG, "layer_norm \"%s\" takes %zu features and is given %zu",
                          self->path, params[0]->n_elems, x->features);
    op = graph_append(x->graph, &kind, self, true, &x, 1, params, 2, x->features);
    if (op == NULL)
        return NULL;
    op->attrs.eps = *(const float *)self->owned;
    return op->output;
}

struct fsdp_module *fsdp_layer_norm(struct fsdp_module *parent, const char *name, size_t dim, float eps)
{
    struct fsdp_module *module = fsdp_module_add(parent, name, call, NULL);

    if (module == NULL)
        return NULL;
    if (!(eps > 0)) {
        module_fail(module, FSDP_ERR_ARG, "layer_norm \"%s\": eps must be positive", module->path);
        return NULL;
    }
    module->owned = alloc_array(1, sizeof eps);
    if (module->owned == NULL) {
        module_fail(module, FSDP_ERR_NOMEM, "layer_norm \"%s\": out of memory", module->path);
        return NULL;
    }
    *(float *)module->owned = eps;
    if (fsdp_module_add_parameter(module, "weight", 1, &dim, FSDP_INIT_ONES, NULL) != FSDP_OK ||
        fsdp_module_add_parameter(module, "bias", 1, &dim, FSDP_INIT_ZEROS, NULL) != FSDP_OK)
        return NULL;
    return module;
}
