/*
 * libfsdp: fully sharded data parallel training in C. Include this one header.
 *
 * A training program has these parts, in this order:
 *   1. a context: which rank of which world this process is
 *   2. a module tree, to which fsdp_fully_shard() is applied bottom-up
 *   3. a model: the tree turned into a plan once, with all of its memory
 *   4. an optimizer
 *   5. a loop of fsdp_model_forward_backward(), fsdp_clip_grad_norm() and fsdp_optimizer_step()
 * docs/c-api.md walks through it; shard_runtime/examples/ has a complete program.
 *
 * Threads: the thread that created the context makes all calls. Three functions may be called by any thread
 * at any time: fsdp_context_beat(), fsdp_context_event() and fsdp_context_poll_notice(). A collective on
 * another thread is refused (FSDP_ERR_ARG). A model may have a second thread of its own
 * (fsdp_model_options.overlap), which communicates while a step or an fsdp_module_unshard() is in progress.
 * The library's own calls wait for it, including those of another model of the context. Several models may
 * share a context.
 *
 * Failures: <fsdp/status.h>.
 *
 * Collective functions: all ranks call them, in the same order. One rank alone may fail in such a call, for
 * instance because of a bad argument, no memory, or a file that it cannot read. Then:
 *   1. The call ends on every rank with the status of the lowest rank that failed.
 *   2. The failed rank keeps its own message. Every other rank gets "rank R: " and that message.
 *   3. The process groups stay sound. The ranks may continue together, with the same call or another.
 * Exceptions:
 *   - After FSDP_ERR_DEVICE, or if a process group is broken or could not be opened, the context is useless
 *     and the rank should end. The latter is FSDP_ERR_PEER, or FSDP_ERR_MISMATCH of a collective. The other
 *     ranks learn of the failure from its end.
 *   - A NULL context, model or mesh, or a NULL place for a result (out, loss, norm, report), fails only on
 *     the rank that passed it. No other rank learns of it.
 *   - The collectives of <fsdp/comm.h> report a bad argument only to the rank that passed it.
 *
 * NULL: a pointer argument must not be NULL unless its function says what NULL means.
 *   - Functions that return a status return FSDP_ERR_ARG and "FUNCTION: ARGUMENT is NULL".
 *   - Void functions, such as destructors, do nothing.
 *   - Other functions return the value of an empty object: 0, false, "" or NULL. A NULL context or process
 *     group is rank 0 of 1, alone, with resume step -1.
 *   - Constructors of modules, and operations, return NULL (<fsdp/module.h>).
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
