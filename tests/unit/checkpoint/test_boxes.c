/*
 * A state that was cut along two dimensions, rows over W ranks and columns over T, is loaded at any other
 * cut. What is missing or there twice of it is seen.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/shard/layout.h"
#include "tests/unit/shardfile/memory_io.h"

enum { D = 7, C = 12, MAX_RANKS = 12 };

/* A matrix of D rows and C columns, and a cube of D x 2 x C, both cut along the last dimension too. */
struct part {
    struct checkpoint_tensor tensors[2];
    float matrix[D * C], cube[D * 2 * C];
};

static float value(int t, size_t at)
{
    return (float)(t * 1000 + (int)at);
}

static void place(struct checkpoint_tensor *tensor, int W, int w, int T, int t)
{
    const struct layout_rows rows = layout_shard(D, W, w);
    const size_t last = tensor->n_dims - 1;

    memcpy(tensor->sizes, tensor->shape, sizeof tensor->sizes);
    tensor->placed = true;
    tensor->offsets[0] = rows.first;
    tensor->sizes[0] = rows.n_rows;
    tensor->sizes[last] = C / (size_t)T;
    tensor->offsets[last] = tensor->sizes[last] * (size_t)t;
}

static void part_init(struct part *part, int W, int w, int T, int t)
{
    memset(part, 0, sizeof *part);
    part->tensors[0] = (struct checkpoint_tensor){
        .name = "matrix", .dtype = FSDP_F32, .n_dims = 2, .shape = { D, C }, .rows = part->matrix
    };
    part->tensors[1] = (struct checkpoint_tensor){
        .name = "cube", .dtype = FSDP_F32, .n_dims = 3, .shape = { D, 2, C }, .rows = part->cube
    };
    for (int i = 0; i < 2; i++)
        place(&part->tensors[i], W, w, T, t);
}

/* The element of the whole that stands at `at` in this part. */
static size_t in_whole(const struct checkpoint_tensor *tensor, size_t at)
{
    size_t place_of = 0, stride = 1;

    for (size_t d = tensor->n_dims; d-- > 0;) {
        place_of += (at % tensor->sizes[d] + tensor->offsets[d]) * stride;
        at /= tensor->sizes[d];
        stride *= tensor->shape[d];
    }
    return place_of;
}

static size_t elems(const struct checkpoint_tensor *tensor)
{
    size_t n = 1;

    for (size_t d = 0; d < tensor->n_dims; d++)
        n *= tensor->sizes[d];
    return n;
}

/* Gives every element its value; or returns whether each has it. */
static bool visit(struct part *part, bool fills)
{
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < elems(&part->tensors[i]); at++) {
            float *element = (float *)part->tensors[i].rows + at;

            if (fills)
                *element = value(i, in_whole(&part->tensors[i], at));
            else if (*element != value(i, in_whole(&part->tensors[i], at)))
                return false;
        }
    return true;
}

enum damage { WHOLE, ONE_IS_MISSING, TWO_ARE_ALIKE };

static enum fsdp_status save(struct memory_io *io, int W, int T, enum damage damage, struct fsdp_err *err)
{
    const struct checkpoint_state head = { .step = 3 };
    const struct commit_fence fence = { 3, 0, (uint32_t)(W * T), 0 };
    struct manifest_file files[MAX_RANKS];
    struct checkpoint_part parts[MAX_RANKS];
    char temporary[COMMIT_NAME_BYTES], *text = NULL;
    enum fsdp_status status = FSDP_OK;
    size_t length = 0, n_files = 0;

    commit_temporary_name(&fence, "secret", 6, temporary);
    for (int rank = 0; rank < W * T && status == FSDP_OK; rank++) {
        static struct part part;
        const bool last = rank == W * T - 1;

        part_init(&part, W, rank / T, T, last && damage == TWO_ARE_ALIKE ? 0 : rank % T);
        part.tensors[1].saved_elsewhere = last && damage == ONE_IS_MISSING;
        visit(&part, true);
        if (rank == 0)
            status = checkpoint_head(&head, 0, W * T, part.tensors, 2, &text, &length, err);
        if (status == FSDP_OK)
            status = checkpoint_write_part(&io->base, "c", temporary, &head, 0, W * T, rank, part.tensors, 2,
                                           &parts[rank], err);
        if (parts[rank].size_bytes > 0)
            files[n_files++] = (struct manifest_file){ parts[rank].file,
                                                       (uint32_t)rank,
                                                       parts[rank].size_bytes,
                                                       { parts[rank].checksum[0], parts[rank].checksum[1] } };
    }
    if (status == FSDP_OK)
        status = commit_publish(&io->base, "c", temporary, &fence, text, length, files, n_files, err);
    free(text);
    return status;
}

static const int cuts[][2] = { { 1, 1 }, { 2, 1 }, { 1, 2 }, { 2, 2 }, { 3, 2 },
                               { 2, 3 }, { 1, 4 }, { 3, 4 }, { 8, 1 } };

enum { N_CUTS = sizeof cuts / sizeof *cuts };

Test(checkpoint_boxes, any_cut_loads_what_any_other_saved, .timeout = 1200)
{
    for (int from = 0; from < N_CUTS; from++) {
        struct fsdp_err err = { 0 };
        struct memory_io io;

        memory_io_init(&io);
        cr_assert(save(&io, cuts[from][0], cuts[from][1], WHOLE, &err) == FSDP_OK, "%s", err.message);
        cr_assert(verify_named_step(&io.base, "c", 3, VERIFY_CHECKSUMS, &err) == FSDP_OK, "%s", err.message);
        for (int to = 0; to < N_CUTS; to++)
            for (int rank = 0; rank < cuts[to][0] * cuts[to][1]; rank++) {
                static struct part part;
                const int T = cuts[to][1];

                part_init(&part, cuts[to][0], rank / T, T, rank % T);
                cr_assert(checkpoint_load(&io.base, "c/step-00000003", cuts[to][0] * T, rank, part.tensors, 2,
                                          0, NULL, NULL, NULL, &err) == FSDP_OK,
                          "%s", err.message);
                cr_expect(visit(&part, false), "cut %d -> %d, rank %d", from, to, rank);
            }
        memory_io_fini(&io);
    }
}

Test(checkpoint_boxes, what_is_missing_or_there_twice_is_never_published)
{
    for (int c = 0; c < N_CUTS; c++)
        for (int damage = ONE_IS_MISSING; damage <= TWO_ARE_ALIKE; damage++) {
            struct fsdp_err err = { 0 };
            struct memory_io io;

            if (cuts[c][1] == 1 || cuts[c][0] > D)
                continue;
            memory_io_init(&io);
            cr_expect(save(&io, cuts[c][0], cuts[c][1], (enum damage)damage, &err) == FSDP_ERR_FORMAT,
                      "cut %d", c);
            cr_expect_not_null(strstr(err.message, damage == ONE_IS_MISSING ? "in no file" : "twice"), "%s",
                               err.message);
            memory_io_fini(&io);
        }
}
