/*
 * Matrix products by oneDNN's matmul primitive. Shapes, strides and epilogue are fixed when the product is
 * created. So oneDNN chooses the implementation and generates its code once; a run only sets the addresses of
 * its buffers.
 *
 * Transposed matrices, and the heads inside a (batch, seq, heads, head_dim) tensor, are strides of a
 * 4-dimensional problem. All of them run in the `brg` and `gemm:jit` implementations of oneDNN 2.6.3, and
 * none in its slow reference. tests/system/test_numerics.sh checks that.
 */
#include "shard_runtime/numerics/onednn.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/numerics/matmul_desc.h"
#include "shard_runtime/numerics/onednn_rehearse.h"
#include "shard_runtime/numerics/onednn_split.h"

enum { MAX_ARGS = 5 };

struct matmul {
    struct matmul_desc desc;
    struct onednn_split *split; /* if not NULL, this computes the product */
    dnnl_stream_t stream;
    dnnl_primitive_t primitive; /* NULL if there is nothing to multiply: c is empty, or k is 0 */
    dnnl_memory_t a, b, bias, c, scratch;
    dnnl_exec_arg_t args[MAX_ARGS];
    int n_args;
    bool needs_rehearsal;
};

/* Shapes */

static dnnl_data_type_t data_type(enum fsdp_dtype dtype)
{
    return dtype == FSDP_BF16 ? dnnl_bf16 : dnnl_f32;
}

/*
 * Converts the strides of a (rows, cols) matrix to those that oneDNN accepts for a plain or transposed
 * matrix. One of them is 1; the other is at least as long as a row (or column). The stride of a dimension of
 * size 1 may have any value, so the function replaces it by one that fits.
 */
static void matrix_strides(const struct matmul_view *view, size_t rows, size_t cols, dnnl_dim_t *row,
                           dnnl_dim_t *col)
{
    size_t row_stride = view->row_stride, col_stride = view->col_stride;

    if (rows <= 1 && cols <= 1)
        row_stride = col_stride = 1;
    else if (cols <= 1)
        col_stride = row_stride == 1 ? rows : 1;
    else if (rows <= 1)
        row_stride = col_stride == 1 ? cols : 1;
    *row = (dnnl_dim_t)row_stride;
    *col = (dnnl_dim_t)col_stride;
}

/*
 * Describes an operand: its batch dimensions, then rows and columns. A batch dimension of size 1 is left out,
 * but not an outer one of inner batches: for three dimensions oneDNN 2.6.3 takes `gemm:jit`, which generates
 * 6 MiB of code first, and for four `brg`. If all batches use the same matrix (stride 0), that batch
 * dimension gets size 1.
 */
static enum fsdp_status describe_view(const struct matmul_desc *desc, const struct matmul_view *view,
                                      size_t rows, size_t cols, enum fsdp_dtype dtype,
                                      dnnl_memory_desc_t *out, struct fsdp_err *err)
{
    const size_t sizes[2] = { desc->outer, desc->inner };
    const size_t strides[2] = { view->outer_stride, view->inner_stride };
    dnnl_dims_t dims, steps;
    int n = 0;

    for (int i = 0; i < 2; i++) {
        if (sizes[i] == 1 && (i == 1 || desc->inner == 1))
            continue;
        dims[n] = strides[i] == 0 ? 1 : (dnnl_dim_t)sizes[i];
        steps[n] = strides[i] == 0 ? (dnnl_dim_t)(rows * cols) : (dnnl_dim_t)strides[i];
        n++;
    }
    dims[n] = (dnnl_dim_t)rows;
    dims[n + 1] = (dnnl_dim_t)cols;
    matrix_strides(view, rows, cols, &steps[n], &steps[n + 1]);
    return onednn_status(dnnl_memory_desc_init_by_strides(out, n + 2, dims, data_type(dtype), steps),
                         "describing a matrix", err);
}

/* Describes the bias as (1, ..., 1, n): the same for every row and batch. */
static enum fsdp_status describe_bias(const struct matmul_desc *desc, int n_dims, dnnl_memory_desc_t *out,
                                      struct fsdp_err *err)
{
    dnnl_dims_t dims, steps;

    for (int i = 0; i < n_dims; i++) {
        dims[i] = i == n_dims - 1 ? (dnnl_dim_t)desc->n : 1;
        steps[i] = i == n_dims - 1 ? 1 : (dnnl_dim_t)desc->n;
    }
    return onednn_status(dnnl_memory_desc_init_by_strides(out, n_dims, dims, data_type(desc->dtype), steps),
                         "describing the bias", err);
}

/* Create */

/*
 * Returns true if the bias must be added after the product. oneDNN adds its own bias before it multiplies by
 * the output scale, but ours is added after alpha. With both, the bias becomes the operand of an addition
 * that follows.
 */
static bool bias_is_post_op(const struct matmul_desc *desc)
{
    return desc->bias && desc->alpha != 1.0f;
}

static enum fsdp_status fill_attributes(const struct matmul_desc *desc, const dnnl_memory_desc_t *bias,
                                        dnnl_primitive_attr_t attributes, struct fsdp_err *err)
{
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status;

    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && desc->alpha != 1.0f)
        status = dnnl_primitive_attr_set_output_scales(attributes, 1, 0, &desc->alpha);
    if (status == dnnl_success)
        status = dnnl_post_ops_create(&after);
    if (status == dnnl_success && desc->accumulate)
        status = dnnl_post_ops_append_sum(after, 1.0f);
    if (status == dnnl_success && bias_is_post_op(desc))
        status = dnnl_post_ops_append_binary(after, dnnl_binary_add, bias);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attributes, after);
    if (after != NULL)
        (void)dnnl_post_ops_destroy(after);
    return onednn_status(status, "setting the epilogue", err);
}

static enum fsdp_status add_arg(struct matmul *matmul, dnnl_engine_t engine, int name,
                                const dnnl_memory_desc_t *desc, dnnl_memory_t *memory, struct fsdp_err *err)
{
    OK_OR_RETURN(onednn_status(dnnl_memory_create(memory, desc, engine, DNNL_MEMORY_NONE),
                               "describing a buffer", err));
    matmul->args[matmul->n_args++] = (dnnl_exec_arg_t){ name, *memory };
    return FSDP_OK;
}

struct shapes {
    dnnl_memory_desc_t a, b, c, bias;
};

static enum fsdp_status describe_shapes(const struct matmul_desc *desc, struct shapes *shapes,
                                        struct fsdp_err *err)
{
    OK_OR_RETURN(describe_view(desc, &desc->a, desc->m, desc->k, desc->dtype, &shapes->a, err));
    OK_OR_RETURN(describe_view(desc, &desc->b, desc->k, desc->n, desc->dtype, &shapes->b, err));
    OK_OR_RETURN(describe_view(desc, &desc->c, desc->m, desc->n, desc->c_dtype, &shapes->c, err));
    if (desc->bias)
        OK_OR_RETURN(describe_bias(desc, shapes->c.ndims, &shapes->bias, err));
    return FSDP_OK;
}

static enum fsdp_status make_primitive(struct matmul *matmul, dnnl_engine_t engine, size_t *scratch_bytes,
                                       struct fsdp_err *err)
{
    const struct matmul_desc *desc = &matmul->desc;
    const int bias_name =
        bias_is_post_op(desc) ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t chosen = NULL;
    const dnnl_memory_desc_t *scratch;
    dnnl_matmul_desc_t operation;
    struct shapes shapes;
    enum fsdp_status status;

    status = describe_shapes(desc, &shapes, err);
    if (status == FSDP_OK)
        status = onednn_status(dnnl_primitive_attr_create(&attributes), "making attributes", err);
    if (status == FSDP_OK)
        status = fill_attributes(desc, &shapes.bias, attributes, err);
    if (status == FSDP_OK)
        status = onednn_status(
            dnnl_matmul_desc_init(&operation, &shapes.a, &shapes.b,
                                  desc->bias && !bias_is_post_op(desc) ? &shapes.bias : NULL, &shapes.c),
            "describing the product", err);
    if (status == FSDP_OK)
        status = onednn_status(dnnl_primitive_desc_create(&chosen, &operation, attributes, engine, NULL),
                               "choosing an implementation", err);
    if (status == FSDP_OK)
        status =
            onednn_status(dnnl_primitive_create(&matmul->primitive, chosen), "making the primitive", err);
    if (status != FSDP_OK)
        goto done;

    matmul->needs_rehearsal = onednn_needs_rehearsal(chosen);
    scratch = dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
    *scratch_bytes = scratch == NULL ? 0 : dnnl_memory_desc_get_size(scratch);
    status = add_arg(matmul, engine, DNNL_ARG_SRC, &shapes.a, &matmul->a, err);
    if (status == FSDP_OK)
        status = add_arg(matmul, engine, DNNL_ARG_WEIGHTS, &shapes.b, &matmul->b, err);
    if (status == FSDP_OK)
        status = add_arg(matmul, engine, DNNL_ARG_DST, &shapes.c, &matmul->c, err);
    if (status == FSDP_OK && desc->bias)
        status = add_arg(matmul, engine, bias_name, &shapes.bias, &matmul->bias, err);
    if (status == FSDP_OK && *scratch_bytes > 0)
        status = add_arg(matmul, engine, DNNL_ARG_SCRATCHPAD, scratch, &matmul->scratch, err);
done:
    if (chosen != NULL)
        (void)dnnl_primitive_desc_destroy(chosen);
    if (attributes != NULL)
        (void)dnnl_primitive_attr_destroy(attributes);
    return status;
}

enum fsdp_status onednn_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                      struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err)
{
    const struct onednn *state = numerics->state;
    struct matmul *matmul;
    enum fsdp_status status = FSDP_OK;

    *out = NULL;
    *scratch_bytes = 0;
    OK_OR_RETURN(matmul_desc_check(desc, err));
    if (desc->dtype == FSDP_BF16 && !numerics->bf16_products)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: no product of bfloat16 on this CPU");
    matmul = calloc(1, sizeof *matmul);
    if (matmul == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "matmul: no memory for a description");
    matmul->desc = *desc;
    matmul->stream = state->stream;
    if (onednn_splits(numerics, desc))
        status = onednn_split_create(numerics, desc, &matmul->split, scratch_bytes, err);
    else if (!matmul_is_empty(desc) && desc->k > 0)
        status = make_primitive(matmul, state->engine, scratch_bytes, err);
    if (status == FSDP_OK && matmul->needs_rehearsal)
        status = onednn_rehearse(numerics, desc, matmul, *scratch_bytes, err);
    if (status != FSDP_OK) {
        onednn_matmul_destroy(matmul);
        *scratch_bytes = 0;
        return status;
    }
    *out = matmul;
    return FSDP_OK;
}

void onednn_matmul_destroy(struct matmul *matmul)
{
    if (matmul == NULL)
        return;
    onednn_split_destroy(matmul->split);
    for (int i = 0; i < matmul->n_args; i++)
        (void)dnnl_memory_destroy(matmul->args[i].memory);
    if (matmul->primitive != NULL)
        (void)dnnl_primitive_destroy(matmul->primitive);
    free(matmul);
}

/* Run */

/*
 * Writes element j of the bias, converted to the type of c, to element `at` of c. Writes 0 if there is no
 * bias.
 */
static void write_bias(const struct matmul_desc *desc, const void *bias, size_t j, void *c, size_t at)
{
    uint16_t narrow = 0;
    float wide = 0;

    if (desc->bias && desc->dtype == FSDP_F32) {
        wide = ((const float *)bias)[j];
    } else if (desc->bias) {
        narrow = ((const uint16_t *)bias)[j];
        wide = bf16_to_f32(narrow);
    }
    if (desc->c_dtype == FSDP_F32)
        ((float *)c)[at] = wide;
    else
        ((uint16_t *)c)[at] = narrow;
}

/* Computes a product with k = 0: every sum is empty. */
static void write_empty_sums(const struct matmul_desc *desc, const void *bias, void *c)
{
    if (desc->accumulate)
        return;
    for (size_t outer = 0; outer < desc->outer; outer++)
        for (size_t inner = 0; inner < desc->inner; inner++)
            for (size_t i = 0; i < desc->m; i++)
                for (size_t j = 0; j < desc->n; j++)
                    write_bias(desc, bias, j, c,
                               outer * desc->c.outer_stride + inner * desc->c.inner_stride +
                                   i * desc->c.row_stride + j);
}

static dnnl_status_t point(dnnl_memory_t memory, const void *data)
{
    return memory == NULL ? dnnl_success : dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data);
}

enum fsdp_status onednn_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                   const void *b, const void *bias, void *c, void *scratch,
                                   struct fsdp_err *err)
{
    dnnl_status_t status;

    (void)stream; /* not used: the work is done when the function returns */
    if (matmul->split != NULL)
        return onednn_split_run(matmul->split, stream, a, b, bias, c, scratch, err);
    if (matmul_is_empty(&matmul->desc))
        return FSDP_OK;
    if (matmul->primitive == NULL) {
        write_empty_sums(&matmul->desc, bias, c);
        return FSDP_OK;
    }
    status = point(matmul->a, a);
    if (status == dnnl_success)
        status = point(matmul->b, b);
    if (status == dnnl_success)
        status = point(matmul->c, c);
    if (status == dnnl_success)
        status = point(matmul->bias, bias);
    if (status == dnnl_success)
        status = point(matmul->scratch, scratch);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(matmul->primitive, matmul->stream, matmul->n_args, matmul->args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(matmul->stream);
    return onednn_status(status, "running a product", err);
}
