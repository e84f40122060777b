#include "shard_runtime/plan/traffic.h"

/* How many of a step's micro-steps the entry takes part in. */
static uint64_t times(const struct plan_entry *entry, uint64_t n_micro)
{
    return entry->when == PLAN_ALWAYS ? n_micro : 1;
}

/* A gather or a scatter of a buffer of equal rows: all of it but one row goes over the wire. */
static void count(struct plan_collectives *collectives, const struct plan *plan, int buffer, int n_rows,
                  uint64_t n)
{
    const uint64_t row_bytes = plan->buffers[buffer].size_bytes / (uint64_t)n_rows;

    if (n_rows == 1)
        return; /* of codes: made, and sent to nobody */
    collectives->n_calls += n;
    collectives->sent_bytes += n * row_bytes * (uint64_t)(n_rows - 1);
}

/* A row in its dtype of reduction, or gradient shards, over R replicas: a scatter and a gather of it. */
static void count_all_reduce(struct plan_collectives *collectives, const struct plan *plan,
                             const struct plan_entry *entry, uint64_t n)
{
    const struct plan_group *group = &plan->groups[entry->index];
    const uint64_t R = (uint64_t)group->R;
    const uint64_t bytes =
        group->grad_row_elems * (entry->packed >= 0 ? fsdp_dtype_size(group->reduce_dtype) : sizeof(float));

    collectives->n_calls += n;
    collectives->sent_bytes += n * 2 * bytes * (R - 1) / R;
}

/* A float a coded parameter, over the ranks that shard and, where one is split, over the tensor group. */
static void count_amax(struct plan_collectives *collectives, const struct plan *plan,
                       const struct plan_entry *entry, uint64_t n)
{
    const struct plan_group *group = &plan->groups[entry->index];
    const int over[2] = { group->W, group->amax_parts };

    for (int i = 0; i < 2; i++) {
        const uint64_t size = (uint64_t)over[i], bytes = (uint64_t)group->n_coded * sizeof(float);

        if (size == 1)
            continue;
        collectives->n_calls += n;
        collectives->sent_bytes += n * 2 * bytes * (size - 1) / size;
    }
}

/* An operation that is an all-reduce over its tensor group, of a value or of its gradient, which has the value's bytes. */
static void count_operation(struct plan_collectives *collectives, const struct plan *plan,
                            const struct plan_entry *entry, uint64_t n)
{
    const struct graph_op *op = plan->graph->ops[entry->index];
    const uint64_t T = (uint64_t)op->attrs.n_parts;

    if (!(entry->kind == PLAN_FORWARD ? op->kind->reduces_output : op->kind->reduces_grad))
        return;
    collectives->n_calls += n;
    collectives->sent_bytes += n * 2 * graph_value_bytes(op->output) * (T - 1) / T;
}

void plan_count_traffic(const struct plan *plan, uint64_t n_micro, struct plan_traffic *traffic)
{
    *traffic = (struct plan_traffic){ 0 };
    for (int i = 0; i < plan->n_entries; i++) {
        const struct plan_entry *entry = &plan->entries[i];

        switch (entry->kind) {
        case PLAN_AMAX:
            count_amax(&traffic->all_reduce, plan, entry, times(entry, n_micro));
            break;
        case PLAN_GATHER:
            count(&traffic->all_gather, plan, entry->gathered, entry->k, times(entry, n_micro));
            break;
        case PLAN_REDUCE:
            count(&traffic->reduce_scatter, plan, entry->packed, plan->groups[entry->index].W,
                  times(entry, n_micro));
            break;
        case PLAN_ALL_REDUCE:
            count_all_reduce(&traffic->all_reduce, plan, entry, times(entry, n_micro));
            break;
        case PLAN_FORWARD:
        case PLAN_BACKWARD:
            count_operation(&traffic->all_reduce, plan, entry, times(entry, n_micro));
            break;
        case PLAN_COPY_IN:
        case PLAN_COPY_OUT:
        case PLAN_UNPACK:
        case PLAN_SLICE:
        case PLAN_RESHARD:
        case PLAN_LOSS:
        case PLAN_PACK:
        case PLAN_STORE:
        case PLAN_COMPLETE:
            break;
        }
    }
}
