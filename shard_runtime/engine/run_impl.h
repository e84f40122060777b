/*
 * What the files that run a program share:
 *   run.c            the loop over the entries, threads, waiting and failures; owns struct runner
 *   run_operation.c  entries of operations and the loss
 *   run_group.c      entries of groups: copies, gathers, reductions, hooks
 */
#ifndef ENGINE_RUN_IMPL_H
#define ENGINE_RUN_IMPL_H

#include <stdatomic.h>

#include "shard_runtime/engine/model.h"

/** One call of program_run(). Both threads read it; run.c alone writes it. */
struct runner {
    struct program *program;
    struct fsdp_model *model;
    const struct program_input *in;
    struct fsdp_context *context;
    _Atomic bool failed;     /* an entry of this rank failed, on either thread */
    struct fsdp_err failure; /* the first failure, with its status; read when both threads are done */
    _Atomic bool
        /*
         * this rank leaves its groups because of `failure`, and tells the reason to the ranks that wait for
         * it
         */
        leaves;
};

/** The address of a buffer of the plan; NULL if `buffer` is -1. */
static inline void *run_at(const struct runner *r, int buffer)
{
    return buffer < 0 ? NULL : r->program->arena + r->program->plan.buffers[buffer].offset;
}

static inline struct device_stream *run_stream(const struct runner *r, const struct plan_entry *e)
{
    return r->context->streams[e->stream];
}

/** The number in the step of the micro-step that the entry belongs to. */
static inline size_t run_micro(const struct runner *r, const struct plan_entry *e)
{
    return r->in->micro + (size_t)e->backward;
}

/*
 * One function for each kind of entry. Each queues the entry's work on the entry's stream, whose waits are
 * queued already. A failure leaves the outputs of the entry undefined.
 */
typedef enum fsdp_status run_fn(const struct runner *r, const struct plan_entry *e, struct fsdp_err *err);

run_fn run_forward, run_loss, run_backward;
run_fn run_copy_in, run_copy_sum_in, run_amax, run_gather, run_unpack, run_slice;
run_fn run_pack, run_reduce, run_all_reduce, run_store, run_copy_out, run_complete;

/**
 * After a failure, in place of run_unpack(): drops the parameters that the user gathered by hand for it. The
 * group's next gather is then a collective again, as it is on the other ranks.
 */
void run_skip_unpack(const struct runner *r, const struct plan_entry *e);

#endif
