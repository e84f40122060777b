/*
 * A grid of ranks with named dimensions. The functions compute the position of a rank, and the ranks that
 * share a line of the grid with it. All of this is pure arithmetic; engine/mesh.c creates the process groups
 * along the dimensions.
 */
#ifndef CORE_MESH_H
#define CORE_MESH_H

#include <stdbool.h>

#include <fsdp/mesh.h>

enum { MESH_NAME_BYTES = 24 };

/**
 * A grid. `ranks` lists the ranks in row-major order: product(sizes) of them, each once. The grid owns the
 * list; mesh_grid_fini() frees it.
 */
struct mesh_grid {
    int n_dims;
    int sizes[FSDP_MESH_MAX_DIMS];
    char names[FSDP_MESH_MAX_DIMS][MESH_NAME_BYTES]; /* "": the dimension has no name */
    int *ranks;
};

/**
 * Makes the grid of ranks 0 .. product - 1. `names` may be NULL. Fails with FSDP_ERR_ARG or FSDP_ERR_NOMEM.
 * The caller calls mesh_grid_fini() in either case.
 */
enum fsdp_status mesh_grid_init(struct mesh_grid *grid, int n_dims, const int *sizes,
                                const char *const *names, struct fsdp_err *err);
/** Frees the list of ranks and sets *grid to zero. */
void mesh_grid_fini(struct mesh_grid *grid);

/** Returns the number of ranks in the grid. */
int mesh_grid_size(const struct mesh_grid *grid);
/** Stores the coordinates of `rank` in place[]. Returns false if the rank is not in the grid. */
bool mesh_grid_place(const struct mesh_grid *grid, int rank, int place[FSDP_MESH_MAX_DIMS]);
/**
 * Stores the ranks on the line through `rank` along dimension `dim`, including `rank` itself. ranks[] has
 * sizes[dim] elements, ordered by that dimension. `rank` must be in the grid.
 */
void mesh_grid_line(const struct mesh_grid *grid, int rank, int dim, int *ranks);
/** Returns the index of the dimension called `name`, or -1. */
int mesh_grid_find(const struct mesh_grid *grid, const char *name);

/**
 * Makes the grid of those ranks that differ from `rank` only in the dimensions `names`. The names must be in
 * the grid's order. Fails with FSDP_ERR_ARG or FSDP_ERR_NOMEM.
 */
enum fsdp_status mesh_grid_slice(struct mesh_grid *out, const struct mesh_grid *grid, int rank,
                                 const char *const *names, int n_names, struct fsdp_err *err);
/**
 * Makes a grid of one dimension, called `name`, that contains all ranks of `grid`. Fails like
 * mesh_grid_slice().
 */
enum fsdp_status mesh_grid_flatten(struct mesh_grid *out, const struct mesh_grid *grid, const char *name,
                                   struct fsdp_err *err);

#endif
