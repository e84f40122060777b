/* The table of an object store: opening, and the operations on names. io_s3_impl.h has the other files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/shardfile/io_s3_impl.h"
#include "shard_runtime/shardfile/manifest.h"

/* What is there */

/* Is anything below that place? */
static int is_there(const struct io_s3_place *place)
{
    char prefix[S3_KEY_BYTES + 1];
    struct fsdp_err err = { 0 };
    struct s3_list list;
    int found;

    snprintf(prefix, sizeof prefix, "%s%s", place->at.key, place->at.key[0] != '\0' ? "/" : "");
    if (s3_list(place->client, &place->at, prefix, false, 1, &list, &err) != FSDP_OK)
        return io_s3_fail_list(&err);
    found = list.n > 0 ? 0 : io_s3_fail_as(ENOENT);
    s3_list_free(&list);
    return found;
}

/* What a path is: an object, with its size, or a directory. Makes place->at the object. */
static int look(struct io_s3_place *place, bool *is_directory, uint64_t *size_bytes)
{
    struct fsdp_err err = { 0 };

    *is_directory = true;
    *size_bytes = 0;
    if (io_s3_is_directory_name(place->name))
        return io_s3_resolve_directory(place->client, &place->at, place->name);
    if (place->at.key[0] == '\0')
        return is_there(place);
    if (io_s3_resolve_file(place) < 0)
        return -1;
    if (s3_head(place->client, &place->at, size_bytes, &err) == FSDP_OK) {
        *is_directory = false;
        return 0;
    }
    return err.status == FSDP_ERR_NOT_FOUND ? is_there(place) : io_s3_fail(&err);
}

static int s3_slot_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    struct io_s3_place place;
    uint64_t size_bytes;
    bool is_directory;

    (void)io, (void)mode;
    if ((flags & O_DIRECT) == O_DIRECT)
        return io_s3_fail_as(EINVAL);
    if (io_s3_find(path, &place) < 0)
        return -1;
    if ((flags & O_ACCMODE) != O_RDONLY) {
        if ((flags & O_CREAT) == 0)
            return io_s3_fail_as(ENOTSUP); /* an object is written as a whole */
        return io_s3_resolve_file(&place) < 0 ? -1 : io_s3_add_file(&place, IO_S3_WRITES, 0);
    }
    /* Only its name is needed, to be synced. */
    if ((flags & O_DIRECTORY) == O_DIRECTORY && !io_s3_is_step(place.name) && !io_s3_is_trash(place.name))
        return io_s3_add_file(&place, IO_S3_DIRECTORY, 0);
    if (look(&place, &is_directory, &size_bytes) < 0)
        return -1;
    if ((flags & O_DIRECTORY) == O_DIRECTORY && !is_directory)
        return io_s3_fail_as(ENOTDIR);
    return io_s3_add_file(&place, is_directory ? IO_S3_DIRECTORY : IO_S3_READS, size_bytes);
}

void io_s3_describe(const struct s3_location *at, bool is_directory, uint64_t size_bytes, struct io_stat *out)
{
    *out = (struct io_stat){ .kind = is_directory ? IO_DIRECTORY : IO_FILE,
                             .size_bytes = size_bytes,
                             .device = XXH3_64bits(at->bucket, strlen(at->bucket)),
                             .inode = XXH3_64bits(at->key, strlen(at->key)),
                             .n_links = 1 };
}

static int s3_slot_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    struct io_s3_place place;
    uint64_t size_bytes;
    bool is_directory;

    (void)io;
    if (io_s3_find(path, &place) < 0 || look(&place, &is_directory, &size_bytes) < 0)
        return -1;
    io_s3_describe(&place.at, is_directory, size_bytes, out);
    return 0;
}

/* Locks and directories, which a store does not have */

static int s3_slot_lock(struct fsdp_io *io, int fd, int operation)
{
    (void)io, (void)fd, (void)operation;
    return io_s3_fail_as(EOPNOTSUPP);
}

static int s3_slot_mkdir(struct fsdp_io *io, const char *path, mode_t mode)
{
    struct io_s3_place place;

    (void)io, (void)mode;
    return io_s3_find(path, &place);
}

static int s3_slot_exchange(struct fsdp_io *io, const char *one, const char *two)
{
    (void)io, (void)one, (void)two;
    return io_s3_fail_as(EINVAL);
}

static int s3_slot_link(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io, (void)from, (void)to;
    return io_s3_fail_as(EOPNOTSUPP);
}

/* Publishing and removing */

/* Publishes. EEXIST: there is another one, unless it is ours, whose answer was lost. */
static int publish(const struct io_s3_place *from, const struct io_s3_place *to)
{
    char words[IO_S3_NAME_BYTES + 1], found[IO_S3_NAME_BYTES];
    struct fsdp_err err = { 0 };

    snprintf(words, sizeof words, "%s\n", from->name);
    if (s3_put(to->client, &to->at, words, strlen(words), true, &err) == FSDP_OK)
        return 0;
    /* An answer may be lost after the store has done it, and a second try finds what the first one made. */
    if (io_s3_read_pointer(to->client, &to->at, found) == 0)
        return strcmp(found, from->name) == 0 ? 0 : io_s3_fail(&err);
    return err.status == FSDP_ERR_BUSY ? -1 : io_s3_fail(&err);
}

static int take_away(const struct io_s3_place *from, const struct io_s3_place *to)
{
    struct s3_location at = from->at;
    char target[IO_S3_NAME_BYTES];
    struct fsdp_err err = { 0 };

    io_s3_copy_name(target, from->name, strlen(from->name));
    if (io_s3_check_unpublished(from) < 0)
        return -1;
    if (io_s3_is_step(from->name) && io_s3_read_pointer(from->client, &at, target) < 0)
        return -1;
    if (io_s3_is_temporary(from->name) &&
        snprintf(at.key, sizeof at.key, "%.900s/" MANIFEST_FILE, from->at.key) >= (int)sizeof at.key)
        return io_s3_fail_as(ENAMETOOLONG);
    if (io_s3_add_alias(&to->at, target) < 0)
        return -1;
    if (s3_delete(from->client, &at, &err) == FSDP_OK)
        return 0;
    io_s3_drop_alias(&to->at);
    return io_s3_fail(&err);
}

static int s3_slot_rename(struct fsdp_io *io, const char *from_path, const char *to_path)
{
    struct io_s3_place from, to;

    (void)io;
    if (io_s3_find(from_path, &from) < 0 || io_s3_find(to_path, &to) < 0)
        return -1;
    if (io_s3_is_temporary(from.name) && io_s3_is_step(to.name))
        return publish(&from, &to);
    if (io_s3_is_directory_name(from.name) && !io_s3_is_trash(from.name) && io_s3_is_trash(to.name))
        return take_away(&from, &to);
    return io_s3_fail_as(EINVAL);
}

static int s3_slot_unlink(struct fsdp_io *io, const char *path)
{
    struct io_s3_place place;
    struct fsdp_err err = { 0 };

    (void)io;
    if (io_s3_find(path, &place) < 0 || (!io_s3_is_step(place.name) && io_s3_resolve_file(&place) < 0))
        return -1;
    return s3_delete(place.client, &place.at, &err) == FSDP_OK ? 0 : io_s3_fail(&err);
}

/* The objects are gone. What is left are uploads that were never ended. */
static int s3_slot_rmdir(struct fsdp_io *io, const char *path)
{
    char prefix[S3_KEY_BYTES + 1];
    struct fsdp_err err = { 0 };
    struct s3_location trash;
    struct s3_list list;
    struct io_s3_place place;
    enum fsdp_status status;

    (void)io;
    if (io_s3_find(path, &place) < 0)
        return -1;
    trash = place.at;
    if (io_s3_is_step(place.name) || io_s3_resolve_directory(place.client, &place.at, place.name) < 0)
        return io_s3_is_step(place.name) ? io_s3_fail_as(ENOTEMPTY) : -1;
    snprintf(prefix, sizeof prefix, "%s/", place.at.key);
    status = s3_list_uploads(place.client, &place.at, prefix, &list, &err);
    if (status != FSDP_OK)
        return io_s3_fail(&err);
    for (size_t i = 0; status == FSDP_OK && i < list.n; i++) {
        struct s3_location at = place.at;

        if (list.entries[i].upload == NULL || strncmp(list.entries[i].key, prefix, strlen(prefix)) != 0 ||
            snprintf(at.key, sizeof at.key, "%s", list.entries[i].key) >= (int)sizeof at.key)
            continue;
        status = s3_upload_abort(place.client, &at, list.entries[i].upload, &err);
    }
    s3_list_free(&list);
    if (status != FSDP_OK)
        return io_s3_fail(&err);
    if (io_s3_is_trash(place.name))
        io_s3_drop_alias(&trash);
    return 0;
}

/* Lists */

/* Adds the last part of the key, if it is directly below `prefix` and not in the list yet. */
static int add_name(struct io_names *out, size_t *room, const char *key, const char *prefix)
{
    const size_t n = strlen(prefix);
    size_t length;

    if (strncmp(key, prefix, n) != 0)
        return 0;
    length = strcspn(key + n, "/");
    if (length == 0)
        return 0;
    for (size_t i = 0; i < out->n; i++)
        if (strlen(out->names[i]) == length && strncmp(out->names[i], key + n, length) == 0)
            return 0;
    if (!alloc_room(&out->names, room, out->n, sizeof *out->names) ||
        (out->names[out->n] = strndup(key + n, length)) == NULL)
        return io_s3_fail_as(ENOMEM);
    out->n++;
    return 0;
}

static void hide_name(struct io_names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->names[i], name) == 0)
            names->names[i][0] = '\0';
}

/* Leaves out the temporary names that are published. */
static int hide_published(const struct io_s3_place *place, const char *prefix, struct io_names *names)
{
    size_t n = 0;

    for (size_t i = 0; i < names->n; i++) {
        struct s3_location at = place->at;
        char target[IO_S3_NAME_BYTES];

        if (!io_s3_is_step(names->names[i]))
            continue;
        if (snprintf(at.key, sizeof at.key, "%.900s%s", prefix, names->names[i]) >= (int)sizeof at.key)
            return io_s3_fail_as(ENAMETOOLONG);
        if (io_s3_read_pointer(place->client, &at, target) == 0)
            hide_name(names, target);
        else if (errno != ENOENT)
            return -1;
    }
    for (size_t i = 0; i < names->n; i++) {
        if (names->names[i][0] != '\0')
            names->names[n++] = names->names[i];
        else
            free(names->names[i]);
    }
    names->n = n;
    return 0;
}

static int add_names(const struct s3_list *list, const char *prefix, struct io_names *out, size_t *room)
{
    int result = 0;

    for (size_t i = 0; i < list->n && result == 0; i++)
        result = add_name(out, room, list->entries[i].key, prefix);
    return result;
}

static int list_place(struct io_s3_place *place, struct io_names *out)
{
    const bool is_ours = io_s3_is_directory_name(place->name);
    char prefix[S3_KEY_BYTES + 1] = "";
    struct fsdp_err err = { 0 };
    struct s3_list list;
    size_t room = 0;
    int result;

    if (is_ours && (io_s3_check_unpublished(place) < 0 ||
                    io_s3_resolve_directory(place->client, &place->at, place->name) < 0))
        return -1;
    if (place->at.key[0] != '\0')
        snprintf(prefix, sizeof prefix, "%s/", place->at.key);
    if (s3_list(place->client, &place->at, prefix, true, 0, &list, &err) != FSDP_OK)
        return io_s3_fail_list(&err);
    result = add_names(&list, prefix, out, &room);
    s3_list_free(&list);
    if (result < 0 || is_ours)
        return result;
    if (s3_list_uploads(place->client, &place->at, prefix, &list, &err) != FSDP_OK)
        return io_s3_fail_list(&err);
    result = add_names(&list, prefix, out, &room);
    s3_list_free(&list);
    if (result == 0)
        result = hide_published(place, prefix, out);
    return result == 0 && out->n == 0 ? io_s3_fail_as(ENOENT) : result;
}

static int s3_slot_list(struct fsdp_io *io, const char *path, struct io_names *out)
{
    struct io_s3_place place;
    int result, error;

    (void)io;
    *out = (struct io_names){ 0 };
    result = io_s3_find(path, &place) < 0 ? -1 : list_place(&place, out);
    error = errno;
    if (result < 0)
        io_names_free(out);
    else if (out->n > 1)
        qsort(out->names, out->n, sizeof *out->names, io_compare_names);
    errno = error;
    return result;
}

struct fsdp_io io_s3 = {
    .open = s3_slot_open,
    .close = io_s3_close,
    .pwrite = io_s3_pwrite,
    .pread = io_s3_pread,
    .allocate = io_s3_allocate,
    .ftruncate = io_s3_ftruncate,
    .fsync = io_s3_fsync,
    .fstat = io_s3_fstat,
    .lock = s3_slot_lock,
    .stat = s3_slot_stat,
    .mkdir = s3_slot_mkdir,
    .rmdir = s3_slot_rmdir,
    .rename = s3_slot_rename,
    .exchange = s3_slot_exchange,
    .link = s3_slot_link,
    .unlink = s3_slot_unlink,
    .list = s3_slot_list,
};
