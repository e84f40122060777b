/*
 * Our graphs of attention before cuDNN itself, without a GPU. It describes a GPU to cuDNN (in cuDNN's own
 * JSON), and asks which engines take a graph. cuDNN compiles the first that does, for sm_80 and sm_90. Where
 * there is no driver, tests/emulation/cuda/driver_standin.c takes its place. What that shows: the library
 * reads our descriptors, finds attention in them, and an engine of it is built within the workspace that is
 * planned. What it does not: any number; nothing runs.
 *
 * Lines as of all tests, "skip - REASON" where there is no library (FSDP_CUDNN_LIBRARY, else libcudnn.so.9).
 */
#include <stdio.h>
#include <string.h>

#include "shard_runtime/cuda/cudnn_attention.h"
#include "shard_runtime/cuda/cudnn_library.h"
#include "shard_runtime/cuda/cudnn_plan.h"
#include "shard_runtime/cuda/ignored.h"
#include "shard_runtime/numerics/cuda_plan_attention.h"
#include "shard_runtime/numerics/cuda_shapes.h"
#include "tests/support/oracles/operations.h"

static const struct cudnn_api *api;
static int n_failed;

static void check(bool good, const char *name, const char *words)
{
    printf("%s - cuDNN %zu: %s%s%s\n", good ? "ok" : "not ok", api->GetVersion(), name, good ? "" : ": ",
           good ? "" : words);
    n_failed += !good;
}

/* GPUs that are not here */

/* Limits by CUDA's programming guide, the rest by NVIDIA's data sheets. */
static const struct gpu {
    const char *name;
    int version, n_processors, shared_bytes, sm_khz, memory_khz, l2_bytes;
    long long memory_bytes;
} gpus[] = {
    { "A100-SXM4-80GB", 800, 108, 163 << 10, 1410000, 1593000, 40 << 20, 85899345920ll },
    { "H100 80GB HBM3", 900, 132, 227 << 10, 1980000, 2619000, 50 << 20, 85899345920ll },
};
enum { N_GPUS = sizeof gpus / sizeof *gpus };

static cudnn_descriptor describe(const struct gpu *gpu)
{
    char json[1200];
    cudnn_descriptor made = NULL;
    const int n = snprintf(
        json, sizeof json,
        "{\"deviceName\": \"%s\", \"deviceVer\": %d, \"multiProcessorCount\": %d, \"smClockRateKHz\": %d, "
        "\"memClockRateKHz\": %d, \"l2CacheSize\": %d, \"totalGlobalMem\": %lld, "
        "\"maxSharedMemoryPerBlock\": 49152, "
        "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, \"regsPerBlock\": "
        "65536, "
        "\"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "
        "\"maxThreadsPerSM\": 2048, "
        "\"maxBlockSize\": [1024, 1024, 64], \"maxGridSize\": [2147483647, 65535, 65535], \"warpSize\": 32, "
        "\"supportCoopLaunch\": 1, \"isTccDriver\": 0, \"pciDeviceId\": 0, \"cudaDeviceId\": 0, "
        "\"driverVer\": 13000}",
        gpu->name, gpu->version, gpu->n_processors, gpu->sm_khz, gpu->memory_khz, gpu->l2_bytes,
        gpu->memory_bytes, gpu->shared_bytes);

    if (api->BackendCreateDescriptor(CUDNN_DEVICE, &made) == CUDNN_OK &&
        api->BackendSetAttribute(made, CUDNN_ATTR_DEVICE_JSON, CUDNN_KIND_CHAR, n, json) == CUDNN_OK &&
        api->BackendFinalize(made) == CUDNN_OK)
        return made;
    if (made != NULL)
        IGNORED(cudnnBackendDestroyDescriptor, api->BackendDestroyDescriptor(made));
    return NULL;
}

/* What is asked */

static struct fused_attention_desc desc_of(size_t batch, size_t seq, size_t heads, size_t head_dim,
                                           bool causal, bool packed)
{
    return op_attention((struct attention_desc){ batch, seq, heads, head_dim, causal }, FSDP_BF16,
                        (packed ? 3 : 1) * heads * head_dim);
}

static size_t planned(const struct fused_attention_desc *desc, bool backward)
{
    return backward ? cuda_cudnn_backward_bytes(&desc->shape) : cuda_cudnn_forward_bytes(&desc->shape);
}

static void try_graph(const struct gpu *gpu, cudnn_descriptor device, const struct fused_attention_desc *desc,
                      bool backward)
{
    const struct cudnn_target target = { .api = api, .device = device };
    struct fsdp_err err = { 0 };
    struct cudnn_graph graph;
    struct cudnn_plan *plan;
    char name[200];
    enum fsdp_status status;

    (backward ? cudnn_attention_backward : cudnn_attention_forward)(desc, &graph);
    status = cudnn_plan_create(&target, &graph, planned(desc, backward) - graph.scratch_bytes, &plan, &err);
    snprintf(name, sizeof name, "%s, %s of (%zu, %zu, %zu, %zu)%s%s", gpu->name,
             backward ? "backward" : "forward", desc->shape.batch, desc->shape.seq, desc->shape.heads,
             desc->shape.head_dim, desc->shape.causal ? ", causal" : "",
             desc->q_stride > desc->out_stride ? ", packed" : "");
    check(status == FSDP_OK, name, err.message);
    if (status == FSDP_OK)
        printf("# engine %lld, workspace %zu of %zu bytes\n", (long long)plan->engine, plan->workspace_bytes,
               planned(desc, backward) - graph.scratch_bytes);
    cudnn_plan_destroy(plan);
}

/* What the library's yes is worth: graphs that are no attention */

/* A mask turned the other way, or logarithms in bfloat16, it takes: cuda_cudnn.c has those. */

static struct cudnn_node *find_node(struct cudnn_graph *graph, enum cudnn_work work, int mode)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].work == work && graph->nodes[i].mode == mode)
            return &graph->nodes[i];
    return NULL;
}

static const char *const faults[] = { "sums where the largest is wanted", "no exponentials",
                                      "shapes that do not meet", "v where k belongs" };

static void plant(struct cudnn_graph *graph, size_t fault)
{
    switch (fault) {
    case 0:
        find_node(graph, CUDNN_DO_REDUCTION, CUDNN_LARGEST)->mode = CUDNN_SUM;
        break;
    case 1:
        find_node(graph, CUDNN_DO_POINTWISE, CUDNN_EXP)->mode = CUDNN_IDENTITY;
        break;
    case 2:
        graph->tensors[0].dims[3] += 8;
        break;
    default:
        find_node(graph, CUDNN_DO_MATMUL, 0)->b = 2; /* v as it is stored, not turned */
        break;
    }
}

static void try_faults(const struct gpu *gpu, cudnn_descriptor device)
{
    const struct cudnn_target target = { .api = api, .device = device };
    const struct fused_attention_desc desc = desc_of(2, 256, 3, 64, true, false);

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct fsdp_err err = { 0 };
        struct cudnn_graph graph;
        struct cudnn_plan *plan;
        char name[120];

        cudnn_attention_forward(&desc, &graph);
        plant(&graph, i);
        snprintf(name, sizeof name, "%s: refused: %s", gpu->name, faults[i]);
        check(cudnn_plan_create(&target, &graph, planned(&desc, false), &plan, &err) != FSDP_OK, name,
              "it was taken");
        printf("# %s\n", err.message);
        cudnn_plan_destroy(plan);
    }
}

int main(void)
{
    struct fsdp_err err = { 0 };

    if (cudnn_open_library(&api, &err) != FSDP_OK) {
        printf("skip - our graphs before cuDNN itself: %s\n", err.message);
        return 0;
    }
    for (int g = 0; g < N_GPUS; g++) {
        const cudnn_descriptor device = describe(&gpus[g]);
        /* GPT-2's presets at 1024, and the corners of what is asked of it. */
        const struct fused_attention_desc all[] = {
            desc_of(16, 1024, 12, 64, true, true), desc_of(2, 2048, 16, 128, true, false),
            desc_of(2, 65, 3, 64, true, true),     desc_of(2, 200, 3, 8, true, false),
            desc_of(1, 127, 2, 104, true, true),   desc_of(2, 512, 4, 64, false, true),
        };

        check(device != NULL, gpus[g].name, "its description is refused");
        if (device == NULL)
            continue;
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            try_graph(&gpus[g], device, &all[i], false);
            try_graph(&gpus[g], device, &all[i], true);
        }
        if (g == 1)
            try_faults(&gpus[g], device);
        IGNORED(cudnnBackendDestroyDescriptor, api->BackendDestroyDescriptor(device));
    }
    return n_failed > 0;
}
