/*
 * libfsdp: fully sharded data parallel training in C. Include this one header.
 *
 * A training program is: a context (which rank of which world am I), a module tree, fsdp_fully_shard()
 * applied to it bottom-up, a model (the tree turned once into a plan, with all of its memory), an optimizer,
 * and a loop of fsdp_model_forward_backward(), fsdp_clip_grad_norm(), fsdp_optimizer_step(). docs/c-api.md
 * walks through it; shard_runtime/examples/ has a complete one.
 *
 * Threads: everything is called from the thread that created the context. Failures: <fsdp/status.h>.
 */
#ifndef FSDP_FSDP_H
#define FSDP_FSDP_H

#include <fsdp/activation_checkpoint.h>
#include <fsdp/checkpoint.h>
#include <fsdp/comm.h>
#include <fsdp/context.h>
#include <fsdp/dtype.h>
#include <fsdp/forecast.h>
#include <fsdp/fully_shard.h>
#include <fsdp/mesh.h>
#include <fsdp/model.h>
#include <fsdp/module.h>
#include <fsdp/nn.h>
#include <fsdp/optimizer.h>
#include <fsdp/state_dict.h>
#include <fsdp/status.h>
#include <fsdp/tensor_parallel.h>
#include <fsdp/unshard.h>

#endif
