/*
 * Products by cuBLASLt, all on the compute stream: they share one workspace. cuBLASLt stores matrices by
 * columns, and ours are stored by rows. So C^T = B^T A^T is computed, and nothing is moved. Sums are float32;
 * TF32 is used only on request.
 *
 * cuBLASLt's heuristic chooses the algorithm once for operands that are aligned to 16 bytes, and once for
 * others, as rows of a shard begin anywhere. The choice depends on shapes, library and GPU, so the same run
 * has the same bits. An algorithm that cuts the sum over k must keep the parts in float32 and add them in a
 * second pass. Schemes that add in place, or round the parts to the result's dtype, are excluded.
 *
 * The epilogue of a product can do more, where cuBLASLt has an algorithm for it; otherwise our kernels do:
 *   - It adds a bias, and applies GELU by tanh to the result.
 *   - The gradient of a bias is the sum of dy over its rows. The product that reads dy for the weight's
 *     gradient also gives the bias's. dy is our a, which is cuBLASLt's B, or our b, which is its A.
 *   - The backward of that GELU is part of the product that gives the gradient of its output. The gradient of
 *     the bias before the GELU is a part of that.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/cuda/numerics_state.h"
#include "shard_runtime/cuda/profile_product.h"

enum { WIDE_ALIGNMENT = 16 };

/* Operands in cuBLASLt's order. Its first operand is our b. */
enum { LT_A, LT_B, LT_C, LT_N_OPERANDS };

struct algorithm {
    cublasLtMatmulAlgo_t lt;
    size_t workspace_bytes;
    bool found;
};

struct matmul {
    struct cuda_numerics *state;
    struct matmul_desc desc;
    cublasLtMatmulDesc_t lt;
    cublasLtMatrixLayout_t layouts[LT_N_OPERANDS];
    struct algorithm wide, narrow; /* `wide`: for operands aligned to 16 bytes; `narrow`: for others */
    size_t n_calls;                /* each call runs batches of one stride */
    size_t skip[LT_N_OPERANDS];    /* elements between the operand of one call and that of the next call */
};

static enum fsdp_status lt_status(const struct cuda_numerics *state, cublasStatus_t status, const char *call,
                                  int line, struct fsdp_err *err)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return FSDP_OK;
    return cuda_fail(cuda_state(state->device),
                     status == CUBLAS_STATUS_ALLOC_FAILED ? FSDP_ERR_NOMEM : FSDP_ERR_DEVICE, call,
                     cublasLtGetStatusString(status), __FILE__, line, err);
}

#define LT_TRY(state, call, err) lt_status((state), (call), #call, __LINE__, (err))

enum fsdp_status cuda_matmul_open(struct cuda_numerics *state, struct fsdp_err *err)
{
    const size_t workspace = CUDA_WORKSPACE_BYTES;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const char *tf32 = getenv("FSDP_CUDA_TF32"), *epilogues = getenv("FSDP_CUDA_EPILOGUES");
    struct device *device = state->device;
    enum fsdp_status status = LT_TRY(state, cublasLtCreate(&state->lt), err);

    state->tf32 = tf32 != NULL && tf32[0] == '1';
    state->bias_only = epilogues != NULL && strcmp(epilogues, "bias") == 0;
    state->all_sums = epilogues != NULL && strcmp(epilogues, "all") == 0;
    if (status == FSDP_OK)
        status = LT_TRY(state, cublasLtMatmulPreferenceCreate(&state->preference), err);
    if (status == FSDP_OK)
        status = LT_TRY(state,
                        cublasLtMatmulPreferenceSetAttribute(state->preference,
                                                             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                             &workspace, sizeof workspace),
                        err);
    if (status == FSDP_OK)
        status = LT_TRY(state,
                        cublasLtMatmulPreferenceSetAttribute(state->preference,
                                                             CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                             &reductions, sizeof reductions),
                        err);
    return status == FSDP_OK ? device->ops->alloc(device, workspace, &state->workspace, err) : status;
}

void cuda_matmul_close(struct cuda_numerics *state)
{
    state->device->ops->free(state->device, state->workspace, CUDA_WORKSPACE_BYTES);
    state->workspace = NULL;
    if (state->preference != NULL)
        IGNORED(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreferenceDestroy(state->preference));
    if (state->lt != NULL)
        IGNORED(cublasLtDestroy, cublasLtDestroy(state->lt));
    state->preference = NULL;
    state->lt = NULL;
}

static cudaDataType_t type_of(enum fsdp_dtype dtype)
{
    return dtype == FSDP_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* One of our matrices as cuBLASLt sees it: stored by columns, and what happens to it before the product. */
struct stored {
    uint64_t rows, cols;
    int64_t ld;
    int32_t op;
};

/*
 * A (rows, cols) matrix stored by rows is a (cols, rows) matrix stored by columns. A view whose rows are
 * adjacent instead is stored by columns already, and is transposed. The stride of a dimension of size 1 means
 * nothing.
 */
static struct stored store(size_t rows, size_t cols, const struct matmul_view *view)
{
    if (view->col_stride == 1 || cols == 1)
        return (struct stored){ cols, rows, (int64_t)(rows > 1 ? view->row_stride : cols), CUBLAS_OP_N };
    return (struct stored){ rows, cols, (int64_t)view->col_stride, CUBLAS_OP_T };
}

/* How batches are split into calls: cuBLASLt has one stride of batches, and we have two. */
struct batches {
    size_t in_call;
    bool outer; /* a call runs over the outer stride */
};

static struct batches split_batches(struct matmul *m)
{
    const struct matmul_desc *d = &m->desc;
    const bool even = d->a.outer_stride == d->inner * d->a.inner_stride &&
                      d->b.outer_stride == d->inner * d->b.inner_stride &&
                      d->c.outer_stride == d->inner * d->c.inner_stride;

    m->n_calls = 1;
    if (d->inner == 1)
        return (struct batches){ .in_call = d->outer, .outer = true };
    if (d->outer == 1 || even)
        return (struct batches){ .in_call = d->outer * d->inner };
    m->n_calls = d->outer;
    m->skip[LT_A] = d->b.outer_stride;
    m->skip[LT_B] = d->a.outer_stride;
    m->skip[LT_C] = d->c.outer_stride;
    return (struct batches){ .in_call = d->inner };
}

static enum fsdp_status make_layout(struct matmul *m, int operand, const struct stored *stored,
                                    enum fsdp_dtype dtype, const struct matmul_view *view,
                                    struct batches batches, struct fsdp_err *err)
{
    const int32_t n = (int32_t)batches.in_call;
    const int64_t stride = (int64_t)(batches.outer ? view->outer_stride : view->inner_stride);
    cublasLtMatrixLayout_t *layout = &m->layouts[operand];
    enum fsdp_status status = LT_TRY(
        m->state, cublasLtMatrixLayoutCreate(layout, type_of(dtype), stored->rows, stored->cols, stored->ld),
        err);

    if (status != FSDP_OK || n == 1)
        return status;
    status = LT_TRY(
        m->state, cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n),
        err);
    if (status == FSDP_OK)
        status = LT_TRY(m->state,
                        cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                         &stride, sizeof stride),
                        err);
    return status;
}

static enum fsdp_status set(struct matmul *m, cublasLtMatmulDescAttributes_t which, const void *value,
                            size_t size_bytes, struct fsdp_err *err)
{
    return LT_TRY(m->state, cublasLtMatmulDescSetAttribute(m->lt, which, value, size_bytes), err);
}

static bool leaves_sums(const struct matmul_desc *d)
{
    return d->beside == MATMUL_SUMS_OF_A || d->beside == MATMUL_SUMS_OF_B ||
           d->beside == MATMUL_GELU_BACKWARD_SUMS;
}

static uint32_t epilogue_of(const struct matmul_desc *d)
{
    switch (d->beside) {
    case MATMUL_SUMS_OF_A:
        return CUBLASLT_EPILOGUE_BGRADB;
    case MATMUL_SUMS_OF_B:
        return CUBLASLT_EPILOGUE_BGRADA;
    case MATMUL_BEFORE_GELU:
        return d->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case MATMUL_GELU_BACKWARD:
        return CUBLASLT_EPILOGUE_DGELU;
    case MATMUL_GELU_BACKWARD_SUMS:
        return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    case MATMUL_NOTHING:
        break;
    }
    return d->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool goes_back(const struct matmul_desc *d)
{
    return d->beside == MATMUL_GELU_BACKWARD || d->beside == MATMUL_GELU_BACKWARD_SUMS;
}

/* Does the product read or write z, the input of a GELU? It is cuBLASLt's auxiliary matrix. */
static bool has_z(const struct matmul_desc *d)
{
    return d->beside == MATMUL_BEFORE_GELU || goes_back(d);
}

/* A bias has one element for each column of our C, which is a row of C^T. */
static enum fsdp_status set_epilogue(struct matmul *m, struct fsdp_err *err)
{
    const struct matmul_desc *d = &m->desc;
    const uint32_t epilogue = epilogue_of(d);
    const int32_t type = type_of(d->bias ? d->dtype : d->c_dtype);
    const int64_t ld = (int64_t)d->n;
    enum fsdp_status status = set(m, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, err);

    if (status == FSDP_OK && epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        status = set(m, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, err);
    if (status == FSDP_OK && has_z(d))
        status = set(m, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld, err);
    return status;
}

/*
 * Set the addresses that the epilogue uses. Before an algorithm is chosen, any addresses of the right
 * alignment do.
 */
static enum fsdp_status set_addresses(struct matmul *m, const void *bias, const void *beside,
                                      struct fsdp_err *err)
{
    const struct matmul_desc *d = &m->desc;
    const void *at = d->bias ? bias : beside, *z = goes_back(d) ? bias : beside;
    enum fsdp_status status = FSDP_OK;

    if (d->bias || leaves_sums(d))
        status = set(m, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at, sizeof at, err);
    if (status == FSDP_OK && has_z(d))
        status = set(m, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &z, sizeof z, err);
    return status;
}

static enum fsdp_status describe(struct matmul *m, struct fsdp_err *err)
{
    const struct matmul_desc *d = &m->desc;
    const struct stored first = store(d->k, d->n, &d->b), second = store(d->m, d->k, &d->a),
                        result = store(d->m, d->n, &d->c);
    const struct batches batches = split_batches(m);
    enum fsdp_status status =
        LT_TRY(m->state,
               cublasLtMatmulDescCreate(
                   &m->lt, m->state->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
               err);

    if (status == FSDP_OK)
        status = set(m, CUBLASLT_MATMUL_DESC_TRANSA, &first.op, sizeof first.op, err);
    if (status == FSDP_OK)
        status = set(m, CUBLASLT_MATMUL_DESC_TRANSB, &second.op, sizeof second.op, err);
    if (status == FSDP_OK)
        status = set_epilogue(m, err);
    if (status == FSDP_OK)
        status = make_layout(m, LT_A, &first, d->dtype, &d->b, batches, err);
    if (status == FSDP_OK)
        status = make_layout(m, LT_B, &second, d->dtype, &d->a, batches, err);
    return status == FSDP_OK ? make_layout(m, LT_C, &result, d->c_dtype, &d->c, batches, err) : status;
}

/*
 * Find the heuristic's first algorithm for operands of this alignment. *algo->found is false if there is
 * none, which is no failure.
 */
static enum fsdp_status find_algorithm(struct matmul *m, bool wide, struct algorithm *algo,
                                       struct fsdp_err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t kinds[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    const uint32_t of_factors = wide ? WIDE_ALIGNMENT : (uint32_t)fsdp_dtype_size(m->desc.dtype),
                   of_result = wide ? WIDE_ALIGNMENT : (uint32_t)fsdp_dtype_size(m->desc.c_dtype);
    const uint32_t alignments[] = { of_factors, of_factors, of_result, of_result };
    const void *aligned = (const void *)(uintptr_t)of_result; /* not read */
    enum fsdp_status status = set_addresses(m, aligned, aligned, err);
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t answer;
    int n_found = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && status == FSDP_OK; i++)
        status = LT_TRY(m->state,
                        cublasLtMatmulPreferenceSetAttribute(m->state->preference, kinds[i], &alignments[i],
                                                             sizeof alignments[i]),
                        err);
    if (status != FSDP_OK)
        return status;
    answer = cublasLtMatmulAlgoGetHeuristic(m->state->lt, m->lt, m->layouts[LT_A], m->layouts[LT_B],
                                            m->layouts[LT_C], m->layouts[LT_C], m->state->preference, 1,
                                            &found, &n_found);
    if (answer != CUBLAS_STATUS_SUCCESS && answer != CUBLAS_STATUS_NOT_SUPPORTED &&
        /* the library gives this status also for a layout that the epilogue does not take */
        answer != CUBLAS_STATUS_INVALID_VALUE)
        return lt_status(m->state, answer, "cublasLtMatmulAlgoGetHeuristic", __LINE__, err);
    if (answer == CUBLAS_STATUS_SUCCESS && n_found > 0)
        *algo = (struct algorithm){ .lt = found.algo, .workspace_bytes = found.workspaceSize, .found = true };
    return FSDP_OK;
}

static bool touches_nothing(const struct matmul_desc *desc)
{
    return desc->m == 0 || desc->n == 0;
}

static enum fsdp_status check_beside(const struct cuda_numerics *state, const struct matmul_desc *d,
                                     struct fsdp_err *err)
{
    if (state->bias_only)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: FSDP_CUDA_EPILOGUES=bias");
    /*
     * Not used: the product followed by our own column sum is as fast or faster (docs/cuda.md, "Products").
     */
    if (!state->all_sums &&
        (d->beside == MATMUL_GELU_BACKWARD_SUMS || (d->beside == MATMUL_SUMS_OF_B && d->dtype == FSDP_F32)))
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "matmul: DGELU_BGRAD, or BGRADA in float32, without FSDP_CUDA_EPILOGUES=all");
    if (!cuda_takes_beside(d))
        return fsdp_fail(
            err, FSDP_ERR_UNSUPPORTED,
            "matmul: a second result of a product that is empty, batched, added or with rows of %zu", d->n);
    return FSDP_OK;
}

enum fsdp_status cuda_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                    struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err)
{
    struct matmul *m;
    enum fsdp_status status = FSDP_OK;

    *out = NULL;
    *scratch_bytes = 0;
    if (desc->k == 0 && desc->bias)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: a bias on an empty sum");
    if (desc->beside != MATMUL_NOTHING)
        status = check_beside(cuda_numerics_of(numerics), desc, err);
    if (status != FSDP_OK)
        return status;
    m = calloc(1, sizeof *m);
    if (m == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "matmul: out of memory");
    m->state = cuda_numerics_of(numerics);
    m->desc = *desc;
    if (!touches_nothing(desc) && desc->k > 0) {
        status = describe(m, err);
        if (status == FSDP_OK)
            status = find_algorithm(m, true, &m->wide, err);
        if (status == FSDP_OK)
            status = find_algorithm(m, false, &m->narrow, err);
        if (status == FSDP_OK && !m->wide.found && !m->narrow.found)
            status = fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                               "matmul: cuBLASLt has no algorithm for (%zu, %zu) x (%zu, %zu) of %s", desc->m,
                               desc->k, desc->k, desc->n, fsdp_dtype_name(desc->dtype));
    }
    if (status != FSDP_OK) {
        cuda_matmul_destroy(m);
        return status;
    }
    *out = m;
    return FSDP_OK;
}

void cuda_matmul_destroy(struct matmul *matmul)
{
    if (matmul == NULL)
        return;
    for (int i = 0; i < LT_N_OPERANDS; i++)
        if (matmul->layouts[i] != NULL)
            IGNORED(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayoutDestroy(matmul->layouts[i]));
    if (matmul->lt != NULL)
        IGNORED(cublasLtMatmulDescDestroy, cublasLtMatmulDescDestroy(matmul->lt));
    free(matmul);
}

/* Computes a product whose sums are empty: writes zeros, or adds nothing. */
static enum fsdp_status run_empty(const struct matmul *m, struct device_stream *stream, char *c,
                                  struct fsdp_err *err)
{
    const struct matmul_desc *d = &m->desc;
    const size_t size = fsdp_dtype_size(d->c_dtype);
    const size_t pitch = d->m > 1 ? d->c.row_stride * size : d->n * size;
    enum fsdp_status status = FSDP_OK;

    for (size_t o = 0; o < d->outer && !d->accumulate; o++)
        for (size_t i = 0; i < d->inner && status == FSDP_OK; i++)
            status = CUDA_TRY(cuda_state(m->state->device),
                              cudaMemset2DAsync(c + (o * d->c.outer_stride + i * d->c.inner_stride) * size,
                                                pitch, 0, d->n * size, d->m, stream->cuda),
                              err);
    return status;
}

static bool is_wide(const void *pointer)
{
    return (uintptr_t)pointer % WIDE_ALIGNMENT == 0;
}

/* Are the operands of all calls aligned as the algorithm `wide` needs it? The last two may be NULL. */
static bool all_wide(const struct matmul *m, const void *a, const void *b, const void *c, const void *bias,
                     const void *beside)
{
    const struct matmul_desc *d = &m->desc;
    const size_t size = fsdp_dtype_size(d->dtype), c_size = fsdp_dtype_size(d->c_dtype);

    return is_wide(a) && is_wide(b) && is_wide(c) && is_wide(bias) && is_wide(beside) &&
           (m->n_calls == 1 ||
            (m->skip[LT_A] * size % WIDE_ALIGNMENT == 0 && m->skip[LT_B] * size % WIDE_ALIGNMENT == 0 &&
             m->skip[LT_C] * c_size % WIDE_ALIGNMENT == 0));
}

/* Begin to time one call of `m`, for FSDP_CUDA_PROFILE. */
static void begin_timed(const struct matmul *m, const struct algorithm *algo)
{
    char name[PROFILE_NAME_BYTES], way[PROFILE_WAY_BYTES];

    profile_product_name(&m->desc, name);
    profile_product_way(epilogue_of(&m->desc), &algo->lt, algo->workspace_bytes, algo == &m->wide, way);
    profile_begin_part(cuda_state(m->state->device), name, PROFILE_FLOPS,
                       profile_product_flops(&m->desc) / (double)m->n_calls, way);
}

/*
 * If a call refuses an epilogue that the heuristic had offered, reports that as if it had not been offered.
 * Nothing was queued then.
 */
static enum fsdp_status answered(const struct matmul *m, cublasStatus_t answer, int line,
                                 struct fsdp_err *err)
{
    if (m->desc.beside != MATMUL_NOTHING &&
        (answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_INVALID_VALUE))
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: %s for the product's second result",
                         cublasLtGetStatusString(answer));
    return lt_status(m->state, answer, "cublasLtMatmul", line, err);
}

static enum fsdp_status run(struct matmul *matmul, struct device_stream *stream, const void *a, const void *b,
                            const void *bias, void *beside, void *c, void *scratch, struct fsdp_err *err)
{
    const struct matmul_desc *d = &matmul->desc;
    const bool wide = matmul->wide.found && all_wide(matmul, a, b, c, bias, beside);
    void *const workspace = matmul->state->workspace;
    const struct algorithm *algo = wide ? &matmul->wide : &matmul->narrow;
    const size_t size = fsdp_dtype_size(d->dtype), c_size = fsdp_dtype_size(d->c_dtype);
    const float alpha = d->alpha, beta = d->accumulate ? 1.0f : 0.0f;
    enum fsdp_status status = FSDP_OK;

    (void)scratch;
    if (touches_nothing(d))
        return FSDP_OK;
    if (d->k == 0)
        return run_empty(matmul, stream, c, err);
    if (!wide && !matmul->narrow.found)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "matmul: cuBLASLt has an algorithm for operands aligned to %d bytes alone",
                         WIDE_ALIGNMENT);
    status = set_addresses(matmul, bias, beside, err);
    for (size_t i = 0; i < matmul->n_calls && status == FSDP_OK; i++) {
        const bool timed = profile_is_on(cuda_state(matmul->state->device), stream);
        char *result = (char *)c + i * matmul->skip[LT_C] * c_size;
        cublasStatus_t answer;

        if (timed)
            begin_timed(matmul, algo);
        answer = cublasLtMatmul(matmul->state->lt, matmul->lt, &alpha,
                                (const char *)b + i * matmul->skip[LT_A] * size, matmul->layouts[LT_A],
                                (const char *)a + i * matmul->skip[LT_B] * size, matmul->layouts[LT_B], &beta,
                                result, matmul->layouts[LT_C], result, matmul->layouts[LT_C], &algo->lt,
                                workspace, algo->workspace_bytes, stream->cuda);
        if (timed)
            profile_end_part(cuda_state(matmul->state->device), answer == CUBLAS_STATUS_SUCCESS);

        status = answered(matmul, answer, __LINE__, err);
    }
    return status;
}

enum fsdp_status cuda_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                 const void *b, const void *bias, void *c, void *scratch,
                                 struct fsdp_err *err)
{
    return run(matmul, stream, a, b, bias, NULL, c, scratch, err);
}

enum fsdp_status cuda_matmul_run_beside(struct matmul *matmul, struct device_stream *stream, const void *a,
                                        const void *b, const void *bias, void *beside, void *c, void *scratch,
                                        struct fsdp_err *err)
{
    const bool wide_only = !matmul->narrow.found || has_z(&matmul->desc);

    if (wide_only && (!matmul->wide.found || !all_wide(matmul, a, b, c, bias, beside)))
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "matmul: a second result of a product of operands in this order");
    return run(matmul, stream, a, b, bias, beside, c, scratch, err);
}
