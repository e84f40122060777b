/*
 * The keys of a TCPStore, and the limit of bytes against which all of its memory counts.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "agent/tcpstore/tcpstore_keys_impl.h"

/* Memory */

void *tcpstore_take(struct tcpstore_keys *keys, size_t size, struct fsdp_err *err)
{
    void *memory = keys->max_bytes - keys->used_bytes < size ? NULL : malloc(size);

    if (memory == NULL) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "the store holds %zu bytes, and may hold %zu: no room for %zu more",
                  keys->used_bytes, keys->max_bytes, size);
        return NULL;
    }
    keys->used_bytes += size;
    return memory;
}

void tcpstore_give(struct tcpstore_keys *keys, void *memory, size_t size)
{
    if (memory == NULL)
        return;
    keys->used_bytes -= size;
    free(memory);
}

struct tcpstore_blob *tcpstore_blob_take(struct tcpstore_keys *keys, struct tcpstore_text text,
                                         size_t capacity, struct fsdp_err *err)
{
    struct tcpstore_blob *blob = tcpstore_take(keys, sizeof *blob + capacity, err);

    if (blob == NULL)
        return NULL;
    blob->next = NULL;
    blob->size = text.size;
    blob->capacity = capacity;
    memcpy(blob->bytes, text.bytes, text.size);
    return blob;
}

void tcpstore_blob_give(struct tcpstore_keys *keys, struct tcpstore_blob *blob)
{
    if (blob != NULL)
        tcpstore_give(keys, blob, sizeof *blob + blob->capacity);
}

struct tcpstore_text tcpstore_blob_text(const struct tcpstore_blob *blob)
{
    return (struct tcpstore_text){ blob->bytes, blob->size };
}

/* Entries */

static struct tcpstore_entry *find(const struct tcpstore_keys *keys, struct tcpstore_text key, uint64_t hash)
{
    for (struct table_entry *at = table_first(&keys->table, hash); at != NULL; at = table_next(at)) {
        struct tcpstore_entry *entry = TABLE_OWNER(at, struct tcpstore_entry, link);

        if (entry->key_size == key.size && memcmp(entry->key, key.bytes, key.size) == 0)
            return entry;
    }
    return NULL;
}

struct tcpstore_entry *tcpstore_entry_find(const struct tcpstore_keys *keys, struct tcpstore_text key)
{
    return find(keys, key, XXH3_64bits(key.bytes, key.size));
}

struct tcpstore_entry *tcpstore_entry_add(struct tcpstore_keys *keys, struct tcpstore_text key,
                                          struct fsdp_err *err)
{
    const uint64_t hash = XXH3_64bits(key.bytes, key.size);
    struct tcpstore_entry *entry = find(keys, key, hash);

    if (entry != NULL)
        return entry;
    entry = tcpstore_take(keys, sizeof *entry + key.size, err);
    if (entry == NULL)
        return NULL;
    memset(entry, 0, sizeof *entry);
    entry->key_size = key.size;
    if (key.size > 0)
        memcpy(entry->key, key.bytes, key.size);
    if (!table_add(&keys->table, &entry->link, hash)) {
        tcpstore_give(keys, entry, sizeof *entry + key.size);
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the table of keys");
        return NULL;
    }
    return entry;
}

bool tcpstore_entry_is_there(const struct tcpstore_entry *entry)
{
    return entry != NULL && (entry->value != NULL || entry->n_queued > 0);
}

void tcpstore_entry_drop_if_empty(struct tcpstore_keys *keys, struct tcpstore_entry *entry)
{
    if (tcpstore_entry_is_there(entry) || entry->first != NULL)
        return;
    table_remove(&keys->table, &entry->link);
    tcpstore_give(keys, entry, sizeof *entry + entry->key_size);
}
