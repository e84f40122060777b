#include "shard_runtime/shardfile/chunk_sums.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/xxh3.h"

static const char magic[] = "fsdp-chunk-sums\n", shard[] = "shard-";
enum {
    MAGIC_BYTES = sizeof magic - 1,
    HEAD_BYTES = MAGIC_BYTES + 16,
    ENTRY_BYTES = 16,
    SEAL_BYTES = 8,
    MOST_BYTES = 1 << 30, /* enough for a file of 4 TiB */
};

struct chunk_sums {
    struct chunk_sum *list;
    size_t n, room;
};

enum fsdp_status chunk_sums_create(struct chunk_sums **out, struct fsdp_err *err)
{
    *out = calloc(1, sizeof **out);
    return *out != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "memory for checksums");
}

void chunk_sums_destroy(struct chunk_sums *sums)
{
    if (sums == NULL)
        return;
    free(sums->list);
    free(sums);
}

static uint64_t begin_of(const struct chunk_sums *sums, size_t i)
{
    return i == 0 ? 0 : sums->list[i - 1].end;
}

enum fsdp_status chunk_sums_add(struct chunk_sums *sums, uint64_t size_bytes, struct fsdp_err *err)
{
    uint64_t at = begin_of(sums, sums->n);

    for (const uint64_t end = at + size_bytes; at < end;) {
        at += end - at < CHUNK_SUMS_BYTES ? end - at : CHUNK_SUMS_BYTES;
        if (!alloc_room(&sums->list, &sums->room, sums->n, sizeof *sums->list))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu checksums", sums->n + 1);
        sums->list[sums->n++] = (struct chunk_sum){ .end = at };
    }
    return FSDP_OK;
}

/* Returns the index of the first chunk that begins at `offset` or later; sums->n: there is none. */
static size_t first_from(const struct chunk_sums *sums, uint64_t offset)
{
    size_t low = 0, high = sums->n;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (begin_of(sums, middle) < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t chunk_sums_reach(const struct chunk_sums *sums, uint64_t begin, uint64_t end)
{
    const size_t after = first_from(sums, end);
    const uint64_t reach = begin_of(sums, after);

    return after > first_from(sums, begin) && reach > end ? reach : end;
}

void chunk_sums_take(struct chunk_sums *sums, uint64_t begin, uint64_t end, const void *bytes)
{
    for (size_t i = first_from(sums, begin); i < sums->n && begin_of(sums, i) < end; i++) {
        const uint64_t at = begin_of(sums, i);

        sums->list[i].sum = xxh3_64((const unsigned char *)bytes + (at - begin), sums->list[i].end - at);
    }
}

enum fsdp_status chunk_sums_path(char out[IO_PATH_BYTES], const char *path, struct fsdp_err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    const char *number = strncmp(name, shard, sizeof shard - 1) == 0 ? name + sizeof shard - 1 : name;
    const int folder = (int)(name - path), n = (int)strcspn(number, "-.");

    if (snprintf(out, IO_PATH_BYTES, "%.*ssums-%.*s", folder, path, n, number) >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path of the checksums of %.64s... is too long", path);
    return FSDP_OK;
}

static void put(unsigned char *to, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(number >> 8 * i);
}

static uint64_t get(const unsigned char *from)
{
    uint64_t number = 0;

    for (int i = 8; i-- > 0;)
        number = number << 8 | from[i];
    return number;
}

static enum fsdp_status write_file(struct fsdp_io *io, const char *path, const unsigned char *bytes,
                                   size_t size_bytes, struct fsdp_err *err)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    enum fsdp_status status;
    int fd = io_open(io, path, flags, 0666);

    if (fd < 0 && errno == EEXIST && io->unlink(io, path) == 0)
        fd = io_open(io, path, flags, 0666);
    if (fd < 0)
        return file_fail(err, "create", path);
    status = io_write_all(io, fd, bytes, size_bytes, 0, path, err);
    if (io->close(io, fd) < 0 && status == FSDP_OK)
        status = file_fail(err, "close", path);
    if (status != FSDP_OK)
        io->unlink(io, path);
    return status;
}

enum fsdp_status chunk_sums_write(struct chunk_sums *sums, struct fsdp_io *io, const char *path,
                                  struct fsdp_err *err)
{
    char own_path[IO_PATH_BYTES];
    enum fsdp_status status;
    unsigned char *bytes;
    size_t size_bytes;

    OK_OR_RETURN(chunk_sums_path(own_path, path, err));
    size_bytes = HEAD_BYTES + ENTRY_BYTES * sums->n + SEAL_BYTES;
    bytes = malloc(size_bytes);
    if (bytes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes of checksums", size_bytes);
    memcpy(bytes, magic, MAGIC_BYTES);
    put(bytes + MAGIC_BYTES, begin_of(sums, sums->n));
    put(bytes + MAGIC_BYTES + 8, sums->n);
    for (size_t i = 0; i < sums->n; i++) {
        put(bytes + HEAD_BYTES + ENTRY_BYTES * i, sums->list[i].end);
        put(bytes + HEAD_BYTES + ENTRY_BYTES * i + 8, sums->list[i].sum);
    }
    put(bytes + size_bytes - SEAL_BYTES, xxh3_64(bytes, size_bytes - SEAL_BYTES));
    status = write_file(io, own_path, bytes, size_bytes, err);
    free(bytes);
    return status;
}

/*
 * Reads the list of chunks from the bytes of a file of sums. Returns false if the file has another form or
 * belongs to another file, or if there is no memory.
 */
static bool parse(const unsigned char *bytes, size_t length, uint64_t size_bytes, struct chunk_sum **list,
                  size_t *n)
{
    uint64_t end = 0;

    *n = length < HEAD_BYTES + SEAL_BYTES ? 0 : (length - HEAD_BYTES - SEAL_BYTES) / ENTRY_BYTES;
    if (length != HEAD_BYTES + ENTRY_BYTES * *n + SEAL_BYTES || memcmp(bytes, magic, MAGIC_BYTES) != 0 ||
        get(bytes + MAGIC_BYTES) != size_bytes || get(bytes + MAGIC_BYTES + 8) != *n ||
        get(bytes + length - SEAL_BYTES) != xxh3_64(bytes, length - SEAL_BYTES))
        return false;
    *list = calloc(*n + 1, sizeof **list);
    for (size_t i = 0; i < *n && *list != NULL; i++) {
        (*list)[i] = (struct chunk_sum){ get(bytes + HEAD_BYTES + ENTRY_BYTES * i),
                                         get(bytes + HEAD_BYTES + ENTRY_BYTES * i + 8) };
        if ((*list)[i].end <= end)
            return false;
        end = (*list)[i].end;
    }
    return *list != NULL && end == size_bytes;
}

enum fsdp_status chunk_sums_read(struct fsdp_io *io, const char *path, uint64_t size_bytes,
                                 struct chunk_sum **list, size_t *n, struct fsdp_err *err)
{
    char own_path[IO_PATH_BYTES], *text = NULL;
    size_t length = 0;

    *list = NULL;
    *n = 0;
    OK_OR_RETURN(chunk_sums_path(own_path, path, err));
    OK_OR_RETURN(io_read_file(io, own_path, MOST_BYTES, &text, &length, err));
    if (!parse((const unsigned char *)text, length, size_bytes, list, n)) {
        free(*list);
        *list = NULL;
        *n = 0;
    }
    free(text);
    return *list != NULL ? FSDP_OK
                         : fsdp_fail(err, FSDP_ERR_FORMAT, "%s is damaged, or of another file", own_path);
}
