#include "shard_runtime/engine/forecast_apart.h"

#include <string.h>

#include "shard_runtime/comm/staging.h"
#include "shard_runtime/numerics/cuda_shapes.h"
#include "shard_runtime/optim/optim.h"

/*
 * Memory that other libraries take. A communicator of NCCL has buffers for each channel and connection. On
 * four A100 with NVLink they took 544 MiB with two ranks and 688 MiB with more (NVIDIA/nccl issue 964, not
 * measured here). NCCL_BUFFSIZE and NCCL_MAX_NCHANNELS change that. A context takes 526 MiB of an H100
 * (driver 580, by NVML); 50 MiB more are for loaded kernels and cuBLASLt, not measured.
 */
#define NCCL_PAIR_BYTES ((size_t)544 << 20)
#define NCCL_RING_BYTES ((size_t)688 << 20)
#define CONTEXT_BYTES   ((size_t)576 << 20)

static bool owns_nothing(const struct device *device, const void *memory)
{
    (void)device;
    (void)memory;
    return false;
}

const struct device_ops forecast_cuda_ops = { .name = "cuda", .owns = owns_nothing };

static size_t nccl_bytes(const int *ranks, int n, int ranks_per_host)
{
    (void)ranks;
    (void)ranks_per_host;
    return n < 2 ? 0 : n == 2 ? NCCL_PAIR_BYTES : NCCL_RING_BYTES;
}

static size_t staged_bytes(const int *ranks, int n, int ranks_per_host)
{
    (void)ranks;
    (void)ranks_per_host;
    return n < 2 ? 0 : STAGING_BYTES;
}

static void take_larger(size_t *most, size_t bytes)
{
    if (bytes > *most)
        *most = bytes;
}

/*
 * Returns the largest scratch that an operation asks of the numerics (which keep it), plus the memory for
 * numbers that go to the host.
 */
static size_t kernel_bytes(const struct fsdp_model *model)
{
    const struct graph *graph = &model->training.graph;
    size_t most = cuda_cross_entropy_bytes(nn_rows(graph->result));

    for (size_t i = 0; i < graph->n_ops; i++) {
        const struct graph_op *op = graph->ops[i];

        if (strcmp(op->kind->name, "embedding") == 0)
            take_larger(&most, cuda_embedding_backward_bytes(nn_rows(op->output), op->output->features));
        if (strcmp(op->kind->name, "linear") == 0 && op->n_params > 1)
            take_larger(&most, cuda_column_sum_bytes(nn_rows(op->output), op->output->features));
    }
    if (model->evaluation.context != NULL)
        take_larger(&most, cuda_cross_entropy_bytes(nn_rows(model->evaluation.graph.result)));
    /* Spans are summed one by one, and each may have one chunk more. */
    take_larger(&most, cuda_sum_powers_bytes(model->memory[PLACE_DEVICE].reduced_elems) +
                           sizeof(double) * (size_t)model->layout.n_params);
    return most + CUDA_RESULTS_BYTES;
}

/* Bytes of optimizer state for those of rank 0's elements whose shards are in this kind of place. */
static size_t optimizer_bytes(const struct fsdp_model *model, const struct fsdp_optimizer_options *options,
                              bool on_host)
{
    const size_t n_states = (size_t)optim_find(options->kind)->n_states(options);
    size_t bytes = 0;

    for (int i = 0; i < model->layout.n_params; i++) {
        size_t n_elems;

        if (model_shard_elems(model, FSDP_GRADIENT, i, &n_elems) &&
            (model_place(model, model->layout.params[i].group) != PLACE_DEVICE) == on_host)
            bytes += n_elems * n_states * sizeof(float);
    }
    return bytes;
}

void forecast_apart(struct fsdp_forecast *forecast, struct fsdp_model *model,
                    const struct fsdp_optimizer_options *optimizer, bool staged, int ranks_per_host)
{
    struct fsdp_forecast_apart *apart = &forecast->apart;
    const bool evaluates = model->evaluation.context != NULL;
    const bool in_file = optimizer != NULL && optimizer->offload_dir != NULL;

    *apart = (struct fsdp_forecast_apart){
        .parameters = model->memory[PLACE_DEVICE].parameter_bytes,
        .gradients = model->memory[PLACE_DEVICE].gradient_bytes,
        .optimizer = optimizer != NULL && !in_file ? optimizer_bytes(model, optimizer, false) : 0,
        .inputs =
            program_io_measure(&model->training) + (evaluates ? program_io_measure(&model->evaluation) : 0),
        .workspace = CUDA_WORKSPACE_BYTES,
        .kernels = kernel_bytes(model),
        .collectives = staged ? 0 : model_group_bytes(model, nccl_bytes, ranks_per_host),
        .context = CONTEXT_BYTES,
        .host_logits = evaluates ? graph_value_elems(model->evaluation.graph.result) * sizeof(float) : 0,
        .host_staging = staged ? model_group_bytes(model, staged_bytes, ranks_per_host) : 0,
        .host_optimizer = optimizer == NULL ? 0
                          : in_file         ? forecast->optimizer
                                            : optimizer_bytes(model, optimizer, true),
    };
    for (int p = PLACE_DEVICE + 1; p < N_PLACES; p++) {
        apart->host_parameters += model->memory[p].parameter_bytes;
        apart->host_gradients += model->memory[p].gradient_bytes;
    }
    apart->allocated = apart->parameters + apart->gradients + apart->optimizer + forecast->memory.arena +
                       forecast->memory.evaluation + apart->inputs + apart->workspace + apart->kernels;
}
