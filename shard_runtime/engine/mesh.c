#include "shard_runtime/engine/mesh.h"

#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/unshard.h"

void fsdp_device_mesh_destroy(struct fsdp_device_mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (int d = 0; d < FSDP_MESH_MAX_DIMS && !mesh->borrowed; d++)
        fsdp_comm_destroy(mesh->comms[d]);
    mesh_grid_fini(&mesh->grid);
    free(mesh);
}

/*
 * Do everything that can fail on one rank alone, before any group is opened. *ranks receives room for
 * world-size numbers.
 */
static enum fsdp_status prepare_groups(struct fsdp_device_mesh *mesh, int **ranks, struct fsdp_err *err)
{
    if (!mesh_grid_place(&mesh->grid, mesh->rank, mesh->place))
        return fsdp_fail(err, FSDP_ERR_ARG, "a mesh that rank %d is not in", mesh->rank);
    if (mesh->context == NULL)
        return FSDP_OK;
    *ranks = alloc_array((size_t)mesh->context->W, sizeof **ranks);
    if (*ranks == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a mesh: out of memory");
    for (int d = 0; d < mesh->grid.n_dims; d++) {
        mesh_grid_line(&mesh->grid, mesh->rank, d, *ranks);
        OK_OR_RETURN(
            comm_can_split(mesh->context->comm, mesh->grid.names[d], *ranks, mesh->grid.sizes[d], err));
    }
    return FSDP_OK;
}

/*
 * Open the group along dimension `dim`. Its name is the same on all of its ranks, and no other group has it.
 */
static enum fsdp_status open_group(struct fsdp_device_mesh *mesh, int dim, int *ranks, struct fsdp_err *err)
{
    struct fsdp_context *context = mesh->context;
    char name[48];

    mesh_grid_line(&mesh->grid, mesh->rank, dim, ranks);
    snprintf(name, sizeof name, "%s.%u.%d", mesh->grid.names[dim][0] != '\0' ? mesh->grid.names[dim] : "mesh",
             context->n_groups++, ranks[0]);
    return comm_split(&mesh->comms[dim], context->comm, name, ranks, mesh->grid.sizes[dim], err);
}

/*
 * Open all groups. After a failure this rank leaves the world, because others may wait for it in opening a
 * group.
 */
static enum fsdp_status open_groups(struct fsdp_device_mesh *mesh, int *ranks, struct fsdp_err *err)
{
    char words[FSDP_ERR_MESSAGE_BYTES];
    enum fsdp_status status = FSDP_OK;
    struct fsdp_err own = { 0 };

    for (int d = 0; d < mesh->grid.n_dims && mesh->context != NULL && status == FSDP_OK; d++)
        status = open_group(mesh, d, ranks, &own);
    if (status == FSDP_OK)
        return FSDP_OK;
    snprintf(words, sizeof words, "world rank %d: %.460s", mesh->rank, own.message);
    comm_fail(mesh->context->comm, status, words);
    return fsdp_fail(err, status, "%s", own.message);
}

static struct fsdp_device_mesh *new_mesh(struct fsdp_context *context)
{
    struct fsdp_device_mesh *mesh = alloc_array(1, sizeof *mesh);

    if (mesh != NULL) {
        mesh->context = context;
        mesh->rank = context != NULL ? context->rank : 0;
    }
    return mesh;
}

/* Return the mesh, or free what there is of it after a failure. */
static enum fsdp_status finish(struct fsdp_device_mesh **out, struct fsdp_device_mesh *mesh,
                               enum fsdp_status status)
{
    if (status == FSDP_OK)
        *out = mesh;
    else
        fsdp_device_mesh_destroy(mesh);
    return status;
}

enum fsdp_status fsdp_init_device_mesh(struct fsdp_device_mesh **out, struct fsdp_context *context,
                                       int n_dims, const int *sizes, const char *const *names,
                                       struct fsdp_err *err)
{
    REQUIRE(out, err);

    struct fsdp_device_mesh *mesh = new_mesh(context);
    int *ranks = NULL;
    enum fsdp_status status;

    *out = NULL;
    if (context != NULL)
        unshard_settle_all(context);
    status = GIVEN(sizes, err);
    if (status == FSDP_OK)
        status = mesh == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "a mesh: out of memory")
                              : mesh_grid_init(&mesh->grid, n_dims, sizes, names, err);
    if (status == FSDP_OK && context != NULL && mesh_grid_size(&mesh->grid) != context->W)
        status = fsdp_fail(err, FSDP_ERR_ARG, "a mesh of %d ranks in a world of %d",
                           mesh_grid_size(&mesh->grid), context->W);
    if (status == FSDP_OK)
        status = prepare_groups(mesh, &ranks, err);
    if (context != NULL)
        status = context_agree(context, status, err);
    if (status == FSDP_OK)
        status = open_groups(mesh, ranks, err);
    free(ranks);
    return finish(out, mesh, status);
}

enum fsdp_status fsdp_device_mesh_slice(struct fsdp_device_mesh **out, struct fsdp_device_mesh *mesh,
                                        const char *const *names, int n_names, struct fsdp_err *err)
{
    REQUIRE(out, err);
    REQUIRE(mesh, err);
    REQUIRE(names, err);

    struct fsdp_device_mesh *slice = new_mesh(mesh->context);
    enum fsdp_status status;

    *out = NULL;
    if (slice == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a mesh: out of memory");
    slice->borrowed = true;
    status = mesh_grid_slice(&slice->grid, &mesh->grid, mesh->rank, names, n_names, err);
    for (int d = 0; d < slice->grid.n_dims && status == FSDP_OK; d++) {
        const int of = mesh_grid_find(&mesh->grid, slice->grid.names[d]);

        slice->comms[d] = mesh->comms[of];
        slice->place[d] = mesh->place[of];
    }
    return finish(out, slice, status);
}

enum fsdp_status fsdp_device_mesh_flatten(struct fsdp_device_mesh **out, struct fsdp_device_mesh *mesh,
                                          const char *name, struct fsdp_err *err)
{
    REQUIRE(out, err);
    REQUIRE(mesh, err);

    struct fsdp_device_mesh *flat = new_mesh(mesh->context);
    int *ranks = NULL;
    enum fsdp_status status;

    *out = NULL;
    if (mesh->context != NULL)
        unshard_settle_all(mesh->context);
    status = flat == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "a mesh: out of memory")
                          : mesh_grid_flatten(&flat->grid, &mesh->grid, name, err);
    if (status == FSDP_OK)
        status = prepare_groups(flat, &ranks, err);
    status = mesh_agree(mesh, status, err);
    if (status == FSDP_OK)
        status = open_groups(flat, ranks, err);
    free(ranks);
    return finish(out, flat, status);
}

int fsdp_device_mesh_ndim(const struct fsdp_device_mesh *mesh)
{
    return mesh != NULL ? mesh->grid.n_dims : 0;
}

int fsdp_device_mesh_size(const struct fsdp_device_mesh *mesh, int dim)
{
    if (mesh == NULL)
        return 0;
    return dim < 0 ? mesh_grid_size(&mesh->grid) : dim < mesh->grid.n_dims ? mesh->grid.sizes[dim] : 1;
}

static bool has_dim(const struct fsdp_device_mesh *mesh, int dim)
{
    return mesh != NULL && dim >= 0 && dim < mesh->grid.n_dims;
}

const char *fsdp_device_mesh_dim_name(const struct fsdp_device_mesh *mesh, int dim)
{
    return has_dim(mesh, dim) ? mesh->grid.names[dim] : "";
}

int fsdp_device_mesh_get_local_rank(const struct fsdp_device_mesh *mesh, int dim)
{
    return has_dim(mesh, dim) ? mesh->place[dim] : 0;
}

struct fsdp_comm *fsdp_device_mesh_get_group(struct fsdp_device_mesh *mesh, int dim)
{
    return has_dim(mesh, dim) ? mesh->comms[dim] : NULL;
}
