/*
 * Which ranks a model is sharded over: the world's, or the dimensions of the mesh that its units were given.
 */
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/mesh.h"
#include "shard_runtime/engine/model.h"

static enum fsdp_status check_mesh(const struct fsdp_model *model, const struct fsdp_device_mesh *mesh,
                                   struct fsdp_err *err)
{
    const struct fsdp_module *root = model->root;

    for (const struct fsdp_module *m = root; m != NULL; m = module_next(root, m))
        if (m->sharded && m->policy.mesh != mesh)
            return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                             "\"%s\" is sharded over another mesh than the root: one for all of them",
                             m->path);
    if (mesh == NULL)
        return FSDP_OK;
    if (mesh->grid.n_dims > 2)
        return fsdp_fail(err, FSDP_ERR_ARG, "a mesh of %d dimensions: one shards, or two replicate and shard",
                         mesh->grid.n_dims);
    if (mesh->grid.n_dims == 2 && (mesh->grid.names[0][0] == '\0' || mesh->grid.names[1][0] == '\0'))
        return fsdp_fail(err, FSDP_ERR_ARG, "a mesh of two dimensions to shard over needs names for them");
    if (mesh_grid_size(&mesh->grid) != model->context->W)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "a mesh of %d of the world's %d ranks cannot be sharded over",
                         mesh_grid_size(&mesh->grid), model->context->W);
    return FSDP_OK;
}

static bool wants_separate_reduces(const struct fsdp_model *model)
{
    for (const struct fsdp_module *m = model->root; m != NULL; m = module_next(model->root, m))
        if (m->sharded && module_group(m)->policy.separate_reduces)
            return true;
    return false;
}

/* A second communicator of the ranks that shard. */
static enum fsdp_status open_reduces(struct fsdp_model *model, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    const int first = context->rank - model->shard_rank;
    int *ranks = alloc_array((size_t)model->W, sizeof *ranks);
    enum fsdp_status status;
    char name[48];

    if (ranks == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
    for (int i = 0; i < model->W; i++)
        ranks[i] = first + i; /* the last dimension of a mesh is one of consecutive ranks */
    snprintf(name, sizeof name, "reduces.%u.%d", context->n_groups++, first);
    status = comm_split(&model->own_reduces, context->comm, name, ranks, model->W, err);
    free(ranks);
    return status;
}

enum fsdp_status model_join_mesh(struct fsdp_model *model, struct fsdp_err *err)
{
    struct fsdp_device_mesh *mesh = model->root->policy.mesh;
    enum fsdp_status status = check_mesh(model, mesh, err);

    if (status != FSDP_OK)
        return status;
    if (mesh == NULL) {
        model->W = model->context->W;
        model->R = 1;
        model->shard_rank = model->context->rank;
        model->shards = model->context->comm;
        return FSDP_OK;
    }
    model->W = mesh->grid.sizes[mesh->grid.n_dims - 1];
    model->R = mesh->grid.n_dims == 2 ? mesh->grid.sizes[0] : 1;
    model->shard_rank = mesh->place[mesh->grid.n_dims - 1];
    model->shards = mesh->comms[mesh->grid.n_dims - 1];
    model->replicas = model->R > 1 ? mesh->comms[0] : NULL;
    return FSDP_OK;
}

enum fsdp_status model_open_reduces(struct fsdp_model *model, struct fsdp_err *err)
{
    return model->W > 1 && wants_separate_reduces(model) ? open_reduces(model, err) : FSDP_OK;
}
