/*
 * libfsdp: fully sharded data parallel training in C. Include this one header.
 *
 * A training program is: a context (which rank of which world am I), a module tree, fsdp_fully_shard()
 * applied to it bottom-up, a model (the tree turned once into a plan, with all of its memory), an optimizer,
 * and a loop of fsdp_model_forward_backward(), fsdp_clip_grad_norm(), fsdp_optimizer_step(). docs/c-api.md
 * walks through it; shard_runtime/examples/ has a complete one.
 *
 * Threads: everything is called from the thread that created the context, but for fsdp_context_beat(), fsdp_context_event() and
 * fsdp_context_poll_notice(), which any thread may call at any time. A collective called on another thread is refused
 * (FSDP_ERR_ARG). A model may have a second thread of its own (fsdp_model_options.overlap): it communicates while a step or an
 * fsdp_module_unshard() is under way. The library's own calls wait for it, those of another model of the context included.
 * Several models may share a context. Failures: <fsdp/status.h>.
 *
 * Collective functions: all ranks call them, in the same order. If one rank alone fails in one (a bad argument, no memory, a file
 * that it cannot read), the call ends on every rank with the status of the lowest rank that failed. The failed rank keeps its
 * words; every other rank gets "rank R: " and those words. The process groups stay sound: the ranks may go on together, with the
 * same call or another. Exceptions:
 *   - FSDP_ERR_DEVICE, and a process group that is broken or could not be opened (FSDP_ERR_PEER, FSDP_ERR_MISMATCH of a
 *     collective): the context is of no more use, and the rank should end; the others are told by that.
 *   - An object that was never made (a NULL context, model or mesh), and a NULL place of a result (out, loss, norm, report),
 *     reach no other rank.
 *   - The collectives of <fsdp/comm.h> report a bad argument to the rank that gave it, and to no other.
 *
 * NULL: a pointer argument must be given unless its function says what NULL means. Functions that return a status refuse
 * NULL with FSDP_ERR_ARG and "FUNCTION: ARGUMENT is NULL". Destroying NULL is a no-op, and so are other void functions
 * of NULL. What returns a value returns that of an empty object: 0, false, "" or NULL; of a NULL context, or process
 * group, rank 0 of 1, alone, and resume step -1. A constructor of modules, or an operation, of NULL returns NULL
 * (<fsdp/module.h>).
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
