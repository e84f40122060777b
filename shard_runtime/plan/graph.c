#include "shard_runtime/plan/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"

enum { MAX_DEPTH = 256 }; /* of modules calling modules: a forward that calls itself ends here */

struct fsdp_value *graph_fail(struct graph *graph, enum fsdp_status status, const char *format, ...)
{
    char words[FSDP_ERR_MESSAGE_BYTES];
    va_list arguments;

    if (graph->err.status == FSDP_OK) {
        va_start(arguments, format);
        vsnprintf(words, sizeof words, format, arguments);
        va_end(arguments);
        fsdp_fail(&graph->err, status, "%s", words);
    }
    return NULL;
}

static struct fsdp_value *nomem(struct graph *graph)
{
    return graph_fail(graph, FSDP_ERR_NOMEM, "recording the model: out of memory");
}

static struct fsdp_value *new_value(struct graph *graph, enum fsdp_dtype dtype, size_t batch, size_t seq,
                                    size_t features, int producer)
{
    struct fsdp_value *value;
    size_t bytes;

    if (!checked_mul(batch, seq, &bytes) || !checked_mul(bytes, features > 0 ? features : 1, &bytes) ||
        !checked_mul(bytes, 2 * fsdp_dtype_size(dtype), &bytes))
        return graph_fail(graph, FSDP_ERR_ARG, "a value of %zu x %zu x %zu elements does not fit", batch, seq,
                          features);
    if (!alloc_room(&graph->values, &graph->values_room, graph->n_values, sizeof(void *)))
        return nomem(graph);
    value = alloc_array(1, sizeof *value);
    if (value == NULL)
        return nomem(graph);
    *value = (struct fsdp_value){ .graph = graph,
                                  .id = (int)graph->n_values,
                                  .dtype = dtype,
                                  .batch = batch,
                                  .seq = seq,
                                  .features = features,
                                  .n_parts = 1,
                                  .producer = producer };
    graph->values[graph->n_values++] = value;
    return value;
}

static bool append_event(struct graph *graph, enum graph_event_kind kind, size_t index)
{
    if (!alloc_room(&graph->events, &graph->events_room, graph->n_events, sizeof *graph->events)) {
        nomem(graph);
        return false;
    }
    graph->events[graph->n_events++] = (struct graph_event){ .kind = kind, .index = (int)index };
    return true;
}

size_t graph_value_elems(const struct fsdp_value *value)
{
    return value->batch * value->seq * (value->features > 0 ? value->features : 1);
}

size_t graph_value_bytes(const struct fsdp_value *value)
{
    return graph_value_elems(value) * fsdp_dtype_size(value->dtype);
}

struct fsdp_module *graph_module(const struct graph *graph)
{
    return graph->modules[graph->n_modules - 1];
}

/* Is the unit that owns `parameter` running, so that it is gathered here? */
static bool unit_is_open(const struct graph *graph, const struct fsdp_parameter *parameter)
{
    const struct fsdp_module *group = module_group(parameter->owner);

    for (size_t i = 0; i < graph->n_open; i++)
        if (module_group(graph->visits[graph->open_visits[i]].unit) == group)
            return true;
    return parameter->ignored;
}

static bool name_taken(const struct graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_ops; i++)
        if (strcmp(graph->ops[i]->name, name) == 0)
            return true;
    return false;
}

static char *name_op(const struct graph *graph, const struct graph_kind *kind,
                     const struct fsdp_module *module, bool own_name)
{
    const char *dot = module->path[0] == '\0' ? "" : ".";

    for (size_t n = 0;; n++) {
        char *name;

        if (n == 0)
            name = own_name ? alloc_printf("%s", module->path)
                            : alloc_printf("%s%s%s", module->path, dot, kind->name);
        else
            name =
                alloc_printf("%s%s%s#%zu", module->path, own_name ? "" : dot, own_name ? "" : kind->name, n);
        if (name == NULL || !name_taken(graph, name))
            return name;
        free(name);
    }
}

static bool is_float(const struct fsdp_value *value)
{
    return value->dtype == FSDP_F32 || value->dtype == FSDP_BF16;
}

/* What an operation computes in; false, with the reason noted, when its operands do not go together. */
static bool find_dtype(struct graph *graph, const struct graph_kind *kind, struct fsdp_value *const *inputs,
                       int n_inputs, const struct fsdp_parameter *const *params, int n_params,
                       enum fsdp_dtype *dtype)
{
    bool any_f32 = false, any_bf16 = false;

    for (int i = 0; i < n_inputs; i++) {
        any_f32 = any_f32 || inputs[i]->dtype == FSDP_F32;
        any_bf16 = any_bf16 || inputs[i]->dtype == FSDP_BF16;
    }
    *dtype = any_bf16 && !any_f32 ? FSDP_BF16 : FSDP_F32;
    for (int i = 0; i < n_params; i++) {
        const enum fsdp_dtype wanted = parameter_dtype(params[i]);

        if (i > 0 && wanted != *dtype) {
            graph_fail(graph, FSDP_ERR_ARG, "%s: \"%s\" is %s and \"%s\" %s", kind->name, params[0]->name,
                       fsdp_dtype_name(*dtype), params[i]->name, fsdp_dtype_name(wanted));
            return false;
        }
        *dtype = wanted;
    }
    return true;
}

/* Inputs as an operation with parameters of `dtype` takes them; false, with the reason noted, where it may not be. */
static bool agree_inputs(struct graph *graph, const struct graph_kind *kind,
                         const struct fsdp_parameter *parameter, enum fsdp_dtype dtype,
                         struct fsdp_value *const *inputs, int n_inputs, struct fsdp_value **agreed)
{
    for (int i = 0; i < n_inputs; i++) {
        agreed[i] = inputs[i];
        if (parameter == NULL || !is_float(inputs[i]) || inputs[i]->dtype == dtype)
            continue;
        if (!module_group(parameter->owner)->policy.precision.cast_forward_inputs) {
            graph_fail(
                graph, FSDP_ERR_ARG,
                "%s \"%s\" is given %s where its parameters are %s: cast_forward_inputs or fsdp_cast() "
                "makes them agree",
                kind->name, parameter->owner->path, fsdp_dtype_name(inputs[i]->dtype),
                fsdp_dtype_name(dtype));
            return false;
        }
        agreed[i] = fsdp_cast(inputs[i], dtype);
        if (agreed[i] == NULL)
            return false;
    }
    return true;
}

/* Values whose features are cut over a tensor group may only go where the cut does not matter; into how many parts they are. */
static bool agree_parts(struct graph *graph, const struct graph_kind *kind, const struct fsdp_module *module,
                        struct fsdp_value *const *inputs, int n_inputs, int *n_parts)
{
    *n_parts = inputs[0]->n_parts;
    for (int i = 0; i < n_inputs; i++)
        if (inputs[i]->n_parts != *n_parts || (*n_parts > 1 && !kind->takes_parts)) {
            graph_fail(graph, FSDP_ERR_ARG,
                       "%s in \"%s\" is given values of which each of %d ranks has a part of the features: a "
                       "row-parallel "
                       "linear makes them whole again",
                       kind->name, module->path, inputs[i]->n_parts > 1 ? inputs[i]->n_parts : *n_parts);
            return false;
        }
    return true;
}

struct graph_op *graph_append(struct graph *graph, const struct graph_kind *kind,
                              const struct fsdp_module *module, bool own_name,
                              struct fsdp_value *const *inputs, int n_inputs,
                              const struct fsdp_parameter *const *params, int n_params, size_t features)
{
    struct fsdp_value *agreed[GRAPH_MAX_INPUTS];
    struct graph_op *op = NULL;
    bool needs_grad = false;
    enum fsdp_dtype dtype;
    int n_parts;

    if (graph->err.status != FSDP_OK || !agree_parts(graph, kind, module, inputs, n_inputs, &n_parts))
        return NULL;
    for (int i = 0; i < n_params; i++)
        if (!unit_is_open(graph, params[i])) {
            graph_fail(graph, FSDP_ERR_ARG, "\"%s\" is used where its unit of sharding \"%s\" is not running",
                       params[i]->name, module_unit(params[i]->owner)->path);
            return NULL;
        }
    if (!find_dtype(graph, kind, inputs, n_inputs, params, n_params, &dtype) ||
        !agree_inputs(graph, kind, n_params > 0 ? params[0] : NULL, dtype, inputs, n_inputs, agreed))
        return NULL;
    if (!alloc_room(&graph->ops, &graph->ops_room, graph->n_ops, sizeof(void *)) ||
        (op = alloc_array(1, sizeof *op)) == NULL) {
        nomem(graph);
        return NULL;
    }
    op->kind = kind;
    op->visit = graph->open_visits[graph->n_open - 1];
    op->n_inputs = n_inputs;
    op->n_params = n_params;
    op->param_dtype = dtype;
    for (int i = 0; i < n_inputs; i++) {
        op->inputs[i] = agreed[i];
        needs_grad = needs_grad || (agreed[i]->needs_grad && kind->grad[i] != GRAPH_GRAD_NONE);
    }
    for (int i = 0; i < n_params; i++) {
        op->params[i] = params[i];
        needs_grad = needs_grad || !params[i]->frozen;
    }
    op->name = name_op(graph, kind, module, own_name);
    if (op->name == NULL) {
        nomem(graph);
        goto fail;
    }
    op->output = new_value(graph, dtype, inputs[0]->batch, inputs[0]->seq, features, (int)graph->n_ops);
    if (op->output == NULL || !append_event(graph, GRAPH_OP, graph->n_ops))
        goto fail;
    op->output->needs_grad = needs_grad;
    op->output->n_parts = n_parts;
    graph->ops[graph->n_ops++] = op;
    return op;
fail:
    free(op->name);
    free(op);
    return NULL;
}

static bool enter_unit(struct graph *graph, const struct fsdp_module *unit)
{
    if (!alloc_room(&graph->visits, &graph->visits_room, graph->n_visits, sizeof *graph->visits) ||
        !alloc_room(&graph->open_visits, &graph->open_room, graph->n_open, sizeof *graph->open_visits)) {
        nomem(graph);
        return false;
    }
    if (!append_event(graph, GRAPH_ENTER, graph->n_visits))
        return false;
    graph->visits[graph->n_visits] = (struct graph_visit){ .unit = unit };
    graph->open_visits[graph->n_open++] = (int)graph->n_visits++;
    return true;
}

static bool leave_unit(struct graph *graph)
{
    return append_event(graph, GRAPH_LEAVE, (size_t)graph->open_visits[--graph->n_open]);
}

/* Begin a region, unless the module asks for none or is in one already; *began tells which. */
static bool begin_region(struct graph *graph, const struct fsdp_module *module, bool *began)
{
    *began = graph->training && module->checkpoint != FSDP_CHECKPOINT_NONE && !graph->in_region;
    if (!*began)
        return true;
    if (!alloc_room(&graph->regions, &graph->regions_room, graph->n_regions, sizeof *graph->regions)) {
        nomem(graph);
        return false;
    }
    graph->regions[graph->n_regions] =
        (struct graph_region){ .selective = module->checkpoint == FSDP_CHECKPOINT_SELECTIVE,
                               .first_event = graph->n_events };
    graph->in_region = true;
    return append_event(graph, GRAPH_BEGIN, graph->n_regions++);
}

static bool end_region(struct graph *graph)
{
    graph->in_region = false;
    graph->regions[graph->n_regions - 1].last_event = graph->n_events;
    return append_event(graph, GRAPH_END, graph->n_regions - 1);
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

/* What a unit's policy asks of its input and output. */
static struct fsdp_value *cast_input(const struct fsdp_module *unit, struct fsdp_value *input)
{
    const struct fsdp_mixed_precision_policy *precision = &module_group(unit)->policy.precision;

    if (precision->param_dtype == FSDP_DTYPE_NONE || !precision->cast_forward_inputs || !is_float(input))
        return input;
    return fsdp_cast(input, (enum fsdp_dtype)precision->param_dtype);
}

static struct fsdp_value *cast_output(const struct fsdp_module *unit, struct fsdp_value *output)
{
    const struct fsdp_mixed_precision_policy *precision = &module_group(unit)->policy.precision;

    return precision->output_dtype == FSDP_DTYPE_NONE || !is_float(output)
               ? output
               : fsdp_cast(output, (enum fsdp_dtype)precision->output_dtype);
}

struct fsdp_value *fsdp_call(struct fsdp_module *module, struct fsdp_value *input)
{
    struct fsdp_value *output;
    struct graph *graph;
    bool in_region;

    if (input == NULL || input->graph->err.status != FSDP_OK)
        return NULL;
    graph = input->graph;
    if (module == NULL)
        return graph_fail(graph, FSDP_ERR_ARG,
                          "a module that does not exist is called in the forward of \"%s\"",
                          graph->n_modules > 0 ? graph_module(graph)->path : "");
    if (module->forward == NULL)
        return graph_fail(graph, FSDP_ERR_ARG, "\"%s\" is a container without a forward and cannot be called",
                          module->path);
    if (graph->n_modules >= MAX_DEPTH)
        return graph_fail(graph, FSDP_ERR_ARG, "\"%s\": modules call each other more than %d deep",
                          module->path, MAX_DEPTH);
    if (!alloc_room(&graph->modules, &graph->modules_room, graph->n_modules, sizeof(void *)))
        return nomem(graph);
    if ((module->sharded && !enter_unit(graph, module)) || !begin_region(graph, module, &in_region))
        return NULL;
    graph->modules[graph->n_modules++] = module;
    if (module->sharded)
        input = cast_input(module, input);
    output = input != NULL ? module->forward(module, input, module->user) : NULL;
    if (output != NULL && module->sharded)
        output = cast_output(module, output);
    graph->n_modules--;
    if (output == NULL)
        return graph_fail(graph, FSDP_ERR_ARG, "the forward of \"%s\" gave nothing", module->path);
    if ((in_region && !end_region(graph)) || (module->sharded && !leave_unit(graph)))
        return NULL;
    return output;
}

/*
 * Logits are float32 in every mode. What an operation gives last it sums in float32 anyway: nobody having read
 * the value yet, it is not rounded at all. A value that others read, or the input, is left as it is.
 */
static void widen_result(struct graph *graph)
{
    struct fsdp_value *result = graph->result;
    bool is_read = false;

    if (result->dtype != FSDP_BF16 || result->producer < 0)
        return;
    for (size_t i = 0; i < graph->n_ops; i++)
        for (int j = 0; j < graph->ops[i]->n_inputs; j++)
            is_read = is_read || graph->ops[i]->inputs[j] == result;
    if (!is_read)
        result->dtype = FSDP_F32;
}

enum fsdp_status graph_record(struct graph *graph, struct fsdp_module *root, const struct graph_input *input,
                              bool training, struct fsdp_err *err)
{
    *graph = (struct graph){ .training = training };
    if (!root->sharded)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "the root is no unit of sharding: call fsdp_fully_shard() on it last");
    if (module_check_ties(root, err) != FSDP_OK)
        return FSDP_ERR_ARG;
    graph->input = new_value(graph, input->dtype, input->batch, input->seq, input->features, -1);
    graph->result = fsdp_call(root, graph->input);
    if (graph->err.status != FSDP_OK)
        return fsdp_fail(err, graph->err.status, "%s", graph->err.message);
    if (graph->result->n_parts > 1)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "of the root's result each of %d ranks has a part of the features: it must be whole",
                         graph->result->n_parts);
    widen_result(graph);
    if (graph->result->dtype == FSDP_BF16 && graph->result->producer >= 0)
        return fsdp_fail(
            err, FSDP_ERR_ARG,
            "the root's result is bfloat16 and read inside the model too: cast it by fsdp_cast()");
    if (graph->result->dtype != FSDP_F32 || graph->result->producer < 0)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "the root's forward gives its input back: there is nothing to compute");
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
    free(graph->modules);
    free(graph->open_visits);
    *graph = (struct graph){ 0 };
}
