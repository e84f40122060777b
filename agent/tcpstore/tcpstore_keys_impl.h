/*
 * Shared by the files of the store's keys:
 *   tcpstore_entries.c  the keys, and the memory that counts against the limit
 *   tcpstore_waits.c    the waits
 *   tcpstore_keys.c     the operations
 * A function that takes memory returns NULL with FSDP_ERR_NOMEM if there is none; nothing has changed then.
 */
#ifndef AGENT_TCPSTORE_KEYS_IMPL_H
#define AGENT_TCPSTORE_KEYS_IMPL_H

#include "agent/tcpstore/tcpstore_keys.h"
#include "shard_runtime/core/table.h"

/* Bytes of a value, or of an element of a queue. */
struct tcpstore_blob {
    struct tcpstore_blob *next; /* in a queue */
    size_t size, capacity;
    unsigned char bytes[];
};

/* A key that one wait needs and that has no value yet. All waits for the same key are linked in a list. */
struct tcpstore_missed {
    struct tcpstore_wait *wait;
    struct tcpstore_entry *entry; /* NULL: the key has come */
    struct tcpstore_missed *prev, *next;
};

struct tcpstore_wait {
    struct tcpstore_waits *waits;
    struct tcpstore_wait *prev, *next; /* of the same client */
    size_t n_missing, n;
    struct tcpstore_missed missed[];
};

/* A key that has a value, elements in its queue, or waits. */
struct tcpstore_entry {
    struct table_entry link;
    struct tcpstore_blob *value; /* NULL: none */
    struct tcpstore_blob *front, *back;
    size_t n_queued;
    struct tcpstore_missed *first, *last; /* waits that miss this key, in the order in which they began */
    size_t key_size;
    unsigned char key[];
};

struct tcpstore_keys {
    struct table table; /* of struct tcpstore_entry */
    size_t n_values, n_waits;
    size_t used_bytes, max_bytes;
    tcpstore_wake *wake;
    void *arg;
};

/* Of tcpstore_entries.c: */

/** Allocate `size` bytes that count against the limit. tcpstore_give() frees them; pass the same size. */
void *tcpstore_take(struct tcpstore_keys *keys, size_t size, struct fsdp_err *err);
/** Free them; NULL is a no-op. */
void tcpstore_give(struct tcpstore_keys *keys, void *memory, size_t size);

/** A copy of `text` with room for `capacity` bytes. */
struct tcpstore_blob *tcpstore_blob_take(struct tcpstore_keys *keys, struct tcpstore_text text,
                                         size_t capacity, struct fsdp_err *err);
void tcpstore_blob_give(struct tcpstore_keys *keys, struct tcpstore_blob *blob); /* NULL is a no-op */
/** The bytes of the blob; valid as long as it is. */
struct tcpstore_text tcpstore_blob_text(const struct tcpstore_blob *blob);

/** Find the entry of `key`. NULL: the key has no value, no queue and no waits. */
struct tcpstore_entry *tcpstore_entry_find(const struct tcpstore_keys *keys, struct tcpstore_text key);
/** The entry of `key`, made if there is none. */
struct tcpstore_entry *tcpstore_entry_add(struct tcpstore_keys *keys, struct tcpstore_text key,
                                          struct fsdp_err *err);
/** Does the entry have a value, or a queue that is not empty? NULL has neither. */
bool tcpstore_entry_is_there(const struct tcpstore_entry *entry);
/** Remove the entry if it has no value, no queue and no waits. */
void tcpstore_entry_drop_if_empty(struct tcpstore_keys *keys, struct tcpstore_entry *entry);

/* Of tcpstore_waits.c: */

/** Begin a wait for `n_keys` keys. Then call tcpstore_wait_for() for each of them. */
struct tcpstore_wait *tcpstore_wait_begin(struct tcpstore_keys *keys, struct tcpstore_waits *waits,
                                          size_t n_keys, struct fsdp_err *err);
/** Notes that the wait misses the key of this entry. */
void tcpstore_wait_for(struct tcpstore_entry *entry, struct tcpstore_wait *wait);
/**
 * End a wait without an answer. tcpstore_wait_for() must have been called for as many keys as
 * tcpstore_wait_begin() was told.
 */
void tcpstore_wait_cancel(struct tcpstore_keys *keys, struct tcpstore_wait *wait);
/** The key of this entry has come: end every wait that misses no other key. */
void tcpstore_wake_all(struct tcpstore_keys *keys, struct tcpstore_entry *entry);
/** The key has come as an element of a queue: look at its waits in order, up to the first that this ends. */
void tcpstore_wake_one(struct tcpstore_keys *keys, struct tcpstore_entry *entry);

#endif
