/*
 * A checkpoint of torch.distributed.checkpoint under libFuzzer: it is refused with words, or the pieces of
 * its list are inside their file and tensors. Two bytes say how long .metadata is; the rest is __0_0.distcp.
 */
#include "shard_runtime/shardfile/weights.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/fuzz.h"

enum { METADATA, DATA };

static void check(const struct contents *list, const struct files *files)
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
              (piece->offset > files->sizes[DATA] || bytes > files->sizes[DATA] - piece->offset));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct files files = { .io = files_io, .names = { ".metadata", "__0_0.distcp" } };
    char directory[IO_PATH_BYTES];
    struct contents list;
    struct fsdp_err err = { 0 };
    size_t length;

    if (size < 2)
        return 0;
    length = (size_t)data[0] | (size_t)data[1] << 8;
    if (length > size - 2)
        length = size - 2;
    files.bytes[METADATA] = data + 2;
    files.sizes[METADATA] = length;
    files.bytes[DATA] = data + 2 + length;
    files.sizes[DATA] = size - 2 - length;
    if (taken(weights_list(&files.io, "d", &list, directory, &err), &err)) {
        check(&list, &files);
        contents_free(&list);
    } else {
        never(list.manifest.text != NULL || list.pieces != NULL);
    }
    return 0;
}
