#include "shard_runtime/shardfile/torch_zip.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/pickle.h"

/* PKWARE's APPNOTE.TXT: 4.3.7 local header, 4.3.12 central directory, 4.3.14 to 4.3.16 its end. */
enum {
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    MOST_DIRECTORY_BYTES = 1 << 20, /* the directory of one tensor has only a few entries */
    MOST_PICKLE_BYTES = 1 << 20,
};
static const uint32_t local_magic = 0x04034b50, entry_magic = 0x02014b50, end_magic = 0x06054b50,
                      end64_magic = 0x06064b50, locator_magic = 0x07064b50;

/* The archive, a part of a file. */
struct archive {
    struct fsdp_io *io;
    int fd;
    const char *path;
    uint64_t offset, size_bytes; /* where it begins in the file, and its size */
};

struct member {
    bool found;
    uint64_t local, size_bytes; /* offset of its local header from the archive's start; size of its data */
};

static uint64_t number(const unsigned char *from, int n_bytes)
{
    uint64_t value = 0;

    for (int i = n_bytes; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

static enum fsdp_status damaged(const struct archive *archive, const char *what, struct fsdp_err *err)
{
    return fsdp_fail(err, FSDP_ERR_FORMAT, "%s, the archive at byte %llu: %s", archive->path,
                     (unsigned long long)archive->offset, what);
}

static enum fsdp_status read_at(const struct archive *archive, uint64_t at, void *bytes, uint64_t size_bytes,
                                struct fsdp_err *err)
{
    if (at > archive->size_bytes || size_bytes > archive->size_bytes - at)
        return damaged(archive, "it points out of itself", err);
    return io_read_all(archive->io, archive->fd, bytes, (size_t)size_bytes, archive->offset + at,
                       archive->path, err);
}

/*
 * Finds the central directory. An archive of more than 4 GiB has a second end record, and a locator that says
 * where it is.
 */
static enum fsdp_status find_directory(const struct archive *archive, uint64_t *at, uint64_t *size_bytes,
                                       struct fsdp_err *err)
{
    unsigned char end[END_BYTES], locator[LOCATOR_BYTES], end64[END64_BYTES];
    uint64_t begin;

    if (archive->size_bytes < END_BYTES)
        return damaged(archive, "it is too short", err);
    begin = archive->size_bytes - END_BYTES; /* PyTorch writes no comment after the end record */
    OK_OR_RETURN(read_at(archive, begin, end, sizeof end, err));
    if (number(end, 4) != end_magic)
        return damaged(archive, "it has no end of a zip archive", err);
    *size_bytes = number(end + 12, 4);
    *at = number(end + 16, 4);
    if (begin < LOCATOR_BYTES)
        return FSDP_OK;
    OK_OR_RETURN(read_at(archive, begin - LOCATOR_BYTES, locator, sizeof locator, err));
    if (number(locator, 4) != locator_magic)
        return FSDP_OK;
    OK_OR_RETURN(read_at(archive, number(locator + 8, 8), end64, sizeof end64, err));
    if (number(end64, 4) != end64_magic)
        return damaged(archive, "its second end is not where it says", err);
    *size_bytes = number(end64 + 40, 8);
    *at = number(end64 + 48, 8);
    return FSDP_OK;
}

static bool ends_in(const unsigned char *name, size_t length, const char *ending)
{
    const size_t n = strlen(ending);

    return length >= n && memcmp(name + length - n, ending, n) == 0;
}

/*
 * Reads the sizes and the offset of an entry from its extra field, if they need 64 bits. Returns false if the
 * field is malformed.
 */
static bool widen(const unsigned char *extra, size_t length, uint64_t *stored, uint64_t *size,
                  uint64_t *local)
{
    while (length >= 4) {
        const size_t n = (size_t)number(extra + 2, 2);
        const unsigned char *at = extra + 4, *const end = at + n;

        if (n > length - 4)
            return false;
        /* the field has the values in this order, and only those that do not fit 32 bits */
        if (number(extra, 2) == 1) {
            uint64_t *const wide[] = { size, stored, local };

            for (int i = 0; i < 3; i++) {
                if (*wide[i] != UINT32_MAX)
                    continue;
                if (end - at < 8)
                    return false;
                *wide[i] = number(at, 8);
                at += 8;
            }
        }
        extra += 4 + n;
        length -= 4 + n;
    }
    return true;
}

static enum fsdp_status walk_directory(const struct archive *archive, const unsigned char *bytes,
                                       size_t length, struct member *pickle, struct member *data,
                                       struct member *order, struct fsdp_err *err)
{
    for (size_t at = 0, next; at < length; at = next) {
        const unsigned char *entry = bytes + at, *name = entry + ENTRY_BYTES;
        size_t name_length, extra_length;
        uint64_t stored, size, local;
        struct member *member;

        if (length - at < ENTRY_BYTES || number(entry, 4) != entry_magic)
            return damaged(archive, "an entry of its directory is none", err);
        name_length = (size_t)number(entry + 28, 2);
        extra_length = (size_t)number(entry + 30, 2);
        next = at + ENTRY_BYTES + name_length + extra_length + (size_t)number(entry + 32, 2);
        if (next > length)
            return damaged(archive, "an entry of its directory is cut short", err);
        stored = number(entry + 20, 4);
        size = number(entry + 24, 4);
        local = number(entry + 42, 4);
        if (!widen(name + name_length, extra_length, &stored, &size, &local))
            return damaged(archive, "an entry of its directory has a broken field", err);
        member = ends_in(name, name_length, "/data.pkl")    ? pickle
                 : ends_in(name, name_length, "/data/0")    ? data
                 : ends_in(name, name_length, "/byteorder") ? order
                                                            : NULL;
        if (member == NULL)
            continue;
        if (member->found || number(entry + 10, 2) != 0 || stored != size)
            return damaged(archive, "it is compressed, or has more than one tensor", err);
        *member = (struct member){ .found = true, .local = local, .size_bytes = size };
    }
    return FSDP_OK;
}

static enum fsdp_status find_members(const struct archive *archive, struct member *pickle,
                                     struct member *data, struct member *order, struct fsdp_err *err)
{
    uint64_t at = 0, size_bytes = 0;
    unsigned char *bytes;
    enum fsdp_status status;

    OK_OR_RETURN(find_directory(archive, &at, &size_bytes, err));
    if (size_bytes > MOST_DIRECTORY_BYTES)
        return damaged(archive, "its directory is too large", err);
    bytes = malloc((size_t)size_bytes + 1);
    if (bytes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%llu bytes of an archive's directory",
                         (unsigned long long)size_bytes);
    status = read_at(archive, at, bytes, size_bytes, err);
    if (status == FSDP_OK)
        status = walk_directory(archive, bytes, (size_t)size_bytes, pickle, data, order, err);
    free(bytes);
    if (status == FSDP_OK && (!pickle->found || !data->found))
        return damaged(archive, "it has no tensor", err);
    return status;
}

/* Finds where the data of a member begins, counted from the archive's start. */
static enum fsdp_status find_bytes(const struct archive *archive, const struct member *member, uint64_t *at,
                                   struct fsdp_err *err)
{
    unsigned char local[LOCAL_BYTES];

    OK_OR_RETURN(read_at(archive, member->local, local, sizeof local, err));
    if (number(local, 4) != local_magic)
        return damaged(archive, "a member is not where its directory says", err);
    *at = member->local + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (*at > archive->size_bytes || member->size_bytes > archive->size_bytes - *at)
        return damaged(archive, "a member is cut short", err);
    return FSDP_OK;
}

/* Names that may occur in the pickle of a tensor. */
static const char *const names[] = {
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
    "torch FloatStorage",
    "torch BFloat16Storage",
    "torch DoubleStorage",
    "torch LongStorage",
    "torch IntStorage",
    "torch ByteStorage",
    "torch HalfStorage",
};
enum { N_NAMES = sizeof names / sizeof *names, REBUILD = 0, FIRST_STORAGE = 2 };
/* The element types, in the order of the storages above. */
static const enum fsdp_dtype dtypes[] = {
    FSDP_F32, FSDP_BF16, FSDP_F64, FSDP_I64, FSDP_I32, FSDP_U8, FSDP_F16
};
_Static_assert(N_NAMES - FIRST_STORAGE == sizeof dtypes / sizeof *dtypes, "a dtype for each storage");

/*
 * Reads _rebuild_tensor_v2(storage, offset, size, stride, ...), where the storage is ("storage", class, "0",
 * location, elements).
 */
static enum fsdp_status read_tensor(const struct archive *archive, const struct pickle_value *root,
                                    uint64_t data_bytes, struct torch_tensor *out, uint64_t *first,
                                    struct fsdp_err *err)
{
    const struct pickle_value *arguments = pickle_arguments(root),
                              *storage = pickle_item(pickle_item(arguments, 0), 0),
                              *size = pickle_item(arguments, 2), *stride = pickle_item(arguments, 3);
    const char *key = pickle_text(pickle_item(storage, 2));
    const int class = pickle_global(pickle_item(storage, 1));
    uint64_t n_elems = 1, end;

    if (pickle_global(root) != REBUILD || key == NULL || strcmp(key, "0") != 0 || class < FIRST_STORAGE ||
        !pickle_count(pickle_item(arguments, 1), first) || size == NULL || stride == NULL ||
        size->kind != PICKLE_TUPLE || stride->kind != PICKLE_TUPLE || size->n != stride->n)
        return damaged(archive, "its pickle describes no tensor", err);
    if (size->n > MANIFEST_MAX_DIMS)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s: a tensor of more than %d dimensions", archive->path,
                         MANIFEST_MAX_DIMS);
    out->dtype = dtypes[class - FIRST_STORAGE];
    out->n_dims = size->n;
    for (size_t d = size->n; d-- > 0;) {
        uint64_t step;

        if (!pickle_count(pickle_item(size, d), &out->shape[d]) ||
            !pickle_count(pickle_item(stride, d), &step))
            return damaged(archive, "its pickle describes no tensor", err);
        if (out->shape[d] > 1 && step != n_elems)
            return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                             "%s: a tensor that is not stored row-major (save it contiguous)", archive->path);
        if (__builtin_mul_overflow(n_elems, out->shape[d], &n_elems))
            return damaged(archive, "its tensor is too large", err);
    }
    if (__builtin_add_overflow(*first, n_elems, &end) ||
        __builtin_mul_overflow(end, fsdp_dtype_size(out->dtype), &end) || end > data_bytes)
        return damaged(archive, "its tensor is larger than its bytes", err);
    return FSDP_OK;
}

static enum fsdp_status read_pickle(const struct archive *archive, const struct member *member,
                                    uint64_t data_bytes, struct torch_tensor *out, uint64_t *first,
                                    struct fsdp_err *err)
{
    struct pickle pickle = { 0 };
    enum fsdp_status status;
    uint64_t at;
    char *bytes;

    OK_OR_RETURN(find_bytes(archive, member, &at, err));
    if (member->size_bytes > MOST_PICKLE_BYTES)
        return damaged(archive, "its pickle is too large", err);
    bytes = malloc((size_t)member->size_bytes + 1);
    if (bytes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%llu bytes of a pickle",
                         (unsigned long long)member->size_bytes);
    status = read_at(archive, at, bytes, member->size_bytes, err);
    if (status == FSDP_OK) {
        status = pickle_read(&pickle, bytes, (size_t)member->size_bytes, names, N_NAMES, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "%s, the archive at byte %llu", archive->path,
                      (unsigned long long)archive->offset);
    }
    if (status == FSDP_OK)
        status = read_tensor(archive, pickle.root, data_bytes, out, first, err);
    pickle_free(&pickle);
    free(bytes);
    return status;
}

/*
 * Checks that the elements are little-endian. Older versions of PyTorch wrote them in the order of their
 * machine without saying which; then this function assumes little-endian.
 */
static enum fsdp_status check_order(const struct archive *archive, const struct member *order,
                                    struct fsdp_err *err)
{
    static const char little[] = "little";
    char words[sizeof little - 1];
    uint64_t at;

    if (!order->found)
        return FSDP_OK;
    OK_OR_RETURN(find_bytes(archive, order, &at, err));
    if (order->size_bytes != sizeof words)
        return damaged(archive, "its bytes have another order than little-endian", err);
    OK_OR_RETURN(read_at(archive, at, words, sizeof words, err));
    return memcmp(words, little, sizeof words) == 0
               ? FSDP_OK
               : damaged(archive, "its bytes have another order than little-endian", err);
}

enum fsdp_status torch_zip_find(struct fsdp_io *io, int fd, const char *path, uint64_t offset,
                                uint64_t size_bytes, struct torch_tensor *out, struct fsdp_err *err)
{
    const struct archive archive = { io, fd, path, offset, size_bytes };
    struct member pickle = { 0 }, data = { 0 }, order = { 0 };
    uint64_t at, first;

    *out = (struct torch_tensor){ 0 };
    OK_OR_RETURN(find_members(&archive, &pickle, &data, &order, err));
    OK_OR_RETURN(check_order(&archive, &order, err));
    OK_OR_RETURN(find_bytes(&archive, &data, &at, err));
    OK_OR_RETURN(read_pickle(&archive, &pickle, data.size_bytes, out, &first, err));
    out->offset = offset + at + first * fsdp_dtype_size(out->dtype);
    return FSDP_OK;
}
