/*
 * The keys of one generation's TCPStore: values, queues, and the waits of clients. Pure: bytes in, bytes out.
 *
 * Values and queues are separate: a key may have both. Rules of waiting:
 *   1. A wait ends once every key that was missing when it began has come. It is answered once.
 *   2. A new value ends the waits of all clients that wait for its key, in the order in which they asked.
 *   3. A new element of a queue ends at most one wait: the first one that misses nothing else.
 *   4. The waits of a client go with the client.
 * Keys, values and waits count against one limit of bytes.
 */
#ifndef AGENT_TCPSTORE_KEYS_H
#define AGENT_TCPSTORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "agent/tcpstore/tcpstore_proto.h"

struct tcpstore_keys;

/* The waits of one client. The client owns this struct, and zeroes it before its first wait. */
struct tcpstore_waits {
    void *owner; /* the client, as passed to `wake` */
    struct tcpstore_wait *first;
};

/** Called when a wait of `owner` is over. It must neither begin nor end a wait. */
typedef void tcpstore_wake(void *arg, void *owner);

/** `wake` is called with `arg` and the owner of each wait that is over. NULL: out of memory. */
struct tcpstore_keys *tcpstore_keys_create(size_t max_bytes, tcpstore_wake *wake, void *arg);
/** Call it after tcpstore_keys_forget() for every client. NULL is a no-op. */
void tcpstore_keys_destroy(struct tcpstore_keys *keys);

/** The value of `key`, valid until the next call that changes a key. False: there is none. */
bool tcpstore_keys_get(const struct tcpstore_keys *keys, struct tcpstore_text key,
                       struct tcpstore_text *value);

/*
 * Each of the following functions may fail with FSDP_ERR_NOMEM: out of memory, or the limit is reached. After
 * a failure nothing has changed.
 */

/** Set the value of `key`; the bytes are copied. */
enum fsdp_status tcpstore_keys_set(struct tcpstore_keys *keys, struct tcpstore_text key,
                                   struct tcpstore_text value, struct fsdp_err *err);
/** Append to the value of `key`. FSDP_ERR_FORMAT: the result would be longer than a request may be. */
enum fsdp_status tcpstore_keys_append(struct tcpstore_keys *keys, struct tcpstore_text key,
                                      struct tcpstore_text value, struct fsdp_err *err);
/**
 * Add `delta` to the decimal number in the value of `key` (0 if there is none), and store the sum as text.
 * FSDP_ERR_FORMAT: the value is no number, or the sum exceeds 64 bits.
 */
enum fsdp_status tcpstore_keys_add(struct tcpstore_keys *keys, struct tcpstore_text key, int64_t delta,
                                   int64_t *sum, struct fsdp_err *err);
/**
 * If the value of `key` is `expected`, or if there is none and `expected` is empty, set it to `desired`.
 * *result is the value afterwards, or `expected` if there is still none.
 */
enum fsdp_status tcpstore_keys_compare_set(struct tcpstore_keys *keys, struct tcpstore_text key,
                                           struct tcpstore_text expected, struct tcpstore_text desired,
                                           struct tcpstore_text *result, struct fsdp_err *err);
/** Delete the value of `key`. No wait ends by it. False: there was none. */
bool tcpstore_keys_delete(struct tcpstore_keys *keys, struct tcpstore_text key);

/** Add an element to the end of the queue `key`; the bytes are copied. */
enum fsdp_status tcpstore_keys_push(struct tcpstore_keys *keys, struct tcpstore_text key,
                                    struct tcpstore_text value, struct fsdp_err *err);
/** Elements of the queue `key`; 0 if there is none. */
size_t tcpstore_keys_queue_length(const struct tcpstore_keys *keys, struct tcpstore_text key);
/** The oldest element of the queue, valid until tcpstore_keys_pop(). False: there is none. */
bool tcpstore_keys_front(const struct tcpstore_keys *keys, struct tcpstore_text key,
                         struct tcpstore_text *value);
/** Remove the oldest element. */
void tcpstore_keys_pop(struct tcpstore_keys *keys, struct tcpstore_text key);

/** Does every key of the request's list have a value, or a queue that is not empty? Uses up the list. */
bool tcpstore_keys_check(const struct tcpstore_keys *keys, struct tcpstore_request *request);
/** Does what tcpstore_keys_check() does. If a key is missing, sets *waiting, and `wake` is called later. */
enum fsdp_status tcpstore_keys_wait(struct tcpstore_keys *keys, struct tcpstore_request *request,
                                    struct tcpstore_waits *waits, bool *waiting, struct fsdp_err *err);
/**
 * A client has come to the barrier `key`, which counts them as tcpstore_keys_add() does. With client number
 * world_size, all waits end. For that client, and for any later one, *waiting is false.
 */
enum fsdp_status tcpstore_keys_barrier(struct tcpstore_keys *keys, struct tcpstore_text key,
                                       int64_t world_size, struct tcpstore_waits *waits, bool *waiting,
                                       struct fsdp_err *err);
/** End all waits of the client without an answer. */
void tcpstore_keys_forget(struct tcpstore_keys *keys, struct tcpstore_waits *waits);

/** Number of keys that have a value. Queues do not count. */
size_t tcpstore_keys_count(const struct tcpstore_keys *keys);
/** Bytes that count against the limit. */
size_t tcpstore_keys_used_bytes(const struct tcpstore_keys *keys);
/** Number of waits that are not over. */
size_t tcpstore_keys_n_waits(const struct tcpstore_keys *keys);
/** Call `visit` for each key that has a value, in no particular order. */
void tcpstore_keys_each(const struct tcpstore_keys *keys, void (*visit)(void *arg, struct tcpstore_text key),
                        void *arg);

#endif
