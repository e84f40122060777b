/*
 * Device meshes: the ranks of the world as a grid of named dimensions, row by row, and a process group along each
 * dimension. PyTorch's init_device_mesh and DeviceMesh, under the same names.
 *
 *   rank 0 1 2 3 as (2, 2) "replicate", "shard":      0 1      groups along "shard":     {0, 1} {2, 3}
 *                                                     2 3      groups along "replicate": {0, 2} {1, 3}
 *
 * A mesh is destroyed after the models that were sharded over it and before its context. A mesh that was sliced or
 * flattened out of another one borrows its groups and is destroyed before it.
 *
 * Thread: the one that created the context. Creating and flattening are collective over the mesh's ranks: every rank
 * makes the same meshes in the same order.
 */
#ifndef FSDP_MESH_H
#define FSDP_MESH_H

#include <stddef.h>

#include <fsdp/comm.h>
#include <fsdp/context.h>
#include <fsdp/status.h>

FSDP_BEGIN_DECLS

enum { FSDP_MESH_MAX_DIMS = 4 };

struct fsdp_device_mesh;

/**
 * All ranks of the world as a grid: the product of `sizes` (n_dims) is the world size. `names` (n_dims), each
 * different, of at most 23 letters; NULL: dimensions without names, which cannot be sliced.
 * `context` NULL makes a grid without groups, of the world size that its dimensions give: for planning.
 *   FSDP_ERR_ARG          a shape that is not the world's, or names that are empty or twice there
 *   FSDP_ERR_UNSUPPORTED  a group that would have unequally many ranks on the nodes it spans
 *   any                   another rank failed alone (<fsdp/fsdp.h>)
 */
FSDP_API enum fsdp_status fsdp_init_device_mesh(struct fsdp_device_mesh **out, struct fsdp_context *context,
                                                int n_dims, const int *sizes, const char *const *names,
                                                struct fsdp_err *err);
FSDP_API void fsdp_device_mesh_destroy(struct fsdp_device_mesh *mesh);

/** mesh[names]: the grid of these dimensions that this rank is in, in the mesh's order. */
FSDP_API enum fsdp_status fsdp_device_mesh_slice(struct fsdp_device_mesh **out, struct fsdp_device_mesh *mesh,
                                                 const char *const *names, int n_names, struct fsdp_err *err);
/** mesh._flatten(name): all of its ranks in one dimension. */
FSDP_API enum fsdp_status fsdp_device_mesh_flatten(struct fsdp_device_mesh **out,
                                                   struct fsdp_device_mesh *mesh, const char *name,
                                                   struct fsdp_err *err);

FSDP_API int fsdp_device_mesh_ndim(const struct fsdp_device_mesh *mesh);
/** Ranks along dimension `dim`; all of the mesh with -1. */
FSDP_API int fsdp_device_mesh_size(const struct fsdp_device_mesh *mesh, int dim);
/** Name of dimension `dim`; "" without one. */
FSDP_API const char *fsdp_device_mesh_dim_name(const struct fsdp_device_mesh *mesh, int dim);
/** This rank's place along dimension `dim`. */
FSDP_API int fsdp_device_mesh_get_local_rank(const struct fsdp_device_mesh *mesh, int dim);
/** The group of this rank along dimension `dim`, owned by the mesh; NULL in a mesh without context. */
FSDP_API struct fsdp_comm *fsdp_device_mesh_get_group(struct fsdp_device_mesh *mesh, int dim);

FSDP_END_DECLS

#endif
