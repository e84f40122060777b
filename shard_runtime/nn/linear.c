/*
 * The linear layer y = x W^T + b, as torch.nn.Linear: x (rows, in), W (out, in), b (out), y (rows, out).
 *   dx = dy W        dW = dy^T x        db = sum of dy's rows
 * Also Conv1D of Hugging Face's GPT-2, which stores the weight transposed, as (in, out).
 *
 * Logits of a bfloat16 model: they stay the float32 sums of bfloat16 products. Their gradient is rounded to
 * bfloat16 before its two products, as in PyTorch, where the logits are bfloat16. The rounding is done in
 * place, because this gradient is the largest buffer of a step.
 *
 * Padded logits: a device may ask for bfloat16 logits whose rows are padded to a multiple (struct
 * graph_input). Then y is (rows, stride), and W has matching rows of zeros. The products for y and dx include
 * the padding, so that all their sizes are multiples; the padding of y and dy is zero. The gradient of W has
 * no padding. So dW takes two products: one for the largest multiple of columns, one for the rest.
 */
#include "shard_runtime/nn/nn.h"

#include "shard_runtime/core/require.h"

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
/* how many elements of a gradient go through scratch when the gradient is rounded in place */
enum { FIRST_ELEMS = 4096 };

struct sizes {
    size_t rows, in, out;
    size_t stride;   /* elements from one row of y to the next */
    size_t computed; /* columns of y that products compute and read: out, or out and the padding */
    size_t even;     /* columns of y in the first product of dW; the second has the rest */
    bool transposed; /* the weight is (in, out) */
};

static struct matmul_view by_rows(size_t stride)
{
    return (struct matmul_view){ .row_stride = stride, .col_stride = 1 };
}

static struct matmul_view by_cols(size_t stride)
{
    return (struct matmul_view){ .row_stride = 1, .col_stride = stride };
}

/* Views of the stored weight: as W^T (in, out), and as W (out, in). */
static struct matmul_view in_by_out(struct sizes n)
{
    return n.transposed ? by_rows(n.out) : by_cols(n.in);
}

static struct matmul_view out_by_in(struct sizes n)
{
    return n.transposed ? by_cols(n.out) : by_rows(n.in);
}

/* Describes the product c (m, n) = a b, summed over k. The columns of c are adjacent. */
static struct matmul_desc plain_desc(size_t m, size_t n, size_t k, struct matmul_view a, struct matmul_view b,
                                     size_t c_stride, enum fsdp_dtype dtype, enum fsdp_dtype c_dtype)
{
    return (struct matmul_desc){ .outer = 1,
                                 .inner = 1,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = b,
                                 .c = by_rows(c_stride),
                                 .dtype = dtype,
                                 .c_dtype = c_dtype,
                                 .alpha = 1.0f };
}

static struct matmul_desc forward_desc(const struct graph_op *op, struct sizes n, enum fsdp_dtype dtype)
{
    struct matmul_desc desc = plain_desc(n.rows, n.computed, n.in, by_rows(n.in), in_by_out(n), n.stride,
                                         dtype, op->takes_bf16 ? op->output->dtype : FSDP_F32);

    desc.bias = op->n_params > 1 && !op->attrs.skips_bias;
    return desc;
}

static struct matmul_desc input_desc(struct sizes n, enum fsdp_dtype dtype, bool add)
{
    struct matmul_desc desc =
        plain_desc(n.rows, n.in, n.computed, by_rows(n.stride), out_by_in(n), n.in, dtype, dtype);

    desc.accumulate = add;
    return desc;
}

static enum fsdp_status prepare_input(struct nn_kernels *kernels, struct graph_op *op, struct sizes n,
                                      enum fsdp_dtype dtype, bool add, struct fsdp_err *err)
{
    const struct matmul_desc desc = input_desc(n, dtype, add);

    return nn_product(kernels, &desc, &op->products[add ? INPUT_ADD : INPUT], &op->backward_scratch, err);
}

/* Returns the product for the rest of dW that belongs to this first product of dW. */
static int rest_of(int product)
{
    return product >= WEIGHT_BF16 ? WEIGHT_REST_BF16 + (product - WEIGHT_BF16)
                                  : WEIGHT_REST + (product - WEIGHT);
}

/*
 * Describes dW = dy^T x, or its transpose x^T dy. Each row of dy and of x belongs to one position of one
 * sample.
 */
static struct matmul_desc weight_desc(struct sizes n, enum fsdp_dtype dtype, enum fsdp_dtype into, bool add)
{
    struct matmul_desc desc =
        n.transposed ? plain_desc(n.in, n.out, n.rows, by_cols(n.in), by_rows(n.stride), n.out, dtype, into)
                     : plain_desc(n.even, n.in, n.rows, by_cols(n.stride), by_rows(n.in), n.in, dtype, into);

    desc.accumulate = add;
    return desc;
}

static enum fsdp_status prepare_weight(struct nn_kernels *kernels, struct graph_op *op, struct sizes n,
                                       enum fsdp_dtype dtype, enum fsdp_dtype into, int product,
                                       struct fsdp_err *err)
{
    const struct matmul_desc desc =
        weight_desc(n, dtype, into, product == WEIGHT_ADD || product == WEIGHT_BF16_ADD);
    struct matmul_desc beside = desc, rest = desc;
    enum fsdp_status status;

    OK_OR_RETURN(nn_product(kernels, &desc, &op->products[product], &op->backward_scratch, err));
    if (n.even < n.out) {
        rest.m = n.out - n.even;
        OK_OR_RETURN(nn_product(kernels, &rest, &op->products[rest_of(product)], &op->backward_scratch, err));
    }

    /*
     * If the back end can compute the bias gradient (the sum of dy over its rows) with this product, prepare
     * that too.
     */
    if (desc.accumulate || op->n_params < 2 || kernels->numerics->ops->matmul_run_beside == NULL)
        return FSDP_OK;
    beside.beside = n.transposed ? MATMUL_SUMS_OF_B : MATMUL_SUMS_OF_A;
    product = product == WEIGHT ? WEIGHT_AND_BIAS : WEIGHT_BF16_AND_BIAS;
    status = nn_product(kernels, &beside, &op->products[product], &op->backward_scratch, err);
    if (status != FSDP_ERR_UNSUPPORTED)
        return status;
    fsdp_err_clear(err);
    return FSDP_OK;
}

/*
 * Returns whether the operation turns bfloat16 into float32 logits. Only the loss reads such an output;
 * plan/record.c widens no other.
 */
static bool gives_logits(const struct nn_kernels *kernels, const struct graph_op *op)
{
    return kernels->numerics->ops->takes_bf16 && op->n_params == 1 && op->param_dtype == FSDP_BF16 &&
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
    struct sizes n;

    op->takes_bf16 =
        kernels->numerics->bf16_products && (nn_is_bf16(kernels, op) || gives_logits(kernels, op));
    n = sizes_of(op);
    dtype = nn_dtype(op);
    desc = forward_desc(op, n, dtype);
    OK_OR_RETURN(nn_product(kernels, &desc, &op->products[FORWARD], &op->forward_scratch, err));
    for (int add = 0; add < 2 && training && op->inputs[0]->needs_grad; add++)
        OK_OR_RETURN(prepare_input(kernels, op, n, dtype, add != 0, err));
    for (int add = 0; add < 2 && training; add++)
        OK_OR_RETURN(prepare_weight(kernels, op, n, dtype, FSDP_F32, WEIGHT + add, err));
    for (int add = 0; add < 2 && training && op->takes_bf16; add++)
        OK_OR_RETURN(prepare_weight(kernels, op, n, dtype, FSDP_BF16, WEIGHT_BF16 + add, err));
    if (training && gives_logits(kernels, op) && op->backward_scratch < FIRST_ELEMS * sizeof(uint16_t))
        op->backward_scratch = FIRST_ELEMS * sizeof(uint16_t);
    return FSDP_OK;
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
    desc = forward_desc(op, sizes_of(op), nn_dtype(op));
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
    const enum fsdp_dtype dtype = nn_dtype(op);
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

/*
 * Returns whether a fused pass may write the bias gradient of `op`. The pass cannot add it to an earlier one,
 * and stores it in the dtype of the output.
 */
static bool takes_sums(const struct nn_run *run, const struct graph_op *op)
{
    return run->d_param[1] != NULL && !run->add_d_param[1] && run->d_param_dtype[1] == op->output->dtype;
}

static void bias_backward(struct nn_run *run, const struct graph_op *op)
{
    const struct numerics_column_sum sum = { .dtype = nn_dtype(op),
                                             .x = run->d_output,
                                             .out = run->d_param[1],
                                             .out_dtype = run->d_param_dtype[1],
                                             .rows = nn_rows(op->output),
                                             .cols = op->output->features,
                                             .accumulate = run->add_d_param[1] };

    run->numerics->ops->column_sum(run->numerics, run->stream, &sum);
}

/*
 * Rounds the float32 gradient of the logits to bfloat16, in the first half of its own buffer. No later
 * operation reads the float32 values.
 *   1. The first elements go through scratch.
 *   2. Each further pass converts at most as many elements as are done already. So its writes end before its
 *      reads begin, and overwrite only values that were read.
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

/*
 * Returns whether one product may write the gradients of weight and bias. The back end must have it, and
 * neither gradient may be added to an earlier one.
 */
static bool takes_both(const struct nn_run *run, const struct graph_op *op, int both)
{
    return op->n_params > 1 && op->products[both] != NULL && run->d_param[0] != NULL &&
           run->d_param[1] != NULL && !run->add_d_param[0] && !run->add_d_param[1] &&
           run->d_param_dtype[0] == run->d_param_dtype[1];
}

/* Computes the gradients of the weight's last rows, which the first product of dW leaves out. */
static enum fsdp_status rest_backward(struct nn_run *run, const struct graph_op *op, struct matmul *product,
                                      struct fsdp_err *err)
{
    const struct sizes n = sizes_of(op);
    const char *dy = run->d_output;
    char *dw = run->d_param[0];

    return nn_multiply(run, product, dy + n.even * fsdp_dtype_size(nn_dtype(op)), run->input[0],
                       dw + n.even * n.in * fsdp_dtype_size(run->d_param_dtype[0]), run->scratch, err);
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

    if (!has_sums && takes_both(run, op, both)) {
        const enum fsdp_status status = ops->matmul_run_beside(
            op->products[both], run->stream, a, b, NULL, run->d_param[1], run->d_param[0], run->scratch, err);
        if (status != FSDP_ERR_UNSUPPORTED)
            return status;
        fsdp_err_clear(err);
    }
    if (run->d_param[0] != NULL)
        OK_OR_RETURN(nn_multiply(run, op->products[weight], a, b, run->d_param[0], run->scratch, err));
    if (run->d_param[0] != NULL && op->products[rest_of(weight)] != NULL)
        OK_OR_RETURN(rest_backward(run, op, op->products[rest_of(weight)], err));
    if (op->n_params > 1 && run->d_param[1] != NULL && !has_sums)
        bias_backward(run, op);
    return FSDP_OK;
}

enum fsdp_status nn_backward_fused(struct nn_run *run, const struct graph_op *op, struct nn_run *gelu_run,
                                   const struct graph_op *gelu, struct nn_run *before_run,
                                   const struct graph_op *before, struct fsdp_err *err)
{
    const struct numerics_ops *ops = run->numerics->ops;
    const bool sums = before != NULL && takes_sums(before_run, before);
    enum fsdp_status status;

    OK_OR_RETURN(params_backward(run, op, err));
    status = ops->matmul_run_beside(
        op->products[sums ? INPUT_GELU_SUMS : INPUT_GELU], run->stream, run->d_output, run->params[0],
        gelu_run->input[0], sums ? before_run->d_param[1] : NULL, gelu_run->d_input[0], run->scratch, err);
    if (status != FSDP_ERR_UNSUPPORTED)
        return status;
    fsdp_err_clear(err);
    OK_OR_RETURN(nn_multiply(run, op->products[INPUT], run->d_output, run->params[0], run->d_input[0],
                             run->scratch, err));
    OK_OR_RETURN(nn_backward(gelu_run, gelu, err));
    if (sums)
        bias_backward(before_run, before);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    if (op->takes_bf16 && op->output->dtype == FSDP_F32)
        narrow_in_place(run, graph_value_elems(op->output));
    OK_OR_RETURN(params_backward(run, op, err));
    if (run->d_input[0] == NULL)
        return FSDP_OK;
    return nn_multiply(run, op->products[run->add_d_input[0] ? INPUT_ADD : INPUT], run->d_output,
                       run->params[0], run->d_input[0], run->scratch, err);
}

static const struct graph_kind kind = {
    .backward_reads_params = true,
    .name = "linear",
    .costly = true,
    .keeps_input = { true },
    .grad = { GRAPH_GRAD_ADD },
    .pads_output = true,
    .takes_parts = true, /* only if the linear is row-parallel, which apply() checks */
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
};

static struct fsdp_value *apply(struct fsdp_module *self, struct fsdp_value *x, bool transposed)
{
    const struct fsdp_parameter *params[2] = { module_parameter(self, "weight"),
                                               module_parameter(self, "bias") };
    const struct module_tensor *tensor = &self->tensor;
    const bool row_parallel = tensor->mesh != NULL && tensor->style == FSDP_ROWWISE_PARALLEL;
    const size_t in = params[0]->shape[transposed ? 0 : 1], out = params[0]->shape[transposed ? 1 : 0];
    struct graph_op *op;

    if (!nn_is_tensor(x, "linear"))
        return NULL;
    if (x->n_parts != (row_parallel ? tensor->n_parts : 1))
        return graph_fail(
            x->graph, FSDP_ERR_ARG,
            row_parallel
                ? "the row-parallel linear \"%s\" takes the part of the features that a column-parallel one "
                  "gives"
                : "linear \"%s\" is given a part of the features: it must be row-parallel for that",
            self->path);
    if (tensor->mesh != NULL && !row_parallel)
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
    /* only part 0 adds the bias, so that the sum over the parts has it once */
    op->attrs.skips_bias = row_parallel && tensor->part > 0;
    op->output->n_parts = tensor->mesh != NULL && !row_parallel ? tensor->n_parts : 1;
    return row_parallel ? nn_tensor_reduce(op->output, self) : op->output;
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
