/*
 * Inside agent/tcpstore_keys: tcpstore_entries.c is the table, tcpstore_waits.c who waits, tcpstore_keys.c what the
 * operations do. What takes memory fails with NULL and FSDP_ERR_NOMEM, and has changed nothing then.
 */
#ifndef AGENT_TCPSTORE_KEYS_IMPL_H
#define AGENT_TCPSTORE_KEYS_IMPL_H

#include "agent/tcpstore/tcpstore_keys.h"

/* Bytes that something here owns: a value, or an element of a queue. */
struct tcpstore_blob {
    struct tcpstore_blob *next; /* in a queue */
    size_t size, capacity;
    unsigned char bytes[];
};

/* One key that one wait still misses, in the list of that key. */
struct tcpstore_missed {
    struct tcpstore_wait *wait;
    struct tcpstore_entry *entry; /* NULL: it has come */
    struct tcpstore_missed *prev, *next;
};

struct tcpstore_wait {
    struct tcpstore_waits *waits;
    struct tcpstore_wait *prev, *next; /* of the same client */
    size_t n_missing, n;
    struct tcpstore_missed missed[];
};

/* A name that has a value, a queue with something in it, or somebody who waits for it. */
struct tcpstore_entry {
    struct tcpstore_entry *next; /* in its slot */
    uint64_t hash;
    struct tcpstore_blob *value; /* NULL: none */
    struct tcpstore_blob *front, *back;
    size_t n_queued;
    struct tcpstore_missed *first, *last; /* who waits, in the order in which they asked */
    size_t key_size;
    unsigned char key[];
};

struct tcpstore_keys {
    struct tcpstore_entry **slots;
    size_t n_slots, n_entries, n_values, n_waits;
    size_t used_bytes, max_bytes;
    tcpstore_wake *wake;
    void *arg;
};

/* --- tcpstore_entries.c --- */

/** `size` bytes that count against the limit; given back as many. NULL may be given back. */
void *tcpstore_take(struct tcpstore_keys *keys, size_t size, struct fsdp_err *err);
void tcpstore_give(struct tcpstore_keys *keys, void *memory, size_t size);

/** A copy of `text` with room for `capacity` bytes. */
struct tcpstore_blob *tcpstore_blob_take(struct tcpstore_keys *keys, struct tcpstore_text text,
                                         size_t capacity, struct fsdp_err *err);
void tcpstore_blob_give(struct tcpstore_keys *keys, struct tcpstore_blob *blob); /* NULL is a no-op */
struct tcpstore_text tcpstore_blob_text(const struct tcpstore_blob *blob);

/** NULL: nobody has said that name, or it is nothing to anybody any more. */
struct tcpstore_entry *tcpstore_entry_find(const struct tcpstore_keys *keys, struct tcpstore_text key);
struct tcpstore_entry *tcpstore_entry_add(struct tcpstore_keys *keys, struct tcpstore_text key,
                                          struct fsdp_err *err);
/** Has it a value, or a queue with something in it? NULL has neither. */
bool tcpstore_entry_is_there(const struct tcpstore_entry *entry);
/** What is nothing to anybody goes. */
void tcpstore_entry_drop_if_empty(struct tcpstore_keys *keys, struct tcpstore_entry *entry);

/* --- tcpstore_waits.c --- */

/** A wait for up to `n_keys` keys, which it takes by tcpstore_wait_for(). */
struct tcpstore_wait *tcpstore_wait_begin(struct tcpstore_keys *keys, struct tcpstore_waits *waits,
                                          size_t n_keys, struct fsdp_err *err);
void tcpstore_wait_for(struct tcpstore_entry *entry, struct tcpstore_wait *wait);
/** Over without an answer. It counts for as many keys as it was begun with, so each place must have been filled. */
void tcpstore_wait_cancel(struct tcpstore_keys *keys, struct tcpstore_wait *wait);
/** Everyone who waits for the key; or those in front, up to the first whom it leaves nothing to wait for. */
void tcpstore_wake_all(struct tcpstore_keys *keys, struct tcpstore_entry *entry);
void tcpstore_wake_one(struct tcpstore_keys *keys, struct tcpstore_entry *entry);

#endif
