#include "agent/link/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_BUCKETS = 1024 };

struct entry {
    struct entry *next;
    size_t size_bytes;
    int fd;
    char *key; /* points behind the value, in the same block */
    unsigned char bytes[];
};

struct waiter {
    struct waiter *next;
    void *client;
    uint32_t tag;
    char key[];
};

struct store {
    struct entry *buckets[N_BUCKETS];
    struct waiter *waiters, **waiters_end; /* in order of coming */
    size_t n_keys, n_bytes, n_fds, n_waiters;
};

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
static struct entry **bucket_of(struct store *store, const char *key)
{
    uint32_t hash = 2166136261u;

    for (; *key != '\0'; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return &store->buckets[hash % N_BUCKETS];
}

static struct entry *find(struct store *store, const char *key)
{
    struct entry *entry = *bucket_of(store, key);

    while (entry != NULL && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

struct store *store_create(void)
{
    struct store *store = calloc(1, sizeof *store);

    if (store != NULL)
        store->waiters_end = &store->waiters;
    return store;
}

void store_destroy(struct store *store)
{
    if (store == NULL)
        return;
    for (size_t i = 0; i < N_BUCKETS; i++) {
        struct entry *entry = store->buckets[i];

        while (entry != NULL) {
            struct entry *next = entry->next;

            if (entry->fd >= 0)
                close(entry->fd);
            free(entry);
            entry = next;
        }
    }
    while (store->waiters != NULL) {
        struct waiter *next = store->waiters->next;

        free(store->waiters);
        store->waiters = next;
    }
    free(store);
}

static struct store_value value_of(const struct entry *entry)
{
    return (struct store_value){ .bytes = entry->bytes, .size_bytes = entry->size_bytes, .fd = entry->fd };
}

static void answer_waiters(struct store *store, const struct entry *entry, store_answer *answer, void *arg)
{
    const struct store_value value = value_of(entry);
    struct waiter *answered = NULL, **answered_end = &answered, **at = &store->waiters;

    /* Taken off the list first: an answer may find its client gone and come back here to forget it. */
    while (*at != NULL) {
        struct waiter *waiter = *at;

        if (strcmp(waiter->key, entry->key) != 0) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->next = NULL;
        *answered_end = waiter;
        answered_end = &waiter->next;
        store->n_waiters--;
    }
    store->waiters_end = at;
    while (answered != NULL) {
        struct waiter *next = answered->next;

        answer(arg, answered->client, answered->tag, &value);
        free(answered);
        answered = next;
    }
}

static enum fsdp_status refuse(int fd, struct fsdp_err *err, enum fsdp_status status, const char *key,
                               const char *why)
{
    if (fd >= 0)
        close(fd);
    return fsdp_fail(err, status, "key %s: %s", key, why);
}

enum fsdp_status store_put(struct store *store, const char *key, const void *bytes, size_t size_bytes, int fd,
                           store_answer *answer, void *arg, struct fsdp_err *err)
{
    const size_t key_bytes = strlen(key) + 1;
    struct entry *entry, **bucket;

    if (find(store, key) != NULL)
        return refuse(fd, err, FSDP_ERR_ARG, key, "it was put before");
    if (store->n_keys == STORE_MAX_KEYS)
        return refuse(fd, err, FSDP_ERR_NOMEM, key, "too many keys");
    if (size_bytes > STORE_MAX_BYTES - store->n_bytes)
        return refuse(fd, err, FSDP_ERR_NOMEM, key, "the values take too much memory");
    if (fd >= 0 && store->n_fds == STORE_MAX_FDS)
        return refuse(fd, err, FSDP_ERR_NOMEM, key, "too many descriptors");
    entry = malloc(sizeof *entry + size_bytes + key_bytes);
    if (entry == NULL)
        return refuse(fd, err, FSDP_ERR_NOMEM, key, "out of memory");
    entry->size_bytes = size_bytes;
    entry->fd = fd;
    entry->key = (char *)entry->bytes + size_bytes;
    if (size_bytes > 0)
        memcpy(entry->bytes, bytes, size_bytes);
    memcpy(entry->key, key, key_bytes);
    bucket = bucket_of(store, key);
    entry->next = *bucket;
    *bucket = entry;
    store->n_keys++;
    store->n_bytes += size_bytes;
    store->n_fds += fd >= 0;
    answer_waiters(store, entry, answer, arg);
    return FSDP_OK;
}

enum fsdp_status store_get(struct store *store, const char *key, void *client, uint32_t tag,
                           struct store_value *value, struct fsdp_err *err)
{
    const size_t key_bytes = strlen(key) + 1;
    const struct entry *entry = find(store, key);
    struct waiter *waiter;

    *value = (struct store_value){ .bytes = NULL, .fd = -1 };
    if (entry != NULL) {
        *value = value_of(entry);
        return FSDP_OK;
    }
    if (store->n_waiters == STORE_MAX_WAITERS)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "key %s: too many wait", key);
    waiter = malloc(sizeof *waiter + key_bytes);
    if (waiter == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "key %s: out of memory", key);
    *waiter = (struct waiter){ .client = client, .tag = tag };
    memcpy(waiter->key, key, key_bytes);
    *store->waiters_end = waiter;
    store->waiters_end = &waiter->next;
    store->n_waiters++;
    return FSDP_OK;
}

void store_forget(struct store *store, const void *client)
{
    struct waiter **at = &store->waiters;

    while (*at != NULL) {
        struct waiter *waiter = *at;

        if (waiter->client != client) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        free(waiter);
        store->n_waiters--;
    }
    store->waiters_end = at;
}

size_t store_n_keys(const struct store *store)
{
    return store->n_keys;
}

size_t store_n_waiters(const struct store *store)
{
    return store->n_waiters;
}
