/*
 * out[row] = tokens.weight[token[row]] (+ positions.weight[row % seq]). Backward adds the gradients row by
 * row, in order.
 */
#include "shard_runtime/nn/nn.h"

static enum fsdp_status forward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_embedding embedding = { .tokens = run->input[0],
                                                  .table = run->params[0],
                                                  .positions = op->n_params > 1 ? run->params[1] : NULL,
                                                  .out = run->output,
                                                  .rows = nn_rows(op->output),
                                                  .cols = op->output->features,
                                                  .seq = op->output->seq };

    (void)err;
    run->numerics->ops->embedding(run->numerics, run->stream, &embedding);
    return FSDP_OK;
}

static enum fsdp_status backward(struct nn_run *run, const struct graph_op *op, struct fsdp_err *err)
{
    const struct numerics_embedding_backward embedding = { .tokens = run->input[0],
                                                           .dout = run->d_output,
                                                           .dtable = run->d_param[0],
                                                           .dpositions =
                                                               op->n_params > 1 ? run->d_param[1] : NULL,
                                                           .rows = nn_rows(op->output),
                                                           .cols = op->output->features,
                                                           .seq = op->output->seq };

    (void)err;
    for (int i = 0; i < op->n_params; i++)
        if (run->d_param[i] != NULL && !run->add_d_param[i])
            run->device->ops->fill_zero(run->stream, run->d_param[i], op->params[i]->n_elems * sizeof(float));
    run->numerics->ops->embedding_backward(run->numerics, run->stream, &embedding);
    return FSDP_OK;
}

static const struct graph_kind kind = {
    .name = "embedding",
    .looks_up = true,
    .keeps_input = { true },
    .grad = { GRAPH_GRAD_NONE },
    .forward = forward,
    .backward = backward,
};

struct fsdp_value *fsdp_embed(struct fsdp_module *tokens, struct fsdp_module *positions,
                              struct fsdp_value *input)
{
    const struct fsdp_parameter *params[2] = { NULL, NULL };
    struct graph_op *op;
    bool entered[2];

    if (input == NULL)
        return NULL;
    if (tokens == NULL || input->dtype != FSDP_I32)
        return graph_fail(input->graph, FSDP_ERR_ARG, "an embedding in \"%s\" takes the tokens of the input",
                          graph_module(input->graph)->path);
    if (!graph_has_tree_of(input->graph, tokens) ||
        (positions != NULL && !graph_has_tree_of(input->graph, positions)))
        return NULL;
    params[0] = module_parameter(tokens, "weight");
    params[1] = positions != NULL ? module_parameter(positions, "weight") : NULL;
    if (params[0] == NULL || params[0]->n_dims != 2 ||
        (positions != NULL && (params[1] == NULL || params[1]->n_dims != 2 || params[1] == params[0])))
        return graph_fail(input->graph, FSDP_ERR_ARG, "fsdp_embed in \"%s\": \"%s\" is no embedding",
                          graph_module(input->graph)->path, tokens->path);
    if (positions != NULL && params[1]->shape[1] != params[0]->shape[1])
        return graph_fail(input->graph, FSDP_ERR_ARG, "\"%s\" has %zu features and \"%s\" %zu", tokens->path,
                          params[0]->shape[1], positions->path, params[1]->shape[1]);
    if (positions != NULL && params[1]->shape[0] < input->seq)
        return graph_fail(input->graph, FSDP_ERR_ARG, "\"%s\" has %zu positions for %zu tokens",
                          positions->path, params[1]->shape[0], input->seq);
    if (!graph_enter(input->graph, tokens, &entered[0]) || !graph_enter(input->graph, positions, &entered[1]))
        return NULL;
    op = graph_append(input->graph, &kind, tokens, true, &input, 1, params, positions != NULL ? 2 : 1,
                      params[0]->shape[1]);
    if (!graph_leave(input->graph, entered[1]) || !graph_leave(input->graph, entered[0]))
        return NULL;
    return op != NULL ? op->output : NULL;
}

static struct fsdp_value *call(struct fsdp_module *self, struct fsdp_value *input, void *user)
{
    (void)user;
    return fsdp_embed(self, NULL, input);
}

struct fsdp_module *fsdp_embedding(struct fsdp_module *parent, const char *name, size_t rows, size_t dim)
{
    struct fsdp_module *module = fsdp_module_add(parent, name, call, NULL);

    if (module == NULL || fsdp_module_add_parameter(module, "weight", 2, (size_t[]){ rows, dim },
                                                    FSDP_INIT_NORMAL, NULL) != FSDP_OK)
        return NULL;
    return module;
}

size_t nn_input_rows(const struct graph *graph)
{
    size_t rows = 0;

    for (size_t i = 0; i < graph->n_ops; i++) {
        const struct graph_op *op = graph->ops[i];

        if (op->kind == &kind && (rows == 0 || op->params[0]->shape[0] < rows))
            rows = op->params[0]->shape[0];
    }
    return rows;
}
