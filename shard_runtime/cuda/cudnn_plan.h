/*
 * A graph as the library takes it: descriptors, an engine that serves it within a bound of workspace, and its runs. Made once
 * for each shape, run many times.
 */
#ifndef CUDA_CUDNN_PLAN_H
#define CUDA_CUDNN_PLAN_H

#include <fsdp/status.h>

#include "shard_runtime/cuda/cudnn_graph.h"

enum {
    CUDNN_MAX_CONFIGS = 16,
    CUDNN_MAX_MADE = CUDNN_MAX_TENSORS + 2 * CUDNN_MAX_NODES + 2 * CUDNN_MAX_CONFIGS + 4
};

/* What a plan is made for: a handle's device, or, where no GPU is, the description of one (CUDNN_DEVICE). One is set. */
struct cudnn_target {
    const struct cudnn_api *api;
    struct cudnn_handle *handle;
    cudnn_descriptor device;
};

struct cudnn_plan {
    struct cudnn_target target;
    struct cudnn_graph graph;
    cudnn_descriptor made[CUDNN_MAX_MADE]; /* all that the library was asked for, in order */
    int n_made;
    cudnn_descriptor plan;  /* one of them */
    size_t workspace_bytes; /* the engine's own, behind the graph's scratch */
    int64_t engine;         /* its number among cuDNN's; -1: not told */
    int n_refused;          /* engines offered before it that refused, or wanted more workspace */
};

/**
 * The first engine that heuristics offer and that takes the graph with at most `workspace_bytes`. FSDP_ERR_UNSUPPORTED: there is none,
 * with the library's words for the last refusal; FSDP_ERR_NOMEM, FSDP_ERR_DEVICE: no engine is asked behind that. Whatever failed,
 * nothing is left behind.
 */
enum fsdp_status cudnn_plan_create(const struct cudnn_target *target, const struct cudnn_graph *graph,
                                   size_t workspace_bytes, struct cudnn_plan **out, struct fsdp_err *err);
void cudnn_plan_destroy(struct cudnn_plan *plan);

/**
 * Queue it on the handle's stream. memory: by slot. scratch: graph.scratch_bytes + workspace_bytes, aligned to 64; tensors of the graph that
 * add are zeros there.
 */
enum fsdp_status cudnn_plan_run(struct cudnn_plan *plan, void *const *memory, void *scratch,
                                struct fsdp_err *err);

/** FSDP_OK, or the call, the library's word for the status, and what it says beside: FSDP_ERR_UNSUPPORTED; of memory FSDP_ERR_NOMEM, of a
 * launch FSDP_ERR_DEVICE. */
enum fsdp_status cudnn_status(const struct cudnn_api *api, int status, const char *call,
                              struct fsdp_err *err);

#endif
