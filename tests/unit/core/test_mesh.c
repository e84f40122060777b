/*
 * Grids of every small shape: each rank stands once, lines along a dimension part the ranks, slices and
 * flattenings are what their names say.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "shard_runtime/core/mesh.h"

static const char *const names[] = { "a", "b", "c", "d" };

static void check_places(const struct mesh_grid *grid)
{
    const int n = mesh_grid_size(grid);
    int place[FSDP_MESH_MAX_DIMS];

    for (int rank = 0; rank < n; rank++) {
        int index = 0;

        cr_assert(mesh_grid_place(grid, rank, place));
        for (int d = 0; d < grid->n_dims; d++) {
            cr_assert(place[d] >= 0 && place[d] < grid->sizes[d]);
            index = index * grid->sizes[d] + place[d];
        }
        cr_assert(index == rank, "row by row");
    }
    cr_assert(!mesh_grid_place(grid, n, place));
}

static void check_lines(const struct mesh_grid *grid)
{
    for (int d = 0; d < grid->n_dims; d++)
        for (int rank = 0; rank < mesh_grid_size(grid); rank++) {
            int line[64], theirs[64], place[FSDP_MESH_MAX_DIMS];

            mesh_grid_line(grid, rank, d, line);
            cr_assert(mesh_grid_place(grid, rank, place) && line[place[d]] == rank);
            for (int i = 0; i < grid->sizes[d]; i++) {
                cr_assert(i == 0 || line[i] > line[i - 1], "members ascend");
                mesh_grid_line(grid, line[i], d, theirs);
                cr_assert(memcmp(line, theirs, sizeof *line * (size_t)grid->sizes[d]) == 0,
                          "all agree on it");
            }
        }
}

static void check_slices(const struct mesh_grid *grid)
{
    for (unsigned kept = 1; kept < 1u << grid->n_dims; kept++)
        for (int rank = 0; rank < mesh_grid_size(grid); rank++) {
            const char *wanted[FSDP_MESH_MAX_DIMS];
            int n = 0, own[FSDP_MESH_MAX_DIMS], place[FSDP_MESH_MAX_DIMS];
            struct mesh_grid slice;

            for (int d = 0; d < grid->n_dims; d++)
                if ((kept >> d & 1u) != 0)
                    wanted[n++] = names[d];
            cr_assert(mesh_grid_slice(&slice, grid, rank, wanted, n, NULL) == FSDP_OK);
            cr_assert(slice.n_dims == n && mesh_grid_place(grid, rank, own));
            for (int i = 0; i < mesh_grid_size(&slice); i++) {
                cr_assert(mesh_grid_place(grid, slice.ranks[i], place));
                for (int d = 0; d < grid->n_dims; d++)
                    cr_assert((kept >> d & 1u) != 0 || place[d] == own[d], "only along the kept dimensions");
            }
            for (int d = 0; d < n; d++) {
                int line[64], theirs[64];

                mesh_grid_line(&slice, rank, d, line);
                mesh_grid_line(grid, rank, mesh_grid_find(grid, wanted[d]), theirs);
                cr_assert(memcmp(line, theirs, sizeof *line * (size_t)slice.sizes[d]) == 0,
                          "the same groups");
            }
            mesh_grid_fini(&slice);
        }
}

static void check_flat(const struct mesh_grid *grid)
{
    struct mesh_grid flat;

    cr_assert(mesh_grid_flatten(&flat, grid, "all", NULL) == FSDP_OK);
    cr_assert(flat.n_dims == 1 && flat.sizes[0] == mesh_grid_size(grid));
    cr_assert(memcmp(flat.ranks, grid->ranks, sizeof *flat.ranks * (size_t)flat.sizes[0]) == 0);
    mesh_grid_fini(&flat);
}

Test(mesh, ranks_lines_slices_and_flattenings_of_every_small_shape)
{
    for (int a = 1; a <= 4; a++)
        for (int b = 1; b <= 3; b++)
            for (int c = 1; c <= 3; c++)
                for (int n_dims = 1; n_dims <= 3; n_dims++) {
                    struct mesh_grid grid;

                    cr_assert(mesh_grid_init(&grid, n_dims, (int[]){ a, b, c }, names, NULL) == FSDP_OK);
                    check_places(&grid);
                    check_lines(&grid);
                    check_slices(&grid);
                    check_flat(&grid);
                    mesh_grid_fini(&grid);
                }
}

Test(mesh, impossible_shapes_names_and_slices_are_refused)
{
    static const char *const twice[] = { "a", "a" }, *const nameless[] = { "a", "" },
                             *const turned[] = { "b", "a" };
    static const int sizes[] = { 2, 2 }, none[] = { 2, 0 }, huge[] = { 1 << 20, 2 };
    struct fsdp_err err = { 0 };
    struct mesh_grid grid, out;

    cr_expect(mesh_grid_init(&grid, 0, sizes, names, &err) == FSDP_ERR_ARG);
    cr_expect(mesh_grid_init(&grid, 5, sizes, names, &err) == FSDP_ERR_ARG);
    cr_expect(mesh_grid_init(&grid, 2, none, names, &err) == FSDP_ERR_ARG);
    cr_expect(mesh_grid_init(&grid, 2, huge, names, &err) == FSDP_ERR_ARG);
    cr_expect(mesh_grid_init(&grid, 2, sizes, twice, &err) == FSDP_ERR_ARG);
    cr_expect(mesh_grid_init(&grid, 2, sizes, nameless, &err) == FSDP_ERR_ARG);
    cr_assert(mesh_grid_init(&grid, 2, sizes, names, &err) == FSDP_OK);
    cr_expect(mesh_grid_slice(&out, &grid, 0, turned, 2, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "must stand before"), "%s", err.message);
    mesh_grid_fini(&out);
    cr_expect(mesh_grid_slice(&out, &grid, 0, &names[2], 1, &err) == FSDP_ERR_ARG);
    mesh_grid_fini(&out);
    mesh_grid_fini(&grid);
}
