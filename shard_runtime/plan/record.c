/*
 * Runs the root's forward on symbolic values. Modules call modules; units of sharding are entered and left;
 * regions that are computed again in backward begin and end.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/plan/graph.h"

/* the deepest nesting of modules; a forward that calls itself fails at this depth */
enum { MAX_DEPTH = 256 };

static bool enter_unit(struct graph *graph, const struct fsdp_module *unit)
{
    if (!alloc_room(&graph->visits, &graph->visits_room, graph->n_visits, sizeof *graph->visits) ||
        !alloc_room(&graph->open_visits, &graph->open_room, graph->n_open, sizeof *graph->open_visits)) {
        graph_nomem(graph);
        return false;
    }
    if (!graph_append_event(graph, GRAPH_ENTER, graph->n_visits))
        return false;
    graph->visits[graph->n_visits] =
        (struct graph_visit){ .unit = unit, .forward = (int)graph->n_forwards - 1 };
    graph->open_visits[graph->n_open++] = (int)graph->n_visits++;
    return true;
}

static bool leave_unit(struct graph *graph)
{
    return graph_append_event(graph, GRAPH_LEAVE, (size_t)graph->open_visits[--graph->n_open]);
}

/*
 * Begins a region if the module asks for one and none has begun. Sets *began to whether it did. Returns false
 * after a failure.
 */
static bool begin_region(struct graph *graph, const struct fsdp_module *module, bool *began)
{
    *began = graph->training && module->checkpoint != FSDP_CHECKPOINT_NONE && !graph->in_region;
    if (!*began)
        return true;
    if (!alloc_room(&graph->regions, &graph->regions_room, graph->n_regions, sizeof *graph->regions)) {
        graph_nomem(graph);
        return false;
    }
    graph->regions[graph->n_regions] =
        (struct graph_region){ .selective = module->checkpoint == FSDP_CHECKPOINT_SELECTIVE,
                               .first_event = graph->n_events };
    graph->in_region = true;
    return graph_append_event(graph, GRAPH_BEGIN, graph->n_regions++);
}

static bool end_region(struct graph *graph)
{
    graph->in_region = false;
    graph->regions[graph->n_regions - 1].last_event = graph->n_events;
    return graph_append_event(graph, GRAPH_END, graph->n_regions - 1);
}

bool graph_enter(struct graph *graph, const struct fsdp_module *module, bool *entered)
{
    *entered = false;
    if (module == NULL || !module->sharded)
        return true;
    for (size_t i = 0; i < graph->n_open; i++)
        if (graph->visits[graph->open_visits[i]].unit == module)
            return true;
    *entered = true;
    return enter_unit(graph, module);
}

bool graph_leave(struct graph *graph, bool entered)
{
    return !entered || leave_unit(graph);
}

/* Returns the unit's input, cast to the dtype that its policy asks for; NULL after a failure. */
static struct fsdp_value *cast_input(const struct fsdp_module *unit, struct fsdp_value *input)
{
    const struct fsdp_mixed_precision_policy *precision = &module_group(unit)->policy.precision;

    if (precision->param_dtype == FSDP_DTYPE_NONE || !precision->cast_forward_inputs ||
        !graph_is_float(input))
        return input;
    return fsdp_cast(input, (enum fsdp_dtype)precision->param_dtype);
}

/* Casts the unit's output to the dtype that its policy asks for; NULL after a failure. */
static struct fsdp_value *cast_output(const struct fsdp_module *unit, struct fsdp_value *output)
{
    const struct fsdp_mixed_precision_policy *precision = &module_group(unit)->policy.precision;

    return precision->output_dtype == FSDP_DTYPE_NONE || !graph_is_float(output)
               ? output
               : fsdp_cast(output, (enum fsdp_dtype)precision->output_dtype);
}

bool graph_has_tree_of(struct graph *graph, const struct fsdp_module *module)
{
    if (graph->n_modules == 0 || graph_module(graph)->root == module->root)
        return true;
    graph_fail(graph, FSDP_ERR_ARG, "\"%s\" of another tree is used in the forward of \"%s\"", module->path,
               graph_module(graph)->path);
    return false;
}

struct fsdp_value *fsdp_call(struct fsdp_module *module, struct fsdp_value *input)
{
    struct fsdp_value *output;
    struct graph *graph;
    bool in_region;
    int visit = -1;

    if (input == NULL || input->graph->err.status != FSDP_OK)
        return NULL;
    graph = input->graph;
    if (module == NULL)
        return graph_fail(graph, FSDP_ERR_ARG,
                          "a module that does not exist is called in the forward of \"%s\"",
                          graph->n_modules > 0 ? graph_module(graph)->path : "");
    if (!graph_has_tree_of(graph, module))
        return NULL;
    if (module->forward == NULL)
        return graph_fail(graph, FSDP_ERR_ARG, "\"%s\" is a container without a forward and cannot be called",
                          module->path);
    if (graph->n_modules >= MAX_DEPTH)
        return graph_fail(graph, FSDP_ERR_ARG, "\"%s\": modules call each other more than %d deep",
                          module->path, MAX_DEPTH);
    if (!alloc_room(&graph->modules, &graph->modules_room, graph->n_modules, sizeof(void *)))
        return graph_nomem(graph);
    if ((module->sharded && !enter_unit(graph, module)) || !begin_region(graph, module, &in_region))
        return NULL;
    graph->modules[graph->n_modules++] = module;
    if (module->sharded) {
        visit = graph->open_visits[graph->n_open - 1];
        graph->visits[visit].input = input;
        input = cast_input(module, input);
    }
    output = input != NULL ? module->forward(module, input, module->user) : NULL;
    if (output != NULL && module->sharded)
        output = cast_output(module, output);
    graph->n_modules--;
    if (output == NULL)
        return graph_fail(graph, FSDP_ERR_ARG, "the forward of \"%s\" gave nothing", module->path);
    if (visit >= 0)
        graph->visits[visit].output = output;
    if ((in_region && !end_region(graph)) || (module->sharded && !leave_unit(graph)))
        return NULL;
    return output;
}

/* Does any operation read the value? */
static bool is_read(const struct graph *graph, const struct fsdp_value *value)
{
    for (size_t i = 0; i < graph->n_ops; i++)
        for (int j = 0; j < graph->ops[i]->n_inputs; j++)
            if (graph->ops[i]->inputs[j] == value)
                return true;
    return false;
}

/*
 * Decides how logits are stored. Usually as float32: the last operation sums in float32 anyway, and if no
 * other operation reads its result, the result is not rounded. If it is a sum over ranks of the parts of a
 * product, the parts become float32 too. Exception: a device may ask for a `multiple` (struct graph_input). A
 * linear's result then stays bfloat16 in training, since every later pass over it moves half the bytes.
 * Without a bias its rows are padded as well; the gradient of a bias is a sum over adjacent rows.
 */
static void settle_result(struct graph *graph, struct fsdp_value *result, size_t multiple)
{
    const struct graph_op *producer;
    bool pads;

    if (result->producer < 0 || is_read(graph, result))
        return;
    producer = graph->ops[result->producer];
    pads = multiple > 0 && producer->kind->pads_output;
    if (pads && producer->n_params == 1)
        result->row_stride = round_up(result->features, multiple);
    if (result->dtype != FSDP_BF16 || (pads && graph->training))
        return;
    result->dtype = FSDP_F32;
    if (producer->kind->reduces_output)
        producer->inputs[0]->dtype = FSDP_F32;
}

/* Record one forward of the root, on an input of its own. */
static enum fsdp_status record_forward(struct graph *graph, struct fsdp_module *root,
                                       const struct graph_input *input, struct fsdp_err *err)
{
    struct graph_forward *forward;
    struct fsdp_value *result;

    if (!alloc_room(&graph->forwards, &graph->forwards_room, graph->n_forwards, sizeof *graph->forwards))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "recording the model: out of memory");
    forward = &graph->forwards[graph->n_forwards++];
    *forward = (struct graph_forward){ .first_event = graph->n_events, .first_op = graph->n_ops };
    forward->input = graph_new_value(graph, input->dtype, input->batch, input->seq, input->features, -1);
    result = forward->result = fsdp_call(root, forward->input);
    forward->end_event = graph->n_events;
    if (graph->err.status != FSDP_OK)
        return fsdp_fail(err, graph->err.status, "%s", graph->err.message);
    if (result->forward != (int)graph->n_forwards - 1)
        return fsdp_fail(err, FSDP_ERR_ARG, "the root's forward gives the result of an earlier one");
    if (result->n_parts > 1)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "of the root's result each of %d ranks has a part of the features: it must be whole",
                         result->n_parts);
    settle_result(graph, result, input->result_multiple);
    if (result->dtype == FSDP_BF16 && result->producer >= 0 && is_read(graph, result))
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "the root's result is bfloat16 and read inside the model too: cast it by fsdp_cast()");
    if (!graph_is_float(result) || result->producer < 0)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "the root's forward gives its input back: there is nothing to compute");
    return FSDP_OK;
}

enum fsdp_status graph_record(struct graph *graph, struct fsdp_module *root, const struct graph_input *input,
                              bool training, struct fsdp_err *err)
{
    const size_t n_forwards = input->n_forwards > 0 ? input->n_forwards : 1;

    *graph = (struct graph){ .training = training };
    if (module_check_ties(root, err) != FSDP_OK)
        return FSDP_ERR_ARG;
    for (size_t f = 0; f < n_forwards; f++)
        OK_OR_RETURN(record_forward(graph, root, input, err));
    graph->input = graph->forwards[0].input;
    graph->result = graph->forwards[0].result;
    return FSDP_OK;
}

void graph_fini(struct graph *graph)
{
    for (size_t i = 0; i < graph->n_ops; i++) {
        free(graph->ops[i]->name);
        free(graph->ops[i]);
    }
    for (size_t i = 0; i < graph->n_values; i++)
        free(graph->values[i]);
    free(graph->ops);
    free(graph->values);
    free(graph->visits);
    free(graph->events);
    free(graph->regions);
    free(graph->forwards);
    free(graph->modules);
    free(graph->open_visits);
    *graph = (struct graph){ 0 };
}
