/* contents_pack() and contents_unpack(): one reader's pieces as words, for the other readers. */
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/contents.h"

/*
 * The words of a reader begin with HEAD_WORDS words: their number, and the manifest's checksum. The pieces
 * follow.
 */
enum { HEAD_WORDS = 3, PIECE_WORDS = 3 }; /* PIECE_WORDS: words of a piece before its offsets and sizes */

/* Returns the number of dimensions of a tensor's boxes: that of the tensor, but at least one. */
static size_t dims_of(const struct manifest_tensor *tensor)
{
    return tensor->n_dims == 0 ? 1 : tensor->n_dims;
}

enum fsdp_status contents_pack(const struct contents *contents, uint64_t **words, size_t *n_words,
                               struct fsdp_err *err)
{
    size_t n = HEAD_WORDS;
    uint64_t *at;

    for (size_t i = 0; i < contents->n_pieces; i++)
        n += PIECE_WORDS + 2 * contents->pieces[i].box.n_dims;
    *n_words = n;
    *words = at = alloc_array(n, sizeof *at);
    if (at == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu pieces of tensors", contents->n_pieces);
    *at++ = n;
    *at++ = contents->manifest.checksum[0];
    *at++ = contents->manifest.checksum[1];
    for (size_t i = 0; i < contents->n_pieces; i++) {
        const struct contents_piece *piece = &contents->pieces[i];

        *at++ = piece->tensor;
        *at++ = piece->file;
        *at++ = piece->offset;
        memcpy(at, piece->box.offsets, piece->box.n_dims * sizeof *at);
        at += piece->box.n_dims;
        memcpy(at, piece->box.sizes, piece->box.n_dims * sizeof *at);
        at += piece->box.n_dims;
    }
    return FSDP_OK;
}

/*
 * Reads the piece at the beginning of words[0 .. n_words). Returns how many words it has; 0: it is no valid
 * piece.
 */
static size_t read_piece(const struct manifest *manifest, const uint64_t *words, size_t n_words,
                         struct contents_piece *piece)
{
    const struct manifest_tensor *tensor;
    struct box whole;
    size_t n_dims;

    if (n_words < PIECE_WORDS || words[0] >= manifest->n_tensors || words[1] >= manifest->n_files)
        return 0;
    tensor = &manifest->tensors[words[0]];
    n_dims = dims_of(tensor);
    if (n_words < PIECE_WORDS + 2 * n_dims)
        return 0;
    *piece = (struct contents_piece){
        .tensor = (uint32_t)words[0], .file = (uint32_t)words[1], .offset = words[2], .box.n_dims = n_dims
    };
    memcpy(piece->box.offsets, words + PIECE_WORDS, n_dims * sizeof *words);
    memcpy(piece->box.sizes, words + PIECE_WORDS + n_dims, n_dims * sizeof *words);
    whole = box_whole(tensor->shape, tensor->n_dims);
    return box_is_within(&piece->box, &whole) ? PIECE_WORDS + 2 * n_dims : 0;
}

static enum fsdp_status add_pieces(struct contents *contents, const uint64_t *words, size_t n_words,
                                   struct fsdp_err *err)
{
    for (size_t at = HEAD_WORDS; at < n_words;) {
        struct contents_piece piece;
        const size_t n = read_piece(&contents->manifest, words + at, n_words - at, &piece);

        if (n == 0)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "what the ranks told each other of the files is damaged");
        if (!alloc_room(&contents->pieces, &contents->pieces_room, contents->n_pieces,
                        sizeof *contents->pieces))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu pieces of tensors", contents->n_pieces + 1);
        contents->pieces[contents->n_pieces++] = piece;
        at += n;
    }
    return FSDP_OK;
}

enum fsdp_status contents_unpack(struct contents *contents, const uint64_t *words, size_t stride,
                                 uint32_t n_readers, struct fsdp_err *err)
{
    for (uint32_t reader = 0; reader < n_readers; reader++) {
        const uint64_t *theirs = words + reader * stride;

        if (stride < HEAD_WORDS || theirs[0] < HEAD_WORDS || theirs[0] > stride)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "what rank %lu told of the files is damaged",
                             (unsigned long)reader);
        if (memcmp(theirs + 1, words + 1, sizeof contents->manifest.checksum) != 0)
            return fsdp_fail(err, FSDP_ERR_MISMATCH,
                             "ranks 0 and %lu found different checkpoints of step %llu: the directory must "
                             "be the same on all of them",
                             (unsigned long)reader, (unsigned long long)contents->manifest.step);
    }
    contents->n_pieces = 0;
    for (uint32_t reader = 0; reader < n_readers; reader++)
        OK_OR_RETURN(add_pieces(contents, words + reader * stride, (size_t)words[reader * stride], err));
    return FSDP_OK;
}
