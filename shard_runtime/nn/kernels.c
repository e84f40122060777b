#include "shard_runtime/nn/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/numerics/attention_desc.h"

struct nn_product {
    struct matmul_desc desc;
    struct matmul *matmul;
    size_t scratch_bytes;
};

struct nn_attention {
    struct fused_attention_desc desc;
    struct fused_attention *attention;
    size_t forward_scratch, backward_scratch;
};

void nn_kernels_init(struct nn_kernels *kernels, struct numerics *numerics)
{
    *kernels = (struct nn_kernels){ .numerics = numerics };
}

void nn_kernels_fini(struct nn_kernels *kernels)
{
    for (size_t i = 0; i < kernels->n_products; i++)
        kernels->numerics->ops->matmul_destroy(kernels->products[i].matmul);
    for (size_t i = 0; i < kernels->n_attentions; i++)
        kernels->numerics->ops->attention_destroy(kernels->attentions[i].attention);
    free(kernels->products);
    free(kernels->attentions);
    *kernels = (struct nn_kernels){ 0 };
}

static bool same_view(const struct matmul_view *a, const struct matmul_view *b)
{
    return a->outer_stride == b->outer_stride && a->inner_stride == b->inner_stride &&
           a->row_stride == b->row_stride && a->col_stride == b->col_stride;
}

static bool same_product(const struct matmul_desc *a, const struct matmul_desc *b)
{
    return a->outer == b->outer && a->inner == b->inner && a->m == b->m && a->n == b->n && a->k == b->k &&
           same_view(&a->a, &b->a) && same_view(&a->b, &b->b) && same_view(&a->c, &b->c) &&
           a->dtype == b->dtype && a->c_dtype == b->c_dtype && a->bias == b->bias &&
           a->accumulate == b->accumulate && a->alpha == b->alpha && a->beside == b->beside;
}

enum fsdp_status nn_product(struct nn_kernels *kernels, const struct matmul_desc *desc, struct matmul **out,
                            size_t *scratch_bytes, struct fsdp_err *err)
{
    struct nn_product *product = NULL;

    *out = NULL;
    for (size_t i = 0; i < kernels->n_products && product == NULL; i++)
        if (same_product(&kernels->products[i].desc, desc))
            product = &kernels->products[i];
    if (product == NULL) {
        if (!alloc_room(&kernels->products, &kernels->room, kernels->n_products, sizeof *kernels->products))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "preparing a product: out of memory");
        product = &kernels->products[kernels->n_products];
        *product = (struct nn_product){ .desc = *desc };
        OK_OR_RETURN(kernels->numerics->ops->matmul_create(kernels->numerics, desc, &product->matmul,
                                                           &product->scratch_bytes, err));
        kernels->n_products++;
    }
    *out = product->matmul;
    if (product->scratch_bytes > *scratch_bytes)
        *scratch_bytes = product->scratch_bytes;
    return FSDP_OK;
}

enum fsdp_status nn_fused_attention(struct nn_kernels *kernels, const struct fused_attention_desc *desc,
                                    struct graph_op *op, struct fsdp_err *err)
{
    struct nn_attention *found = NULL;

    for (size_t i = 0; i < kernels->n_attentions && found == NULL; i++)
        if (attention_desc_same(&kernels->attentions[i].desc, desc))
            found = &kernels->attentions[i];
    if (found == NULL) {
        if (!alloc_room(&kernels->attentions, &kernels->attentions_room, kernels->n_attentions,
                        sizeof *kernels->attentions))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "preparing attention: out of memory");
        found = &kernels->attentions[kernels->n_attentions];
        *found = (struct nn_attention){ .desc = *desc };
        OK_OR_RETURN(kernels->numerics->ops->attention_create(kernels->numerics, desc, &found->attention,
                                                              &found->forward_scratch,
                                                              &found->backward_scratch, err));
        kernels->n_attentions++;
    }
    op->attention = found->attention;
    op->forward_scratch = found->forward_scratch;
    op->backward_scratch = found->backward_scratch;
    return FSDP_OK;
}

enum fsdp_status nn_prepare(struct nn_kernels *kernels, const struct graph *graph, struct fsdp_err *err)
{
    for (size_t i = 0; i < graph->n_ops; i++) {
        struct graph_op *op = graph->ops[i];
        enum fsdp_status status = FSDP_OK;

        op->takes_bf16 = op->kind->takes_bf16;
        if (op->kind->prepare != NULL)
            status = op->kind->prepare(kernels, op, graph->training, err);
        if (status != FSDP_OK) {
            fsdp_wrap(err, "%s", op->name);
            return status;
        }
        nn_plan_copies(op, graph->training);
        if (i > 0)
            graph->ops[i - 1]->fuses = nn_fuses(kernels, graph->ops[i - 1], op);
        if (i > 0 && graph->training)
            nn_fuse_backward(kernels, op, graph->ops[i - 1], i > 1 ? graph->ops[i - 2] : NULL);
    }
    return FSDP_OK;
}

struct dropout nn_dropout(const struct nn_run *run, const struct graph_op *op, size_t rows_per_sample)
{
    char site[1024];

    snprintf(site, sizeof site, "dropout:%s", op->name);
    return (struct dropout){
        .p = op->attrs.p,
        .key = rng_key(run->seed, site),
        .first_row = run->first_sample * rows_per_sample,
    };
}

bool nn_is_tensor(const struct fsdp_value *value, const char *operation)
{
    if (value == NULL)
        return false;
    if ((value->dtype == FSDP_F32 || value->dtype == FSDP_BF16) && value->features > 0)
        return true;
    graph_fail(value->graph, FSDP_ERR_ARG, "%s in \"%s\" is given tokens: it takes (batch, seq, features)",
               operation, graph_module(value->graph)->path);
    return false;
}

bool nn_is_rate(struct graph *graph, float p, const char *operation, const char *name)
{
    if (p >= 0 && p < 1)
        return true;
    graph_fail(graph, FSDP_ERR_ARG, "%s in \"%s\": %s must be in [0, 1)", operation,
               graph_module(graph)->path, name);
    return false;
}

struct graph_op *nn_append(const struct graph_kind *kind, struct fsdp_value *x, struct fsdp_value *other)
{
    struct fsdp_value *inputs[] = { x, other };

    return graph_append(x->graph, kind, graph_module(x->graph), false, inputs, other != NULL ? 2 : 1, NULL, 0,
                        x->features);
}

enum fsdp_status nn_prepare_bf16(struct nn_kernels *kernels, struct graph_op *op, bool training,
                                 struct fsdp_err *err)
{
    (void)training, (void)err;
    op->takes_bf16 = nn_is_bf16(kernels, op);
    return FSDP_OK;
}

enum fsdp_status nn_multiply(const struct nn_run *run, struct matmul *product, const void *a, const void *b,
                             void *c, void *scratch, struct fsdp_err *err)
{
    return run->numerics->ops->matmul_run(product, run->stream, a, b, NULL, c, scratch, err);
}

bool nn_are_alike(const struct fsdp_value *a, const struct fsdp_value *b, const char *operation)
{
    if (!nn_is_tensor(a, operation) || !nn_is_tensor(b, operation))
        return false;
    if (a->graph == b->graph && a->batch == b->batch && a->seq == b->seq && a->features == b->features)
        return true;
    graph_fail(a->graph, FSDP_ERR_ARG, "%s in \"%s\" is given (%zu, %zu, %zu) and (%zu, %zu, %zu)", operation,
               graph_module(a->graph)->path, a->batch, a->seq, a->features, b->batch, b->seq, b->features);
    return false;
}
