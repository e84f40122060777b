#include "shard_runtime/shardfile/box.h"

#include <string.h>

struct box box_whole(const uint64_t *shape, size_t n_dims)
{
    struct box box = { .n_dims = n_dims == 0 ? 1 : n_dims, .sizes = { 1 } };

    for (size_t d = 0; d < n_dims; d++)
        box.sizes[d] = shape[d];
    return box;
}

uint64_t box_elems(const struct box *box)
{
    uint64_t n = 1;

    for (size_t d = 0; d < box->n_dims; d++)
        n *= box->sizes[d];
    return n;
}

bool box_is_within(const struct box *box, const struct box *outer)
{
    bool within = box->n_dims == outer->n_dims;

    for (size_t d = 0; within && d < box->n_dims; d++)
        within = box->offsets[d] >= outer->offsets[d] && box->sizes[d] <= outer->sizes[d] &&
                 box->offsets[d] - outer->offsets[d] <= outer->sizes[d] - box->sizes[d];
    return within;
}

bool box_meet(const struct box *a, const struct box *b, struct box *meet)
{
    meet->n_dims = a->n_dims;
    for (size_t d = 0; d < a->n_dims; d++) {
        const uint64_t a_end = a->offsets[d] + a->sizes[d], b_end = b->offsets[d] + b->sizes[d];
        const uint64_t first = a->offsets[d] > b->offsets[d] ? a->offsets[d] : b->offsets[d];
        const uint64_t end = a_end < b_end ? a_end : b_end;

        if (first >= end)
            return false;
        meet->offsets[d] = first;
        meet->sizes[d] = end - first;
    }
    return true;
}

bool box_is_rows(const struct box *box, const struct box *whole)
{
    bool rows = true;

    for (size_t d = 1; d < box->n_dims; d++)
        rows = rows && box->offsets[d] == 0 && box->sizes[d] == whole->sizes[d];
    return rows;
}

/*
 * The trailing dimensions that `meet` spans completely in both boxes form one run, together with the
 * dimension before them.
 */
struct box_runs box_runs_of(const struct box *meet, const struct box *a, const struct box *b)
{
    struct box_runs runs = { .a = a, .b = b, .meet = meet, .n_outer = meet->n_dims - 1, .run_elems = 1 };

    runs.run_elems = meet->sizes[runs.n_outer];
    while (runs.n_outer > 0 && meet->sizes[runs.n_outer] == a->sizes[runs.n_outer] &&
           meet->sizes[runs.n_outer] == b->sizes[runs.n_outer])
        runs.run_elems *= meet->sizes[--runs.n_outer];
    return runs;
}

/* Returns the offset within `box`, in elements, of the current run's first element. */
static uint64_t place_in(const struct box_runs *runs, const struct box *box)
{
    uint64_t place = 0;

    for (size_t d = 0; d < box->n_dims; d++)
        place = place * box->sizes[d] + (runs->meet->offsets[d] - box->offsets[d]) + runs->at[d];
    return place;
}

bool box_runs_next(struct box_runs *runs, struct box_run *run)
{
    size_t d = runs->n_outer;

    if (runs->over)
        return false;
    *run = (struct box_run){ place_in(runs, runs->a), place_in(runs, runs->b), runs->run_elems };
    while (d > 0 && ++runs->at[d - 1] == runs->meet->sizes[d - 1])
        runs->at[--d] = 0;
    runs->over = d == 0;
    return true;
}
