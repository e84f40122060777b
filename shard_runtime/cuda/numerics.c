/*
 * The row `cuda` of the table of mathematics: products by cuBLASLt, everything else by our kernels, queued on the caller's
 * stream. A slot without a status keeps what failed for the next synchronize(). Sums that the host wants come back through
 * page-locked memory: the loss when the stream has passed, a norm at once.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/cuda/numerics_state.h"
#include "shard_runtime/cuda/ops.h"
#include "shard_runtime/cuda/profile.h"

/* --- opening --------------------------------------------------------------------------------------------- */

static void free_losses(struct cuda_numerics *state);

static void close_numerics(struct numerics *numerics)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    const struct device_ops *ops;

    if (state == NULL)
        return;
    ops = state->device->ops;
    cuda_matmul_close(state);    /* waits for what is queued, */
    cuda_attention_close(state); /* whose code this unloads */
    ops->free(state->device, state->scratch, state->scratch_bytes);
    ops->free(state->device, state->on_device, sizeof *state->on_device);
    ops->free_host(state->device, state->on_host, sizeof *state->on_host);
    free(state->updates);
    free_losses(state);
    free(state);
    numerics->state = NULL;
}

static enum fsdp_status open_numerics(struct numerics *numerics, struct fsdp_err *err)
{
    struct cuda_numerics *state = calloc(1, sizeof *state);
    struct device *device = numerics->device;
    enum fsdp_status status;
    void *memory;

    if (state == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "numerics cuda: no memory for its state");
    state->device = device;
    numerics->state = state;
    status = cuda_matmul_open(state, err);
    if (status == FSDP_OK)
        status = cuda_attention_open(state, err);
    if (status == FSDP_OK)
        status = device->ops->alloc(device, sizeof *state->on_device, &memory, err);
    if (status == FSDP_OK) {
        state->on_device = memory;
        status = device->ops->alloc_host(device, sizeof *state->on_host, &memory, err);
    }
    if (status == FSDP_OK) {
        state->on_host = memory;
        numerics->bf16_products = true;
    } else {
        close_numerics(numerics);
    }
    return status;
}

static void describe(const struct numerics *numerics, char *buffer, size_t size)
{
    const struct cuda_numerics *state = cuda_numerics_of(numerics);
    char attention[160];

    cuda_attention_describe(state, attention, sizeof attention);
    snprintf(buffer, size, "cuBLASLt %zu%s%s", cublasLtGetVersion(), state->tf32 ? ", TF32" : "", attention);
}

/* Scratch for a call without any of its caller; NULL, noted, when there is none to be had. Before it grows, everything that
 * may use the old one is waited for. */
static void *scratch_of(struct numerics *numerics, struct device_stream *stream, size_t size_bytes)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    struct device *device = state->device;
    struct fsdp_err err = { 0 };
    void *memory;

    if (size_bytes <= state->scratch_bytes)
        return state->scratch;
    if (device->ops->synchronize(stream, &err) != FSDP_OK) /* watching: a peer may be gone */
        cuda_keep(cuda_state(device), &err);
    device->ops->free(device, state->scratch, state->scratch_bytes);
    state->scratch_bytes = 0;
    if (device->ops->alloc(device, size_bytes, &memory, &err) != FSDP_OK) {
        cuda_keep(cuda_state(device), &err);
        state->scratch = NULL;
        return NULL;
    }
    state->scratch = memory;
    state->scratch_bytes = size_bytes;
    return memory;
}

#define NOTE(call) PROFILED_AS(cuda_device_of(numerics), NULL, (cudaError_t)(call), #call)

/* --- float32 --------------------------------------------------------------------------------------------- */

static void sum_columns(struct numerics *numerics, struct device_stream *stream, const void *x,
                        enum fsdp_dtype dtype, void *out, enum fsdp_dtype out_dtype, size_t rows, size_t cols,
                        bool accumulate)
{
    const size_t size_bytes = kernel_column_sum_scratch(rows, cols);
    void *scratch = scratch_of(numerics, stream, size_bytes);

    if (scratch != NULL || size_bytes == 0)
        NOTE(kernel_column_sum(stream->cuda, x, dtype, out, out_dtype, rows, cols, accumulate, scratch));
}

static void column_sum(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                       size_t rows, size_t cols, bool accumulate)
{
    sum_columns(numerics, stream, x, FSDP_F32, out, FSDP_F32, rows, cols, accumulate);
}

static void add(struct numerics *numerics, struct device_stream *stream, const float *a, const float *b,
                float *out, size_t n_elems)
{
    NOTE(kernel_add(stream->cuda, a, b, out, n_elems, FSDP_F32));
}

static void dropout_rows(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                         size_t rows, size_t cols, const struct dropout *dropout, bool accumulate)
{
    NOTE(kernel_dropout(stream->cuda, x, out, rows, cols, dropout, accumulate, FSDP_F32));
}

/* LayerNorm, and without a mean RMSNorm. */
static void norm_rows(struct numerics *numerics, struct device_stream *stream, const void *x,
                      const void *weight, const void *bias, void *y, float *mean, float *rstd, size_t rows,
                      size_t cols, float eps, enum fsdp_dtype dtype)
{
    if (mean == NULL)
        NOTE(kernel_rms_norm(stream->cuda, x, weight, y, rstd, rows, cols, eps, dtype));
    else
        NOTE(kernel_layer_norm(stream->cuda, x, weight, bias, y, mean, rstd, rows, cols, eps, dtype));
}

static void add_layer_norm(struct numerics *numerics, struct device_stream *stream, enum fsdp_dtype dtype,
                           const struct numerics_add_norm *norm)
{
    if (norm->mean == NULL)
        NOTE(kernel_add_rms_norm(stream->cuda, norm, dtype));
    else
        NOTE(kernel_add_layer_norm(stream->cuda, norm, dtype));
}

static void layer_norm(struct numerics *numerics, struct device_stream *stream, const float *x,
                       const float *weight, const float *bias, float *y, float *mean, float *rstd,
                       size_t rows, size_t cols, float eps)
{
    norm_rows(numerics, stream, x, weight, bias, y, mean, rstd, rows, cols, eps, FSDP_F32);
}

static void layer_norm_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                                const float *x, const float *weight, const float *mean, const float *rstd,
                                float *dx, bool accumulate_dx, float *dweight, float *dbias,
                                bool accumulate_params, void *scratch, size_t rows, size_t cols)
{
    const struct kernel_norm_backward_args norm = { .dtype = FSDP_F32,
                                                    .dy = dy,
                                                    .x = x,
                                                    .weight = weight,
                                                    .mean = mean,
                                                    .rstd = rstd,
                                                    .dx = dx,
                                                    .accumulate_dx = accumulate_dx,
                                                    .dweight = dweight,
                                                    .dbias = dbias,
                                                    .dweight_dtype = FSDP_F32,
                                                    .dbias_dtype = FSDP_F32,
                                                    .accumulate_dweight = accumulate_params,
                                                    .accumulate_dbias = accumulate_params,
                                                    .rows = rows,
                                                    .cols = cols };

    NOTE(kernel_norm_backward(stream->cuda, &norm, scratch));
}

static size_t layer_norm_scratch(struct numerics *numerics, size_t rows, size_t cols)
{
    (void)numerics;
    return kernel_norm_backward_scratch(rows, cols);
}

static void gelu(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                 size_t n_elems)
{
    NOTE(kernel_gelu(stream->cuda, x, y, n_elems, KERNEL_GELU_EXACT, FSDP_F32));
}

static void gelu_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                          const float *x, float *dx, size_t n_elems)
{
    NOTE(kernel_gelu_backward(stream->cuda, dy, x, dx, n_elems, KERNEL_GELU_EXACT, FSDP_F32));
}

static void gelu_tanh(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                      size_t n_elems)
{
    NOTE(kernel_gelu(stream->cuda, x, y, n_elems, KERNEL_GELU_TANH, FSDP_F32));
}

static void gelu_tanh_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                               const float *x, float *dx, size_t n_elems)
{
    NOTE(kernel_gelu_backward(stream->cuda, dy, x, dx, n_elems, KERNEL_GELU_TANH, FSDP_F32));
}

static void softmax(struct numerics *numerics, struct device_stream *stream, float *scores, float *dropped,
                    const struct attention_desc *desc, const struct dropout *dropout)
{
    NOTE(kernel_softmax(stream->cuda, scores, dropped, desc, dropout));
}

static void softmax_backward(struct numerics *numerics, struct device_stream *stream, const float *p,
                             const float *dp, float *ds, const struct attention_desc *desc,
                             const struct dropout *dropout)
{
    NOTE(kernel_softmax_backward(stream->cuda, p, dp, ds, desc, dropout));
}

static void embedding(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                      const float *table, const float *positions, float *out, size_t rows, size_t cols,
                      size_t seq)
{
    NOTE(kernel_embedding(stream->cuda, tokens, table, positions, out, rows, cols, seq, FSDP_F32));
}

static void embedding_backward(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                               const float *dout, float *dtable, float *dpositions, size_t rows, size_t cols,
                               size_t seq)
{
    const size_t size_bytes = kernel_embedding_backward_scratch(rows, cols);
    void *scratch = scratch_of(numerics, stream, size_bytes);

    if (scratch != NULL || size_bytes == 0)
        NOTE(kernel_embedding_backward(stream->cuda, tokens, dout, FSDP_F32, dtable, dpositions, FSDP_F32,
                                       rows, cols, seq, scratch));
}

/* --- the loss -------------------------------------------------------------------------------------------- */

enum { LOSS_BYTES = offsetof(struct cuda_results, sums) };

/* Where a loss goes when the stream has passed. The row owns them: after a fault on the device nobody is called. */
struct loss_target {
    const struct cuda_results *from;
    double *loss_sum;
    uint64_t *n_targets;
    _Atomic bool busy; /* from its call until the stream has passed it, which a thread of the driver's says */
    struct loss_target *next;
};

static void CUDART_CB add_loss(void *user)
{
    struct loss_target *target = user;

    *target->loss_sum += target->from->loss_sum;
    *target->n_targets += target->from->n_targets;
    atomic_store_explicit(&target->busy, false, memory_order_release);
}

/* One that nobody uses; NULL: out of memory. */
static struct loss_target *take_loss(struct cuda_numerics *state)
{
    struct loss_target *target = state->losses;

    while (target != NULL && atomic_load_explicit(&target->busy, memory_order_acquire))
        target = target->next;
    if (target != NULL)
        return target;
    target = calloc(1, sizeof *target);
    if (target != NULL) {
        target->next = state->losses;
        state->losses = target;
    }
    return target;
}

static void free_losses(struct cuda_numerics *state)
{
    while (state->losses != NULL) {
        struct loss_target *next = state->losses->next;

        free(state->losses);
        state->losses = next;
    }
}

static void loss(struct numerics *numerics, struct device_stream *stream, const struct numerics_loss *loss,
                 double *loss_sum, uint64_t *n_targets)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    struct loss_target *target = take_loss(state);
    const size_t size_bytes = kernel_cross_entropy_scratch(loss->rows);
    void *scratch = scratch_of(numerics, stream, size_bytes);

    if (target == NULL || (scratch == NULL && size_bytes > 0)) {
        NOTE(cudaErrorMemoryAllocation);
        return;
    }
    target->from = state->on_host;
    target->loss_sum = loss_sum;
    target->n_targets = n_targets;
    atomic_store_explicit(&target->busy, true, memory_order_relaxed);
    NOTE(cudaMemsetAsync(state->on_device, 0, LOSS_BYTES, stream->cuda));
    NOTE(kernel_cross_entropy(stream->cuda, loss, &state->on_device->loss_sum, &state->on_device->n_targets,
                              scratch));
    NOTE(cudaMemcpyAsync(state->on_host, state->on_device, LOSS_BYTES, cudaMemcpyDeviceToHost, stream->cuda));
    NOTE(cudaLaunchHostFunc(stream->cuda, add_loss, target));
}

static void cross_entropy(struct numerics *numerics, struct device_stream *stream, const float *logits,
                          const int32_t *targets, float *dlogits, size_t rows, size_t vocab, float scale,
                          double *loss_sum, uint64_t *n_targets)
{
    const struct numerics_loss adjacent = { .dtype = FSDP_F32,
                                            .logits = logits,
                                            .targets = targets,
                                            .dlogits = dlogits,
                                            .rows = rows,
                                            .vocab = vocab,
                                            .row_stride = vocab,
                                            .scale = scale };

    loss(numerics, stream, &adjacent, loss_sum, n_targets);
}

/* --- the optimizer's ------------------------------------------------------------------------------------- */

/* The list as the kernels take it, in the row's room for it; NULL, noted, where there is none. */
static const struct kernel_update *as_kernels(struct numerics *numerics,
                                              const struct numerics_update *updates, size_t n_updates)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);

    if (n_updates > state->n_updates) {
        struct kernel_update *more = realloc(state->updates, n_updates * sizeof *more);

        if (more == NULL) {
            NOTE(cudaErrorMemoryAllocation);
            return NULL;
        }
        state->updates = more;
        state->n_updates = n_updates;
    }
    for (size_t i = 0; i < n_updates; i++)
        state->updates[i] = (struct kernel_update){ .param = updates[i].param,
                                                    .grad = updates[i].grad,
                                                    .m = updates[i].state[0],
                                                    .v = updates[i].state[1],
                                                    .n_elems = updates[i].n_elems,
                                                    .grad_dtype = FSDP_F32,
                                                    .lr = updates[i].lr,
                                                    .weight_decay = updates[i].weight_decay,
                                                    .grad_scale = updates[i].grad_scale };
    return state->updates;
}

static void adamw_list(struct numerics *numerics, struct device_stream *stream,
                       const struct numerics_update *updates, size_t n_updates, const struct adamw *h,
                       uint64_t step)
{
    const struct kernel_update *list = as_kernels(numerics, updates, n_updates);

    if (list != NULL)
        NOTE(kernel_adamw(stream->cuda, list, n_updates, h, step));
}

static void sgd_list(struct numerics *numerics, struct device_stream *stream,
                     const struct numerics_update *updates, size_t n_updates, const struct sgd *h,
                     uint64_t step)
{
    const struct kernel_update *list = as_kernels(numerics, updates, n_updates);

    if (list != NULL)
        NOTE(kernel_sgd(stream->cuda, list, n_updates, h, step));
}

static void adamw(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
                  float *m, float *v, size_t n_elems, const struct adamw *h, float grad_scale, uint64_t step)
{
    const struct numerics_update update = { .param = param,
                                            .grad = grad,
                                            .state = { m, v },
                                            .n_elems = n_elems,
                                            .lr = h->lr,
                                            .weight_decay = h->weight_decay,
                                            .grad_scale = grad_scale };

    adamw_list(numerics, stream, &update, 1, h, step);
}

static void sgd(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
                float *buf, size_t n_elems, const struct sgd *h, float grad_scale, uint64_t step)
{
    const struct numerics_update update = { .param = param,
                                            .grad = grad,
                                            .state = { buf },
                                            .n_elems = n_elems,
                                            .lr = h->lr,
                                            .weight_decay = h->weight_decay,
                                            .grad_scale = grad_scale };

    sgd_list(numerics, stream, &update, 1, h, step);
}

/* At most CUDA_MAX_SUMS of them. The caller wants numbers: this waits. What fails meanwhile gives numbers that are none, and is
 * kept. */
static void sum_some(struct numerics *numerics, struct device_stream *stream, const struct kernel_span *spans,
                     size_t n_spans, double p, double *sums)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    const size_t size_bytes = kernel_sum_powers_scratch(spans, n_spans);
    void *scratch = scratch_of(numerics, stream, size_bytes);
    struct fsdp_err err = { 0 };
    bool done = false;

    if (scratch != NULL || size_bytes == 0) {
        NOTE(kernel_sum_powers(stream->cuda, spans, n_spans, p, state->on_device->sums, scratch));
        NOTE(cudaMemcpyAsync(state->on_host->sums, state->on_device->sums, n_spans * sizeof *sums,
                             cudaMemcpyDeviceToHost, stream->cuda));
        done = state->device->ops->synchronize(stream, &err) == FSDP_OK;
        if (!done)
            cuda_keep(cuda_state(state->device), &err);
    }
    for (size_t i = 0; i < n_spans; i++)
        sums[i] = done ? state->on_host->sums[i] : (double)NAN;
}

static void sum_powers_list(struct numerics *numerics, struct device_stream *stream,
                            const struct numerics_span *spans, size_t n_spans, double p, double *sums)
{
    struct kernel_span some[CUDA_MAX_SUMS];

    for (size_t first = 0, n; first < n_spans; first += n) {
        n = n_spans - first < CUDA_MAX_SUMS ? n_spans - first : CUDA_MAX_SUMS;
        for (size_t i = 0; i < n; i++)
            some[i] = (struct kernel_span){ .data = spans[first + i].x,
                                            .n_elems = spans[first + i].n_elems,
                                            .dtype = FSDP_F32 };
        sum_some(numerics, stream, some, n, p, sums + first);
    }
}

static double sum_powers(struct numerics *numerics, struct device_stream *stream, const float *x,
                         size_t n_elems, double p)
{
    const struct kernel_span span = { .data = x, .n_elems = n_elems, .dtype = FSDP_F32 };
    double sum = 0;

    if (n_elems > 0)
        sum_some(numerics, stream, &span, 1, p, &sum);
    return sum;
}

static double sum_squares(struct numerics *numerics, struct device_stream *stream, const float *x,
                          size_t n_elems)
{
    return sum_powers(numerics, stream, x, n_elems, 2);
}

/* --- bfloat16 -------------------------------------------------------------------------------------------- */

static void add_bf16(struct numerics *numerics, struct device_stream *stream, const uint16_t *a,
                     const uint16_t *b, uint16_t *out, size_t n_elems)
{
    NOTE(kernel_add(stream->cuda, a, b, out, n_elems, FSDP_BF16));
}

static void gelu_bf16(struct numerics *numerics, struct device_stream *stream, const uint16_t *x, uint16_t *y,
                      size_t n_elems)
{
    NOTE(kernel_gelu(stream->cuda, x, y, n_elems, KERNEL_GELU_EXACT, FSDP_BF16));
}

static void gelu_backward_bf16(struct numerics *numerics, struct device_stream *stream, const uint16_t *dy,
                               const uint16_t *x, uint16_t *dx, size_t n_elems)
{
    NOTE(kernel_gelu_backward(stream->cuda, dy, x, dx, n_elems, KERNEL_GELU_EXACT, FSDP_BF16));
}

static void gelu_tanh_bf16(struct numerics *numerics, struct device_stream *stream, const uint16_t *x,
                           uint16_t *y, size_t n_elems)
{
    NOTE(kernel_gelu(stream->cuda, x, y, n_elems, KERNEL_GELU_TANH, FSDP_BF16));
}

static void gelu_tanh_backward_bf16(struct numerics *numerics, struct device_stream *stream,
                                    const uint16_t *dy, const uint16_t *x, uint16_t *dx, size_t n_elems)
{
    NOTE(kernel_gelu_backward(stream->cuda, dy, x, dx, n_elems, KERNEL_GELU_TANH, FSDP_BF16));
}

static void column_sum_bf16(struct numerics *numerics, struct device_stream *stream, const uint16_t *x,
                            void *out, enum fsdp_dtype dtype, size_t rows, size_t cols, bool accumulate)
{
    sum_columns(numerics, stream, x, FSDP_BF16, out, dtype, rows, cols, accumulate);
}

static void layer_norm_bf16(struct numerics *numerics, struct device_stream *stream, const uint16_t *x,
                            const uint16_t *weight, const uint16_t *bias, uint16_t *y, float *mean,
                            float *rstd, size_t rows, size_t cols, float eps)
{
    norm_rows(numerics, stream, x, weight, bias, y, mean, rstd, rows, cols, eps, FSDP_BF16);
}

static void layer_norm_backward_bf16(struct numerics *numerics, struct device_stream *stream,
                                     const struct numerics_bf16_norm *n, void *scratch, size_t rows,
                                     size_t cols)
{
    const struct kernel_norm_backward_args norm = { .dtype = FSDP_BF16,
                                                    .dy = n->dy,
                                                    .x = n->x,
                                                    .weight = n->weight,
                                                    .mean = n->mean,
                                                    .rstd = n->rstd,
                                                    .dx = n->dx,
                                                    .accumulate_dx = n->accumulate_dx,
                                                    .dweight = n->dweight,
                                                    .dbias = n->dbias,
                                                    .dweight_dtype = n->dweight_dtype,
                                                    .dbias_dtype = n->dbias_dtype,
                                                    .accumulate_dweight = n->accumulate_dweight,
                                                    .accumulate_dbias = n->accumulate_dbias,
                                                    .rows = rows,
                                                    .cols = cols };

    NOTE(kernel_norm_backward(stream->cuda, &norm, scratch));
}

static void softmax_bf16(struct numerics *numerics, struct device_stream *stream, float *scores, uint16_t *p,
                         const struct attention_desc *desc)
{
    NOTE(kernel_softmax_bf16(stream->cuda, scores, p, desc));
}

static void softmax_backward_bf16(struct numerics *numerics, struct device_stream *stream, uint16_t *p_ds,
                                  float *dp, const struct attention_desc *desc)
{
    NOTE(kernel_softmax_backward_bf16(stream->cuda, p_ds, dp, desc));
}

static const struct numerics_bf16 bf16 = {
    .add = add_bf16,
    .gelu = gelu_bf16,
    .gelu_backward = gelu_backward_bf16,
    .gelu_tanh = gelu_tanh_bf16,
    .gelu_tanh_backward = gelu_tanh_backward_bf16,
    .column_sum = column_sum_bf16,
    .layer_norm = layer_norm_bf16,
    .layer_norm_backward = layer_norm_backward_bf16,
    .layer_norm_scratch = layer_norm_scratch,
    .softmax = softmax_bf16,
    .softmax_backward = softmax_backward_bf16,
};

const struct numerics_ops numerics_cuda_ops = {
    .name = "cuda",
    .open = open_numerics,
    .close = close_numerics,
    .describe = describe,
    .matmul_create = cuda_matmul_create,
    .matmul_destroy = cuda_matmul_destroy,
    .matmul_run = cuda_matmul_run,
    .matmul_run_beside = cuda_matmul_run_beside,
    .column_sum = column_sum,
    .add = add,
    .dropout = dropout_rows,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .layer_norm_scratch = layer_norm_scratch,
    .add_layer_norm = add_layer_norm,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .gelu_tanh = gelu_tanh,
    .gelu_tanh_backward = gelu_tanh_backward,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .attention_create = cuda_attention_create,
    .attention_destroy = cuda_attention_destroy,
    .attention_forward = cuda_attention_forward,
    .attention_backward = cuda_attention_backward,
    .embedding = embedding,
    .embedding_backward = embedding_backward,
    .cross_entropy = cross_entropy,
    .loss = loss,
    .adamw = adamw,
    .sgd = sgd,
    .sum_powers = sum_powers,
    .sum_squares = sum_squares,
    .adamw_list = adamw_list,
    .sgd_list = sgd_list,
    .sum_powers_list = sum_powers_list,
    .bf16 = &bf16,
};
