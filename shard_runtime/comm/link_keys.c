#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/comm/link_impl.h"
#include "shard_runtime/core/require.h"

static struct entry *find_entry(const struct link *link, const char *key)
{
    struct entry *entry = link->entries;

    while (entry != NULL && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

static enum fsdp_status put_alone(struct link *link, const char *key, const void *value, size_t size_bytes,
                                  int fd, struct fsdp_err *err)
{
    struct entry *entry;

    if (find_entry(link, key) != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "key %s was put before", key);
    entry = calloc(1, sizeof *entry + size_bytes);
    if (entry == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "key %s of %zu bytes", key, size_bytes);
    entry->fd = -1;
    if (fd >= 0 && (entry->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0) {
        free(entry);
        return fsdp_fail(err, FSDP_ERR_IO, "key %s: copying its descriptor: %s", key, strerror(errno));
    }
    snprintf(entry->key, sizeof entry->key, "%s", key);
    if (size_bytes > 0)
        memcpy(entry->value, value, size_bytes);
    entry->size = size_bytes;
    entry->next = link->entries;
    link->entries = entry;
    return FSDP_OK;
}

static enum fsdp_status check_key(const char *key, struct fsdp_err *err)
{
    size_t length = key == NULL ? 0 : strlen(key);

    if (length > 0 && length < FSDP_LINK_KEY_BYTES)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_ARG, "a key has 1 to %d bytes, not %zu", FSDP_LINK_KEY_BYTES - 1, length);
}

enum fsdp_status link_put(struct link *link, const char *key, const void *value, size_t size_bytes, int fd,
                          struct fsdp_err *err)
{
    struct fsdp_link_put put = { .key = "" };
    enum fsdp_status status;

    OK_OR_RETURN(check_key(key, err));
    if (size_bytes > FSDP_LINK_VALUE_BYTES || (value == NULL && size_bytes > 0))
        return fsdp_fail(err, FSDP_ERR_ARG, "key %s: a value has at most %d bytes, not %zu", key,
                         FSDP_LINK_VALUE_BYTES, size_bytes);
    if (link->fd < 0) {
        pthread_mutex_lock(&link->state);
        status = put_alone(link, key, value, size_bytes, fd, err);
        pthread_mutex_unlock(&link->state);
        return status;
    }
    snprintf(put.key, sizeof put.key, "%s", key);
    return link_send(link, FSDP_LINK_PUT, 0, &put, sizeof put, value, size_bytes, fd, err);
}

/*
 * Hands a value to the caller of link_get(). *fd_in is set to -1 if the caller takes the descriptor;
 * otherwise it stays this function's caller's to close.
 */
static enum fsdp_status give_value(const char *key, const void *from, size_t from_bytes, int *fd_in,
                                   void *value, size_t *size_bytes, int *fd, struct fsdp_err *err)
{
    if (from_bytes > *size_bytes)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "key %s: a value of %zu bytes where at most %zu were expected",
                         key, from_bytes, *size_bytes);
    if (from_bytes > 0)
        memcpy(value, from, from_bytes);
    *size_bytes = from_bytes;
    if (fd != NULL) {
        *fd = *fd_in;
        *fd_in = -1;
    }
    return FSDP_OK;
}

static enum fsdp_status get_alone(struct link *link, const char *key, void *value, size_t *size_bytes,
                                  int *fd, struct fsdp_err *err)
{
    const struct entry *entry = find_entry(link, key);
    enum fsdp_status status;
    int copy = -1;

    if (entry == NULL)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "key %s was not put, and there is no other rank to put it",
                         key);
    if (fd != NULL && entry->fd >= 0 && (copy = fcntl(entry->fd, F_DUPFD_CLOEXEC, 3)) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "key %s: copying its descriptor: %s", key, strerror(errno));
    status = give_value(key, entry->value, entry->size, &copy, value, size_bytes, fd, err);
    if (copy >= 0)
        close(copy);
    return status;
}

/* Waits until link->packet is the VALUE with `tag`, and puts away all other packets that come before it. */
static enum fsdp_status await_value(struct link *link, uint32_t tag, struct fsdp_err *err)
{
    bool got;

    for (;;) {
        OK_OR_RETURN(link_receive(link, &got, err));
        if (got && link->packet->header.type == FSDP_LINK_VALUE && link->packet->header.tag == tag)
            return FSDP_OK;
        OK_OR_RETURN(got ? link_absorb(link, err) : link_check_abort_word(link, err));
        if (!got)
            link_wait_briefly(link);
    }
}

enum fsdp_status link_get(struct link *link, const char *key, void *value, size_t *size_bytes, int *fd,
                          struct fsdp_err *err)
{
    struct fsdp_link_get get = { .key = "" };
    enum fsdp_status status = check_key(key, err);
    uint32_t tag, phase;

    if (fd != NULL)
        *fd = -1;
    if (status != FSDP_OK)
        return status;
    if (link->fd < 0) {
        pthread_mutex_lock(&link->state);
        status = get_alone(link, key, value, size_bytes, fd, err);
        pthread_mutex_unlock(&link->state);
        return status;
    }
    pthread_mutex_lock(&link->receiving);
    tag = ++link->next_tag != 0 ? link->next_tag : ++link->next_tag;
    snprintf(get.key, sizeof get.key, "%s", key);
    phase = link_begin_wait(link);
    status = link_send(link, FSDP_LINK_GET, tag, &get, sizeof get, NULL, 0, -1, err);
    if (status == FSDP_OK)
        status = await_value(link, tag, err);
    link_end_wait(link, phase);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "waiting for %s", key);
    } else {
        status = give_value(key, link->packet->payload, link->packet->header.size, &link->packet->fd, value,
                            size_bytes, fd, err);
        link_drop_fd(link->packet);
    }
    pthread_mutex_unlock(&link->receiving);
    return status;
}
