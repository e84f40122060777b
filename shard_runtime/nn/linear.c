/*
 * y = x W^T + b, as torch.nn.Linear: x (rows, in), W (out, in), b (out), y (rows, out).
 *   dx = dy W        dW = dy^T x        db = sum of dy's rows
 * and Conv1D of Hugging Face's GPT-2, whose weight lies as its transpose, (in, out).
 *
 * A bfloat16 model's logits stay the float32 sums of bfloat16 products. Their gradient is rounded for its two products,
 * as PyTorch's is on its way to bfloat16 logits, and where it lies, since of all a step needs it is the largest.
 *
 * A device may ask for logits in bfloat16 whose rows are padded to a multiple (struct graph_input). Such a y is
 * (rows, stride): where W has rows of zeros to match, its product and that of dx run over the padding too, so that
 * every size is a multiple; the padding of y and dy is zero then. W's gradient has no room for padding: dW is made in
 * two products, of the largest multiple of columns and of the rest.
 */
#include "shard_runtime/nn/nn.h"

enum {
    FORWARD,
    FORWARD_GELU,
    INPUT,
    INPUT_ADD,
    INPUT_GELU,
    INPUT_GELU_SUMS,
    WEIGHT,
    WEIGHT_ADD,
    WEIGHT_AND_BIAS,
    WEIGHT_BF16,
    WEIGHT_BF16_ADD,
    WEIGHT_BF16_AND_BIAS,
    WEIGHT_REST,
    WEIGHT_REST_ADD,
    WEIGHT_REST_BF16,
    WEIGHT_REST_BF16_ADD
};
enum { FIRST_ELEMS = 4096 }; /* of a gradient that is narrowed where it lies: those that take a way round */

struct sizes {
    size_t rows, in, out;
    size_t stride;   /* elements from one row of y to the next */
    size_t computed; /* columns of y that products compute and read: out, or with the padding */
    size_t even;     /* columns of y in the first product of dW; the second has the rest */
    bool transposed; /* the weight is (in, out) */
};

/* W^T, (in, out), and W, (out, in), in the weight as it lies. */
static struct matmul_view in_by_out(struct sizes n)
{
    return n.transposed ? (struct matmul_view){ .row_stride = n.out, .col_stride = 1 }
                        : (struct matmul_view){ .row_stride = 1, .col_stride = n.in };
}

static struct matmul_view out_by_in(struct sizes n)
{
    return n.transposed ? (struct matmul_view){ .row_stride = 1, .col_stride = n.out }
                        : (struct matmul_view){ .row_stride = n.in, .col_stride = 1 };
}

static struct matmul_desc forward_desc(const struct graph_op *op, struct sizes n, enum fsdp_dtype dtype)
{
    return (struct matmul_desc){ .outer = 1,
                                 .inner = 1,
                                 .m = n.rows,
                                 .n = n.computed,
                                 .k = n.in,
                                 .a = { .row_stride = n.in, .col_stride = 1 },
                                 .b = in_by_out(n),
                                 .c = { .row_stride = n.stride, .col_stride = 1 },
                                 .dtype = dtype,
                                 .c_dtype = op->takes_bf16 ? op->output->dtype : FSDP_F32,
                                 .bias = op->n_params > 1 && !op->attrs.skips_bias,
                                 .alpha = 1.0f };
}

static struct matmul_desc input_desc(struct sizes n, enum fsdp_dtype dtype, bool add)
{
    return (struct matmul_desc){ .outer = 1,
                                 .inner = 1,
                                 .m = n.rows,
                                 .n = n.in,
                                 .k = n.computed,
                                 .a = { .row_stride = n.stride, .col_stride = 1 },
                                 .b = out_by_in(n),
                                 .c = { .row_stride = n.in, .col_stride = 1 },
                                 .dtype = dtype,
                                 .c_dtype = dtype,
                                 .accumulate = add,
                                 .alpha = 1.0f };
}

static enum fsdp_status prepare_input(struct nn_kernels *kernels, struct graph_op *op, struct sizes n,
                                      enum fsdp_dtype dtype, bool add, struct fsdp_err *err)
{
    const struct matmul_desc desc = input_desc(n, dtype, add);

    return nn_product(kernels, &desc, &op->products[add ? INPUT_ADD : INPUT], &op->backward_scratch, err);
}

/* The second product of dW that goes with the first. */
static int rest_of(int product)
{
    return product >= WEIGHT_BF16 ? WEIGHT_REST_BF16 + (product - WEIGHT_BF16)
                                  : WEIGHT_REST + (product - WEIGHT);
}

/* dW = dy^T x, or its transpose x^T dy; the factors have a row a sample row. */
static struct matmul_desc weight_desc(struct sizes n, enum fsdp_dtype dtype, enum fsdp_dtype into, bool add)
{
    return (struct matmul_desc){ .outer = 1,
                                 .inner = 1,
                                 .m = n.transposed ? n.in : n.even,
                                 .n = n.transposed ? n.out : n.in,
                                 .k = n.rows,
                                 .a = { .row_stride = 1, .col_stride = n.transposed ? n.in : n.stride },
                                 .b = { .row_stride = n.transposed ? n.stride : n.in, .col_stride = 1 },
                                 .c = { .row_stride = n.transposed ? n.out : n.in, .col_stride = 1 },
                                 .dtype = dtype,
                                 .c_dtype = into,
                                 .accumulate = add,
                                 .alpha = 1.0f };
}

static enum fsdp_status prepare_weight(struct nn_kernels *kernels, struct graph_op *op, struct sizes n,
                                       enum fsdp_dtype dtype, enum fsdp_dtype into, int product,
                                       struct fsdp_err *err)
{
    const struct matmul_desc desc =
        weight_desc(n, dtype, into, product == WEIGHT_ADD || product == WEIGHT_BF16_ADD);
    struct matmul_desc beside = desc, rest = desc;
    enum fsdp_status status = nn_product(kernels, &desc, &op->products[product], &op->backward_scratch, err);

    if (status == FSDP_OK && n.even < n.out) {
        rest.m = n.out - n.even;
        status = nn_product(kernels, &rest, &op->products[rest_of(product)], &op->backward_scratch, err);
    }

    /* The sums of dy over its rows, where the back end gives them with the product. */
    if (status != FSDP_OK || desc.accumulate || op->n_params < 2 ||
        kernels->numerics->ops->matmul_run_beside == NULL)
        return status;
    beside.beside = n.transposed ? MATMUL_SUMS_OF_B : MATMUL_SUMS_OF_A;
    product = product == WEIGHT ? WEIGHT_AND_BIAS : WEIGHT_BF16_AND_BIAS;
    status = nn_product(kernels, &beside, &op->products[product], &op->backward_scratch, err);
    if (status != FSDP_ERR_UNSUPPORTED)
        return status;
    fsdp_err_clear(err);
    return FSDP_OK;
}

/* Of bfloat16 to float32: what nobody but the loss reads (plan/record.c widens nothing else). */
static bool gives_logits(const struct nn_kernels *kernels, const struct graph_op *op)
{
    return kernels->numerics->ops->bf16 != NULL && op->n_params == 1 && op->param_dtype == FSDP_BF16 &&
           op->inputs[0]->dtype == FSDP_BF16 && op->output->dtype == FSDP_F32;
}

static struct sizes sizes_of(const struct graph_op *op)
{
    const size_t out = op->output->features, zero_rows = op->takes_bf16 ? graph_zero_rows(op) : 0;
    const size_t even = out / NUMERICS_LOGITS_MULTIPLE * NUMERICS_LOGITS_MULTIPLE;

    return (struct sizes){ .rows = nn_rows(op->output),
                           .in = op->inputs[0]->features,
                           .out = out,
                           .stride = op->output->row_stride,
                           .computed = out + zero_rows,
                           .even = zero_rows > 0 && even > 0 ? even : out,
                           .transposed = op->attrs.transposed };
}

static enum fsdp_status prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err)
{
    struct matmul_desc desc;
    enum fsdp_dtype dtype;
    enum fsdp_status status;
    struct sizes n;

    op->takes_bf16 =
        kernels->numerics->bf16_products && (nn_is_bf16(kernels, op) || gives_logits(kernels, op));
    n = sizes_of(op);
    dtype = op->takes_bf16 ? FSDP_BF16 : FSDP_F32;
    desc = forward_desc(op, n, dtype);
    status = nn_product(kernels, &desc, &op->products[FORWARD], &op->forward_scratch, err);
    for (int add = 0; add < 2 && training && op->inputs[0]->needs_grad && status == FSDP_OK; add++)
        status = prepare_input(kernels, op, n, dtype, add != 0, err);
    for (int add = 0; add < 2 && training && status == FSDP_OK; add++)
        status = prepare_weight(kernels, op, n, dtype, FSDP_F32, WEIGHT + add, err);
    for (int add = 0; add < 2 && training && op->takes_bf16 && status == FSDP_OK; add++)
        status = prepare_weight(kernels, op, n, dtype, FSDP_BF16, WEIGHT_BF16 + add, err);
    if (training && gives_logits(kernels, op) && op->backward_scratch < FIRST_ELEMS * sizeof(uint16_t))
        op->backward_scratch = FIRST_ELEMS * sizeof(uint16_t);
    return status;
}

static const void *bias_of(const struct nn_run *run, const struct graph_op *op)
{
    return op->n_params > 1 && !op->attrs.skips_bias ? run->params[1] : NULL;
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    return run->numerics->ops->matmul_run(op->products[FORWARD], run->stream, run->input[0], run->params[0],
                                          bias_of(run, op), run->output, run->scratch, err);
}

bool nn_linear_takes_gelu(struct nn_kernels *kernels, struct graph_op *op)
{
    struct matmul_desc desc;

    if (kernels->numerics->ops->matmul_run_beside == NULL || op->kind->forward != forward || op->converts)
        return false;
    desc = forward_desc(op, sizes_of(op), op->takes_bf16 ? FSDP_BF16 : FSDP_F32);
    desc.beside = MATMUL_BEFORE_GELU;
    return nn_product(kernels, &desc, &op->products[FORWARD_GELU], &op->forward_scratch, NULL) == FSDP_OK;
}

enum fsdp_status nn_linear_and_gelu(struct nn_run *run, const struct graph_op *op, void *activated,
                                    struct fsdp_err *err)
{
    return run->numerics->ops->matmul_run_beside(op->products[FORWARD_GELU], run->stream, run->input[0],
                                                 run->params[0], bias_of(run, op), run->output, activated,
                                                 run->scratch, err);
}

bool nn_linear_goes_back_through_gelu(struct nn_kernels *kernels, struct graph_op *op)
{
    const enum fsdp_dtype dtype = op->takes_bf16 ? FSDP_BF16 : FSDP_F32;
    struct matmul_desc desc;

    if (kernels->numerics->ops->matmul_run_beside == NULL || op->kind->forward != forward || op->converts ||
        op->output->dtype != dtype)
        return false;
    desc = input_desc(sizes_of(op), dtype, false);
    desc.beside = MATMUL_GELU_BACKWARD_SUMS;
    (void)nn_product(kernels, &desc, &op->products[INPUT_GELU_SUMS], &op->backward_scratch, NULL);
    desc.beside = MATMUL_GELU_BACKWARD;
    return nn_product(kernels, &desc, &op->products[INPUT_GELU], &op->backward_scratch, NULL) == FSDP_OK;
}

bool nn_linear_leaves_bias(const struct graph_op *op, const struct graph_op *before)
{
    return op->products[INPUT_GELU_SUMS] != NULL && before->kind->backward == op->kind->backward &&
           before->n_params > 1 && before->takes_bf16 == op->takes_bf16 && !before->converts;
}

/* Sums are of the gradient's dtype, and replace what is there. */
static bool takes_sums(const struct nn_run *run, const struct graph_op *op)
{
    return run->d_param[1] != NULL && !run->add_d_param[1] && run->d_param_dtype[1] == op->output->dtype;
}

static void bias_backward(struct nn_run *run, const struct graph_op *op)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const size_t rows = nn_rows(op->output), out = op->output->features;

    if (op->takes_bf16)
        ops->bf16->column_sum(run->numerics, run->stream, run->d_output, run->d_param[1],
                              run->d_param_dtype[1], rows, out, run->add_d_param[1]);
    else
        ops->column_sum(run->numerics, run->stream, run->d_output, run->d_param[1], rows, out,
                        run->add_d_param[1]);
}

/*
 * The float32 gradient of the logits as bfloat16, in the first half of its own buffer, which this operation is the last
 * to read: as many elements at a time as lie before them, so that what is written has been read.
 */
static void narrow_in_place(struct nn_run *run, size_t n_elems)
{
    const struct device_ops *ops = run->device->ops;
    const float *from = run->d_output;
    uint16_t *to = (uint16_t *)(uintptr_t)run->d_output;
    size_t n = n_elems < FIRST_ELEMS ? n_elems : FIRST_ELEMS;

    ops->cast(run->stream, run->scratch, FSDP_BF16, from, FSDP_F32, n, 1.0f, false);
    ops->copy(run->stream, to, run->scratch, n * sizeof *to, DEVICE_COPY_WITHIN);
    for (size_t i = n; i < n_elems; i += n) {
        n = n_elems - i < i ? n_elems - i : i;
        ops->cast(run->stream, to + i, FSDP_BF16, from + i, FSDP_F32, n, 1.0f, false);
    }
}

/* Both gradients in one product, where there is such a one and none is added to an earlier one. */
static bool takes_both(const struct nn_run *run, const struct graph_op *op, int both)
{
    return op->n_params > 1 && op->products[both] != NULL && run->d_param[0] != NULL &&
           run->d_param[1] != NULL && !run->add_d_param[0] && !run->add_d_param[1] &&
           run->d_param_dtype[0] == run->d_param_dtype[1];
}

/* The gradients of the weight's last rows, for which the first product had no place. */
static enum fsdp_status rest_backward(struct nn_run *run, const struct graph_op *op, struct matmul *product,
                                      struct fsdp_err *err)
{
    const struct sizes n = sizes_of(op);
    const char *dy = run->d_output;
    char *dw = run->d_param[0];

    return run->numerics->ops->matmul_run(
        product, run->stream, dy + n.even * fsdp_dtype_size(op->takes_bf16 ? FSDP_BF16 : FSDP_F32),
        run->input[0], NULL, dw + n.even * n.in * fsdp_dtype_size(run->d_param_dtype[0]), run->scratch, err);
}

static enum fsdp_status params_backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const bool narrow = op->takes_bf16 && run->d_param_dtype[0] == FSDP_BF16;
    const int weight = (narrow ? WEIGHT_BF16 : WEIGHT) + (run->add_d_param[0] ? 1 : 0),
              both = narrow ? WEIGHT_BF16_AND_BIAS : WEIGHT_AND_BIAS;
    const void *a = op->attrs.transposed ? run->input[0] : run->d_output,
               *b = op->attrs.transposed ? run->d_output : run->input[0];
    const bool has_sums = run->bias_before && takes_sums(run, op);
    enum fsdp_status status = FSDP_OK;

    if (!has_sums && takes_both(run, op, both)) {
        status = ops->matmul_run_beside(op->products[both], run->stream, a, b, NULL, run->d_param[1],
                                        run->d_param[0], run->scratch, err);
        if (status != FSDP_ERR_UNSUPPORTED)
            return status;
        fsdp_err_clear(err);
        status = FSDP_OK;
    }
    if (run->d_param[0] != NULL)
        status = ops->matmul_run(op->products[weight], run->stream, a, b, NULL, run->d_param[0], run->scratch,
                                 err);
    if (status == FSDP_OK && run->d_param[0] != NULL && op->products[rest_of(weight)] != NULL)
        status = rest_backward(run, op, op->products[rest_of(weight)], err);
    if (status == FSDP_OK && op->n_params > 1 && run->d_param[1] != NULL && !has_sums)
        bias_backward(run, op);
    return status;
}

enum fsdp_status nn_backward_fused(struct nn_run *run, const struct graph_op *op, struct nn_run *gelu_run,
                                   const struct graph_op *gelu, struct nn_run *before_run,
                                   const struct graph_op *before, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const bool sums = before != NULL && takes_sums(before_run, before);
    enum fsdp_status status = params_backward(run, op, err);

    if (status != FSDP_OK)
        return status;
    status = ops->matmul_run_beside(
        op->products[sums ? INPUT_GELU_SUMS : INPUT_GELU], run->stream, run->d_output, run->params[0],
        gelu_run->input[0], sums ? before_run->d_param[1] : NULL, gelu_run->d_input[0], run->scratch, err);
    if (status != FSDP_ERR_UNSUPPORTED)
        return status;
    fsdp_err_clear(err);
    status = ops->matmul_run(op->products[INPUT], run->stream, run->d_output, run->params[0], NULL,
                             run->d_input[0], run->scratch, err);
    if (status == FSDP_OK)
        status = nn_backward(gelu_run, gelu, err);
    if (status == FSDP_OK && sums)
        bias_backward(before_run, before);
    return status;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    enum fsdp_status status;

    if (op->takes_bf16 && op->output->dtype == FSDP_F32)
        narrow_in_place(run, graph_value_elems(op->output));
    status = params_backward(run, op, err);
    if (status != FSDP_OK || run->d_input[0] == NULL)
        return status;
    return ops->matmul_run(op->products[run->add_d_input[0] ? INPUT_ADD : INPUT], run->stream, run->d_output,
                           run->params[0], NULL, run->d_input[0], run->scratch, err);
}

static const struct graph_kind kind = {
    .backward_reads_params = true,
    .name = "linear",
    .costly = true,
    .keeps_input = { true },
    .grad = { GRAPH_GRAD_ADD },
    .pads_output = true,
    .takes_parts = true, /* where it is row-parallel, as call() sees to */
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
};

static struct fsdp_value *apply(struct fsdp_module *self, struct fsdp_value *x, bool transposed)
{
    const struct fsdp_parameter *params[2] = { module_parameter(self, "weight"),
                                               module_parameter(self, "bias") };
    const struct module_tensor *tensor = &self->tensor;
    const bool by_rows = tensor->mesh != NULL && tensor->style == FSDP_ROWWISE_PARALLEL;
    const size_t in = params[0]->shape[transposed ? 0 : 1], out = params[0]->shape[transposed ? 1 : 0];
    struct graph_op *op;

    if (!nn_is_tensor(x, "linear"))
        return NULL;
    if (x->n_parts != (by_rows ? tensor->n_parts : 1))
        return graph_fail(
            x->graph, FSDP_ERR_ARG,
            by_rows
                ? "the row-parallel linear \"%s\" takes the part of the features that a column-parallel one "
                  "gives"
                : "linear \"%s\" is given a part of the features: it must be row-parallel for that",
            self->path);
    if (tensor->mesh != NULL && !by_rows)
        x = nn_tensor_copy(x, self);
    if (x == NULL)
        return NULL;
    if (x->features != in)
        return graph_fail(x->graph, FSDP_ERR_ARG, "linear \"%s\" takes %zu features and is given %zu",
                          self->path, in, x->features);
    op = graph_append(x->graph, &kind, self, true, &x, 1, params, params[1] != NULL ? 2 : 1, out);
    if (op == NULL)
        return NULL;
    op->attrs.transposed = transposed;
    op->attrs.skips_bias = by_rows && tensor->part > 0; /* the sum has it once */
    op->output->n_parts = tensor->mesh != NULL && !by_rows ? tensor->n_parts : 1;
    return by_rows ? nn_tensor_reduce(op->output, self) : op->output;
}

static struct fsdp_value *call(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return apply(self, x, false);
}

bool nn_is_linear(const struct fsdp_module *module)
{
    return module->forward == call;
}

static struct fsdp_value *call_transposed(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return apply(self, x, true);
}

static struct fsdp_module *create(struct fsdp_module *parent, const char *name, fsdp_forward_fn call_it,
                                  const size_t shape[2], size_t out_features, bool bias)
{
    struct fsdp_module *module = fsdp_module_add(parent, name, call_it, NULL);

    if (module == NULL)
        return NULL;
    if (fsdp_module_add_parameter(module, "weight", 2, shape, FSDP_INIT_NORMAL, NULL) != FSDP_OK)
        return NULL;
    module_mark_factor(module, "weight");
    if (bias && fsdp_module_add_parameter(module, "bias", 1, &out_features, FSDP_INIT_ZEROS, NULL) != FSDP_OK)
        return NULL;
    return module;
}

struct fsdp_module *fsdp_linear(struct fsdp_module *parent, const char *name, size_t in_features,
                                size_t out_features, bool bias)
{
    return create(parent, name, call, (size_t[]){ out_features, in_features }, out_features, bias);
}

struct fsdp_module *fsdp_conv1d(struct fsdp_module *parent, const char *name, size_t in_features,
                                size_t out_features, bool bias)
{
    return create(parent, name, call_transposed, (size_t[]){ in_features, out_features }, out_features, bias);
}
