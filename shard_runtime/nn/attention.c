/*
 * Attention: softmax(q k^T / sqrt(head_dim)) v for every head of every sample. See Vaswani et al., "Attention
 * Is All You Need", 2017, section 3.2. q, k, v and the output are (batch, seq, heads, head_dim) in memory. So
 * products reach a head by strides, and nothing is transposed. q, k and v may also be the thirds of one
 * tensor's rows.
 *
 * There are two ways to compute it; numerics/ways.h chooses between them:
 *   - Fused (numerics.h) never stores a (seq, seq) matrix. It keeps q, k, v, the output and one float per
 *     query for backward.
 *   - Whole (attention_whole.c) keeps the probabilities, so backward has one product less.
 */
#include <math.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/nn/attention.h"

struct attention_desc attention_describe(const struct graph_op *op)
{
    const struct fsdp_value *out = op->output;

    return (struct attention_desc){ .batch = out->batch,
                                    .seq = out->seq,
                                    .heads = op->attrs.heads,
                                    .head_dim = out->features / op->attrs.heads,
                                    .causal = op->attrs.causal };
}

struct attention_parts attention_find_parts(const struct nn_run *run, const struct graph_op *op)
{
    const size_t third = op->output->features * fsdp_dtype_size(nn_dtype(op));
    struct attention_parts parts;

    for (int i = 0; i < ATTENTION_PARTS; i++) {
        const int input = op->n_inputs == 1 ? 0 : i;
        const size_t at = op->n_inputs == 1 ? (size_t)i * third : 0;

        parts.of[i] = (const char *)run->input[input] + at;
        parts.d[i] = run->d_input[input] == NULL ? NULL : (char *)run->d_input[input] + at;
    }
    return parts;
}

static enum fsdp_status prepare_fused(struct nn_kernels *kernels, struct graph_op *op, struct fsdp_err *err)
{
    const struct attention_desc shape = attention_describe(op);
    const size_t features = shape.heads * shape.head_dim, row = op->inputs[0]->features;
    const struct fused_attention_desc desc = { .shape = shape,
                                               .dtype = nn_dtype(op),
                                               .scale = 1.0f / sqrtf((float)shape.head_dim),
                                               .drops = op->attrs.p > 0,
                                               .q_stride = row,
                                               .k_stride = row,
                                               .v_stride = row,
                                               .out_stride = features };

    op->saved_bytes[0] = shape.batch * shape.heads * shape.seq * sizeof(float);
    return nn_fused_attention(kernels, &desc, op, err);
}

static enum fsdp_status prepare(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                struct fsdp_err *err)
{
    if (kernels->numerics->ops->attention_create == NULL ||
        !ways_attention_is_fused(kernels->numerics->isa, op->output->seq,
                                 attention_whole_takes_bf16(kernels, op), op->attrs.causal))
        return attention_whole_prepare(kernels, op, training, err);
    op->takes_bf16 = kernels->numerics->bf16_products && nn_is_bf16(kernels, op);
    return prepare_fused(kernels, op, err);
}

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct dropout dropout = nn_dropout(run, op, op->attrs.heads * op->output->seq);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct fused_attention_forward fused = { .q = parts.of[ATTENTION_QUERY],
                                                   .k = parts.of[ATTENTION_KEY],
                                                   .v = parts.of[ATTENTION_VALUE],
                                                   .out = run->output,
                                                   .lse = run->saved[0],
                                                   .dropout = &dropout,
                                                   .scratch = run->scratch };

    if (op->attention == NULL)
        return attention_whole_forward(run, op, err);
    return run->numerics->ops->attention_forward(op->attention, run->stream, &fused, err);
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct dropout dropout = nn_dropout(run, op, op->attrs.heads * op->output->seq);
    const struct attention_parts parts = attention_find_parts(run, op);
    const struct fused_attention_backward fused = { .q = parts.of[ATTENTION_QUERY],
                                                    .k = parts.of[ATTENTION_KEY],
                                                    .v = parts.of[ATTENTION_VALUE],
                                                    .out = run->output,
                                                    .dout = run->d_output,
                                                    .lse = run->saved[0],
                                                    .dropout = &dropout,
                                                    .dq = parts.d[ATTENTION_QUERY],
                                                    .dk = parts.d[ATTENTION_KEY],
                                                    .dv = parts.d[ATTENTION_VALUE],
                                                    .scratch = run->scratch };

    if (op->attention == NULL)
        return attention_whole_backward(run, op, err);
    return run->numerics->ops->attention_backward(op->attention, run->stream, &fused, err);
}

static const struct graph_kind kind = {
    .name = "attention",
    .costly = true,
    .keeps_input = { true, true, true },
    .keeps_output = true,
    .grad = { GRAPH_GRAD_WRITE, GRAPH_GRAD_WRITE, GRAPH_GRAD_WRITE },
    .takes_parts = true, /* every part has whole heads, which call() checks */
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
};

static struct fsdp_value *append(struct fsdp_value *const *inputs, int n_inputs, size_t features,
                                 size_t heads, bool causal, float dropout)
{
    struct graph *graph = inputs[0]->graph;
    struct graph_op *op;

    if (heads == 0 || features % heads != 0)
        return graph_fail(graph, FSDP_ERR_ARG, "attention in \"%s\": %zu heads do not divide %zu features",
                          graph_module(graph)->path, heads, features);
    if (!nn_is_rate(graph, dropout, "attention", "dropout"))
        return NULL;
    if (inputs[0]->n_parts > 1 && dropout > 0 && graph->training)
        return graph_fail(graph, FSDP_ERR_UNSUPPORTED,
                          "attention in \"%s\": dropout of heads that %d ranks divide is not supported",
                          graph_module(graph)->path, inputs[0]->n_parts);
    op = graph_append(graph, &kind, graph_module(graph), false, inputs, n_inputs, NULL, 0, features);
    if (op == NULL)
        return NULL;
    op->attrs = (struct graph_attrs){ .heads = heads, .causal = causal, .p = graph->training ? dropout : 0 };
    return op->output;
}

struct fsdp_value *fsdp_scaled_dot_product_attention(struct fsdp_value *q, struct fsdp_value *k,
                                                     struct fsdp_value *v, size_t heads, bool causal,
                                                     float dropout)
{
    if (!nn_are_alike(q, k, "attention") || !nn_are_alike(q, v, "attention"))
        return NULL;
    return append((struct fsdp_value *[]){ q, k, v }, ATTENTION_PARTS, q->features, heads, causal, dropout);
}

struct fsdp_value *fsdp_packed_attention(struct fsdp_value *qkv, size_t heads, bool causal, float dropout)
{
    if (!nn_is_tensor(qkv, "attention"))
        return NULL;
    if (qkv->features % ATTENTION_PARTS != 0 || qkv->n_parts > 1)
        return graph_fail(qkv->graph, FSDP_ERR_ARG, "attention in \"%s\": %zu features are no q, k and v",
                          graph_module(qkv->graph)->path, qkv->features);
    return append(&qkv, 1, qkv->features / ATTENTION_PARTS, heads, causal, dropout);
}

static struct fsdp_value *call(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const struct graph_attrs *attrs = self->owned;
    struct fsdp_value *q = fsdp_call(fsdp_module_child(self, "wq"), x);
    struct fsdp_value *k = fsdp_call(fsdp_module_child(self, "wk"), x);
    struct fsdp_value *v = fsdp_call(fsdp_module_child(self, "wv"), x);
    const size_t n_parts = q != NULL ? (size_t)q->n_parts : 1;

    (void)user;
    if (attrs->heads % n_parts != 0)
        return graph_fail(x->graph, FSDP_ERR_ARG, "attention \"%s\": %zu ranks do not divide %zu heads",
                          self->path, n_parts, attrs->heads);
    return fsdp_call(
        fsdp_module_child(self, "wo"),
        fsdp_scaled_dot_product_attention(q, k, v, attrs->heads / n_parts, attrs->causal, attrs->p));
}

struct fsdp_module *fsdp_attention(struct fsdp_module *parent, const char *name, size_t dim, size_t heads,
                                   bool causal, float dropout)
{
    static const char *const products[] = { "wq", "wk", "wv", "wo" };
    struct fsdp_module *module = fsdp_module_add(parent, name, call, NULL);
    struct graph_attrs *attrs;

    if (module == NULL)
        return NULL;
    if (heads == 0 || dim % heads != 0) {
        module_fail(module, FSDP_ERR_ARG, "attention \"%s\": %zu heads do not divide %zu features",
                    module->path, heads, dim);
        return NULL;
    }
    attrs = module->owned = alloc_array(1, sizeof *attrs);
    if (attrs == NULL) {
        module_fail(module, FSDP_ERR_NOMEM, "attention \"%s\": out of memory", module->path);
        return NULL;
    }
    *attrs = (struct graph_attrs){ .heads = heads, .causal = causal, .p = dropout };
    for (int i = 0; i < 4; i++)
        if (fsdp_linear(module, products[i], dim, dim, false) == NULL)
            return NULL;
    return module;
}
