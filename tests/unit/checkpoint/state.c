#include "tests/unit/checkpoint/state.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shard/layout.h"

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

void state_fill(struct state_shard *shard, int64_t step)
{
    for (int i = 0; i < STATE_TENSORS; i++) {
        const struct checkpoint_rows rows = rows_of(shard, i);
        unsigned char *bytes = shard->tensors[i].rows;

        for (uint64_t at = 0; at < rows.n_rows * rows.row_bytes; at++)
            bytes[at] = value(step, i, rows.first * rows.row_bytes + at);
    }
}

void state_wipe(struct state_shard *shard)
{
    for (int i = 0; i < STATE_TENSORS; i++) {
        const struct checkpoint_rows rows = rows_of(shard, i);

        if (rows.n_rows * rows.row_bytes > 0)
            memset(shard->tensors[i].rows, 0xee, rows.n_rows * rows.row_bytes);
    }
}

bool state_is(const struct state_shard *shard, int64_t step)
{
    for (int i = 0; i < STATE_TENSORS; i++) {
        const struct checkpoint_rows rows = rows_of(shard, i);
        const unsigned char *bytes = shard->tensors[i].rows;

        for (uint64_t at = 0; at < rows.n_rows * rows.row_bytes; at++)
            if (bytes[at] != value(step, i, rows.first * rows.row_bytes + at))
                return false;
    }
    return true;
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

enum fsdp_status state_save(struct fsdp_io *io, const char *directory, int64_t step, uint32_t generation,
                            uint64_t D, int W, struct fsdp_err *err)
{
    const struct commit_fence fence = { step, generation, (uint32_t)W };
    const struct checkpoint_state head = state_head(step);
    struct checkpoint_part parts[16];
    struct manifest_file files[16];
    char temporary[COMMIT_NAME_BYTES], *text = NULL;
    enum fsdp_status status = FSDP_OK;
    size_t length = 0, n_files = 0;

    commit_temporary_name(step, generation, "secret", 6, temporary);
    for (int rank = 0; rank < W && status == FSDP_OK; rank++) {
        struct state_shard shard;

        state_init(&shard, D, W, rank);
        state_fill(&shard, step);
        if (rank == 0)
            status = checkpoint_head(&head, generation, W, shard.tensors, STATE_TENSORS, &text, &length, err);
        if (status == FSDP_OK)
            status = checkpoint_write_part(io, directory, temporary, &head, generation, W, rank,
                                           shard.tensors, STATE_TENSORS, &parts[rank], err);
        if (parts[rank].size_bytes > 0)
            files[n_files++] = (struct manifest_file){
                parts[rank].file,
                (uint32_t)rank,
                parts[rank].size_bytes,
                { parts[rank].checksum[0], parts[rank].checksum[1] },
            };
        state_free(&shard);
    }
    if (status == FSDP_OK)
        status = commit_publish(io, directory, temporary, &fence, text, length, files, n_files, err);
    else
        commit_abort(io, directory, temporary, NULL);
    free(text);
    return status;
}

enum fsdp_status state_load(struct fsdp_io *io, const char *directory, int64_t step, uint64_t D, int W,
                            struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    enum fsdp_status status = checkpoint_step_directory(directory, step, path, err);

    for (int rank = 0; rank < W && status == FSDP_OK; rank++) {
        struct manifest manifest;
        struct state_shard shard;

        state_init(&shard, D, W, rank);
        state_wipe(&shard);
        status =
            checkpoint_load(io, path, W, rank, shard.tensors, STATE_TENSORS, 0, &manifest, NULL, err);
        if (status == FSDP_OK && (!state_is(&shard, step) || manifest.step != (uint64_t)step ||
                                  manifest.cursor != (uint64_t)step * 12 || manifest.seed != 1234))
            status =
                fsdp_fail(err, FSDP_ERR_FORMAT, "rank %d of %d loaded other values than were saved", rank, W);
        manifest_free(&manifest);
        state_free(&shard);
    }
    return status;
}

enum fsdp_status state_load_verified(struct fsdp_io *io, const char *directory, int64_t step, uint64_t D, int W,
                                     struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    for (int rank = 0; rank < W && status == FSDP_OK; rank++)
        status = verify_named_part(io, directory, step, (size_t)rank, (size_t)W, err);
    return status == FSDP_OK ? state_load(io, directory, step, D, W, err) : status;
}
