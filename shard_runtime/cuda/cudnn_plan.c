#include "shard_runtime/cuda/cudnn_plan.h"

#include <stdlib.h>

#include "shard_runtime/cuda/ignored.h"

enum { WORDS_BYTES = 200 };

/* After a refusal the next engine is tried, or our kernels. After these failures it is not. */
static enum fsdp_status kind_of(int status)
{
    if (status == CUDNN_NO_HOST_MEMORY || status == CUDNN_NO_DEVICE_MEMORY)
        return FSDP_ERR_NOMEM;
    return status >= CUDNN_FAILED_EXECUTION ? FSDP_ERR_DEVICE : FSDP_ERR_UNSUPPORTED;
}

enum fsdp_status cudnn_status(const struct cudnn_api *api, int status, const char *call, struct fsdp_err *err)
{
    char words[WORDS_BYTES] = "";

    if (status == CUDNN_OK)
        return FSDP_OK;
    api->GetLastErrorString(words, sizeof words);
    words[sizeof words - 1] = '\0';
    return fsdp_fail(err, kind_of(status), "%s: %s%s%s", call, api->GetErrorString(status),
                     words[0] != '\0' ? ": " : "", words);
}

/* The descriptors that are being made. After the first failure every further step does nothing. */
struct making {
    struct cudnn_plan *plan;
    enum fsdp_status status;
    struct fsdp_err *err;
};

static const struct cudnn_api *api_of(const struct making *making)
{
    return making->plan->target.api;
}

/* A call of the library, unless one has failed. */
#define MAKE(making, function, ...)                                                                          \
    ((making)->status == FSDP_OK                                                                             \
         ? (making)->status = cudnn_status(api_of(making), api_of(making)->function(__VA_ARGS__),            \
                                           "cudnn" #function, (making)->err)                                 \
         : (making)->status)

static cudnn_descriptor create(struct making *making, enum cudnn_object object)
{
    struct cudnn_plan *plan = making->plan;
    cudnn_descriptor made = NULL;

    if (making->status != FSDP_OK)
        return NULL;
    if (plan->n_made == CUDNN_MAX_MADE) {
        making->status = fsdp_fail(making->err, FSDP_ERR_UNSUPPORTED, "a graph of more than %d descriptors",
                                   CUDNN_MAX_MADE);
        return NULL;
    }
    if (MAKE(making, BackendCreateDescriptor, object, &made) != FSDP_OK)
        return NULL;
    plan->made[plan->n_made++] = made;
    return made;
}

static void set(struct making *making, cudnn_descriptor of, enum cudnn_attribute name, enum cudnn_kind kind,
                int64_t n_elems, const void *elems)
{
    (void)MAKE(making, BackendSetAttribute, of, name, kind, n_elems, elems);
}

static void set_descriptor(struct making *making, cudnn_descriptor of, enum cudnn_attribute name,
                           const cudnn_descriptor *descriptor)
{
    set(making, of, name, CUDNN_KIND_DESCRIPTOR, 1, descriptor);
}

static void finalize(struct making *making, cudnn_descriptor descriptor)
{
    (void)MAKE(making, BackendFinalize, descriptor);
}

static cudnn_descriptor make_tensor(struct making *making, const struct cudnn_tensor *tensor, int64_t uid)
{
    const cudnn_descriptor made = create(making, CUDNN_TENSOR);
    const int64_t alignment = tensor->place == CUDNN_VALUE ? (int64_t)sizeof(float) : CUDNN_ALIGN_BYTES;
    const bool within = tensor->place == CUDNN_WITHIN, by_value = tensor->place == CUDNN_VALUE;

    set(making, made, CUDNN_ATTR_DATA, CUDNN_KIND_DATA, 1, &tensor->data);
    set(making, made, CUDNN_ATTR_DIMENSIONS, CUDNN_KIND_I64, CUDNN_DIMS, tensor->dims);
    set(making, made, CUDNN_ATTR_STRIDES, CUDNN_KIND_I64, CUDNN_DIMS, tensor->strides);
    set(making, made, CUDNN_ATTR_UID, CUDNN_KIND_I64, 1, &uid);
    set(making, made, CUDNN_ATTR_ALIGNMENT, CUDNN_KIND_I64, 1, &alignment);
    set(making, made, CUDNN_ATTR_VIRTUAL, CUDNN_KIND_BOOL, 1, &within);
    set(making, made, CUDNN_ATTR_BY_VALUE, CUDNN_KIND_BOOL, 1, &by_value);
    finalize(making, made);
    return made;
}

/* The attributes of an operation by its work, and of the descriptor that says how it is computed; 0: none. */
static const struct {
    enum cudnn_object how, op;
    enum cudnn_kind mode_kind;
    enum cudnn_attribute precision, desc, x, b, t, y;
} works[] = {
    [CUDNN_DO_POINTWISE] = { CUDNN_POINTWISE, CUDNN_OP_POINTWISE, CUDNN_KIND_POINTWISE, CUDNN_ATTR_PRECISION,
                             CUDNN_ATTR_POINTWISE_DESC, CUDNN_ATTR_POINTWISE_X, CUDNN_ATTR_POINTWISE_B,
                             CUDNN_ATTR_POINTWISE_T, CUDNN_ATTR_POINTWISE_Y },
    [CUDNN_DO_MATMUL] = { CUDNN_MATMUL, CUDNN_OP_MATMUL, 0, CUDNN_ATTR_MATMUL_PRECISION,
                          CUDNN_ATTR_MATMUL_DESC, CUDNN_ATTR_MATMUL_A, CUDNN_ATTR_MATMUL_B, 0,
                          CUDNN_ATTR_MATMUL_C },
    [CUDNN_DO_REDUCTION] = { CUDNN_REDUCTION, CUDNN_OP_REDUCTION, CUDNN_KIND_REDUCTION,
                             CUDNN_ATTR_REDUCTION_PRECISION, CUDNN_ATTR_REDUCTION_DESC,
                             CUDNN_ATTR_REDUCTION_X, 0, 0, CUDNN_ATTR_REDUCTION_Y },
    [CUDNN_DO_RESHAPE] = { 0, CUDNN_OP_RESHAPE, 0, 0, 0, CUDNN_ATTR_RESHAPE_X, 0, 0, CUDNN_ATTR_RESHAPE_Y },
};

static cudnn_descriptor make_how(struct making *making, const struct cudnn_node *node)
{
    const cudnn_descriptor how = create(making, works[node->work].how);
    const bool reduces = node->work == CUDNN_DO_REDUCTION;
    const int64_t axis = node->axis;

    if (node->work != CUDNN_DO_MATMUL)
        set(making, how, reduces ? CUDNN_ATTR_REDUCTION_MODE : CUDNN_ATTR_MODE, works[node->work].mode_kind,
            1, &node->mode);
    set(making, how, works[node->work].precision, CUDNN_KIND_DATA, 1, &node->precision);
    if (node->work == CUDNN_DO_POINTWISE && node->mode == CUDNN_INDEX)
        set(making, how, CUDNN_ATTR_AXIS, CUDNN_KIND_I64, 1, &axis);
    finalize(making, how);
    return how;
}

static cudnn_descriptor make_node(struct making *making, const struct cudnn_node *node,
                                  const cudnn_descriptor *tensors)
{
    const enum cudnn_attribute names[] = { works[node->work].x, works[node->work].b, works[node->work].t,
                                           works[node->work].y };
    const int places[] = { node->x, node->b, node->t, node->y };
    const cudnn_descriptor how = node->work != CUDNN_DO_RESHAPE ? make_how(making, node) : NULL;
    const cudnn_descriptor made = create(making, works[node->work].op);

    if (node->work != CUDNN_DO_RESHAPE)
        set_descriptor(making, made, works[node->work].desc, &how);
    for (int i = 0; i < 4; i++)
        if (names[i] != 0 && places[i] >= 0)
            set_descriptor(making, made, names[i], &tensors[places[i]]);
    finalize(making, made);
    return made;
}

static cudnn_descriptor make_graph(struct making *making)
{
    const struct cudnn_plan *plan = making->plan;
    cudnn_descriptor tensors[CUDNN_MAX_TENSORS], nodes[CUDNN_MAX_NODES], made;

    for (int i = 0; i < plan->graph.n_tensors; i++)
        tensors[i] = make_tensor(making, &plan->graph.tensors[i], i + 1);
    for (int i = 0; i < plan->graph.n_nodes; i++)
        nodes[i] = make_node(making, &plan->graph.nodes[i], tensors);
    made = create(making, CUDNN_OP_GRAPH);
    if (plan->target.handle != NULL)
        set(making, made, CUDNN_ATTR_GRAPH_HANDLE, CUDNN_KIND_HANDLE, 1, &plan->target.handle);
    set(making, made, CUDNN_ATTR_GRAPH_OPS, CUDNN_KIND_DESCRIPTOR, plan->graph.n_nodes, nodes);
    finalize(making, made);
    return made;
}

/* Ask a heuristic for configurations of engines, best first. That it has none is no failure. */
static int ask_heuristics(struct making *making, cudnn_descriptor graph, int mode,
                          cudnn_descriptor configs[CUDNN_MAX_CONFIGS])
{
    const struct cudnn_plan *plan = making->plan;
    const cudnn_descriptor heuristic = create(making, CUDNN_HEURISTIC);
    int64_t n_found = 0;

    set_descriptor(making, heuristic, CUDNN_ATTR_HEURISTIC_GRAPH, &graph);
    set(making, heuristic, CUDNN_ATTR_HEURISTIC_MODE, CUDNN_KIND_HEURISTIC, 1, &mode);
    if (plan->target.device != NULL)
        set_descriptor(making, heuristic, CUDNN_ATTR_HEURISTIC_DEVICE, &plan->target.device);
    finalize(making, heuristic);
    for (int i = 0; i < CUDNN_MAX_CONFIGS; i++)
        configs[i] = create(making, CUDNN_ENGINE_CONFIG);
    if (MAKE(making, BackendGetAttribute, heuristic, CUDNN_ATTR_HEURISTIC_RESULTS, CUDNN_KIND_DESCRIPTOR,
             CUDNN_MAX_CONFIGS, &n_found, configs) != FSDP_OK)
        return 0;
    return n_found < CUDNN_MAX_CONFIGS ? (int)n_found
                                       : CUDNN_MAX_CONFIGS; /* it may count more than it gives */
}

/* Destroy the descriptor that was made last. */
static void drop_last(struct cudnn_plan *plan)
{
    plan->n_made--;
    IGNORED(cudnnBackendDestroyDescriptor,
            plan->target.api->BackendDestroyDescriptor(plan->made[plan->n_made]));
}

/* Ask for the engine's number, for messages. No answer is no failure. */
static void ask_engine(struct making *making, cudnn_descriptor config)
{
    struct cudnn_plan *plan = making->plan;
    const struct cudnn_api *api = api_of(making);
    cudnn_descriptor engine = create(making, CUDNN_ENGINE);
    int64_t n = 0;

    plan->engine = -1;
    if (making->status == FSDP_OK &&
        api->BackendGetAttribute(config, CUDNN_ATTR_CONFIG_ENGINE, CUDNN_KIND_DESCRIPTOR, 1, &n, &engine) ==
            CUDNN_OK)
        IGNORED(cudnnBackendGetAttribute, api->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_INDEX,
                                                                   CUDNN_KIND_I64, 1, &n, &plan->engine));
}

/* Try one configuration. FSDP_OK: the plan uses it. If it refuses, the next one is tried. */
static enum fsdp_status try_config(struct cudnn_plan *plan, cudnn_descriptor config, size_t workspace_bytes,
                                   struct fsdp_err *err)
{
    struct making making = { .plan = plan, .status = FSDP_OK, .err = err };
    const int before = plan->n_made;
    const cudnn_descriptor made = create(&making, CUDNN_PLAN);
    int64_t wanted = 0, n = 0;

    if (plan->target.handle != NULL)
        set(&making, made, CUDNN_ATTR_PLAN_HANDLE, CUDNN_KIND_HANDLE, 1, &plan->target.handle);
    else
        set_descriptor(&making, made, CUDNN_ATTR_PLAN_DEVICE, &plan->target.device);
    set_descriptor(&making, made, CUDNN_ATTR_PLAN_CONFIG, &config);
    finalize(&making, made);
    if (MAKE(&making, BackendGetAttribute, made, CUDNN_ATTR_PLAN_WORKSPACE, CUDNN_KIND_I64, 1, &n, &wanted) ==
            FSDP_OK &&
        (wanted < 0 || (size_t)wanted > workspace_bytes))
        making.status =
            fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "an engine wants %lld bytes of workspace, %zu are planned",
                      (long long)wanted, workspace_bytes);
    if (making.status == FSDP_OK) {
        plan->plan = made;
        plan->workspace_bytes = (size_t)wanted;
        ask_engine(&making, config);
    }
    while (making.status != FSDP_OK && plan->n_made > before)
        drop_last(plan);
    return making.status;
}

/*
 * Find the first configuration of a heuristic that serves. FSDP_ERR_UNSUPPORTED: there is none, and the next
 * heuristic may be asked.
 */
static enum fsdp_status try_heuristic(struct cudnn_plan *plan, cudnn_descriptor graph, int mode,
                                      size_t workspace_bytes, struct fsdp_err *err)
{
    struct making making = { .plan = plan, .status = FSDP_OK, .err = err };
    cudnn_descriptor configs[CUDNN_MAX_CONFIGS];
    const int before = plan->n_made, n = ask_heuristics(&making, graph, mode, configs);
    enum fsdp_status status = making.status;

    if (status == FSDP_OK && n == 0)
        status = fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "no engine is offered for this graph");
    for (int i = 0; i < n; i++) {
        status = try_config(plan, configs[i], workspace_bytes, err);
        if (status != FSDP_ERR_UNSUPPORTED)
            break;
        plan->n_refused++;
    }
    while (status != FSDP_OK && plan->n_made > before)
        drop_last(plan);
    return status;
}

static enum fsdp_status make_plan(struct cudnn_plan *plan, size_t workspace_bytes, struct fsdp_err *err)
{
    struct making making = { .plan = plan, .status = FSDP_OK, .err = err };
    const cudnn_descriptor graph = make_graph(&making);
    enum fsdp_status status = making.status;

    if (status == FSDP_OK)
        status = try_heuristic(plan, graph, CUDNN_HEURISTIC_A, workspace_bytes, err);
    if (making.status == FSDP_OK && status == FSDP_ERR_UNSUPPORTED)
        status = try_heuristic(plan, graph, CUDNN_HEURISTIC_FALLBACK, workspace_bytes, err);
    return status;
}

enum fsdp_status cudnn_plan_create(const struct cudnn_target *target, const struct cudnn_graph *graph,
                                   size_t workspace_bytes, struct cudnn_plan **out, struct fsdp_err *err)
{
    struct cudnn_plan *plan = calloc(1, sizeof *plan);
    enum fsdp_status status;

    *out = NULL;
    if (plan == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a plan of cuDNN: out of memory");
    plan->target = *target;
    plan->graph = *graph;
    status = make_plan(plan, workspace_bytes, err);
    if (status != FSDP_OK) {
        cudnn_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return FSDP_OK;
}

void cudnn_plan_destroy(struct cudnn_plan *plan)
{
    if (plan == NULL)
        return;
    while (plan->n_made > 0)
        drop_last(plan);
    free(plan);
}

enum fsdp_status cudnn_plan_run(struct cudnn_plan *plan, const void *const *memory, void *scratch,
                                struct fsdp_err *err)
{
    struct making making = { .plan = plan, .status = FSDP_OK, .err = err };
    const int before = plan->n_made;
    int64_t uids[CUDNN_MAX_TENSORS], n = 0;
    const void *pointers[CUDNN_MAX_TENSORS], *workspace = (char *)scratch + plan->graph.scratch_bytes;
    cudnn_descriptor pack;

    for (int i = 0; i < plan->graph.n_tensors; i++) {
        struct cudnn_tensor *tensor = &plan->graph.tensors[i];

        if (tensor->place == CUDNN_WITHIN)
            continue;
        uids[n] = i + 1;
        pointers[n++] = tensor->place == CUDNN_MEMORY    ? memory[tensor->slot]
                        : tensor->place == CUDNN_SCRATCH ? (char *)scratch + tensor->offset
                                                         : (const void *)&tensor->value;
    }
    pack = create(&making, CUDNN_VARIANT_PACK);
    set(&making, pack, CUDNN_ATTR_PACK_UIDS, CUDNN_KIND_I64, n, uids);
    set(&making, pack, CUDNN_ATTR_PACK_POINTERS, CUDNN_KIND_POINTER, n, pointers);
    set(&making, pack, CUDNN_ATTR_PACK_WORKSPACE, CUDNN_KIND_POINTER, 1, &workspace);
    finalize(&making, pack);
    (void)MAKE(&making, BackendExecute, plan->target.handle, plan->plan, pack);
    while (plan->n_made > before)
        drop_last(plan);
    return making.status;
}
