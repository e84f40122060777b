#include "shard_runtime/plan/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/checked.h"

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

struct fsdp_value *graph_nomem(struct graph *graph)
{
    return graph_fail(graph, FSDP_ERR_NOMEM, "recording the model: out of memory");
}

struct fsdp_value *graph_new_value(struct graph *graph, enum fsdp_dtype dtype, size_t batch, size_t seq,
                                   size_t features, int producer)
{
    struct fsdp_value *value;
    size_t bytes;

    if (!checked_mul(batch, seq, &bytes) || !checked_mul(bytes, features > 0 ? features : 1, &bytes) ||
        !checked_mul(bytes, 2 * fsdp_dtype_size(dtype), &bytes))
        return graph_fail(graph, FSDP_ERR_ARG, "a value of %zu x %zu x %zu elements does not fit", batch, seq,
                          features);
    if (!alloc_room(&graph->values, &graph->values_room, graph->n_values, sizeof(void *)))
        return graph_nomem(graph);
    value = alloc_array(1, sizeof *value);
    if (value == NULL)
        return graph_nomem(graph);
    *value = (struct fsdp_value){ .graph = graph,
                                  .id = (int)graph->n_values,
                                  .dtype = dtype,
                                  .batch = batch,
                                  .seq = seq,
                                  .features = features,
                                  .row_stride = features > 0 ? features : 1,
                                  .n_parts = 1,
                                  .producer = producer,
                                  .forward = (int)graph->n_forwards - 1 };
    graph->values[graph->n_values++] = value;
    return value;
}

bool graph_append_event(struct graph *graph, enum graph_event_kind kind, size_t index)
{
    if (!alloc_room(&graph->events, &graph->events_room, graph->n_events, sizeof *graph->events)) {
        graph_nomem(graph);
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
    return value->batch * value->seq * value->row_stride * fsdp_dtype_size(value->dtype);
}

/*
 * Only bfloat16 parameters can have rows of zeros: they are always unpacked, because their shards are
 * float32.
 */
size_t graph_zero_rows(const struct graph_op *op)
{
    return op->n_params > 0 && op->param_dtype == FSDP_BF16 && !op->attrs.transposed
               ? op->output->row_stride - op->output->features
               : 0;
}

struct fsdp_module *graph_module(const struct graph *graph)
{
    return graph->modules[graph->n_modules - 1];
}

/* Is the unit that owns `parameter` running, so that the parameter is whole here? */
static bool unit_is_open(const struct graph *graph, const struct fsdp_parameter *parameter)
{
    const struct fsdp_module *group = module_group(parameter->owner);

    for (size_t i = 0; i < graph->n_open; i++)
        if (module_group(graph->visits[graph->open_visits[i]].unit) == group)
            return true;
    return parameter->ignored;
}

/* Has an operation of the current forward this name? */
static bool name_taken(const struct graph *graph, const char *name)
{
    for (size_t i = graph->forwards[graph->n_forwards - 1].first_op; i < graph->n_ops; i++)
        if (strcmp(graph->ops[i]->name, name) == 0)
            return true;
    return false;
}

/* A name that no operation of the current forward has; the caller frees it. NULL: out of memory. */
static char *name_op(const struct graph *graph, const struct graph_kind *kind,
                     const struct fsdp_module *module, bool own_name)
{
    const char *dot = own_name || module->path[0] == '\0' ? "" : ".", *last = own_name ? "" : kind->name;

    for (size_t n = 0;; n++) {
        char *name = n == 0 ? alloc_printf("%s%s%s", module->path, dot, last)
                            : alloc_printf("%s%s%s#%zu", module->path, dot, last, n);

        if (name == NULL || !name_taken(graph, name))
            return name;
        free(name);
    }
}

/*
 * Finds the dtype in which an operation computes. If its parameters have different dtypes, records the
 * failure and returns false.
 */
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

/*
 * Casts the inputs to `dtype`, that of the parameters, into agreed[]. If their unit does not allow casts,
 * records the failure and returns false.
 */
static bool agree_inputs(struct graph *graph, const struct graph_kind *kind,
                         const struct fsdp_parameter *parameter, enum fsdp_dtype dtype,
                         struct fsdp_value *const *inputs, int n_inputs, struct fsdp_value **agreed)
{
    for (int i = 0; i < n_inputs; i++) {
        agreed[i] = inputs[i];
        if (parameter == NULL || !graph_is_float(inputs[i]) || inputs[i]->dtype == dtype)
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

/*
 * Are all inputs values of the current forward? This is required so that backwards of several forwards can
 * come in any order.
 */
static bool agree_forward(struct graph *graph, const struct graph_kind *kind,
                          const struct fsdp_module *module, struct fsdp_value *const *inputs, int n_inputs)
{
    for (int i = 0; i < n_inputs; i++)
        if (inputs[i]->forward != (int)graph->n_forwards - 1) {
            graph_fail(graph, FSDP_ERR_ARG, "%s in \"%s\" is given a value of an earlier forward", kind->name,
                       module->path);
            return false;
        }
    return true;
}

/*
 * Values whose features are split over a tensor group may go only to operations that work feature by feature.
 * Sets *n_parts to the number of parts of the inputs. If the operation may not take them, records the failure
 * and returns false.
 */
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

    if (graph->err.status != FSDP_OK || !agree_forward(graph, kind, module, inputs, n_inputs) ||
        !agree_parts(graph, kind, module, inputs, n_inputs, &n_parts))
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
        graph_nomem(graph);
        return NULL;
    }
    op->kind = kind;
    op->forward = (int)graph->n_forwards - 1;
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
        graph_nomem(graph);
        goto fail;
    }
    op->output = graph_new_value(graph, dtype, inputs[0]->batch, inputs[0]->seq, features, (int)graph->n_ops);
    if (op->output == NULL || !graph_append_event(graph, GRAPH_OP, graph->n_ops))
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
