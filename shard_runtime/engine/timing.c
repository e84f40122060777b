#include "shard_runtime/engine/timing.h"

#include <stdio.h>

enum { NAME_BYTES = 96 };

/* "forward add + layer_norm": the operations of one pass; "again": for backward's sake. Of a group, and the
 * loss, the kind of entry alone. */
static void name_entry(const struct plan *plan, const struct plan_entry *e, char name[NAME_BYTES])
{
    const char *kind = e->again ? "forward again" : plan_entry_name(e->kind);

    if (e->kind != PLAN_FORWARD && e->kind != PLAN_BACKWARD)
        snprintf(name, NAME_BYTES, "%s", kind);
    else if (e->with_next)
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
