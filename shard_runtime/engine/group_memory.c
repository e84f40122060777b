/*
 * What the process groups of a model keep to move data through: of the world, of each mesh the ranks that shard and those that
 * replicate, of a reduction's own group, of slices, of the tensor group. Rank 0 stands for all.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/mesh.h"
#include "shard_runtime/engine/model.h"

/* Of a group of `n` ascending ranks: how many nodes they are on, equally many on each as comm/ demands. */
static size_t staging_of(const int *ranks, int n, int ranks_per_host)
{
    int n_nodes = 1;

    if (n < 2)
        return 0;
    for (int i = 1; i < n; i++)
        n_nodes += ranks[i] / ranks_per_host != ranks[i - 1] / ranks_per_host;
    return comm_staging_bytes(n_nodes, n / n_nodes);
}

static size_t staging_of_line(const struct fsdp_device_mesh *mesh, int dim, int *ranks, int ranks_per_host)
{
    mesh_grid_line(&mesh->grid, mesh->rank, dim, ranks);
    return staging_of(ranks, mesh->grid.sizes[dim], ranks_per_host);
}

static size_t staging_of_mesh(const struct fsdp_model *model, const struct model_mesh *mesh, int *ranks,
                              int ranks_per_host)
{
    size_t bytes = 0;

    if (mesh->mesh != NULL) {
        bytes += staging_of_line(mesh->mesh, mesh->mesh->grid.n_dims - 1, ranks, ranks_per_host);
        if (mesh->R > 1)
            bytes += staging_of_line(mesh->mesh, 0, ranks, ranks_per_host);
    }
    model_list_shards(model, mesh, ranks);
    if (model_wants_separate_reduces(model))
        bytes += staging_of(ranks, mesh->W, ranks_per_host);
    for (int g = 0; g < model->layout.n_groups; g++) {
        const int k = model->layout.groups[g].k;
        bool counted = k == 0 || model_mesh(model, g) != mesh;

        for (int before = 0; before < g; before++)
            counted = counted || (model->layout.groups[before].k == k && model_mesh(model, before) == mesh);
        if (!counted)
            bytes += staging_of(ranks, k, ranks_per_host);
    }
    return bytes;
}

size_t model_staging_bytes(const struct fsdp_model *model, int ranks_per_host)
{
    const int n = model->context->W;
    int *ranks = alloc_array((size_t)n, sizeof *ranks);
    size_t bytes;

    if (ranks == NULL)
        return 0; /* a plan without it: nothing else will fit either */
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    bytes = staging_of(ranks, n, ranks_per_host);
    for (int i = 0; i < model->n_meshes; i++)
        bytes += staging_of_mesh(model, &model->meshes[i], ranks, ranks_per_host);
    if (model->T > 1)
        bytes += staging_of_line(model->tensor_mesh, 0, ranks, ranks_per_host);
    free(ranks);
    return bytes;
}
