#include "shard_runtime/shardfile/io_s3.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/hide_memory.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/objectstore/s3_client.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/manifest.h"

enum {
    WINDOW_FIRST_BYTES = 64 << 10, /* of reading ahead: headers are small; then twice as much each time */
    WINDOW_MOST_BYTES = 8 << 20,
    NAME_MAX_BYTES = 128,
};

/* Part of an object that is being written. */
struct part {
    unsigned char *bytes; /* NULL: nothing was written into it, or it was sent */
    size_t filled;
    bool sent;
};

struct file {
    int fd;
    enum { READS, WRITES, IS_DIRECTORY } kind;
    struct s3_location at;
    pthread_mutex_t mutex;
    uint64_t size_bytes; /* reading: of the object; writing: where the last byte written ends */

    /* Reading: bytes of the object from window_at on. */
    unsigned char *window;
    uint64_t window_at;
    size_t window_bytes, window_next;

    /* Writing. */
    uint64_t part_bytes; /* 0: not known yet */
    struct part *parts;
    char (*etags)[S3_ETAG_BYTES];
    size_t n_parts, parts_room, etags_room;
    char upload[S3_UPLOAD_BYTES]; /* "": none was begun */
    bool failed, ended;
};

/* What trash names stand for, which this process has given. */
struct alias {
    struct alias *next;
    char *path, *target;
};

/* One for the process, as descriptors are. */
static struct {
    pthread_mutex_t mutex;
    struct s3_client *client;
    size_t part_bytes;
    struct alias *aliases;
    struct file **files; /* (room) by descriptor */
    size_t room;
    _Atomic int n_open;
} store = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Errors */

static int fail(const struct fsdp_err *err)
{
    switch (err->status) {
    case FSDP_ERR_NOT_FOUND:
        errno = ENOENT;
        break;
    case FSDP_ERR_BUSY:
        errno = EEXIST;
        break;
    case FSDP_ERR_NOMEM:
        errno = ENOMEM;
        break;
    default:
        file_remote_failed(err->message);
    }
    return -1;
}

/* Of a list: only the bucket can be missing, and then there is no store for checkpoints. */
static int fail_list(const struct fsdp_err *err)
{
    if (err->status != FSDP_ERR_NOT_FOUND)
        return fail(err);
    file_remote_failed(err->message);
    return -1;
}

static int fail_as(int error)
{
    errno = error;
    return -1;
}

/* The client */

static const char *variable(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

static enum fsdp_status make_client(struct s3_client **out, struct fsdp_err *err)
{
    struct s3_account *account = calloc(1, sizeof *account);
    enum fsdp_status status;

    *out = NULL;
    if (account == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a client of an object store");
    core_hide_memory();
    status = s3_account_read(account, variable, NULL, err);
    if (status == FSDP_OK)
        status = s3_client_create(out, account, &s3_patience_default, err);
    explicit_bzero(account, sizeof *account);
    free(account);
    return status;
}

/* The client of the process, which lives as long as it. */
static enum fsdp_status get_client(struct s3_client **out, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    pthread_mutex_lock(&store.mutex);
    if (store.client == NULL)
        status = make_client(&store.client, err);
    *out = store.client;
    pthread_mutex_unlock(&store.mutex);
    return status;
}

void io_s3_use(struct s3_client *client, size_t part_bytes)
{
    pthread_mutex_lock(&store.mutex);
    store.client = client;
    store.part_bytes = part_bytes;
    pthread_mutex_unlock(&store.mutex);
}

enum fsdp_status io_s3_check(const char *path, struct fsdp_err *err)
{
    struct s3_location at;
    struct s3_client *client;

    OK_OR_RETURN(s3_location_parse(&at, path, err));
    if (at.key[0] == '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: name a prefix in the bucket for this run's checkpoints",
                         path);
    return get_client(&client, err);
}

/* Paths */

/* A path of the table, and the client. */
struct place {
    struct s3_client *client;
    struct s3_location at;
    char name[NAME_MAX_BYTES]; /* the last part of the path; "": too long to be one of ours */
};

/* A directory that stands for another one: DIR/step-N, or a trash name. */
static bool is_step(const char *name)
{
    return commit_parse_step(name) >= 0;
}

static bool is_temporary(const char *name)
{
    struct commit_fence save;

    return commit_parse_temporary(name, &save);
}

static bool is_trash(const char *name)
{
    return strncmp(name, COMMIT_TRASH_PREFIX, sizeof COMMIT_TRASH_PREFIX - 1) == 0;
}

static void copy_name(char out[NAME_MAX_BYTES], const char *from, size_t length)
{
    out[0] = '\0';
    if (length < NAME_MAX_BYTES) {
        memcpy(out, from, length);
        out[length] = '\0';
    }
}

static int find_place(const char *path, struct place *place)
{
    struct fsdp_err err = { 0 };
    const char *slash;

    if (s3_location_parse(&place->at, path, &err) != FSDP_OK || get_client(&place->client, &err) != FSDP_OK)
        return fail(&err);
    slash = strrchr(place->at.key, '/');
    slash = slash == NULL ? place->at.key : slash + 1;
    copy_name(place->name, slash, strlen(slash));
    return 0;
}

/* Replaces the last part of the key. */
static int set_last(struct s3_location *at, const char *name)
{
    char *slash = strrchr(at->key, '/'), *last = slash == NULL ? at->key : slash + 1;
    const size_t room = sizeof at->key - (size_t)(last - at->key);

    return (size_t)snprintf(last, room, "%s", name) < room ? 0 : fail_as(ENAMETOOLONG);
}

static bool same_place(const struct s3_location *one, const char *path)
{
    const size_t n = strlen(one->bucket);

    return strncmp(path, one->bucket, n) == 0 && path[n] == '/' && strcmp(path + n + 1, one->key) == 0;
}

/* Finds what the trash name at that place stands for. */
static bool find_alias(const struct s3_location *at, char target[NAME_MAX_BYTES])
{
    bool found = false;

    pthread_mutex_lock(&store.mutex);
    for (struct alias *alias = store.aliases; alias != NULL && !found; alias = alias->next)
        if (same_place(at, alias->path)) {
            copy_name(target, alias->target, strlen(alias->target));
            found = true;
        }
    pthread_mutex_unlock(&store.mutex);
    return found;
}

static void drop_alias(const struct s3_location *at)
{
    pthread_mutex_lock(&store.mutex);
    for (struct alias **link = &store.aliases; *link != NULL;) {
        struct alias *alias = *link;

        if (!same_place(at, alias->path)) {
            link = &alias->next;
            continue;
        }
        *link = alias->next;
        free(alias->path);
        free(alias->target);
        free(alias);
    }
    pthread_mutex_unlock(&store.mutex);
}

static int add_alias(const struct s3_location *at, const char *target)
{
    struct alias *alias = calloc(1, sizeof *alias);

    drop_alias(at);
    if (alias != NULL) {
        alias->target = strdup(target);
        if (asprintf(&alias->path, "%s/%s", at->bucket, at->key) < 0)
            alias->path = NULL;
    }
    if (alias == NULL || alias->target == NULL || alias->path == NULL) {
        if (alias != NULL) {
            free(alias->target);
            free(alias->path);
        }
        free(alias);
        return fail_as(ENOMEM);
    }
    pthread_mutex_lock(&store.mutex);
    alias->next = store.aliases;
    store.aliases = alias;
    pthread_mutex_unlock(&store.mutex);
    return 0;
}

/* Reads the object DIR/step-N: which temporary name it has. ENOENT: there is no such checkpoint. */
static int read_pointer(struct s3_client *client, const struct s3_location *at, char target[NAME_MAX_BYTES])
{
    struct fsdp_err err = { 0 };
    size_t n = 0;

    if (s3_get(client, at, 0, target, NAME_MAX_BYTES - 1, &n, &err) != FSDP_OK)
        return fail(&err);
    target[n] = '\0';
    target[strcspn(target, "\n")] = '\0';
    if (is_temporary(target))
        return 0;
    fsdp_fail(&err, FSDP_ERR_IO, "s3://%s/%s names no save: it is no checkpoint of fsdprun", at->bucket,
              at->key);
    return fail(&err);
}

/*
 * Returns -1 and ENOENT if that temporary name was published, as after a rename: what is below it is the
 * checkpoint's now. Any other name is as it was: 0.
 */
static int check_unpublished(const struct place *place)
{
    struct s3_location at = place->at;
    struct commit_fence save;
    char step[COMMIT_NAME_BYTES], found[NAME_MAX_BYTES];

    if (!commit_parse_temporary(place->name, &save))
        return 0;
    commit_step_name(save.step, step);
    if (set_last(&at, step) < 0)
        return -1;
    if (read_pointer(place->client, &at, found) < 0)
        return errno == ENOENT ? 0 : -1;
    return strcmp(found, place->name) != 0 ? 0 : fail_as(ENOENT);
}

/* Makes `at`, whose last part is `name`, the directory that it stands for. */
static int resolve_directory(struct s3_client *client, struct s3_location *at, const char *name)
{
    char target[NAME_MAX_BYTES];

    if (is_trash(name)) {
        if (!find_alias(at, target))
            return fail_as(ENOENT);
    } else if (!is_step(name)) {
        return 0;
    } else if (read_pointer(client, at, target) < 0) {
        return -1;
    }
    return set_last(at, target);
}

/* Makes place->at the object of a file in a directory that stands for another one. */
static int resolve_file(struct place *place)
{
    struct s3_location folder = place->at;
    char *slash = strrchr(folder.key, '/'), parent[NAME_MAX_BYTES];
    const char *before;

    if (slash == NULL)
        return 0;
    *slash = '\0';
    before = strrchr(folder.key, '/');
    before = before == NULL ? folder.key : before + 1;
    copy_name(parent, before, strlen(before));
    if (resolve_directory(place->client, &folder, parent) < 0)
        return -1;
    if (snprintf(place->at.key, sizeof place->at.key, "%.900s/%s", folder.key, place->name) >=
        (int)sizeof place->at.key)
        return fail_as(ENAMETOOLONG);
    return 0;
}

static bool is_directory_name(const char *name)
{
    return is_step(name) || is_temporary(name) || is_trash(name);
}

/* Descriptors */

static struct file *file_of(int fd)
{
    struct file *file = NULL;

    pthread_mutex_lock(&store.mutex);
    if (fd >= 0 && (size_t)fd < store.room)
        file = store.files[fd];
    pthread_mutex_unlock(&store.mutex);
    return file;
}

bool io_s3_owns(int fd)
{
    return atomic_load_explicit(&store.n_open, memory_order_acquire) > 0 && file_of(fd) != NULL;
}

static void free_file(struct file *file)
{
    for (size_t i = 0; i < file->n_parts; i++)
        free(file->parts[i].bytes);
    free(file->parts);
    free(file->etags);
    free(file->window);
    pthread_mutex_destroy(&file->mutex);
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}

/* Enters a file. Returns its descriptor. */
static int add_file(const struct place *place, int kind, uint64_t size_bytes)
{
    struct file *file = calloc(1, sizeof *file);
    bool entered = false;
    int fd;

    if (file == NULL)
        return fail_as(ENOMEM);
    file->kind = kind;
    file->at = place->at;
    file->size_bytes = size_bytes;
    file->window_next = WINDOW_FIRST_BYTES;
    pthread_mutex_init(&file->mutex, NULL);
    fd = file->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pthread_mutex_lock(&store.mutex);
    entered = fd >= 0 && alloc_room(&store.files, &store.room, (size_t)fd, sizeof *store.files);
    if (entered)
        store.files[fd] = file;
    pthread_mutex_unlock(&store.mutex);
    if (entered) {
        atomic_fetch_add_explicit(&store.n_open, 1, memory_order_release);
        return fd;
    }
    free_file(file);
    return fail_as(fd < 0 ? EMFILE : ENOMEM);
}

/* Is anything below that place? */
static int is_there(const struct place *place)
{
    char prefix[S3_KEY_BYTES + 1];
    struct fsdp_err err = { 0 };
    struct s3_list list;
    int found;

    snprintf(prefix, sizeof prefix, "%s%s", place->at.key, place->at.key[0] != '\0' ? "/" : "");
    if (s3_list(place->client, &place->at, prefix, false, 1, &list, &err) != FSDP_OK)
        return fail_list(&err);
    found = list.n > 0 ? 0 : fail_as(ENOENT);
    s3_list_free(&list);
    return found;
}

/* What a path is: an object, with its size, or a directory. Makes place->at the object. */
static int look(struct place *place, bool *is_directory, uint64_t *size_bytes)
{
    struct fsdp_err err = { 0 };

    *is_directory = true;
    *size_bytes = 0;
    if (is_directory_name(place->name))
        return resolve_directory(place->client, &place->at, place->name);
    if (place->at.key[0] == '\0')
        return is_there(place);
    if (resolve_file(place) < 0)
        return -1;
    if (s3_head(place->client, &place->at, size_bytes, &err) == FSDP_OK) {
        *is_directory = false;
        return 0;
    }
    return err.status == FSDP_ERR_NOT_FOUND ? is_there(place) : fail(&err);
}

static int s3_slot_open(struct fsdp_io *io, const char *path, int flags, mode_t mode)
{
    struct place place;
    uint64_t size_bytes;
    bool is_directory;

    (void)io, (void)mode;
    if ((flags & O_DIRECT) == O_DIRECT)
        return fail_as(EINVAL);
    if (find_place(path, &place) < 0)
        return -1;
    if ((flags & O_ACCMODE) != O_RDONLY) {
        if ((flags & O_CREAT) == 0)
            return fail_as(ENOTSUP); /* an object is written as a whole */
        return resolve_file(&place) < 0 ? -1 : add_file(&place, WRITES, 0);
    }
    /* Only its name is needed, to be synced. */
    if ((flags & O_DIRECTORY) == O_DIRECTORY && !is_step(place.name) && !is_trash(place.name))
        return add_file(&place, IS_DIRECTORY, 0);
    if (look(&place, &is_directory, &size_bytes) < 0)
        return -1;
    if ((flags & O_DIRECTORY) == O_DIRECTORY && !is_directory)
        return fail_as(ENOTDIR);
    return add_file(&place, is_directory ? IS_DIRECTORY : READS, size_bytes);
}

/* Reading */

static int fill_window(struct file *file, struct s3_client *client, uint64_t offset, size_t wanted)
{
    const uint64_t left = file->size_bytes - offset;
    size_t n = wanted > file->window_next ? wanted : file->window_next;
    struct fsdp_err err = { 0 };
    unsigned char *window;

    /* A jump needs no more than was asked for, until the next reads follow each other again. */
    if (offset != file->window_at + file->window_bytes && wanted >= WINDOW_FIRST_BYTES)
        n = wanted;
    n = n < WINDOW_MOST_BYTES ? n : WINDOW_MOST_BYTES;
    n = n < left ? n : (size_t)left;
    window = realloc(file->window, n);
    file->window_bytes = 0;
    if (window == NULL)
        return fail_as(ENOMEM);
    file->window = window;
    file->window_at = offset;
    if (s3_get(client, &file->at, offset, window, n, &file->window_bytes, &err) != FSDP_OK)
        return fail(&err);
    file->window_next = n * 2 < WINDOW_MOST_BYTES ? n * 2 : WINDOW_MOST_BYTES;
    return 0;
}

static ssize_t read_file(struct file *file, struct s3_client *client, void *bytes, size_t size_bytes,
                         uint64_t offset)
{
    size_t n;

    if (offset >= file->size_bytes)
        return 0;
    if ((offset < file->window_at || offset >= file->window_at + file->window_bytes) &&
        fill_window(file, client, offset, size_bytes) < 0)
        return -1;
    n = file->window_bytes - (size_t)(offset - file->window_at);
    n = n < size_bytes ? n : size_bytes;
    if (n > 0)
        memcpy(bytes, file->window + (offset - file->window_at), n);
    return (ssize_t)n;
}

static ssize_t s3_slot_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    struct file *file = file_of(fd);
    struct fsdp_err err = { 0 };
    struct s3_client *client;
    ssize_t n;

    (void)io;
    if (file == NULL || file->kind != READS)
        return fail_as(EBADF);
    if (get_client(&client, &err) != FSDP_OK)
        return fail(&err);
    pthread_mutex_lock(&file->mutex);
    n = read_file(file, client, bytes, size_bytes, offset);
    pthread_mutex_unlock(&file->mutex);
    return n;
}

/* Writing */

static int choose_parts(struct file *file, uint64_t size_bytes)
{
    if (file->part_bytes == 0)
        file->part_bytes = store.part_bytes != 0 ? store.part_bytes : s3_part_bytes(size_bytes);
    return file->part_bytes != 0 ? 0 : fail_as(EFBIG);
}

static int make_room(struct file *file, size_t n_parts)
{
    if (n_parts > S3_PARTS_MAX)
        return fail_as(EFBIG);
    while (file->n_parts < n_parts) {
        if (!alloc_room(&file->parts, &file->parts_room, file->n_parts, sizeof *file->parts) ||
            !alloc_room(&file->etags, &file->etags_room, file->n_parts, sizeof *file->etags))
            return fail_as(ENOMEM);
        file->parts[file->n_parts] = (struct part){ .bytes = NULL };
        file->etags[file->n_parts++][0] = '\0';
    }
    return 0;
}

static int send_part(struct file *file, struct s3_client *client, size_t i)
{
    struct part *part = &file->parts[i];
    struct fsdp_err err = { 0 };
    enum fsdp_status status = FSDP_OK;

    if (file->upload[0] == '\0')
        status = s3_upload_begin(client, &file->at, file->upload, &err);
    if (status == FSDP_OK)
        status = s3_upload_part(client, &file->at, file->upload, (int)i + 1, part->bytes, part->filled,
                                file->etags[i], &err);
    if (status != FSDP_OK)
        return fail(&err);
    free(part->bytes);
    part->bytes = NULL;
    part->sent = true;
    return 0;
}

/* Copies into the parts. What is complete is sent, except a first part that may be the whole object. */
static int write_file(struct file *file, struct s3_client *client, const unsigned char *bytes,
                      size_t size_bytes, uint64_t offset)
{
    const uint64_t end = offset + size_bytes;

    if (choose_parts(file, end) < 0 ||
        make_room(file, (size_t)((end + file->part_bytes - 1) / file->part_bytes)) < 0)
        return -1;
    file->size_bytes = end > file->size_bytes ? end : file->size_bytes;
    while (size_bytes > 0) {
        const size_t i = (size_t)(offset / file->part_bytes), at = (size_t)(offset % file->part_bytes);
        struct part *part = &file->parts[i];
        size_t n = (size_t)file->part_bytes - at;

        n = n < size_bytes ? n : size_bytes;
        if (part->sent || part->filled + n > file->part_bytes)
            return fail_as(EINVAL); /* it is written twice */
        if (part->bytes == NULL && (part->bytes = malloc((size_t)file->part_bytes)) == NULL)
            return fail_as(ENOMEM);
        memcpy(part->bytes + at, bytes, n);
        part->filled += n;
        bytes += n;
        offset += n;
        size_bytes -= n;
        if (part->filled == file->part_bytes && file->n_parts > 1 && send_part(file, client, i) < 0)
            return -1;
    }
    return 0;
}

/* Makes it an object. A file with a hole is none: the writer has given up. */
static int end_file(struct file *file, struct s3_client *client)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    if (file->ended || (file->n_parts == 0 && file->part_bytes == 0))
        return 0; /* nothing was written: a lock's file */
    for (size_t i = 0; i < file->n_parts; i++) {
        const uint64_t left = file->size_bytes - i * file->part_bytes;

        if (file->parts[i].filled != (left < file->part_bytes ? left : file->part_bytes))
            return fail_as(EINVAL);
    }
    if (file->n_parts == 1 && !file->parts[0].sent) {
        status = s3_put(client, &file->at, file->parts[0].bytes, file->parts[0].filled, false, &err);
    } else {
        for (size_t i = 0; i < file->n_parts; i++)
            if (!file->parts[i].sent && send_part(file, client, i) < 0)
                return -1;
        status = s3_upload_end(client, &file->at, file->upload, (const char(*)[S3_ETAG_BYTES])file->etags,
                               file->n_parts, file->size_bytes, &err);
    }
    if (status != FSDP_OK)
        return fail(&err);
    file->ended = true;
    file->upload[0] = '\0';
    return 0;
}

typedef int file_function(struct file *file, struct s3_client *client);

/* Calls the function on a file that is being written, alone. After a failure, nothing more is written. */
static int work_on(int fd, file_function *function)
{
    struct file *file = file_of(fd);
    struct fsdp_err err = { 0 };
    struct s3_client *client;
    int result;

    if (file == NULL)
        return fail_as(EBADF);
    if (file->kind != WRITES)
        return 0;
    if (get_client(&client, &err) != FSDP_OK)
        return fail(&err);
    pthread_mutex_lock(&file->mutex);
    result = file->failed ? fail_as(EIO) : function(file, client);
    file->failed = result < 0;
    pthread_mutex_unlock(&file->mutex);
    return result;
}

static ssize_t s3_slot_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes,
                              uint64_t offset)
{
    struct file *file = file_of(fd);
    struct fsdp_err err = { 0 };
    struct s3_client *client;
    int result;

    (void)io;
    if (file == NULL || file->kind != WRITES)
        return fail_as(EBADF);
    if (get_client(&client, &err) != FSDP_OK)
        return fail(&err);
    pthread_mutex_lock(&file->mutex);
    result = file->failed || file->ended ? fail_as(EIO) : write_file(file, client, bytes, size_bytes, offset);
    file->failed = file->failed || result < 0;
    pthread_mutex_unlock(&file->mutex);
    return result < 0 ? -1 : (ssize_t)size_bytes;
}

static int s3_slot_allocate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    struct file *file = file_of(fd);
    int result;

    (void)io;
    if (file == NULL || file->kind != WRITES)
        return fail_as(EBADF);
    pthread_mutex_lock(&file->mutex);
    result = choose_parts(file, size_bytes);
    pthread_mutex_unlock(&file->mutex);
    return result;
}

/* The size is that of what is written. */
static int s3_slot_ftruncate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    struct file *file = file_of(fd);

    (void)io;
    if (file == NULL || file->kind != WRITES)
        return fail_as(EBADF);
    return size_bytes == file->size_bytes ? 0 : fail_as(EINVAL);
}

static int s3_slot_fsync(struct fsdp_io *io, int fd)
{
    (void)io;
    return work_on(fd, end_file);
}

static int s3_slot_close(struct fsdp_io *io, int fd)
{
    struct file *file = file_of(fd);
    struct s3_client *client = NULL;
    int result, error;

    (void)io;
    if (file == NULL)
        return fail_as(EBADF);
    result = file->failed ? 0 : work_on(fd, end_file); /* a failure was reported when it happened */
    error = errno;
    if (file->upload[0] != '\0' && get_client(&client, NULL) == FSDP_OK)
        (void)s3_upload_abort(client, &file->at, file->upload, NULL);
    pthread_mutex_lock(&store.mutex);
    store.files[fd] = NULL;
    pthread_mutex_unlock(&store.mutex);
    atomic_fetch_sub_explicit(&store.n_open, 1, memory_order_release);
    free_file(file);
    errno = error;
    return result;
}

/* Names */

static void describe(const struct s3_location *at, bool is_directory, uint64_t size_bytes,
                     struct io_stat *out)
{
    *out = (struct io_stat){ .kind = is_directory ? IO_DIRECTORY : IO_FILE,
                             .size_bytes = size_bytes,
                             .device = XXH3_64bits(at->bucket, strlen(at->bucket)),
                             .inode = XXH3_64bits(at->key, strlen(at->key)),
                             .n_links = 1 };
}

static int s3_slot_fstat(struct fsdp_io *io, int fd, struct io_stat *out)
{
    const struct file *file = file_of(fd);

    (void)io;
    if (file == NULL)
        return fail_as(EBADF);
    describe(&file->at, file->kind == IS_DIRECTORY, file->size_bytes, out);
    return 0;
}

static int s3_slot_stat(struct fsdp_io *io, const char *path, struct io_stat *out)
{
    struct place place;
    uint64_t size_bytes;
    bool is_directory;

    (void)io;
    if (find_place(path, &place) < 0 || look(&place, &is_directory, &size_bytes) < 0)
        return -1;
    describe(&place.at, is_directory, size_bytes, out);
    return 0;
}

static int s3_slot_lock(struct fsdp_io *io, int fd, int operation)
{
    (void)io, (void)fd, (void)operation;
    return fail_as(EOPNOTSUPP);
}

static int s3_slot_mkdir(struct fsdp_io *io, const char *path, mode_t mode)
{
    struct place place;

    (void)io, (void)mode;
    return find_place(path, &place);
}

/* The objects are gone. What is left are uploads that were never ended. */
static int s3_slot_rmdir(struct fsdp_io *io, const char *path)
{
    char prefix[S3_KEY_BYTES + 1];
    struct fsdp_err err = { 0 };
    struct s3_location trash;
    struct s3_list list;
    struct place place;
    enum fsdp_status status;

    (void)io;
    if (find_place(path, &place) < 0)
        return -1;
    trash = place.at;
    if (is_step(place.name) || resolve_directory(place.client, &place.at, place.name) < 0)
        return is_step(place.name) ? fail_as(ENOTEMPTY) : -1;
    snprintf(prefix, sizeof prefix, "%s/", place.at.key);
    status = s3_list_uploads(place.client, &place.at, prefix, &list, &err);
    if (status != FSDP_OK)
        return fail(&err);
    for (size_t i = 0; status == FSDP_OK && i < list.n; i++) {
        struct s3_location at = place.at;

        if (list.entries[i].upload == NULL || strncmp(list.entries[i].key, prefix, strlen(prefix)) != 0 ||
            snprintf(at.key, sizeof at.key, "%s", list.entries[i].key) >= (int)sizeof at.key)
            continue;
        status = s3_upload_abort(place.client, &at, list.entries[i].upload, &err);
    }
    s3_list_free(&list);
    if (status != FSDP_OK)
        return fail(&err);
    if (is_trash(place.name))
        drop_alias(&trash);
    return 0;
}

/* Publishes. EEXIST: there is another one, unless it is ours, whose answer was lost. */
static int publish(const struct place *from, const struct place *to)
{
    char words[NAME_MAX_BYTES + 1], found[NAME_MAX_BYTES];
    struct fsdp_err err = { 0 };

    snprintf(words, sizeof words, "%s\n", from->name);
    if (s3_put(to->client, &to->at, words, strlen(words), true, &err) == FSDP_OK)
        return 0;
    /* An answer may be lost after the store has done it, and a second try finds what the first one made. */
    if (read_pointer(to->client, &to->at, found) == 0)
        return strcmp(found, from->name) == 0 ? 0 : fail(&err);
    return err.status == FSDP_ERR_BUSY ? -1 : fail(&err);
}

static int take_away(const struct place *from, const struct place *to)
{
    struct s3_location at = from->at;
    char target[NAME_MAX_BYTES];
    struct fsdp_err err = { 0 };

    copy_name(target, from->name, strlen(from->name));
    if (check_unpublished(from) < 0)
        return -1;
    if (is_step(from->name) && read_pointer(from->client, &at, target) < 0)
        return -1;
    if (is_temporary(from->name) &&
        snprintf(at.key, sizeof at.key, "%.900s/" MANIFEST_FILE, from->at.key) >= (int)sizeof at.key)
        return fail_as(ENAMETOOLONG);
    if (add_alias(&to->at, target) < 0)
        return -1;
    if (s3_delete(from->client, &at, &err) == FSDP_OK)
        return 0;
    drop_alias(&to->at);
    return fail(&err);
}

static int s3_slot_rename(struct fsdp_io *io, const char *from_path, const char *to_path)
{
    struct place from, to;

    (void)io;
    if (find_place(from_path, &from) < 0 || find_place(to_path, &to) < 0)
        return -1;
    if (is_temporary(from.name) && is_step(to.name))
        return publish(&from, &to);
    if (is_directory_name(from.name) && !is_trash(from.name) && is_trash(to.name))
        return take_away(&from, &to);
    return fail_as(EINVAL);
}

static int s3_slot_exchange(struct fsdp_io *io, const char *one, const char *two)
{
    (void)io, (void)one, (void)two;
    return fail_as(EINVAL);
}

static int s3_slot_link(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io, (void)from, (void)to;
    return fail_as(EOPNOTSUPP);
}

static int s3_slot_unlink(struct fsdp_io *io, const char *path)
{
    struct place place;
    struct fsdp_err err = { 0 };

    (void)io;
    if (find_place(path, &place) < 0 || (!is_step(place.name) && resolve_file(&place) < 0))
        return -1;
    return s3_delete(place.client, &place.at, &err) == FSDP_OK ? 0 : fail(&err);
}

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
        return fail_as(ENOMEM);
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
static int hide_published(const struct place *place, const char *prefix, struct io_names *names)
{
    size_t n = 0;

    for (size_t i = 0; i < names->n; i++) {
        struct s3_location at = place->at;
        char target[NAME_MAX_BYTES];

        if (!is_step(names->names[i]))
            continue;
        if (snprintf(at.key, sizeof at.key, "%.900s%s", prefix, names->names[i]) >= (int)sizeof at.key)
            return fail_as(ENAMETOOLONG);
        if (read_pointer(place->client, &at, target) == 0)
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

static int list_place(struct place *place, struct io_names *out)
{
    const bool is_ours = is_directory_name(place->name);
    char prefix[S3_KEY_BYTES + 1] = "";
    struct fsdp_err err = { 0 };
    struct s3_list list;
    size_t room = 0;
    int result;

    if (is_ours &&
        (check_unpublished(place) < 0 || resolve_directory(place->client, &place->at, place->name) < 0))
        return -1;
    if (place->at.key[0] != '\0')
        snprintf(prefix, sizeof prefix, "%s/", place->at.key);
    if (s3_list(place->client, &place->at, prefix, true, 0, &list, &err) != FSDP_OK)
        return fail_list(&err);
    result = add_names(&list, prefix, out, &room);
    s3_list_free(&list);
    if (result < 0 || is_ours)
        return result;
    if (s3_list_uploads(place->client, &place->at, prefix, &list, &err) != FSDP_OK)
        return fail_list(&err);
    result = add_names(&list, prefix, out, &room);
    s3_list_free(&list);
    if (result == 0)
        result = hide_published(place, prefix, out);
    return result == 0 && out->n == 0 ? fail_as(ENOENT) : result;
}

static int s3_slot_list(struct fsdp_io *io, const char *path, struct io_names *out)
{
    struct place place;
    int result, error;

    (void)io;
    *out = (struct io_names){ 0 };
    result = find_place(path, &place) < 0 ? -1 : list_place(&place, out);
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
    .close = s3_slot_close,
    .pwrite = s3_slot_pwrite,
    .pread = s3_slot_pread,
    .allocate = s3_slot_allocate,
    .ftruncate = s3_slot_ftruncate,
    .fsync = s3_slot_fsync,
    .fstat = s3_slot_fstat,
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
