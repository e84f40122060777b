/*
 * The row `cuda` of numerics: products by cuBLASLt, and all other operations by our kernels, queued on the
 * caller's stream. A slot without a status keeps its failure for the next synchronize(). Sums for the host
 * come back through page-locked memory: the loss once the stream has passed, a norm at once.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/cuda/numerics_state.h"
#include "shard_runtime/cuda/ops.h"
#include "shard_runtime/cuda/profile.h"

static void free_losses(struct cuda_numerics *state);

static void close_numerics(struct numerics *numerics)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    const struct device_ops *ops;

    if (state == NULL)
        return;
    ops = state->device->ops;
    cuda_matmul_close(state); /* waits for queued work */
    /* after cuda_matmul_close(), because this call unloads the code of the attention's work */
    cuda_attention_close(state);
    ops->free(state->device, state->scratch, state->scratch_bytes);
    ops->free(state->device, state->on_device, sizeof *state->on_device);
    ops->free_host(state->device, state->on_host, sizeof *state->on_host);
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

/*
 * Gives scratch to a call whose caller passes none. Returns false, with the failure kept, if there is no
 * memory. Before the scratch grows, all work that may use the old one is waited for.
 */
static bool take_scratch(struct numerics *numerics, struct device_stream *stream, size_t size_bytes,
                         void **out)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    struct device *device = state->device;
    struct fsdp_err err = { 0 };

    if (size_bytes > state->scratch_bytes) {
        if (device->ops->synchronize(stream, &err) != FSDP_OK) /* while looking for dead peers */
            cuda_keep(cuda_state(device), &err);
        device->ops->free(device, state->scratch, state->scratch_bytes);
        state->scratch = NULL;
        state->scratch_bytes = 0;
        if (device->ops->alloc(device, size_bytes, &state->scratch, &err) != FSDP_OK) {
            cuda_keep(cuda_state(device), &err);
            return false;
        }
        state->scratch_bytes = size_bytes;
    }
    *out = state->scratch;
    return true;
}

#define NOTE(call) PROFILED(cuda_device_of(numerics), NULL, (cudaError_t)(call), #call)

/* Operations whose kernel takes the arguments as they are. */
#define AS_THEY_ARE(operation)                                                                               \
    static void operation(struct numerics *numerics, struct device_stream *stream,                           \
                          const struct numerics_##operation *run)                                            \
    {                                                                                                        \
        NOTE(kernel_##operation(stream->cuda, run));                                                         \
    }
AS_THEY_ARE(activation)
AS_THEY_ARE(activation_backward)
AS_THEY_ARE(adamw)
AS_THEY_ARE(sgd)

static void column_sum(struct numerics *numerics, struct device_stream *stream,
                       const struct numerics_column_sum *run)
{
    void *scratch;

    if (take_scratch(numerics, stream, cuda_column_sum_bytes(run->rows, run->cols), &scratch))
        NOTE(kernel_column_sum(stream->cuda, run->x, run->dtype, run->out, run->out_dtype, run->rows,
                               run->cols, run->accumulate, scratch));
}

static void add(struct numerics *numerics, struct device_stream *stream, const struct numerics_add *run)
{
    NOTE(kernel_add(stream->cuda, run->a, run->b, run->out, run->n_elems, run->dtype));
}

static void dropout(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_dropout *run)
{
    NOTE(kernel_dropout(stream->cuda, run->x, run->out, run->rows, run->cols, run->mask, run->accumulate,
                        FSDP_F32));
}

static void norm(struct numerics *numerics, struct device_stream *stream, const struct numerics_norm *run)
{
    if (run->mean == NULL)
        NOTE(kernel_rms_norm(stream->cuda, run->x, run->weight, run->y, run->rstd, run->rows, run->cols,
                             run->eps, run->dtype));
    else
        NOTE(kernel_layer_norm(stream->cuda, run->x, run->weight, run->bias, run->y, run->mean, run->rstd,
                               run->rows, run->cols, run->eps, run->dtype));
}

static void norm_backward(struct numerics *numerics, struct device_stream *stream,
                          const struct numerics_norm_backward *run)
{
    NOTE(kernel_norm_backward(stream->cuda, run, cuda_device_of(numerics)->shared_bytes, run->scratch));
}

static size_t norm_scratch(struct numerics *numerics, enum fsdp_dtype dtype, size_t rows, size_t cols)
{
    (void)numerics, (void)dtype;
    return cuda_norm_backward_bytes(rows, cols);
}

static void add_norm(struct numerics *numerics, struct device_stream *stream,
                     const struct numerics_add_norm *run)
{
    if (run->mean == NULL)
        NOTE(kernel_add_rms_norm(stream->cuda, run));
    else
        NOTE(kernel_add_layer_norm(stream->cuda, run));
}

static void softmax(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_softmax *run)
{
    if (run->dtype == FSDP_BF16)
        NOTE(kernel_softmax_bf16(stream->cuda, run->scores, run->p, run->shape));
    else
        NOTE(kernel_softmax(stream->cuda, run->scores, run->dropped, run->shape, run->dropout));
}

static void softmax_backward(struct numerics *numerics, struct device_stream *stream,
                             const struct numerics_softmax_backward *run)
{
    if (run->dtype == FSDP_BF16)
        NOTE(kernel_softmax_backward_bf16(stream->cuda, run->ds, run->dp, run->shape));
    else
        NOTE(kernel_softmax_backward(stream->cuda, run->p, run->dp, run->ds, run->shape, run->dropout));
}

static void embedding(struct numerics *numerics, struct device_stream *stream,
                      const struct numerics_embedding *run)
{
    NOTE(kernel_embedding(stream->cuda, run->tokens, run->table, run->positions, run->out, run->rows,
                          run->cols, run->seq, FSDP_F32));
}

static void embedding_backward(struct numerics *numerics, struct device_stream *stream,
                               const struct numerics_embedding_backward *run)
{
    void *scratch;

    if (take_scratch(numerics, stream, cuda_embedding_backward_bytes(run->rows, run->cols), &scratch))
        NOTE(kernel_embedding_backward(stream->cuda, run->tokens, run->dout, FSDP_F32, run->dtable,
                                       run->dpositions, FSDP_F32, run->rows, run->cols, run->seq, scratch));
}

enum { LOSS_BYTES = offsetof(struct cuda_results, sums) };

/*
 * The destination of one loss. A callback adds the loss there when the stream has passed its computation.
 * This struct belongs to the numerics, so that nothing is written through a caller's pointer after a fault on
 * the device.
 */
struct loss_target {
    const struct cuda_results *from;
    double *loss_sum;
    uint64_t *n_targets;
    /* true from the call until the callback has run, on a thread of the driver */
    _Atomic bool busy;
    struct loss_target *next;
};

static void CUDART_CB add_loss(void *user)
{
    struct loss_target *target = user;

    *target->loss_sum += target->from->loss_sum;
    *target->n_targets += target->from->n_targets;
    atomic_store_explicit(&target->busy, false, memory_order_release);
}

/* Returns an unused target, which is made if there is none. NULL: out of memory. */
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

static void cross_entropy(struct numerics *numerics, struct device_stream *stream,
                          const struct numerics_cross_entropy *run)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    struct loss_target *target = take_loss(state);
    void *scratch;

    if (target == NULL || !take_scratch(numerics, stream, cuda_cross_entropy_bytes(run->rows), &scratch)) {
        NOTE(cudaErrorMemoryAllocation);
        return;
    }
    target->from = state->on_host;
    target->loss_sum = run->loss_sum;
    target->n_targets = run->n_targets;
    atomic_store_explicit(&target->busy, true, memory_order_relaxed);
    NOTE(cudaMemsetAsync(state->on_device, 0, LOSS_BYTES, stream->cuda));
    NOTE(kernel_cross_entropy(stream->cuda, run, &state->on_device->loss_sum, &state->on_device->n_targets,
                              scratch));
    NOTE(cudaMemcpyAsync(state->on_host, state->on_device, LOSS_BYTES, cudaMemcpyDeviceToHost, stream->cuda));
    NOTE(cudaLaunchHostFunc(stream->cuda, add_loss, target));
}

/*
 * Sum the powers of at most CUDA_MAX_SUMS spans, and wait for the numbers. After a failure, which is kept,
 * the numbers are NaN.
 */
static void sum_some(struct numerics *numerics, struct device_stream *stream,
                     const struct numerics_span *spans, size_t n_spans, double p, double *sums)
{
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    struct fsdp_err err = { 0 };
    bool done = false;
    void *scratch;

    if (take_scratch(numerics, stream, kernel_sum_powers_bytes(spans, n_spans), &scratch)) {
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

static void sum_powers(struct numerics *numerics, struct device_stream *stream,
                       const struct numerics_sum_powers *run)
{
    for (size_t first = 0, n; first < run->n_spans; first += n) {
        n = run->n_spans - first < CUDA_MAX_SUMS ? run->n_spans - first : CUDA_MAX_SUMS;
        sum_some(numerics, stream, run->spans + first, n, run->p, run->sums + first);
    }
}

#define CUDA_SLOT(operation) .operation = operation,

const struct numerics_ops numerics_cuda_ops = { .name = "cuda",
                                                .open = open_numerics,
                                                .close = close_numerics,
                                                .describe = describe,
                                                .matmul_create = cuda_matmul_create,
                                                .matmul_destroy = cuda_matmul_destroy,
                                                .matmul_run = cuda_matmul_run,
                                                .matmul_run_beside = cuda_matmul_run_beside,
                                                .takes_bf16 = true,
                                                .takes_padded_logits = true,
                                                .attention_create = cuda_attention_create,
                                                .attention_destroy = cuda_attention_destroy,
                                                .attention_forward = cuda_attention_forward,
                                                .attention_backward = cuda_attention_backward,
                                                .norm_scratch = norm_scratch,
                                                NUMERICS_OPERATIONS(CUDA_SLOT) };
