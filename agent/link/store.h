/*
 * Keys of one generation: their values, and the clients that wait for them. A key is put once, and its value
 * stays until the generation is over. The agent of each node has a store of the keys that its own workers put
 * or asked for. The coordinator of several nodes has one of all keys that nodes may ask for.
 *
 * Pure, except for the descriptors that it holds and closes.
 */
#ifndef AGENT_STORE_H
#define AGENT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { STORE_MAX_FDS = 2048 };

struct store;

struct store_value {
    const void *bytes;
    size_t size_bytes;
    int fd; /* owned by the store; -1: none */
};

/**
 * Called for each client that waits for a key that was put, with the `client` and `tag` of its store_get().
 */
typedef void store_answer(void *arg, void *client, uint32_t tag, const struct store_value *value);

/** Makes a store whose keys, values and waits take at most `max_bytes`. NULL: out of memory. */
struct store *store_create(size_t max_bytes);
void store_destroy(struct store *store); /* NULL is a no-op */

/**
 * Put `key`. The bytes are copied; the store owns `fd` (-1: none) from now on, also after an error. Clients
 * that wait for the key are answered before it returns.
 *   FSDP_ERR_ARG    the key exists already
 *   FSDP_ERR_NOMEM  out of memory, or a limit is reached: max_bytes or STORE_MAX_FDS
 */
enum fsdp_status store_put(struct store *store, const char *key, const void *bytes, size_t size_bytes, int fd,
                           store_answer *answer, void *arg, struct fsdp_err *err);

/**
 * The value of `key`. If there is none, value->bytes is NULL, and `answer` of a later store_put() is called.
 * *first (may be NULL) receives whether there is no value and no earlier store_get() asked for the key.
 *   FSDP_ERR_NOMEM  out of memory, or max_bytes is reached
 */
enum fsdp_status store_get(struct store *store, const char *key, void *client, uint32_t tag,
                           struct store_value *value, bool *first, struct fsdp_err *err);

/** The client is gone: drop its waits. */
void store_forget(struct store *store, const void *client);

#endif
