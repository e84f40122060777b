#include "tests/unit/shardfile/files.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/safetensors.h"

static char root[256];

const char *files_begin(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root, sizeof root, "%s/fsdp-unit.XXXXXX", tmp == NULL ? "/tmp" : tmp);
    cr_assert_not_null(mkdtemp(root));
    return root;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat, (void)type, (void)ftw;
    return remove(path);
}

void files_end(void)
{
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *files_path(const char *directory, const char *name)
{
    static char paths[8][IO_PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, IO_PATH_BYTES, "%s/%s", directory, name);
    return path;
}

unsigned char *files_read(const char *path, size_t *size_bytes)
{
    char *bytes;

    cr_assert(io_read_file(&io_posix, path, SIZE_MAX - 1, &bytes, size_bytes, NULL) == FSDP_OK, "%s", path);
    return (unsigned char *)bytes;
}

void files_write(const char *path, const void *bytes, size_t size_bytes)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file, "%s", path);
    cr_assert(fwrite(bytes, 1, size_bytes, file) == size_bytes);
    cr_assert(fclose(file) == 0);
}

bool files_exist(const char *path)
{
    return access(path, F_OK) == 0;
}

int files_count(const char *path)
{
    struct io_names names;
    int n;

    if (io_posix.list(&io_posix, path, &names) < 0)
        return -1;
    n = (int)names.n;
    io_names_free(&names);
    return n;
}

float files_value(int64_t step, size_t i)
{
    return (float)step * 100 + (float)i;
}

static void shard(struct safetensors_tensor *tensor, const char *name, enum fsdp_dtype dtype, size_t n_dims,
                  uint64_t first, uint64_t n_rows, uint64_t rows, uint64_t columns, const void *data)
{
    *tensor = (struct safetensors_tensor){ .name = name,
                                           .dtype = dtype,
                                           .n_dims = n_dims,
                                           .shape = { n_rows, columns },
                                           .has_offsets = true,
                                           .offsets = { first, 0 },
                                           .has_global_shape = true,
                                           .global_shape = { rows, columns },
                                           .data = data };
}

static enum fsdp_status write_part(struct fsdp_io *io, const char *directory, uint32_t rank,
                                   struct files_save *save, struct fsdp_err *err)
{
    static const uint64_t first[FILES_RANKS + 1] = { 0, 3, 5 };
    char marks[4][24], temporary[IO_PATH_BYTES], path[IO_PATH_BYTES];
    struct safetensors_metadata metadata[4] = { { CONTENTS_STEP_KEY, marks[0] },
                                                { CONTENTS_GENERATION_KEY, marks[1] },
                                                { CONTENTS_WORLD_KEY, marks[2] },
                                                { CONTENTS_RANK_KEY, marks[3] } };
    float w[FILES_ROWS * FILES_COLUMNS], m[FILES_ROWS * FILES_COLUMNS];
    const uint16_t b = (uint16_t)(0x3f80 + save->fence.step);
    const uint64_t n_rows = first[rank + 1] - first[rank];
    struct safetensors_tensor tensors[3];
    struct safetensors_written written;
    enum fsdp_status status;

    for (size_t i = 0; i < FILES_ROWS * FILES_COLUMNS; i++) {
        w[i] = files_value(save->fence.step, i);
        m[i] = -w[i];
    }
    snprintf(marks[0], 24, "%lld", (long long)save->fence.step);
    snprintf(marks[1], 24, "%lu", (unsigned long)save->fence.generation);
    snprintf(marks[2], 24, "%d", FILES_RANKS);
    snprintf(marks[3], 24, "%lu", (unsigned long)rank);
    shard(&tensors[0], "w", FSDP_F32, 2, first[rank], n_rows, FILES_ROWS, FILES_COLUMNS,
          w + first[rank] * FILES_COLUMNS);
    shard(&tensors[1], "optimizer.exp_avg.w", FSDP_F32, 2, first[rank], n_rows, FILES_ROWS, FILES_COLUMNS,
          m + first[rank] * FILES_COLUMNS);
    shard(&tensors[2], "b", FSDP_BF16, 1, 0, 1, 1, 0, &b);
    manifest_shard_name(rank, save->names[rank]);
    status = io_join(temporary, directory, save->temporary, err);
    if (status == FSDP_OK)
        status = io_join(path, temporary, save->names[rank], err);
    if (status == FSDP_OK)
        status = safetensors_write(io, path, tensors, rank == 0 ? 3 : 2, metadata, 4, 512, &written, err);
    save->files[rank] = (struct manifest_file){ .name = save->names[rank],
                                                .rank = rank,
                                                .size_bytes = written.size_bytes,
                                                .checksum = { written.checksum[0], written.checksum[1] } };
    return status;
}

enum fsdp_status files_save_parts(struct fsdp_io *io, const char *directory, int64_t step,
                                  uint32_t generation, struct files_save *save, struct fsdp_err *err)
{
    struct manifest_tensor tensors[] = {
        { "w", FSDP_F32, 2, { FILES_ROWS, FILES_COLUMNS } },
        { "optimizer.exp_avg.w", FSDP_F32, 2, { FILES_ROWS, FILES_COLUMNS } },
        { "b", FSDP_BF16, 1, { 1 } },
    };
    const struct manifest head = { .step = (uint64_t)step,
                                   .world_size = FILES_RANKS,
                                   .generation = generation,
                                   .seed = 1234,
                                   .cursor = (uint64_t)step * 8,
                                   .optimizer_step = (uint64_t)step,
                                   .job = "{\"model\": {\"dim\": 3}}",
                                   .tensors = tensors,
                                   .n_tensors = 3 };
    enum fsdp_status status;

    *save =
        (struct files_save){ .fence = { .step = step, .generation = generation, .world_size = FILES_RANKS } };
    commit_temporary_name(step, generation, "secret", 6, save->temporary);
    status = manifest_head_text(&head, &save->head, &save->head_length, err);
    if (status == FSDP_OK)
        status = commit_begin(io, directory, save->temporary, err);
    for (uint32_t rank = 0; rank < FILES_RANKS && status == FSDP_OK; rank++)
        status = write_part(io, directory, rank, save, err);
    return status;
}

void files_save_free(struct files_save *save)
{
    free(save->head);
    save->head = NULL;
}

enum fsdp_status files_save_all(struct fsdp_io *io, const char *directory, int64_t step, uint32_t generation,
                                struct fsdp_err *err)
{
    struct files_save save;
    enum fsdp_status status = files_save_parts(io, directory, step, generation, &save, err);

    if (status == FSDP_OK)
        status = commit_publish(io, directory, save.temporary, &save.fence, save.head, save.head_length,
                                save.files, FILES_RANKS, err);
    else if (save.head != NULL)
        commit_abort(io, directory, save.temporary, NULL);
    files_save_free(&save);
    return status;
}
