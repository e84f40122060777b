/*
 * The addresses of a name, asked for beside the loop. getaddrinfo() may wait for a name server for as long as it likes and
 * cannot be called back: it runs on a thread of its own that nobody waits for. What is late, or no longer wanted, is
 * dropped by the thread; a process that ends does not wait for it either.
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
 * `why` NULL: `found` has addresses, the caller's to give to freeaddrinfo(). Else there are none, and this is the reason.
 * The lookup is gone with it.
 */
typedef void lookup_done(void *arg, struct addrinfo *found, const char *why);

/**
 * Ask; `done` is called once, from the loop, within `within_ms`.
 *   service  a port as text, or NULL
 *   FSDP_ERR_NOMEM  no memory, or no thread; `done` is not called
 */
enum fsdp_status lookup_begin(struct lookup **out, uv_loop_t *loop, const char *host, const char *service,
                              uint64_t within_ms, lookup_done *done, void *arg, struct fsdp_err *err);

/** `done` will not be called. NULL is a no-op. Memory is freed by close callbacks: run the loop to its end. */
void lookup_cancel(struct lookup *lookup);

#endif
