/*
 * The store that all paths of this process are in: the client that speaks to it, and how its errors become
 * those of a file system.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/hide_memory.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io_s3_impl.h"

/* One for the process, as descriptors are. */
static struct {
    pthread_mutex_t mutex;
    struct s3_client *client;
    size_t part_bytes;
} store = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Errors */

int io_s3_fail(const struct fsdp_err *err)
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

int io_s3_fail_list(const struct fsdp_err *err)
{
    if (err->status != FSDP_ERR_NOT_FOUND)
        return io_s3_fail(err);
    file_remote_failed(err->message);
    return -1;
}

int io_s3_fail_as(int error)
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

enum fsdp_status io_s3_client(struct s3_client **out, struct fsdp_err *err)
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
    return io_s3_client(&client, err);
}

uint64_t io_s3_part_bytes(uint64_t size_bytes)
{
    return store.part_bytes != 0 ? store.part_bytes : s3_part_bytes(size_bytes);
}
