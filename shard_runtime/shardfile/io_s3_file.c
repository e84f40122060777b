/*
 * Open files: their descriptors, and what is read and written. Reading fetches a window ahead. Writing fills
 * the parts of an upload, and sends each that is full.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/shardfile/io_s3_impl.h"

enum {
    WINDOW_FIRST_BYTES = 64 << 10, /* of reading ahead: headers are small; then twice as much each time */
    WINDOW_MOST_BYTES = 8 << 20,
};

/* Part of an object that is being written. */
struct part {
    unsigned char *bytes; /* NULL: nothing was written into it, or it was sent */
    size_t filled;
    bool sent;
};

struct file {
    int fd;
    enum io_s3_kind kind;
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

/* The open files of the process. */
static struct {
    pthread_mutex_t mutex;
    struct file **by; /* (room) by descriptor; NULL: it is none of ours */
    size_t room;
    _Atomic int n_open;
} open_files = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Descriptors */

static struct file *file_of(int fd)
{
    struct file *file = NULL;

    pthread_mutex_lock(&open_files.mutex);
    if (fd >= 0 && (size_t)fd < open_files.room)
        file = open_files.by[fd];
    pthread_mutex_unlock(&open_files.mutex);
    return file;
}

bool io_s3_owns(int fd)
{
    return atomic_load_explicit(&open_files.n_open, memory_order_acquire) > 0 && file_of(fd) != NULL;
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

int io_s3_add_file(const struct io_s3_place *place, enum io_s3_kind kind, uint64_t size_bytes)
{
    struct file *file = calloc(1, sizeof *file);
    bool entered = false;
    int fd;

    if (file == NULL)
        return io_s3_fail_as(ENOMEM);
    file->kind = kind;
    file->at = place->at;
    file->size_bytes = size_bytes;
    file->window_next = WINDOW_FIRST_BYTES;
    pthread_mutex_init(&file->mutex, NULL);
    fd = file->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pthread_mutex_lock(&open_files.mutex);
    entered = fd >= 0 && alloc_room(&open_files.by, &open_files.room, (size_t)fd, sizeof *open_files.by);
    if (entered)
        open_files.by[fd] = file;
    pthread_mutex_unlock(&open_files.mutex);
    if (entered) {
        atomic_fetch_add_explicit(&open_files.n_open, 1, memory_order_release);
        return fd;
    }
    free_file(file);
    return io_s3_fail_as(fd < 0 ? EMFILE : ENOMEM);
}

/*
 * Returns the file if it is of that kind, with its mutex locked, and the client. NULL: it is not, or there is
 * no client, as errno says.
 */
static struct file *enter(int fd, enum io_s3_kind kind, struct s3_client **client)
{
    struct file *file = file_of(fd);
    struct fsdp_err err = { 0 };

    if (file == NULL || file->kind != kind) {
        errno = EBADF;
        return NULL;
    }
    if (io_s3_client(client, &err) != FSDP_OK) {
        (void)io_s3_fail(&err);
        return NULL;
    }
    pthread_mutex_lock(&file->mutex);
    return file;
}

int io_s3_fstat(struct fsdp_io *io, int fd, struct io_stat *out)
{
    const struct file *file = file_of(fd);

    (void)io;
    if (file == NULL)
        return io_s3_fail_as(EBADF);
    io_s3_describe(&file->at, file->kind == IO_S3_DIRECTORY, file->size_bytes, out);
    return 0;
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
        return io_s3_fail_as(ENOMEM);
    file->window = window;
    file->window_at = offset;
    if (s3_get(client, &file->at, offset, window, n, &file->window_bytes, &err) != FSDP_OK)
        return io_s3_fail(&err);
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

ssize_t io_s3_pread(struct fsdp_io *io, int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    struct s3_client *client;
    struct file *file = enter(fd, IO_S3_READS, &client);
    ssize_t n;

    (void)io;
    if (file == NULL)
        return -1;
    n = read_file(file, client, bytes, size_bytes, offset);
    pthread_mutex_unlock(&file->mutex);
    return n;
}

/* Writing */

static int choose_parts(struct file *file, uint64_t size_bytes)
{
    if (file->part_bytes == 0)
        file->part_bytes = io_s3_part_bytes(size_bytes);
    return file->part_bytes != 0 ? 0 : io_s3_fail_as(EFBIG);
}

static int make_room(struct file *file, size_t n_parts)
{
    if (n_parts > S3_PARTS_MAX)
        return io_s3_fail_as(EFBIG);
    while (file->n_parts < n_parts) {
        if (!alloc_room(&file->parts, &file->parts_room, file->n_parts, sizeof *file->parts) ||
            !alloc_room(&file->etags, &file->etags_room, file->n_parts, sizeof *file->etags))
            return io_s3_fail_as(ENOMEM);
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
        return io_s3_fail(&err);
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
            return io_s3_fail_as(EINVAL); /* it is written twice */
        if (part->bytes == NULL && (part->bytes = malloc((size_t)file->part_bytes)) == NULL)
            return io_s3_fail_as(ENOMEM);
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
            return io_s3_fail_as(EINVAL);
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
        return io_s3_fail(&err);
    file->ended = true;
    file->upload[0] = '\0';
    return 0;
}

/* Makes a file that is being written an object. After a failure, nothing more is written. */
static int sync_file(int fd)
{
    struct file *file = file_of(fd);
    struct s3_client *client;
    int result;

    if (file != NULL && file->kind != IO_S3_WRITES)
        return 0;
    file = enter(fd, IO_S3_WRITES, &client);
    if (file == NULL)
        return -1;
    result = file->failed ? io_s3_fail_as(EIO) : end_file(file, client);
    file->failed = result < 0;
    pthread_mutex_unlock(&file->mutex);
    return result;
}

ssize_t io_s3_pwrite(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
    struct s3_client *client;
    struct file *file = enter(fd, IO_S3_WRITES, &client);
    int result;

    (void)io;
    if (file == NULL)
        return -1;
    result = file->failed || file->ended ? io_s3_fail_as(EIO)
                                         : write_file(file, client, bytes, size_bytes, offset);
    file->failed = file->failed || result < 0;
    pthread_mutex_unlock(&file->mutex);
    return result < 0 ? -1 : (ssize_t)size_bytes;
}

int io_s3_allocate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    struct file *file = file_of(fd);
    int result;

    (void)io;
    if (file == NULL || file->kind != IO_S3_WRITES)
        return io_s3_fail_as(EBADF);
    pthread_mutex_lock(&file->mutex);
    result = choose_parts(file, size_bytes);
    pthread_mutex_unlock(&file->mutex);
    return result;
}

/* The size is that of what is written. */
int io_s3_ftruncate(struct fsdp_io *io, int fd, uint64_t size_bytes)
{
    struct file *file = file_of(fd);

    (void)io;
    if (file == NULL || file->kind != IO_S3_WRITES)
        return io_s3_fail_as(EBADF);
    return size_bytes == file->size_bytes ? 0 : io_s3_fail_as(EINVAL);
}

int io_s3_fsync(struct fsdp_io *io, int fd)
{
    (void)io;
    return sync_file(fd);
}

int io_s3_close(struct fsdp_io *io, int fd)
{
    struct file *file = file_of(fd);
    struct s3_client *client = NULL;
    int result, error;

    (void)io;
    if (file == NULL)
        return io_s3_fail_as(EBADF);
    result = file->failed ? 0 : sync_file(fd); /* a failure was reported when it happened */
    error = errno;
    if (file->upload[0] != '\0' && io_s3_client(&client, NULL) == FSDP_OK)
        (void)s3_upload_abort(client, &file->at, file->upload, NULL);
    pthread_mutex_lock(&open_files.mutex);
    open_files.by[fd] = NULL;
    pthread_mutex_unlock(&open_files.mutex);
    atomic_fetch_sub_explicit(&open_files.n_open, 1, memory_order_release);
    free_file(file);
    errno = error;
    return result;
}
