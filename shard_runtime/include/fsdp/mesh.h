/*
 * Device meshes: the ranks of the world as a grid of named dimensions, row by row, and a process group along
 * each dimension. PyTorch's init_device_mesh and DeviceMesh, under the same names.
 *
 *   rank 0 1 2 3 as (2, 2) "replicate", "shard":      0 1      groups along "shard":     {0, 1} {2, 3}
 *                                                     2 3      groups along "replicate": {0, 2} {1, 3}
 *
 * A mesh is destroyed after the models that were sharded over it and before its context. A mesh that was
 * sliced or flattened out of another one borrows its groups and is destroyed before it.
 *
 * Thread: the one that created the context. Creating and flattening are collective over the mesh's ranks:
 * every rank makes the same meshes in the same order.
 */
#ifndef FSDP_MESH_H
#define FSDP_MESH_H

#include <fsdp/comm.h>
#include <fsdp/context.h>
#include <fsdp/status.h>

FSDP_BEGIN_DECLS

enum { FSDP_MESH_MAX_DIMS = 4 };

struct fsdp_device_mesh;

/**
 * Create a mesh of all ranks of the world; collective.
 *
 *   context  NULL: a mesh without process groups, for planning; its dimensions give the world size
 *   sizes    (n_dims) whose product is the world size
 *   names    (n_dims), each different, of 1 to 23 bytes; NULL: no names, and the mesh cannot be sliced
 *
 *   FSDP_ERR_ARG          the shape is not the world's, or a name is empty or occurs twice
 *   FSDP_ERR_UNSUPPORTED  a group would not have the same number of ranks on each node it spans
 *   any                   another rank failed alone (<fsdp/fsdp.h>)
 */
FSDP_API enum fsdp_status fsdp_init_device_mesh(struct fsdp_device_mesh **out, struct fsdp_context *context,
                                                int n_dims, const int *sizes, const char *const *names,
                                                struct fsdp_err *err);

/** Free the mesh and its process groups; when this is allowed, see above. */
FSDP_API void fsdp_device_mesh_destroy(struct fsdp_device_mesh *mesh);

/**
 * mesh[names]: create the mesh of these dimensions that this rank belongs to. The dimensions keep the mesh's
 * order. It borrows the groups of `mesh` and is destroyed before it. FSDP_ERR_ARG: a name that `mesh` does
 * not have.
 */
FSDP_API enum fsdp_status fsdp_device_mesh_slice(struct fsdp_device_mesh **out, struct fsdp_device_mesh *mesh,
                                                 const char *const *names, int n_names, struct fsdp_err *err);

/** mesh._flatten(name): create a mesh of one dimension, called `name`, of all ranks of `mesh`; collective. */
FSDP_API enum fsdp_status fsdp_device_mesh_flatten(struct fsdp_device_mesh **out,
                                                   struct fsdp_device_mesh *mesh, const char *name,
                                                   struct fsdp_err *err);

/** Return the number of dimensions. */
FSDP_API int fsdp_device_mesh_ndim(const struct fsdp_device_mesh *mesh);

/** Return the number of ranks along dimension `dim`, or of the whole mesh if `dim` is -1. */
FSDP_API int fsdp_device_mesh_size(const struct fsdp_device_mesh *mesh, int dim);

/** Return the name of dimension `dim`, owned by the mesh; "" if it has none. */
FSDP_API const char *fsdp_device_mesh_dim_name(const struct fsdp_device_mesh *mesh, int dim);

/** Return this rank's index along dimension `dim`. */
FSDP_API int fsdp_device_mesh_get_local_rank(const struct fsdp_device_mesh *mesh, int dim);

/** Return this rank's group along dimension `dim`, owned by the mesh; NULL in a mesh without a context. */
FSDP_API struct fsdp_comm *fsdp_device_mesh_get_group(struct fsdp_device_mesh *mesh, int dim);

FSDP_END_DECLS

#endif
