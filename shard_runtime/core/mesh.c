#include "shard_runtime/core/mesh.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"

enum { MAX_RANKS = 1 << 20 };

int mesh_grid_size(const struct mesh_grid *grid)
{
    int n = 1;

    for (int d = 0; d < grid->n_dims; d++)
        n *= grid->sizes[d];
    return n;
}

int mesh_grid_find(const struct mesh_grid *grid, const char *name)
{
    for (int d = 0; d < grid->n_dims; d++)
        if (name != NULL && name[0] != '\0' && strcmp(grid->names[d], name) == 0)
            return d;
    return -1;
}

static enum fsdp_status take_name(struct mesh_grid *grid, int dim, const char *name, struct fsdp_err *err)
{
    if (name == NULL || name[0] == '\0' || strlen(name) >= MESH_NAME_BYTES || strchr(name, '/') != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "a mesh: the name of dimension %d must have 1 to %d letters and no '/'", dim,
                         MESH_NAME_BYTES - 1);
    if (mesh_grid_find(grid, name) >= 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "a mesh: two dimensions are called \"%s\"", name);
    snprintf(grid->names[dim], MESH_NAME_BYTES, "%s", name);
    return FSDP_OK;
}

static enum fsdp_status alloc_ranks(struct mesh_grid *grid, struct fsdp_err *err)
{
    grid->ranks = alloc_array((size_t)mesh_grid_size(grid), sizeof *grid->ranks);
    return grid->ranks != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "a mesh: out of memory");
}

enum fsdp_status mesh_grid_init(struct mesh_grid *grid, int n_dims, const int *sizes,
                                const char *const *names, struct fsdp_err *err)
{
    long total = 1;

    *grid = (struct mesh_grid){ 0 };
    if (n_dims < 1 || n_dims > FSDP_MESH_MAX_DIMS)
        return fsdp_fail(err, FSDP_ERR_ARG, "a mesh has 1 to %d dimensions, not %d", FSDP_MESH_MAX_DIMS,
                         n_dims);
    for (int d = 0; d < n_dims; d++) {
        total = sizes[d] >= 1 && sizes[d] <= MAX_RANKS ? total * sizes[d] : MAX_RANKS + 1L;
        if (total > MAX_RANKS)
            return fsdp_fail(err, FSDP_ERR_ARG, "a mesh: dimension %d of %d ranks", d, sizes[d]);
        if (names != NULL)
            OK_OR_RETURN(take_name(grid, d, names[d], err));
        grid->sizes[d] = sizes[d];
        grid->n_dims = d + 1;
    }
    OK_OR_RETURN(alloc_ranks(grid, err));
    for (int i = 0; i < (int)total; i++)
        grid->ranks[i] = i;
    return FSDP_OK;
}

void mesh_grid_fini(struct mesh_grid *grid)
{
    free(grid->ranks);
    *grid = (struct mesh_grid){ 0 };
}

static int index_of(const struct mesh_grid *grid, const int *place)
{
    int index = 0;

    for (int d = 0; d < grid->n_dims; d++)
        index = index * grid->sizes[d] + place[d];
    return index;
}

bool mesh_grid_place(const struct mesh_grid *grid, int rank, int place[FSDP_MESH_MAX_DIMS])
{
    const int n = mesh_grid_size(grid);
    int index = 0;

    while (index < n && grid->ranks[index] != rank)
        index++;
    if (index == n)
        return false;
    for (int d = grid->n_dims - 1; d >= 0; d--) {
        place[d] = index % grid->sizes[d];
        index /= grid->sizes[d];
    }
    return true;
}

void mesh_grid_line(const struct mesh_grid *grid, int rank, int dim, int *ranks)
{
    int place[FSDP_MESH_MAX_DIMS];
    const bool there = mesh_grid_place(grid, rank, place);

    assert(there && dim >= 0 && dim < grid->n_dims);
    (void)there;
    for (place[dim] = 0; place[dim] < grid->sizes[dim]; place[dim]++)
        ranks[place[dim]] = grid->ranks[index_of(grid, place)];
}

enum fsdp_status mesh_grid_slice(struct mesh_grid *out, const struct mesh_grid *grid, int rank,
                                 const char *const *names, int n_names, struct fsdp_err *err)
{
    int place[FSDP_MESH_MAX_DIMS], dims[FSDP_MESH_MAX_DIMS] = { 0 }, n;

    *out = (struct mesh_grid){ 0 };
    if (n_names < 1 || n_names > grid->n_dims || !mesh_grid_place(grid, rank, place))
        return fsdp_fail(err, FSDP_ERR_ARG, "slicing a mesh of %d dimensions by %d names", grid->n_dims,
                         n_names);
    for (int i = 0; i < n_names; i++) {
        dims[i] = mesh_grid_find(grid, names[i]);
        if (dims[i] < 0)
            return fsdp_fail(err, FSDP_ERR_ARG, "slicing a mesh: it has no dimension \"%s\"",
                             names[i] != NULL ? names[i] : "");
        if (i > 0 && dims[i] <= dims[i - 1])
            return fsdp_fail(err, FSDP_ERR_ARG,
                             "slicing a mesh: \"%s\" must stand before \"%s\", as in the mesh", names[i],
                             names[i - 1]);
        OK_OR_RETURN(take_name(out, i, names[i], err));
        out->sizes[i] = grid->sizes[dims[i]];
        out->n_dims = i + 1;
    }
    OK_OR_RETURN(alloc_ranks(out, err));
    n = mesh_grid_size(out);
    for (int i = 0; i < n; i++) {
        int rest = i;

        for (int d = n_names - 1; d >= 0; d--) {
            place[dims[d]] = rest % out->sizes[d];
            rest /= out->sizes[d];
        }
        out->ranks[i] = grid->ranks[index_of(grid, place)];
    }
    return FSDP_OK;
}

enum fsdp_status mesh_grid_flatten(struct mesh_grid *out, const struct mesh_grid *grid, const char *name,
                                   struct fsdp_err *err)
{
    *out = (struct mesh_grid){ .n_dims = 1, .sizes = { mesh_grid_size(grid) } };
    OK_OR_RETURN(take_name(out, 0, name, err));
    OK_OR_RETURN(alloc_ranks(out, err));
    memcpy(out->ranks, grid->ranks, (size_t)out->sizes[0] * sizeof *out->ranks);
    return FSDP_OK;
}
