#include "tests/unit/checkpoint/state.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/shard/layout.h"
#include "shard_runtime/shardfile/contents.h"

static const struct checkpoint_tensor shapes[STATE_TENSORS] = {
    { .name = "tok_embeddings.weight", .dtype = FSDP_F32, .n_dims = 2, .shape = { 0 /* D */, 7 } },
    { .name = "optimizer.exp_avg.tok_embeddings.weight",
      .dtype = FSDP_F32,
      .n_dims = 2,
      .shape = { 0 /* D */, 7 } },
    { .name = "norm.weight", .dtype = FSDP_BF16, .n_dims = 1, .shape = { 2 } },
    { .name = "one", .dtype = FSDP_F64, .n_dims = 1, .shape = { 1 } },
    { .name = "layers.0.attention.wq.weight", .dtype = FSDP_U8, .n_dims = 3, .shape = { 11, 2, 3 } },
    { .name = "none", .dtype = FSDP_F32, .n_dims = 2, .shape = { 3, 0 } },
};

static struct checkpoint_rows rows_of(const struct state_shard *shard, int i)
{
    struct checkpoint_rows rows = { 0 };

    checkpoint_tensor_rows(&shard->tensors[i], shard->W, shard->rank, &rows, NULL);
    return rows;
}

void state_init(struct state_shard *shard, uint64_t D, int W, int rank)
{
    shard->W = W;
    shard->rank = rank;
    for (int i = 0; i < STATE_TENSORS; i++) {
        struct checkpoint_rows rows;

        shard->tensors[i] = shapes[i];
        if (i < 2)
            shard->tensors[i].shape[0] = D;
        rows = rows_of(shard, i);
        if (rows.n_rows > 0) /* NULL where a rank owns nothing, as the header allows */
            shard->tensors[i].rows = calloc(1, rows.n_rows * rows.row_bytes + 1);
    }
}

void state_free(struct state_shard *shard)
{
    for (int i = 0; i < STATE_TENSORS; i++)
        free(shard->tensors[i].rows);
}

/* Byte `at` of tensor i, counted from the start of the global tensor. */
static unsigned char value(int64_t step, int i, uint64_t at)
{
    return (unsigned char)((uint64_t)step * 131 + (uint64_t)i * 29 + at * 7 + at / 256);
}

enum visit { FILL, WIPE, COMPARE };

/* False where a byte is not the one of `step`; FILL and WIPE change it. */
static bool visit(const struct state_shard *shard, int64_t step, enum visit how)
{
    for (int i = 0; i < STATE_TENSORS; i++) {
        const struct checkpoint_rows rows = rows_of(shard, i);
        unsigned char *bytes = shard->tensors[i].rows;

        for (uint64_t at = 0; at < rows.n_rows * rows.row_bytes; at++) {
            const unsigned char want = value(step, i, rows.first * rows.row_bytes + at);

            if (how == COMPARE && bytes[at] != want)
                return false;
            if (how != COMPARE)
                bytes[at] = how == FILL ? want : 0xee;
        }
    }
    return true;
}

void state_fill(struct state_shard *shard, int64_t step)
{
    visit(shard, step, FILL);
}

void state_wipe(struct state_shard *shard)
{
    visit(shard, 0, WIPE);
}

bool state_is(const struct state_shard *shard, int64_t step)
{
    return visit(shard, step, COMPARE);
}

struct checkpoint_state state_head(int64_t step)
{
    return (struct checkpoint_state){ .step = step,
                                      .optimizer_step = (uint64_t)step,
                                      .cursor = (uint64_t)step * 12,
                                      .seed = 1234,
                                      .numerics = "{\"threads\":1,\"cpu\":\"avx2\"}",
                                      .job = "{\"model\":{\"dim\":7}}" };
}

enum fsdp_status state_write_parts(struct fsdp_io *io, const char *directory, int64_t step,
                                   uint32_t generation, uint64_t D, int W, struct state_parts *out,
                                   struct fsdp_err *err)
{
    const struct checkpoint_state head = state_head(step);
    enum fsdp_status status = FSDP_OK;

    *out = (struct state_parts){ .fence = { step, generation, (uint32_t)W, 0 } };
    commit_temporary_name(&out->fence, "secret", 6, out->temporary);
    for (int rank = 0; rank < W && status == FSDP_OK; rank++) {
        struct checkpoint_part *part = &out->parts[rank];
        struct state_shard shard;

        state_init(&shard, D, W, rank);
        state_fill(&shard, step);
        if (rank == 0)
            status = checkpoint_head(&head, generation, W, shard.tensors, STATE_TENSORS, &out->head,
                                     &out->head_length, err);
        if (status == FSDP_OK)
            status = checkpoint_write_part(io, directory, out->temporary, &head, generation, W, rank,
                                           shard.tensors, STATE_TENSORS, part, err);
        if (part->size_bytes > 0)
            out->files[out->n_files++] = (struct manifest_file){
                part->file, (uint32_t)rank, part->size_bytes, { part->checksum[0], part->checksum[1] }
            };
        state_free(&shard);
    }
    if (status != FSDP_OK)
        commit_abort(io, directory, out->temporary, NULL);
    return status;
}

enum fsdp_status state_publish(struct fsdp_io *io, const char *directory, const struct state_parts *parts,
                               struct fsdp_err *err)
{
    return commit_publish(io, directory, parts->temporary, &parts->fence, parts->head, parts->head_length,
                          parts->files, parts->n_files, err);
}

enum fsdp_status state_save(struct fsdp_io *io, const char *directory, int64_t step, uint32_t generation,
                            uint64_t D, int W, struct fsdp_err *err)
{
    struct state_parts parts;
    enum fsdp_status status = state_write_parts(io, directory, step, generation, D, W, &parts, err);

    if (status == FSDP_OK)
        status = state_publish(io, directory, &parts, err);
    free(parts.head);
    return status;
}

/* What the ranks of a world have packed, all of them in a row: one thread plays them one after another. */
struct packed {
    uint64_t *words;
    size_t stride;
    int W;
};

static enum fsdp_status agree_alone(void *user, enum fsdp_status own, struct fsdp_err *err)
{
    return own;
}

static enum fsdp_status gather_packed(void *user, const uint64_t *words, size_t n_words, uint64_t **all,
                                      size_t *stride, struct fsdp_err *err)
{
    const struct packed *packed = user;
    const size_t bytes = (size_t)packed->W * packed->stride * sizeof *words;

    *stride = packed->stride;
    *all = malloc(bytes);
    memcpy(*all, packed->words, bytes);
    return FSDP_OK;
}

/* Makes room for `stride` words a rank. */
static void widen(struct packed *packed, size_t stride)
{
    uint64_t *words = calloc((size_t)packed->W * stride, sizeof *words);

    for (int rank = 0; rank < packed->W && packed->words != NULL; rank++)
        memcpy(words + (size_t)rank * stride, packed->words + (size_t)rank * packed->stride,
               packed->stride * sizeof *words);
    free(packed->words);
    packed->words = words;
    packed->stride = stride;
}

static enum fsdp_status pack_share(struct fsdp_io *io, const char *path, int rank, struct packed *packed,
                                   struct fsdp_err *err)
{
    struct contents contents;
    enum fsdp_status status =
        contents_read_share(io, path, (uint32_t)rank, (uint32_t)packed->W, &contents, err);
    uint64_t *words = NULL;
    size_t n = 0;

    if (status != FSDP_OK)
        return status;
    status = contents_pack(&contents, &words, &n, err);
    if (status == FSDP_OK && n > packed->stride)
        widen(packed, n);
    if (status == FSDP_OK)
        memcpy(packed->words + (size_t)rank * packed->stride, words, n * sizeof *words);
    free(words);
    contents_free(&contents);
    return status;
}

enum fsdp_status state_load(struct fsdp_io *io, const char *directory, int64_t step, uint64_t D, int W,
                            struct fsdp_err *err)
{
    struct packed packed = { .W = W };
    const struct checkpoint_readers readers = { agree_alone, gather_packed, &packed };
    char path[IO_PATH_BYTES];
    enum fsdp_status status = commit_step_path(directory, step, path, err);
    int wrong = -1;

    for (int rank = 0; rank < W && status == FSDP_OK; rank++)
        status = W == 1 ? FSDP_OK : pack_share(io, path, rank, &packed, err);
    for (int rank = 0; rank < W && status == FSDP_OK; rank++) {
        struct manifest manifest;
        struct state_shard shard;

        state_init(&shard, D, W, rank);
        state_wipe(&shard);
        status = checkpoint_load(io, path, W, rank, shard.tensors, STATE_TENSORS, 0, &readers, &manifest,
                                 NULL, err);
        if (status == FSDP_OK && (!state_is(&shard, step) || manifest.step != (uint64_t)step ||
                                  manifest.cursor != (uint64_t)step * 12 || manifest.seed != 1234))
            wrong = rank;
        manifest_free(&manifest);
        state_free(&shard);
    }
    free(packed.words);
    /* A rank that loads damaged rows may have to wait for the one that verifies their file. */
    if (status == FSDP_OK && wrong >= 0)
        status =
            fsdp_fail(err, FSDP_ERR_FORMAT, "rank %d of %d loaded other values than were saved", wrong, W);
    return status;
}
