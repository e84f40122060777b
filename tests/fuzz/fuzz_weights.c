/*
 * The files of a model under libFuzzer. A list is refused with words, or its pieces are inside their files
 * and tensors and cover each tensor once. Byte 0xff separates the headers of up to three files, the first
 * being the index. A byte before each says how much data follows its header. An index that is empty is not
 * there: then the directory is listed.
 */
#include "shard_runtime/shardfile/weights.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[FILES_MOST] = { "i.json", "a.safetensors", "b.safetensors" };

/* The index as it is; a model's file with the length of its header before it and data after it. */
static void put_file(struct files *files, int file, const uint8_t *data, size_t size)
{
    const size_t header = size > 0 ? size - 1 : 0, n = 8 + header + (size > 0 ? data[0] : 0);
    uint8_t *bytes;

    if (size == 0)
        return;
    files->sizes[file] = file == 0 ? size : n;
    files->bytes[file] = bytes = calloc(1, files->sizes[file]);
    if (file == 0) {
        memcpy(bytes, data, size);
        return;
    }
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)header >> 8 * i);
    memcpy(bytes + 8, data + 1, header);
}

static void check(const struct contents *list, const struct files *files, bool indexed)
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

            while (at < FILES_MOST && strcmp(names[at], file) != 0)
                at++;
            never(piece->tensor != t || !box_is_within(&piece->box, &whole) || at == 0 || at == FILES_MOST ||
                  piece->offset > files->sizes[at] || bytes > files->sizes[at] - piece->offset);
            n_elems += box_elems(&piece->box);
        }
        never(n_elems != box_elems(&whole));
    }
    never(indexed && list->manifest.n_files == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct files files = { .io = files_io, .names = { names[0], names[1], names[2] } };
    char directory[IO_PATH_BYTES];
    struct contents list;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    for (int file = 0; file < FILES_MOST && size > 0; file++) {
        const uint8_t *end = memchr(data, 0xff, size);
        const size_t n = end == NULL ? size : (size_t)(end - data), used = end == NULL ? size : n + 1;

        put_file(&files, file, data, n);
        data += used;
        size -= used;
    }
    status = weights_list(&files.io, files.bytes[0] != NULL ? "d/i.json" : "d", &list, directory, &err);
    if (taken(status, &err)) {
        check(&list, &files, files.bytes[0] != NULL);
        contents_free(&list);
    } else {
        never(list.manifest.text != NULL || list.pieces != NULL);
    }
    for (int i = 0; i < FILES_MOST; i++)
        free((void *)(uintptr_t)files.bytes[i]);
    return 0;
}
