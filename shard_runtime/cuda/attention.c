/*
 * Fused attention, which never stores its matrices: by our kernels, which need only the description, or by
 * cuDNN if FSDP_CUDA_ATTENTION asks for it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/cuda/attention_cudnn.h"
#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/cuda/numerics_state.h"
#include "shard_runtime/cuda/profile.h"

struct fused_attention {
    struct cuda_numerics *state;
    struct fused_attention_desc desc;
    struct cudnn_pair *cudnn; /* belongs to the row of the table; NULL: our kernels run */
};

/*
 * cuDNN cannot be used because of `why`. That is an error if it was asked for by name; otherwise the first
 * reason is kept for describe(). A failed device, or missing memory, is an error in any case.
 */
static enum fsdp_status go_without(struct cuda_numerics *state, struct fsdp_err *why)
{
    if (why->status == FSDP_ERR_DEVICE || why->status == FSDP_ERR_NOMEM)
        return why->status;
    if (state->attention == CUDA_ATTENTION_CUDNN) {
        fsdp_wrap(why, "FSDP_CUDA_ATTENTION=cudnn");
        return why->status;
    }
    if (state->without_cudnn[0] == '\0')
        snprintf(state->without_cudnn, sizeof state->without_cudnn, "%.*s",
                 (int)sizeof state->without_cudnn - 1, why->message);
    return FSDP_OK;
}

static enum fsdp_status answer(const struct fsdp_err *why, enum fsdp_status status, struct fsdp_err *err)
{
    return status == FSDP_OK ? FSDP_OK : fsdp_fail(err, status, "%s", why->message);
}

enum fsdp_status cuda_attention_open(struct cuda_numerics *state, struct fsdp_err *err)
{
    enum fsdp_status status = cuda_attention_choice(&state->attention, err);
    struct fsdp_err why = { 0 };

    if (status != FSDP_OK || state->attention == CUDA_ATTENTION_OURS ||
        cudnn_row_open(&state->cudnn, &why) == FSDP_OK)
        return status;
    return answer(&why, go_without(state, &why), err);
}

void cuda_attention_close(struct cuda_numerics *state)
{
    cudnn_row_close(state->cudnn);
    state->cudnn = NULL;
}

void cuda_attention_describe(const struct cuda_numerics *state, char *buffer, size_t size)
{
    const size_t version = cudnn_row_serves(state->cudnn);
    const bool is_ours = state->without_cudnn[0] != '\0';

    buffer[0] = '\0';
    if (version != 0 && is_ours)
        snprintf(buffer, size, ", attention cuDNN %zu, some ours (%s)", version, state->without_cudnn);
    else if (version != 0)
        snprintf(buffer, size, ", attention cuDNN %zu", version);
    else if (is_ours)
        snprintf(buffer, size, ", attention ours (%s)", state->without_cudnn);
}

enum fsdp_status cuda_attention_create(struct numerics *numerics, const struct fused_attention_desc *desc,
                                       struct fused_attention **out, size_t *forward_scratch,
                                       size_t *backward_scratch, struct fsdp_err *err)
{
    const size_t features = desc->shape.heads * desc->shape.head_dim;
    struct cuda_numerics *state = cuda_numerics_of(numerics);
    struct fused_attention *attention;
    struct fsdp_err why = { 0 };
    enum fsdp_status status = FSDP_OK;

    *out = NULL;
    if (desc->q_stride < features || desc->k_stride < features || desc->v_stride < features ||
        desc->out_stride < features)
        return fsdp_fail(err, FSDP_ERR_ARG, "attention: a stride is shorter than its %zu features", features);
    if (desc->dtype != FSDP_F32 && desc->dtype != FSDP_BF16)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "attention of %s", fsdp_dtype_name(desc->dtype));
    attention = calloc(1, sizeof *attention);
    if (attention == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "attention: out of memory");
    attention->state = state;
    attention->desc = *desc;
    if (state->cudnn != NULL && cudnn_row_pair(state->cudnn, desc, &attention->cudnn, &why) != FSDP_OK)
        status = answer(&why, go_without(state, &why), err);
    if (status != FSDP_OK) {
        free(attention);
        return status;
    }
    cuda_plan_attention_scratch(state->attention, desc, forward_scratch, backward_scratch);
    *out = attention;
    return FSDP_OK;
}

void cuda_attention_destroy(struct fused_attention *attention)
{
    free(attention);
}

/*
 * A plan that does not run is a failure of the device. If an earlier failure is kept, that one is the cause
 * and is reported.
 */
static enum fsdp_status ran(const struct cuda_numerics *state, enum fsdp_status status, int line,
                            const struct fsdp_err *own, struct fsdp_err *err)
{
    const struct cuda_device *device = cuda_state(state->device);
    char who[CUDA_NAME_BYTES + 64];

    if (status == FSDP_OK)
        return FSDP_OK;
    if (cuda_sticky(device, err) != FSDP_OK)
        return device->broken.status;
    return fsdp_fail(err, status == FSDP_ERR_NOMEM ? FSDP_ERR_NOMEM : FSDP_ERR_DEVICE, "%.300s at %s:%d%s",
                     own->message, __FILE__, line, cuda_who(device, who, sizeof who));
}

static bool begin_timed(const struct cuda_numerics *state, const struct device_stream *stream,
                        const char *name)
{
    const bool timed = profile_is_on(cuda_state(state->device), stream);

    if (timed)
        profile_begin_part(cuda_state(state->device), name, PROFILE_NOTHING, 0, NULL);
    return timed;
}

enum fsdp_status cuda_attention_forward(struct fused_attention *attention, struct device_stream *stream,
                                        const struct fused_attention_forward *run, struct fsdp_err *err)
{
    struct cuda_numerics *state = attention->state;
    const bool by_cudnn = attention->cudnn != NULL && cudnn_pair_takes_forward(run),
               timed = begin_timed(state, stream, by_cudnn ? "cuDNN's forward" : "kernel_attention");
    struct fsdp_err own = { 0 };
    enum fsdp_status status;

    if (by_cudnn)
        status = ran(state, cudnn_pair_forward(state->cudnn, attention->cudnn, stream, run, &own), __LINE__,
                     &own, err);
    else
        status = CUDA_TRY(cuda_state(state->device),
                          (cudaError_t)kernel_attention(stream->cuda, &attention->desc, run, false), err);
    if (timed)
        profile_end_part(cuda_state(state->device), status == FSDP_OK);
    return status;
}

enum fsdp_status cuda_attention_backward(struct fused_attention *attention, struct device_stream *stream,
                                         const struct fused_attention_backward *run, struct fsdp_err *err)
{
    struct cuda_numerics *state = attention->state;
    const bool by_cudnn = attention->cudnn != NULL && cudnn_pair_takes_backward(run),
               timed =
                   begin_timed(state, stream, by_cudnn ? "cuDNN's backward" : "kernel_attention_backward");
    struct fsdp_err own = { 0 };
    enum fsdp_status status;

    if (by_cudnn)
        status = ran(state, cudnn_pair_backward(state->cudnn, attention->cudnn, stream, run, &own), __LINE__,
                     &own, err);
    else
        status =
            CUDA_TRY(cuda_state(state->device),
                     (cudaError_t)kernel_attention_backward(stream->cuda, &attention->desc, run, false), err);
    if (timed)
        profile_end_part(cuda_state(state->device), status == FSDP_OK);
    return status;
}
