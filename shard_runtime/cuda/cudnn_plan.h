/*
 * A graph as the library takes it: descriptors, an engine that serves it within a bound of workspace, and its
 * runs. A plan is made once for each shape and run many times.
 */
#ifndef CUDA_CUDNN_PLAN_H
#define CUDA_CUDNN_PLAN_H

#include <fsdp/status.h>

#include "shard_runtime/cuda/cudnn_graph.h"

enum {
    CUDNN_MAX_CONFIGS = 16,
    CUDNN_MAX_MADE = CUDNN_MAX_TENSORS + 2 * CUDNN_MAX_NODES + 2 * CUDNN_MAX_CONFIGS + 4
};

/*
 * What a plan is made for: the device of a handle or, without a GPU, the description of a device
 * (CUDNN_DEVICE). One of the two is set.
 */
struct cudnn_target {
    const struct cudnn_api *api;
    struct cudnn_handle *handle;
    cudnn_descriptor device;
};

struct cudnn_plan {
    struct cudnn_target target;
    struct cudnn_graph graph;
    cudnn_descriptor made[CUDNN_MAX_MADE]; /* every descriptor that was made, in order */
    int n_made;
    cudnn_descriptor plan;  /* one of the descriptors above */
    size_t workspace_bytes; /* the engine's own workspace, after the graph's scratch */
    int64_t engine;         /* cuDNN's number of the engine; -1: not known */
    /* engines that were offered before this one, and refused or wanted more workspace */
    int n_refused;
};

/**
 * Make a plan with the first engine that heuristics offer and that takes the graph with at most
 * `workspace_bytes`.
 *   FSDP_ERR_UNSUPPORTED  no engine does; the words are the library's for the last refusal
 *   FSDP_ERR_NOMEM, FSDP_ERR_DEVICE  the search ended there
 * After a failure nothing is left to destroy.
 */
enum fsdp_status cudnn_plan_create(const struct cudnn_target *target, const struct cudnn_graph *graph,
                                   size_t workspace_bytes, struct cudnn_plan **out, struct fsdp_err *err);
void cudnn_plan_destroy(struct cudnn_plan *plan);

/**
 * Queue a run on the handle's stream.
 *   memory   the caller's pointers, by slot
 *   scratch  graph.scratch_bytes + workspace_bytes, aligned to 64; tensors that an engine adds to must be
 *   zeros
 */
enum fsdp_status cudnn_plan_run(struct cudnn_plan *plan, const void *const *memory, void *scratch,
                                struct fsdp_err *err);

/**
 * Turn a status of the library into ours: FSDP_ERR_UNSUPPORTED for a refusal, FSDP_ERR_NOMEM for memory,
 * FSDP_ERR_DEVICE for a launch. The words name the call, the library's word for the status, and what it adds.
 */
enum fsdp_status cudnn_status(const struct cudnn_api *api, int status, const char *call,
                              struct fsdp_err *err);

#endif
