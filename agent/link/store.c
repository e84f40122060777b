#include "agent/link/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/core/table.h"

/* A client that waits for a key. It is in two lists: of the waits for that key, and of all waits. */
struct wait {
    struct wait *next; /* in the order in which they asked */
    struct wait **link;
    struct wait *next_of_all, **link_of_all;
    struct entry *entry;
    void *client;
    uint32_t tag;
};

/* A key that was put or asked for. It stays as long as the store. */
struct entry {
    struct table_entry link;
    unsigned char *bytes; /* NULL: it was not put yet */
    size_t size_bytes;
    int fd;
    struct wait *waits, **waits_end;
    char key[];
};

struct store {
    struct table table; /* of struct entry */
    struct wait *all_waits;
    size_t n_fds, used_bytes, max_bytes;
};

struct store *store_create(size_t max_bytes)
{
    struct store *store = calloc(1, sizeof *store);

    if (store != NULL)
        store->max_bytes = max_bytes;
    return store;
}

void store_destroy(struct store *store)
{
    if (store == NULL)
        return;
    for (struct table_entry *at = table_empty(&store->table), *next; at != NULL; at = next) {
        struct entry *entry = TABLE_OWNER(at, struct entry, link);

        next = at->next;
        if (entry->bytes != NULL && entry->fd >= 0)
            close(entry->fd);
        free(entry->bytes);
        free(entry);
    }
    while (store->all_waits != NULL) {
        struct wait *next = store->all_waits->next_of_all;

        free(store->all_waits);
        store->all_waits = next;
    }
    free(store);
}

/* Memory, which counts against the limit */

static void *take(struct store *store, size_t size)
{
    void *memory = size > store->max_bytes - store->used_bytes ? NULL : malloc(size);

    if (memory != NULL)
        store->used_bytes += size;
    return memory;
}

static void give_wait(struct store *store, struct wait *wait)
{
    store->used_bytes -= sizeof *wait;
    free(wait);
}

/* Keys */

static struct entry *find(const struct store *store, const char *key, uint64_t hash)
{
    for (struct table_entry *at = table_first(&store->table, hash); at != NULL; at = table_next(at)) {
        struct entry *entry = TABLE_OWNER(at, struct entry, link);

        if (strcmp(entry->key, key) == 0)
            return entry;
    }
    return NULL;
}

/* Returns the entry of the key, made if there is none. NULL: out of memory, or the limit is reached. */
static struct entry *find_or_add(struct store *store, const char *key, bool *added)
{
    const size_t key_bytes = strlen(key) + 1;
    const uint64_t hash = XXH3_64bits(key, key_bytes);
    struct entry *entry = find(store, key, hash);

    *added = entry == NULL;
    if (entry != NULL)
        return entry;
    entry = take(store, sizeof *entry + key_bytes);
    if (entry == NULL)
        return NULL;
    *entry = (struct entry){ .fd = -1 };
    entry->waits_end = &entry->waits;
    memcpy(entry->key, key, key_bytes);
    if (!table_add(&store->table, &entry->link, hash)) {
        store->used_bytes -= sizeof *entry + key_bytes;
        free(entry);
        return NULL;
    }
    return entry;
}

/* Waits */

static bool add_wait(struct store *store, struct entry *entry, void *client, uint32_t tag)
{
    struct wait *wait = take(store, sizeof *wait);

    if (wait == NULL)
        return false;
    *wait = (struct wait){ .link = entry->waits_end,
                           .next_of_all = store->all_waits,
                           .link_of_all = &store->all_waits,
                           .entry = entry,
                           .client = client,
                           .tag = tag };
    *entry->waits_end = wait;
    entry->waits_end = &wait->next;
    if (wait->next_of_all != NULL)
        wait->next_of_all->link_of_all = &wait->next_of_all;
    store->all_waits = wait;
    return true;
}

/* Takes a wait out of both lists. */
static void remove_wait(struct wait *wait)
{
    *wait->link = wait->next;
    if (wait->next != NULL)
        wait->next->link = wait->link;
    else
        wait->entry->waits_end = wait->link;
    *wait->link_of_all = wait->next_of_all;
    if (wait->next_of_all != NULL)
        wait->next_of_all->link_of_all = wait->link_of_all;
}

static struct store_value value_of(const struct entry *entry)
{
    return (struct store_value){ .bytes = entry->bytes, .size_bytes = entry->size_bytes, .fd = entry->fd };
}

/*
 * Answers all waits for the key. `answer` may find that a client is gone, and call store_forget(). So each
 * wait is removed from the lists before it is answered.
 */
static void answer_waits(struct store *store, struct entry *entry, store_answer *answer, void *arg)
{
    const struct store_value value = value_of(entry);

    while (entry->waits != NULL) {
        struct wait *wait = entry->waits;

        remove_wait(wait);
        answer(arg, wait->client, wait->tag, &value);
        give_wait(store, wait);
    }
}

void store_forget(struct store *store, const void *client)
{
    for (struct wait *wait = store->all_waits, *next; wait != NULL; wait = next) {
        next = wait->next_of_all;
        if (wait->client != client)
            continue;
        remove_wait(wait);
        give_wait(store, wait);
    }
}

/* Putting and getting */

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
    struct entry *entry;
    bool added;

    if (fd >= 0 && store->n_fds == STORE_MAX_FDS)
        return refuse(fd, err, FSDP_ERR_NOMEM, key, "too many descriptors");
    entry = find_or_add(store, key, &added);
    if (entry != NULL && entry->bytes != NULL)
        return refuse(fd, err, FSDP_ERR_ARG, key, "it was put before");
    if (entry == NULL || (entry->bytes = take(store, size_bytes > 0 ? size_bytes : 1)) == NULL)
        return refuse(fd, err, FSDP_ERR_NOMEM, key, "the keys and values take too much memory");
    entry->size_bytes = size_bytes;
    entry->fd = fd;
    if (size_bytes > 0)
        memcpy(entry->bytes, bytes, size_bytes);
    store->n_fds += fd >= 0;
    answer_waits(store, entry, answer, arg);
    return FSDP_OK;
}

enum fsdp_status store_get(struct store *store, const char *key, void *client, uint32_t tag,
                           struct store_value *value, bool *first, struct fsdp_err *err)
{
    bool added;
    struct entry *entry = find_or_add(store, key, &added);

    *value = (struct store_value){ .bytes = NULL, .fd = -1 };
    if (first != NULL)
        *first = added;
    if (entry != NULL && entry->bytes != NULL) {
        *value = value_of(entry);
        return FSDP_OK;
    }
    if (entry == NULL || !add_wait(store, entry, client, tag))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "key %s: the waits take too much memory", key);
    return FSDP_OK;
}
