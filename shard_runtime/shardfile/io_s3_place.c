/*
 * What a path stands for. A checkpoint that is published, and one that is trash, are names of another place
 * (io_s3.h).
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_s3_impl.h"

/* Names */

bool io_s3_is_step(const char *name)
{
    return commit_parse_step(name) >= 0;
}

bool io_s3_is_temporary(const char *name)
{
    struct commit_fence save;

    return commit_parse_temporary(name, &save);
}

bool io_s3_is_trash(const char *name)
{
    return strncmp(name, COMMIT_TRASH_PREFIX, sizeof COMMIT_TRASH_PREFIX - 1) == 0;
}

bool io_s3_is_directory_name(const char *name)
{
    return io_s3_is_step(name) || io_s3_is_temporary(name) || io_s3_is_trash(name);
}

void io_s3_copy_name(char out[IO_S3_NAME_BYTES], const char *from, size_t length)
{
    out[0] = '\0';
    if (length < IO_S3_NAME_BYTES) {
        memcpy(out, from, length);
        out[length] = '\0';
    }
}

/* Returns where the last part of the key begins. */
static size_t last_part(const char *key)
{
    const char *slash = strrchr(key, '/');

    return slash == NULL ? 0 : (size_t)(slash + 1 - key);
}

int io_s3_find(const char *path, struct io_s3_place *place)
{
    struct fsdp_err err = { 0 };
    const char *last;

    if (s3_location_parse(&place->at, path, &err) != FSDP_OK || io_s3_client(&place->client, &err) != FSDP_OK)
        return io_s3_fail(&err);
    last = place->at.key + last_part(place->at.key);
    io_s3_copy_name(place->name, last, strlen(last));
    return 0;
}

/* Replaces the last part of the key. */
static int set_last(struct s3_location *at, const char *name)
{
    const size_t last = last_part(at->key), room = sizeof at->key - last;

    return (size_t)snprintf(at->key + last, room, "%s", name) < room ? 0 : io_s3_fail_as(ENAMETOOLONG);
}

/* Trash */

struct alias {
    struct alias *next;
    char *path, *target;
};

/* What trash names stand for, which this process has given. */
static struct {
    pthread_mutex_t mutex;
    struct alias *first;
} aliases = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static bool same_place(const struct s3_location *one, const char *path)
{
    const size_t n = strlen(one->bucket);

    return strncmp(path, one->bucket, n) == 0 && path[n] == '/' && strcmp(path + n + 1, one->key) == 0;
}

/* Finds what the trash name at that place stands for. */
static bool find_alias(const struct s3_location *at, char target[IO_S3_NAME_BYTES])
{
    bool found = false;

    pthread_mutex_lock(&aliases.mutex);
    for (struct alias *alias = aliases.first; alias != NULL && !found; alias = alias->next)
        if (same_place(at, alias->path)) {
            io_s3_copy_name(target, alias->target, strlen(alias->target));
            found = true;
        }
    pthread_mutex_unlock(&aliases.mutex);
    return found;
}

static void free_alias(struct alias *alias)
{
    if (alias == NULL)
        return;
    free(alias->path);
    free(alias->target);
    free(alias);
}

void io_s3_drop_alias(const struct s3_location *at)
{
    pthread_mutex_lock(&aliases.mutex);
    for (struct alias **link = &aliases.first; *link != NULL;) {
        struct alias *alias = *link;

        if (!same_place(at, alias->path)) {
            link = &alias->next;
            continue;
        }
        *link = alias->next;
        free_alias(alias);
    }
    pthread_mutex_unlock(&aliases.mutex);
}

int io_s3_add_alias(const struct s3_location *at, const char *target)
{
    struct alias *alias = calloc(1, sizeof *alias);

    io_s3_drop_alias(at);
    if (alias != NULL) {
        alias->target = strdup(target);
        if (asprintf(&alias->path, "%s/%s", at->bucket, at->key) < 0)
            alias->path = NULL;
    }
    if (alias == NULL || alias->target == NULL || alias->path == NULL) {
        free_alias(alias);
        return io_s3_fail_as(ENOMEM);
    }
    pthread_mutex_lock(&aliases.mutex);
    alias->next = aliases.first;
    aliases.first = alias;
    pthread_mutex_unlock(&aliases.mutex);
    return 0;
}

/* Checkpoints that are published */

int io_s3_read_pointer(struct s3_client *client, const struct s3_location *at, char target[IO_S3_NAME_BYTES])
{
    struct fsdp_err err = { 0 };
    size_t n = 0;

    if (s3_get(client, at, 0, target, IO_S3_NAME_BYTES - 1, &n, &err) != FSDP_OK)
        return io_s3_fail(&err);
    target[n] = '\0';
    target[strcspn(target, "\n")] = '\0';
    if (io_s3_is_temporary(target))
        return 0;
    fsdp_fail(&err, FSDP_ERR_IO, "s3://%s/%s names no save: it is no checkpoint of fsdprun", at->bucket,
              at->key);
    return io_s3_fail(&err);
}

int io_s3_check_unpublished(const struct io_s3_place *place)
{
    struct s3_location at = place->at;
    struct commit_fence save;
    char step[COMMIT_NAME_BYTES], found[IO_S3_NAME_BYTES];

    if (!commit_parse_temporary(place->name, &save))
        return 0;
    commit_step_name(save.step, step);
    if (set_last(&at, step) < 0)
        return -1;
    if (io_s3_read_pointer(place->client, &at, found) < 0)
        return errno == ENOENT ? 0 : -1;
    return strcmp(found, place->name) != 0 ? 0 : io_s3_fail_as(ENOENT);
}

int io_s3_resolve_directory(struct s3_client *client, struct s3_location *at, const char *name)
{
    char target[IO_S3_NAME_BYTES];

    if (io_s3_is_trash(name)) {
        if (!find_alias(at, target))
            return io_s3_fail_as(ENOENT);
    } else if (!io_s3_is_step(name)) {
        return 0;
    } else if (io_s3_read_pointer(client, at, target) < 0) {
        return -1;
    }
    return set_last(at, target);
}

int io_s3_resolve_file(struct io_s3_place *place)
{
    struct s3_location folder = place->at;
    const size_t last = last_part(folder.key);
    char parent[IO_S3_NAME_BYTES];
    const char *above;

    if (last == 0)
        return 0;
    folder.key[last - 1] = '\0';
    above = folder.key + last_part(folder.key);
    io_s3_copy_name(parent, above, strlen(above));
    if (io_s3_resolve_directory(place->client, &folder, parent) < 0)
        return -1;
    if (snprintf(place->at.key, sizeof place->at.key, "%.900s/%s", folder.key, place->name) >=
        (int)sizeof place->at.key)
        return io_s3_fail_as(ENAMETOOLONG);
    return 0;
}
