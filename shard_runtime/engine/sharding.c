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

/* A communicator of `n` ranks that shard, this one among them: those that its place divided by n gives. */
static enum fsdp_status open_some(struct fsdp_model *model, const char *what, int n, struct fsdp_comm **out,
                                  struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    const int first = context->rank - model->shard_rank % n; /* ranks that shard are consecutive */
    int *ranks = alloc_array((size_t)n, sizeof *ranks);
    enum fsdp_status status;
    char name[48];

    if (ranks == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
    for (int i = 0; i < n; i++)
        ranks[i] = first + i;
    snprintf(name, sizeof name, "%s.%u.%d", what, context->n_groups++, first);
    status = comm_split(out, context->comm, name, ranks, n, err);
    free(ranks);
    return status;
}

struct fsdp_comm *model_part(const struct fsdp_model *model, int k)
{
    for (int i = 0; i < model->n_parts; i++)
        if (model->parts[i].k == k)
            return model->parts[i].comm;
    return NULL;
}

enum fsdp_status model_open_comms(struct fsdp_model *model, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    model->parts = alloc_array((size_t)model->layout.n_groups, sizeof *model->parts);
    if (model->parts == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
    if (model->W > 1 && wants_separate_reduces(model))
        status = open_some(model, "reduces", model->W, &model->own_reduces, err);
    for (int g = 0; g < model->layout.n_groups && status == FSDP_OK; g++) {
        const int k = model->layout.groups[g].k;
        struct model_part *part = &model->parts[model->n_parts];

        if (k == 0 || model_part(model, k) != NULL)
            continue;
        part->k = k;
        status = open_some(model, "slices", k, &part->comm, err);
        model->n_parts += status == FSDP_OK;
    }
    return status;
}

void model_close_comms(struct fsdp_model *model)
{
    for (int i = 0; i < model->n_parts; i++)
        fsdp_comm_destroy(model->parts[i].comm);
    free(model->parts);
    fsdp_comm_destroy(model->own_reduces);
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
