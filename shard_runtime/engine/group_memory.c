/*
 * The memory that groups of ranks keep for moving data. These are the world, the ranks of each mesh that
 * shard and that replicate, groups for reductions and slices, and the tensor group. Rank 0 stands for all
 * ranks.
 */
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/mesh.h"
#include "shard_runtime/engine/model.h"

/* Nodes that have ranks of the group, which are in ascending order. */
static int count_nodes(const int *ranks, int n, int ranks_per_host)
{
    int n_nodes = 1;

    for (int i = 1; i < n; i++)
        n_nodes += ranks[i] / ranks_per_host != ranks[i - 1] / ranks_per_host;
    return n_nodes;
}

/* Returns how many ranks of the group each node has; comm/ requires the same number on all nodes. */
static int members_on_node(const int *ranks, int n, int ranks_per_host)
{
    return n / count_nodes(ranks, n, ranks_per_host);
}

static size_t staging_of(const int *ranks, int n, int ranks_per_host)
{
    return comm_staging_bytes(count_nodes(ranks, n, ranks_per_host),
                              members_on_node(ranks, n, ranks_per_host));
}

static size_t shared_of(const int *ranks, int n, int ranks_per_host)
{
    return comm_shared_bytes(members_on_node(ranks, n, ranks_per_host));
}

/*
 * Returns the bytes of all segments of such groups on a node, as one rank's part. Every rank of the node is
 * in one such group, and each group has one segment on the node.
 */
static size_t segments_of(const int *ranks, int n, int ranks_per_host)
{
    return shared_of(ranks, n, ranks_per_host) * (size_t)ranks_per_host /
           (size_t)members_on_node(ranks, n, ranks_per_host);
}

/* What is asked about the groups: the model, and the function that measures a group. */
struct question {
    const struct fsdp_model *model;
    model_group_bytes_fn bytes_of;
    int ranks_per_host;
    int *ranks; /* room for all ranks of the world */
};

/* Bytes of the group along dimension `dim` of the mesh. */
static size_t bytes_of_line(const struct question *q, const struct fsdp_device_mesh *mesh, int dim)
{
    mesh_grid_line(&mesh->grid, mesh->rank, dim, q->ranks);
    return q->bytes_of(q->ranks, mesh->grid.sizes[dim], q->ranks_per_host);
}

static size_t bytes_of_mesh(const struct question *q, const struct model_mesh *mesh)
{
    const struct fsdp_model *model = q->model;
    size_t bytes = 0;

    if (mesh->mesh != NULL) {
        bytes += bytes_of_line(q, mesh->mesh, mesh->mesh->grid.n_dims - 1);
        if (mesh->R > 1)
            bytes += bytes_of_line(q, mesh->mesh, 0);
    }
    model_list_shards(model, mesh, q->ranks);
    if (model_wants_separate_reduces(model))
        bytes += q->bytes_of(q->ranks, mesh->W, q->ranks_per_host);
    for (int g = 0; g < model->layout.n_groups; g++) {
        const int k = model->layout.groups[g].k;
        bool counted = k == 0 || model_mesh(model, g) != mesh;

        for (int before = 0; before < g; before++)
            counted = counted || (model->layout.groups[before].k == k && model_mesh(model, before) == mesh);
        if (!counted)
            bytes += q->bytes_of(q->ranks, k, q->ranks_per_host);
    }
    return bytes;
}

size_t model_group_bytes(const struct fsdp_model *model, model_group_bytes_fn bytes_of, int ranks_per_host)
{
    const int n = model->context->W;
    const struct question q = { .model = model,
                                .bytes_of = bytes_of,
                                .ranks_per_host = ranks_per_host,
                                .ranks = alloc_array((size_t)n, sizeof(int)) };
    size_t bytes;

    if (q.ranks == NULL)
        return 0; /* out of memory here means that nothing else will fit either */
    for (int i = 0; i < n; i++)
        q.ranks[i] = i;
    bytes = bytes_of(q.ranks, n, ranks_per_host);
    for (int i = 0; i < model->n_meshes; i++)
        bytes += bytes_of_mesh(&q, &model->meshes[i]);
    if (model->T > 1)
        bytes += bytes_of_line(&q, model->tensor_mesh, 0);
    free(q.ranks);
    return bytes;
}

size_t model_staging_bytes(const struct fsdp_model *model, int ranks_per_host)
{
    return model_group_bytes(model, staging_of, ranks_per_host);
}

size_t model_shared_bytes(const struct fsdp_model *model, int ranks_per_host)
{
    return model_group_bytes(model, shared_of, ranks_per_host);
}

size_t model_node_shared_bytes(const struct fsdp_model *model, int ranks_per_host)
{
    return model_group_bytes(model, segments_of, ranks_per_host);
}
