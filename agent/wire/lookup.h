/*
 * Look up the addresses of a name without blocking the loop. getaddrinfo() may wait for a name server for any
 * time and cannot be cancelled. It therefore runs on a thread of its own, for which nothing waits. If the
 * answer comes too late, or the caller has cancelled, the thread drops it. A process that ends does not wait
 * for the thread either.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_LOOKUP_H
#define AGENT_LOOKUP_H

#include <netdb.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

struct lookup;

enum { LOOKUP_WITHIN_MS = 10000 };

/**
 * Receives the result of a lookup. The lookup no longer exists when this function is called.
 *   found  the addresses, which the callee gives to freeaddrinfo(); NULL if there are none
 *   why    the reason if there are none, else NULL
 */
typedef void lookup_done(void *arg, struct addrinfo *found, const char *why);

/**
 * Begin a lookup. `done` is called once, from the loop, after at most `within_ms`.
 *   host     the name
 *   service  a port as text, or NULL
 * FSDP_ERR_NOMEM: there is no memory, or no thread, and `done` is not called.
 */
enum fsdp_status lookup_begin(struct lookup **out, uv_loop_t *loop, const char *host, const char *service,
                              uint64_t within_ms, lookup_done *done, void *arg, struct fsdp_err *err);

/**
 * Cancel a lookup: `done` will not be called. NULL is a no-op. Close callbacks free the memory: run the loop
 * to its end.
 */
void lookup_cancel(struct lookup *lookup);

#endif
