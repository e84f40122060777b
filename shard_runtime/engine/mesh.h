/*
 * A device mesh inside: the grid, and for each of its dimensions the group of ranks along it that this rank
 * is in.
 */
#ifndef ENGINE_MESH_H
#define ENGINE_MESH_H

#include "shard_runtime/core/mesh.h"
#include "shard_runtime/engine/context.h"

struct fsdp_device_mesh {
    struct fsdp_context *context; /* NULL: for planning, without groups */
    struct mesh_grid grid;
    int rank;                      /* in the world; 0 without a context */
    int place[FSDP_MESH_MAX_DIMS]; /* this rank's, along each dimension */
    struct fsdp_comm *comms[FSDP_MESH_MAX_DIMS];
    bool borrowed; /* the groups belong to another mesh */
};

/**
 * Does context_agree() among the ranks of `mesh`, whose groups must be open. If the mesh has no context,
 * returns `own`.
 */
enum fsdp_status mesh_agree(const struct fsdp_device_mesh *mesh, enum fsdp_status own, struct fsdp_err *err);

#endif
