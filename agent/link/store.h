/*
 * The keys of one generation: who put what, and who waits for it. Pure but for the descriptors it holds and
 * closes. A key is put once; values stay until the generation is over.
 */
#ifndef AGENT_STORE_H
#define AGENT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum {
    STORE_MAX_KEYS = 65536,
    STORE_MAX_BYTES = 64 << 20, /* of all values together */
    STORE_MAX_FDS = 2048,
    STORE_MAX_WAITERS = 65536,
};

struct store;

struct store_value {
    const void *bytes;
    size_t size_bytes;
    int fd; /* the store's; -1: none */
};

/** Called for each waiter of a key that has come; `client` and `tag` are what it waited with. */
typedef void store_answer(void *arg, void *client, uint32_t tag, const struct store_value *value);

struct store *store_create(void);        /* NULL: memory ran out */
void store_destroy(struct store *store); /* NULL is a no-op */

/**
 * Put `key`; `fd` (-1: none) becomes the store's, whatever comes of it. Waiters are answered before it returns.
 *   FSDP_ERR_ARG    the key is there already
 *   FSDP_ERR_NOMEM  memory, or one of the limits above
 */
enum fsdp_status store_put(struct store *store, const char *key, const void *bytes, size_t size_bytes, int fd,
                           store_answer *answer, void *arg, struct fsdp_err *err);

/** The value if it is there; else remember the waiter, and *value->bytes is NULL with FSDP_OK. */
enum fsdp_status store_get(struct store *store, const char *key, void *client, uint32_t tag,
                           struct store_value *value, struct fsdp_err *err);

/** Forget what `client` waits for: it is gone. */
void store_forget(struct store *store, const void *client);

size_t store_n_keys(const struct store *store);
size_t store_n_waiters(const struct store *store);

#endif
