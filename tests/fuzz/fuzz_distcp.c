/*
 * A checkpoint of torch.distributed.checkpoint under libFuzzer: it is refused with words, or the pieces of
 * its list are inside their file and tensors. Two bytes say how long .metadata is; the rest is __0_0.distcp.
 */
#include <errno.h>

#include "shard_runtime/shardfile/weights.h"
#include "tests/fuzz/fuzz.h"

enum { METADATA, DATA, N_FILES, DIRECTORY_FD = N_FILES };

static const char *const paths[] = { "d/.metadata", "d/__0_0.distcp", "d" };

/* Files in memory; only what listing calls. */
struct memory {
    struct fsdp_io io; /* first */
    const uint8_t *bytes[N_FILES];
    size_t sizes[N_FILES];
};

static int find(const char *path)
{
    errno = ENOENT;
    for (int i = 0; i <= N_FILES; i++)
        if (strcmp(path, paths[i]) == 0)
            return i;
    return -1;
}

static int fuzz_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    (void)io;
    (void)flags;
    (void)mode;
    return find(path);
}

static int fuzz_close(struct fsdp_io *io, int fd)
{
    (void)io;
    (void)fd;
    return 0;
}

static int fuzz_fstat(struct fsdp_io *io, int fd, struct io_stat *out)
{
    *out = fd == DIRECTORY_FD
               ? (struct io_stat){ .kind = IO_DIRECTORY }
               : (struct io_stat){ .kind = IO_FILE, .size_bytes = ((struct memory *)io)->sizes[fd] };
    return 0;
}

static int fuzz_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    const int fd = find(path);

    return fd < 0 ? -1 : fuzz_fstat(io, fd, out);
}

static ssize_t fuzz_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    const struct memory *memory = (struct memory *)io;
    size_t n = size_bytes;

    if (offset >= memory->sizes[fd])
        return 0;
    if (n > memory->sizes[fd] - offset)
        n = memory->sizes[fd] - (size_t)offset;
    memcpy(bytes, memory->bytes[fd] + offset, n);
    return (ssize_t)n;
}

static void check(const struct contents *list, const struct memory *memory)
{
    for (size_t p = 0; p < list->n_pieces; p++) {
        const struct contents_piece *piece = &list->pieces[p];
        const struct manifest_tensor *tensor = &list->manifest.tensors[piece->tensor];
        const struct box whole = box_whole(tensor->shape, tensor->n_dims);
        const uint64_t bytes =
            box_elems(&piece->box) * (tensor->dtype < FSDP_DTYPE_COUNT ? fsdp_dtype_size(tensor->dtype) : 0);

        never(strcmp(list->manifest.files[piece->file].name, "__0_0.distcp") != 0 ||
              !box_is_within(&piece->box, &whole));
        never(bytes > 0 &&
              (piece->offset > memory->sizes[DATA] || bytes > memory->sizes[DATA] - piece->offset));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory memory = { .io = { .open = fuzz_open,
                                     .close = fuzz_close,
                                     .pread = fuzz_pread,
                                     .fstat = fuzz_fstat,
                                     .stat = fuzz_stat } };
    char directory[IO_PATH_BYTES];
    struct contents list;
    struct fsdp_err err = { 0 };
    size_t length;

    if (size < 2)
        return 0;
    length = (size_t)data[0] | (size_t)data[1] << 8;
    if (length > size - 2)
        length = size - 2;
    memory.bytes[METADATA] = data + 2;
    memory.sizes[METADATA] = length;
    memory.bytes[DATA] = data + 2 + length;
    memory.sizes[DATA] = size - 2 - length;
    if (taken(weights_list(&memory.io, "d", &list, directory, &err), &err)) {
        check(&list, &memory);
        contents_free(&list);
    } else {
        never(list.manifest.text != NULL || list.pieces != NULL);
    }
    return 0;
}
