/*
 * The table of a TCPStore's names, and the one limit of bytes that all it holds counts against.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "agent/tcpstore/tcpstore_keys_impl.h"

/* --- memory ------------------------------------------------------------------------------------------------------- */

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

/* --- entries ------------------------------------------------------------------------------------------------------ */

static struct tcpstore_entry **place_of(const struct tcpstore_keys *keys, struct tcpstore_text key,
                                        uint64_t hash)
{
    struct tcpstore_entry **at = &keys->slots[hash & (keys->n_slots - 1)];

    while (*at != NULL && ((*at)->hash != hash || (*at)->key_size != key.size ||
                           memcmp((*at)->key, key.bytes, key.size) != 0))
        at = &(*at)->next;
    return at;
}

struct tcpstore_entry *tcpstore_entry_find(const struct tcpstore_keys *keys, struct tcpstore_text key)
{
    return *place_of(keys, key, XXH3_64bits(key.bytes, key.size));
}

/* More slots when there are as many entries; without memory for them it goes on with longer chains. */
static void grow(struct tcpstore_keys *keys)
{
    const size_t n_slots = keys->n_slots * 2;
    struct tcpstore_entry **slots;

    if (keys->n_entries < keys->n_slots || (slots = calloc(n_slots, sizeof *slots)) == NULL)
        return;
    for (size_t i = 0; i < keys->n_slots; i++)
        for (struct tcpstore_entry *entry = keys->slots[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = slots[entry->hash & (n_slots - 1)];
            slots[entry->hash & (n_slots - 1)] = entry;
        }
    free(keys->slots);
    keys->slots = slots;
    keys->n_slots = n_slots;
}

struct tcpstore_entry *tcpstore_entry_add(struct tcpstore_keys *keys, struct tcpstore_text key,
                                          struct fsdp_err *err)
{
    const uint64_t hash = XXH3_64bits(key.bytes, key.size);
    struct tcpstore_entry **at = place_of(keys, key, hash), *entry = *at;

    if (entry != NULL)
        return entry;
    entry = tcpstore_take(keys, sizeof *entry + key.size, err);
    if (entry == NULL)
        return NULL;
    memset(entry, 0, sizeof *entry);
    entry->hash = hash;
    entry->key_size = key.size;
    if (key.size > 0)
        memcpy(entry->key, key.bytes, key.size);
    *at = entry;
    keys->n_entries++;
    grow(keys);
    return entry;
}

bool tcpstore_entry_is_there(const struct tcpstore_entry *entry)
{
    return entry != NULL && (entry->value != NULL || entry->n_queued > 0);
}

void tcpstore_entry_drop_if_empty(struct tcpstore_keys *keys, struct tcpstore_entry *entry)
{
    struct tcpstore_entry **at = &keys->slots[entry->hash & (keys->n_slots - 1)];

    if (tcpstore_entry_is_there(entry) || entry->first != NULL)
        return;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    keys->n_entries--;
    tcpstore_give(keys, entry, sizeof *entry + entry->key_size);
}
