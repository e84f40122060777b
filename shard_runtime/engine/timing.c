#include "shard_runtime/engine/timing.h"

#include <stdio.h>

enum { NAME_BYTES = 96 };

/*
 * Name an entry: "forward add + layer_norm" lists the operations of one pass, "forward again" runs for
 * backward. Entries of groups, and the loss, have the name of their kind.
 */
static void name_entry(const struct plan *plan, const struct plan_entry *e, char name[NAME_BYTES])
{
    const char *kind = plan_runs_again(e) ? "forward again" : plan_entry_name(e->kind);

    if (!plan_is_operation(e))
        snprintf(name, NAME_BYTES, "%s", kind);
    else if (e->op.with_next)
        snprintf(name, NAME_BYTES, "%s %s + %s", kind, plan->graph->ops[e->index]->kind->name,
                 plan->graph->ops[e[1].index]->kind->name);
    else
        snprintf(name, NAME_BYTES, "%s %s", kind, plan->graph->ops[e->index]->kind->name);
}

void timing_begin_step(struct fsdp_context *context)
{
    if (context->device.timed)
        context->device.ops->begin_step(&context->device);
}

bool timing_begin_entry(struct fsdp_context *context, const struct plan *plan, const struct plan_entry *entry)
{
    char name[NAME_BYTES];
    uint64_t size_bytes;

    if (!context->device.timed)
        return false;
    size_bytes = plan_entry_bytes(plan, entry);
    if (size_bytes == 0)
        return false;
    name_entry(plan, entry, name);
    context->device.ops->begin_span(context->streams[entry->stream], name, size_bytes);
    return true;
}

bool timing_begin(struct fsdp_context *context, const char *name, uint64_t size_bytes)
{
    if (context->device.timed)
        context->device.ops->begin_span(context->streams[PLAN_COMPUTE], name, size_bytes);
    return context->device.timed;
}

void timing_end(struct fsdp_context *context, enum plan_stream stream)
{
    context->device.ops->end_span(context->streams[stream]);
}
