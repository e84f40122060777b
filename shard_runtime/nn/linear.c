/*
 * y = x W^T + b, as torch.nn.Linear: x (rows, in), W (out, in), b (out), y (rows, out).
 *   dx = dy W        dW = dy^T x        db = sum of dy's rows
 */
#include "shard_runtime/nn/nn.h"

enum { FORWARD, INPUT, INPUT_ADD, WEIGHT, WEIGHT_ADD };

static enum fsdp_status prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err)
{
    const size_t rows = nn_rows(op->output), in = op->inputs[0]->features, out = op->output->features;
    struct matmul_desc desc = { .outer = 1,
                                .inner = 1,
                                .m = rows,
                                .n = out,
                                .k = in,
                                .dtype = FSDP_F32,
                                .bias = op->n_params > 1,
                                .alpha = 1.0f };
    enum fsdp_status status;

    desc.a = (struct matmul_view){ .row_stride = in, .col_stride = 1 };
    desc.b = (struct matmul_view){ .row_stride = 1, .col_stride = in };
    desc.c = (struct matmul_view){ .row_stride = out, .col_stride = 1 };
    status = nn_product(kernels, &desc, &op->products[FORWARD], &op->forward_scratch, err);
    if (status != FSDP_OK || !training)
        return status;

    for (int add = 0; add < 2 && op->inputs[0]->needs_grad; add++) {
        desc = (struct matmul_desc){ .outer = 1,
                                     .inner = 1,
                                     .m = rows,
                                     .n = in,
                                     .k = out,
                                     .dtype = FSDP_F32,
                                     .accumulate = add != 0,
                                     .alpha = 1.0f };
        desc.a = (struct matmul_view){ .row_stride = out, .col_stride = 1 };
        desc.b = (struct matmul_view){ .row_stride = in, .col_stride = 1 };
        desc.c = (struct matmul_view){ .row_stride = in, .col_stride = 1 };
        status = nn_product(kernels, &desc, &op->products[INPUT + add], &op->backward_scratch, err);
        if (status != FSDP_OK)
            return status;
    }
    for (int add = 0; add < 2; add++) {
        desc = (struct matmul_desc){ .outer = 1,
                                     .inner = 1,
                                     .m = out,
                                     .n = in,
                                     .k = rows,
                                     .dtype = FSDP_F32,
                                     .accumulate = add != 0,
                                     .alpha = 1.0f };
        desc.a = (struct matmul_view){ .row_stride = 1, .col_stride = out };
        desc.b = (struct matmul_view){ .row_stride = in, .col_stride = 1 };
        desc.c = (struct matmul_view){ .row_stride = in, .col_stride = 1 };
        status = nn_product(kernels, &desc, &op->products[WEIGHT + add], &op->backward_scratch, err);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    return run->numerics->ops->matmul_run(op->products[FORWARD], run->stream, run->input[0], run->params[0],
                                          op->n_params > 1 ? run->params[1] : NULL, run->output, run->scratch,
                                          err);
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    enum fsdp_status status;

    if (run->d_param[0] != NULL) {
        status = ops->matmul_run(op->products[run->add_d_param[0] ? WEIGHT_ADD : WEIGHT], run->stream,
                                 run->d_output, run->input[0], NULL, run->d_param[0], run->scratch, err);
        if (status != FSDP_OK)
            return status;
    }
    if (op->n_params > 1 && run->d_param[1] != NULL)
        ops->column_sum(run->numerics, run->stream, run->d_output, run->d_param[1], nn_rows(op->output),
                        op->output->features, run->add_d_param[1]);
    if (run->d_input[0] == NULL)
        return FSDP_OK;
    return ops->matmul_run(op->products[run->add_d_input[0] ? INPUT_ADD : INPUT], run->stream, run->d_output,
                           run->params[0], NULL, run->d_input[0], run->scratch, err);
}

static const struct graph_kind kind = {
    .backward_reads_params = true,
    .name = "linear",
    .costly = true,
    .keeps_input = { true },
    .grad = { GRAPH_GRAD_ADD },
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
};

static struct fsdp_value *call(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const struct fsdp_parameter *params[2] = { module_parameter(self, "weight"),
                                               module_parameter(self, "bias") };
    struct graph_op *op;

    (void)user;
    if (!nn_is_tensor(x, "linear"))
        return NULL;
    if (x->features != params[0]->shape[1])
        return graph_fail(x->graph, FSDP_ERR_ARG, "linear \"%s\" takes %zu features and is given %zu",
                          self->path, params[0]->shape[1], x->features);
    op = graph_append(x->graph, &kind, self, true, &x, 1, params, params[1] != NULL ? 2 : 1,
                      params[0]->shape[0]);
    return op != NULL ? op->output : NULL;
}

struct fsdp_module *fsdp_linear(struct fsdp_module *parent, const char *name, size_t in_features,
                                size_t out_features, bool bias)
{
    struct fsdp_module *module = fsdp_module_add(parent, name, call, NULL);

    if (module == NULL)
        return NULL;
    if (fsdp_module_add_parameter(module, "weight", 2, (size_t[]){ out_features, in_features },
                                  FSDP_INIT_NORMAL, NULL) != FSDP_OK)
        return NULL;
    if (bias && fsdp_module_add_parameter(module, "bias", 1, &out_features, FSDP_INIT_ZEROS, NULL) != FSDP_OK)
        return NULL;
    return module;
}
