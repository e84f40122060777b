/*
 * Finds the parameters that backward reaches: those of the operations between a result and any parameter that
 * learns. It walks from the last operation to the first.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/plan.h"

enum fsdp_status plan_find_reached(const struct plan *plan, bool *reached, struct fsdp_err *err)
{
    const struct graph *graph = plan->graph;
    bool *flows = alloc_array(graph->n_values, sizeof *flows); /* does the loss depend on this value? */

    if (flows == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory");
    for (size_t f = 0; f < graph->n_forwards; f++)
        flows[graph->forwards[f].result->id] = true;
    for (size_t o = graph->n_ops; o-- > 0;) {
        const struct graph_op *op = graph->ops[o];

        if (!flows[op->output->id] || !op->output->needs_grad)
            continue;
        for (int i = 0; i < op->n_inputs; i++)
            if (op->kind->grad[i] != GRAPH_GRAD_NONE)
                flows[op->inputs[i]->id] = true;
        for (int i = 0; i < op->n_params; i++)
            if (!op->params[i]->frozen)
                reached[plan_param_index(plan, op->params[i])] = true;
    }
    free(flows);
    return FSDP_OK;
}
