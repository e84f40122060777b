/*
 * The keys of one generation's TCPStore: values, queues, and who waits for what. Pure: bytes in, bytes out.
 *
 * Values and queues are two spaces under the same names: a key may be in both. Who waits is answered once, when all
 * that was missing when it asked has come, in the order in which they asked; a value wakes everyone who waits for its
 * key, an element of a queue the first whom it leaves nothing to wait for. What a client waits for goes when the client
 * goes. Everything here counts against one limit of bytes, keys and waits included.
 */
#ifndef AGENT_TCPSTORE_KEYS_H
#define AGENT_TCPSTORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

#include "agent/tcpstore/tcpstore_proto.h"

struct tcpstore_keys;

/* What one client waits for; the client's, zeroed at first. */
struct tcpstore_waits {
    void *owner; /* what `wake` is called with */
    struct tcpstore_wait *first;
};

/** One wait of `owner` is over. It may begin no wait and end none from within. */
typedef void tcpstore_wake(void *arg, void *owner);

/** NULL: memory ran out. */
struct tcpstore_keys *tcpstore_keys_create(size_t max_bytes, tcpstore_wake *wake, void *arg);
/** After every tcpstore_keys_forget(); NULL is a no-op. */
void tcpstore_keys_destroy(struct tcpstore_keys *keys);

/** The value of `key`; false when it has none. It is good until the next call that changes anything. */
bool tcpstore_keys_get(const struct tcpstore_keys *keys, struct tcpstore_text key,
                       struct tcpstore_text *value);

/*
 * Those that change something fail with FSDP_ERR_NOMEM (memory, or the limit) and have changed nothing then.
 */

enum fsdp_status tcpstore_keys_set(struct tcpstore_keys *keys, struct tcpstore_text key,
                                   struct tcpstore_text value, struct fsdp_err *err);
/** Append to what is there; FSDP_ERR_FORMAT when that is longer than a request may be. */
enum fsdp_status tcpstore_keys_append(struct tcpstore_keys *keys, struct tcpstore_text key,
                                      struct tcpstore_text value, struct fsdp_err *err);
/** Add to the decimal number there (none: 0), leave the sum as text. FSDP_ERR_FORMAT: what is there is no number. */
enum fsdp_status tcpstore_keys_add(struct tcpstore_keys *keys, struct tcpstore_text key, int64_t delta,
                                   int64_t *sum, struct fsdp_err *err);
/**
 * Where the value is `expected`, or there is none and nothing is expected, it becomes `desired`. *result is what is
 * there then; where there is none still, `expected`.
 */
enum fsdp_status tcpstore_keys_compare_set(struct tcpstore_keys *keys, struct tcpstore_text key,
                                           struct tcpstore_text expected, struct tcpstore_text desired,
                                           struct tcpstore_text *result, struct fsdp_err *err);
/** Nobody is woken by it, and who waits goes on to wait. */
bool tcpstore_keys_delete(struct tcpstore_keys *keys, struct tcpstore_text key);

enum fsdp_status tcpstore_keys_push(struct tcpstore_keys *keys, struct tcpstore_text key,
                                    struct tcpstore_text value, struct fsdp_err *err);
size_t tcpstore_keys_queue_length(const struct tcpstore_keys *keys, struct tcpstore_text key);
/** The oldest element, good until tcpstore_keys_pop() takes it away. False: there is none. */
bool tcpstore_keys_front(const struct tcpstore_keys *keys, struct tcpstore_text key,
                         struct tcpstore_text *value);
void tcpstore_keys_pop(struct tcpstore_keys *keys, struct tcpstore_text key);

/** Has every key of the list (used up by this) a value, or a queue with something in it? */
bool tcpstore_keys_check(const struct tcpstore_keys *keys, struct tcpstore_request *request);
/** As check; where something is missing, *waiting is true and `waits` is answered later. */
enum fsdp_status tcpstore_keys_wait(struct tcpstore_keys *keys, struct tcpstore_request *request,
                                    struct tcpstore_waits *waits, bool *waiting, struct fsdp_err *err);
/**
 * One more has come to the barrier `key`: it counts them, as tcpstore_keys_add(). With the world_size-th all are
 * woken and *waiting is false, for this one and for those that come later.
 */
enum fsdp_status tcpstore_keys_barrier(struct tcpstore_keys *keys, struct tcpstore_text key,
                                       int64_t world_size, struct tcpstore_waits *waits, bool *waiting,
                                       struct fsdp_err *err);
/** The client waits for nothing any more, and is not answered. */
void tcpstore_keys_forget(struct tcpstore_keys *keys, struct tcpstore_waits *waits);

/** Keys that have a value; queues are not counted. */
size_t tcpstore_keys_count(const struct tcpstore_keys *keys);
size_t tcpstore_keys_used_bytes(const struct tcpstore_keys *keys);
size_t tcpstore_keys_n_waits(const struct tcpstore_keys *keys);
/** Each key that has a value, in no order. */
void tcpstore_keys_each(const struct tcpstore_keys *keys, void (*visit)(void *arg, struct tcpstore_text key),
                        void *arg);

#endif
