/*
 * The files of a model under libFuzzer: a list is refused with words, or its pieces are inside their files
 * and tensors and cover each tensor once. Byte 0xff separates the headers of up to three files, the first
 * being the index; a byte before each says how much data follows its header. An index that is empty is not
 * there: then the directory is listed.
 */
#include <errno.h>

#include "shard_runtime/shardfile/weights.h"
#include "tests/fuzz/fuzz.h"

enum { N_FILES = 3 };

static const char *const names[N_FILES] = { "i.json", "a.safetensors", "b.safetensors" };

/* Files in memory; only what listing calls. */
struct memory {
    struct fsdp_io io; /* first */
    unsigned char *bytes[N_FILES];
    size_t sizes[N_FILES];
};

enum { DIRECTORY_FD = N_FILES };

static int find(const struct memory *memory, const char *path)
{
    for (int i = 0; i < N_FILES; i++)
        if (strncmp(path, "d/", 2) == 0 && strcmp(path + 2, names[i]) == 0 && memory->bytes[i] != NULL)
            return i;
    return strcmp(path, "d") == 0 ? DIRECTORY_FD : -1;
}

static int fuzz_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    const int fd = find((struct memory *)io, path);

    (void)flags;
    (void)mode;
    errno = ENOENT;
    return fd;
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
    const int fd = find((struct memory *)io, path);

    errno = ENOENT;
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

static int fuzz_list(struct fsdp_io *io, const char *path, struct io_names *out)
{
    (void)path;
    *out = (struct io_names){ .names = calloc(N_FILES, sizeof *out->names) };
    for (int i = 0; i < N_FILES; i++)
        if (((struct memory *)io)->bytes[i] != NULL)
            out->names[out->n++] = strdup(names[i]);
    return 0;
}

/* The index as it is; a model's file with the length of its header before it and data after it. */
static void put_file(struct memory *memory, int file, const uint8_t *data, size_t size)
{
    const size_t header = size > 0 ? size - 1 : 0, n = 8 + header + (size > 0 ? data[0] : 0);

    if (size == 0)
        return;
    if (file == 0) {
        memory->bytes[0] = malloc(size);
        memcpy(memory->bytes[0], data, size);
        memory->sizes[0] = size;
        return;
    }
    memory->bytes[file] = calloc(1, n);
    memory->sizes[file] = n;
    for (int i = 0; i < 8; i++)
        memory->bytes[file][i] = (unsigned char)((uint64_t)header >> 8 * i);
    memcpy(memory->bytes[file] + 8, data + 1, header);
}

static void check(const struct contents *list, const struct memory *memory, bool indexed)
{
    for (size_t t = 0; t < list->manifest.n_tensors; t++) {
        const struct manifest_tensor *tensor = &list->manifest.tensors[t];
        const struct box whole = box_whole(tensor->shape, tensor->n_dims);
        uint64_t n_elems = 0;

        for (size_t p = list->starts[t]; p < list->starts[t + 1]; p++) {
            const struct contents_piece *piece = &list->pieces[p];
            const uint64_t bytes = box_elems(&piece->box) *
                                   (tensor->dtype < FSDP_DTYPE_COUNT ? fsdp_dtype_size(tensor->dtype) : 0);
            const char *file = list->manifest.files[piece->file].name;
            int at = 0;

            while (at < N_FILES && strcmp(names[at], file) != 0)
                at++;
            never(piece->tensor != t || !box_is_within(&piece->box, &whole) || at == 0 || at == N_FILES ||
                  piece->offset > memory->sizes[at] || bytes > memory->sizes[at] - piece->offset);
            n_elems += box_elems(&piece->box);
        }
        never(n_elems != box_elems(&whole));
    }
    never(indexed && list->manifest.n_files == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory memory = { .io = { .open = fuzz_open,
                                     .close = fuzz_close,
                                     .pread = fuzz_pread,
                                     .fstat = fuzz_fstat,
                                     .stat = fuzz_stat,
                                     .list = fuzz_list } };
    char directory[IO_PATH_BYTES];
    struct contents list;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    for (int file = 0; file < N_FILES && size > 0; file++) {
        const uint8_t *end = memchr(data, 0xff, size);
        const size_t n = end == NULL ? size : (size_t)(end - data), used = end == NULL ? size : n + 1;

        put_file(&memory, file, data, n);
        data += used;
        size -= used;
    }
    status = weights_list(&memory.io, memory.bytes[0] != NULL ? "d/i.json" : "d", &list, directory, &err);
    if (taken(status, &err)) {
        check(&list, &memory, memory.bytes[0] != NULL);
        contents_free(&list);
    } else {
        never(list.manifest.text != NULL || list.pieces != NULL);
    }
    for (int i = 0; i < N_FILES; i++)
        free(memory.bytes[i]);
    return 0;
}
