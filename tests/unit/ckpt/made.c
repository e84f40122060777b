#include "tests/unit/ckpt/made.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/shard_marks.h"
#include "tests/unit/shardfile/files.h"

enum { MOST = 32 };

static float *values_of(const struct made_piece *piece)
{
    float *values = calloc(piece->sizes[0] * piece->sizes[1] + 1, sizeof *values), *to = values;

    for (uint64_t r = 0; r < piece->sizes[0]; r++)
        for (uint64_t c = 0; c < piece->sizes[1]; c++)
            *to++ = (piece->scale == 0 ? 1 : piece->scale) *
                    (float)((piece->offsets[0] + r) * piece->columns + piece->offsets[1] + c);
    return values;
}

static struct safetensors_tensor tensor_of(const struct made_piece *piece, const float *values)
{
    return (struct safetensors_tensor){ .name = piece->name,
                                        .dtype = FSDP_F32,
                                        .n_dims = 2,
                                        .shape = { piece->sizes[0], piece->sizes[1] },
                                        .has_offsets = true,
                                        .offsets = { piece->offsets[0], piece->offsets[1] },
                                        .has_global_shape = true,
                                        .global_shape = { piece->rows, piece->columns },
                                        .data = values };
}

void made_checkpoint(const char *directory, int64_t step, uint32_t world, const struct made_piece *pieces,
                     size_t n)
{
    const struct commit_fence fence = { .step = step, .world_size = world };
    char temporary[COMMIT_NAME_BYTES], names[MOST][MANIFEST_SHARD_NAME_BYTES], *head, path[IO_PATH_BYTES];
    struct manifest_tensor tensors[MOST] = { 0 };
    struct manifest_file files[MOST] = { 0 };
    struct manifest manifest = { .step = (uint64_t)step, .world_size = world, .tensors = tensors };
    struct fsdp_err err = { 0 };
    size_t n_files = 0, length;

    commit_temporary_name(&fence, "x", 1, temporary);
    cr_assert(commit_begin(&io_posix, directory, temporary, &err) == FSDP_OK, "%s", err.message);
    for (size_t i = 0, next; i < n; i = next) {
        struct safetensors_tensor parts[MOST];
        struct shards_marks marks;
        struct safetensors_written written;
        float *values[MOST];

        for (next = i; next < n && pieces[next].rank == pieces[i].rank; next++) {
            size_t t = 0;

            values[next - i] = values_of(&pieces[next]);
            parts[next - i] = tensor_of(&pieces[next], values[next - i]);
            while (t < manifest.n_tensors && strcmp(tensors[t].name, pieces[next].name) != 0)
                t++;
            if (t == manifest.n_tensors)
                tensors[manifest.n_tensors++] =
                    (struct manifest_tensor){ .name = pieces[next].name,
                                              .dtype = FSDP_F32,
                                              .n_dims = 2,
                                              .shape = { pieces[next].rows, pieces[next].columns } };
        }
        shards_mark(&marks, &(struct shards_save){ step, 0, (int)world, (int)pieces[i].rank });
        manifest_shard_name(pieces[i].rank, names[n_files]);
        snprintf(path, sizeof path, "%s/%s/%s", directory, temporary, names[n_files]);
        cr_assert(safetensors_write(&io_posix, path, parts, next - i, marks.list, SHARDS_MARKS,
                                    SAFETENSORS_ALIGNMENT, true, &written, &err) == FSDP_OK,
                  "%s", err.message);
        files[n_files] = (struct manifest_file){ .name = names[n_files],
                                                 .rank = pieces[i].rank,
                                                 .size_bytes = written.size_bytes,
                                                 .checksum = { written.checksum[0], written.checksum[1] } };
        n_files++;
        for (size_t k = 0; k < next - i; k++)
            free(values[k]);
    }
    cr_assert(manifest_head_text(&manifest, &head, &length, &err) == FSDP_OK, "%s", err.message);
    cr_assert(commit_publish(&io_posix, directory, temporary, &fence, head, length, files, n_files, &err) ==
                  FSDP_OK,
              "%s", err.message);
    free(head);
}

void made_flip(const char *path, size_t at)
{
    size_t size;
    unsigned char *bytes = files_read(path, &size);

    cr_assert(at < size);
    bytes[at] ^= 4;
    files_write(path, bytes, size);
    free(bytes);
}
