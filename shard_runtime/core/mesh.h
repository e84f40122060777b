/*
 * A grid of ranks with named dimensions: who is where, and who is with whom. Pure arithmetic; the process groups
 * along the dimensions are engine/mesh.c's.
 */
#ifndef CORE_MESH_H
#define CORE_MESH_H

#include <stdbool.h>

#include <fsdp/mesh.h>

enum { MESH_NAME_BYTES = 24 };

/** `ranks` lists the grid row by row: product(sizes) of them, each once. Owned; released by mesh_grid_fini(). */
struct mesh_grid {
    int n_dims;
    int sizes[FSDP_MESH_MAX_DIMS];
    char names[FSDP_MESH_MAX_DIMS][MESH_NAME_BYTES]; /* "": without */
    int *ranks;
};

/** Ranks 0 ... product - 1 as a grid. FSDP_ERR_ARG, FSDP_ERR_NOMEM; *grid is released by fini in any case. */
enum fsdp_status mesh_grid_init(struct mesh_grid *grid, int n_dims, const int *sizes,
                                const char *const *names, struct fsdp_err *err);
void mesh_grid_fini(struct mesh_grid *grid);

/** Ranks in it. */
int mesh_grid_size(const struct mesh_grid *grid);
/** Where `rank` stands; false when it is not in the grid. */
bool mesh_grid_place(const struct mesh_grid *grid, int rank, int place[FSDP_MESH_MAX_DIMS]);
/** The ranks that differ from `rank` in dimension `dim` alone, `rank` included, in order, in ranks (sizes[dim]). */
void mesh_grid_line(const struct mesh_grid *grid, int rank, int dim, int *ranks);
/** Number of the dimension called `name`, or -1. */
int mesh_grid_find(const struct mesh_grid *grid, const char *name);

/** The grid of the dimensions `names`, which stand in the grid's order, that `rank` is in. */
enum fsdp_status mesh_grid_slice(struct mesh_grid *out, const struct mesh_grid *grid, int rank,
                                 const char *const *names, int n_names, struct fsdp_err *err);
/** One dimension of all its ranks. */
enum fsdp_status mesh_grid_flatten(struct mesh_grid *out, const struct mesh_grid *grid, const char *name,
                                   struct fsdp_err *err);

#endif
