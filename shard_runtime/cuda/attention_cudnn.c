#include "shard_runtime/cuda/attention_cudnn.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/cuda/cudnn_attention.h"
#include "shard_runtime/cuda/cudnn_library.h"
#include "shard_runtime/cuda/cudnn_plan.h"
#include "shard_runtime/cuda/state.h"
#include "shard_runtime/numerics/attention_desc.h"
#include "shard_runtime/numerics/cuda_plan_attention.h"
#include "shard_runtime/numerics/cuda_shapes.h"

struct cudnn_pair {
    struct cudnn_pair *next;
    struct fused_attention_desc desc;
    struct cudnn_plan *forward, *backward;
};

struct cudnn_row {
    const struct cudnn_api *api;
    struct cudnn_handle *handle;
    struct cudnn_pair *pairs;
};

enum fsdp_status cudnn_row_open(struct cudnn_row **out, struct fsdp_err *err)
{
    struct cudnn_row *row = calloc(1, sizeof *row);
    enum fsdp_status status;

    *out = NULL;
    if (row == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "cuDNN: out of memory");
    status = cudnn_open_library(&row->api, err);
    if (status == FSDP_OK)
        status = cudnn_status(row->api, row->api->Create(&row->handle), "cudnnCreate", err);
    if (status != FSDP_OK) {
        free(row);
        return status;
    }
    *out = row;
    return FSDP_OK;
}

static void destroy_pair(struct cudnn_pair *pair)
{
    cudnn_plan_destroy(pair->forward);
    cudnn_plan_destroy(pair->backward);
    free(pair);
}

void cudnn_row_close(struct cudnn_row *row)
{
    if (row == NULL)
        return;
    while (row->pairs != NULL) {
        struct cudnn_pair *pair = row->pairs;

        row->pairs = pair->next;
        destroy_pair(pair);
    }
    IGNORED(cudnnDestroy, row->api->Destroy(row->handle));
    free(row);
}

size_t cudnn_row_serves(const struct cudnn_row *row)
{
    return row != NULL && row->pairs != NULL ? row->api->GetVersion() : 0;
}

static enum fsdp_status make_plan(const struct cudnn_row *row, const struct cudnn_graph *graph,
                                  size_t planned_bytes, const char *which, struct cudnn_plan **out,
                                  struct fsdp_err *err)
{
    const struct cudnn_target target = { .api = row->api, .handle = row->handle };
    const enum fsdp_status status =
        cudnn_plan_create(&target, graph, planned_bytes - graph->scratch_bytes, out, err);

    if (status != FSDP_OK)
        fsdp_wrap(err, "%s", which);
    return status;
}

static enum fsdp_status make_pair(const struct cudnn_row *row, struct cudnn_pair *pair, struct fsdp_err *err)
{
    const struct fused_attention_desc *desc = &pair->desc;
    struct cudnn_graph graph;
    enum fsdp_status status;

    cudnn_attention_forward(desc, &graph);
    status =
        make_plan(row, &graph, cuda_cudnn_forward_bytes(&desc->shape) - cuda_cudnn_lse_bytes(&desc->shape),
                  "forward", &pair->forward, err);
    if (status != FSDP_OK)
        return status;
    cudnn_attention_backward(desc, &graph);
    return make_plan(row, &graph, cuda_cudnn_backward_bytes(&desc->shape), "backward", &pair->backward, err);
}

enum fsdp_status cudnn_row_pair(struct cudnn_row *row, const struct fused_attention_desc *desc,
                                struct cudnn_pair **out, struct fsdp_err *err)
{
    const char *why = cuda_cudnn_refuses(desc);
    struct cudnn_pair *pair;
    enum fsdp_status status;

    *out = NULL;
    if (why != NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s", why);
    for (pair = row->pairs; pair != NULL; pair = pair->next) {
        if (attention_desc_same(&pair->desc, desc)) {
            *out = pair;
            return FSDP_OK;
        }
    }
    pair = calloc(1, sizeof *pair);
    if (pair == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    pair->desc = *desc;
    status = make_pair(row, pair, err);
    if (status != FSDP_OK) {
        destroy_pair(pair);
        return status;
    }
    pair->next = row->pairs;
    row->pairs = pair;
    *out = pair;
    return FSDP_OK;
}

static bool is_aligned(const void *pointer)
{
    return pointer != NULL && (uintptr_t)pointer % CUDNN_ALIGN_BYTES == 0;
}

/* Is the address aligned to 64 bytes, as every buffer of a plan is? */
static bool is_scratch(const void *pointer)
{
    return pointer != NULL && (uintptr_t)pointer % 64 == 0;
}

bool cudnn_pair_takes_forward(const struct fused_attention_forward *run)
{
    return is_aligned(run->q) && is_aligned(run->k) && is_aligned(run->v) && is_aligned(run->out) &&
           (run->lse == NULL || is_aligned(run->lse)) && is_scratch(run->scratch);
}

bool cudnn_pair_takes_backward(const struct fused_attention_backward *run)
{
    return is_aligned(run->q) && is_aligned(run->k) && is_aligned(run->v) && is_aligned(run->out) &&
           is_aligned(run->dout) && is_aligned(run->lse) && is_aligned(run->dq) && is_aligned(run->dk) &&
           is_aligned(run->dv) && is_scratch(run->scratch);
}

/* Sets to zero the sums to which an engine adds, because other work has used this part of the arena. */
static enum fsdp_status clear_sums(const struct cudnn_plan *plan, struct device_stream *stream, void *scratch,
                                   struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    for (int i = 0; i < plan->graph.n_tensors && status == FSDP_OK; i++) {
        const struct cudnn_tensor *tensor = &plan->graph.tensors[i];

        if (tensor->adds)
            status = CUDA_TRY(cuda_state(stream->device),
                              cudaMemsetAsync((char *)scratch + tensor->offset, 0,
                                              (size_t)(tensor->dims[0] * tensor->strides[0]) * sizeof(float),
                                              stream->cuda),
                              err);
    }
    return status;
}

static enum fsdp_status run_plan(const struct cudnn_row *row, struct cudnn_plan *plan,
                                 struct device_stream *stream, const void *const *memory, void *scratch,
                                 struct fsdp_err *err)
{
    enum fsdp_status status = clear_sums(plan, stream, scratch, err);

    if (status == FSDP_OK)
        status =
            cudnn_status(row->api, row->api->SetStream(row->handle, stream->cuda), "cudnnSetStream", err);
    return status == FSDP_OK ? cudnn_plan_run(plan, memory, scratch, err) : status;
}

enum fsdp_status cudnn_pair_forward(struct cudnn_row *row, struct cudnn_pair *pair,
                                    struct device_stream *stream, const struct fused_attention_forward *run,
                                    struct fsdp_err *err)
{
    const void *const memory[CUDNN_SLOTS] = { [CUDNN_Q] = run->q,
                                              [CUDNN_K] = run->k,
                                              [CUDNN_V] = run->v,
                                              [CUDNN_OUT] = run->out,
                                              [CUDNN_LSE] = run->lse != NULL ? run->lse : run->scratch };

    return run_plan(row, pair->forward, stream, memory,
                    (char *)run->scratch + cuda_cudnn_lse_bytes(&pair->desc.shape), err);
}

enum fsdp_status cudnn_pair_backward(struct cudnn_row *row, struct cudnn_pair *pair,
                                     struct device_stream *stream, const struct fused_attention_backward *run,
                                     struct fsdp_err *err)
{
    const void *const memory[CUDNN_SLOTS] = {
        [CUDNN_Q] = run->q,     [CUDNN_K] = run->k,       [CUDNN_V] = run->v,
        [CUDNN_OUT] = run->out, [CUDNN_DOUT] = run->dout, [CUDNN_LSE] = run->lse,
        [CUDNN_DQ] = run->dq,   [CUDNN_DK] = run->dk,     [CUDNN_DV] = run->dv
    };

    return run_plan(row, pair->backward, stream, memory, run->scratch, err);
}
