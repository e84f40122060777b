/*
 * A connection between two processes that copy snapshots (copies.h), on different nodes: TLS over TCP, with a
 * key of the generation (agent/wire/tls.h). The calls wait, so each connection has a thread of its own.
 */
#ifndef AGENT_COPY_STREAM_H
#define AGENT_COPY_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

#include "agent/wire/tls.h"

struct copy_stream;

/* How long a call waits for the other end: less than a rank may be silent in a save (hang_bounds.h). */
enum { COPY_PATIENCE_MS = 15000 };

/** Connect to a node. *fd is a socket, which does not block. FSDP_ERR_PEER: the node is not reached. */
enum fsdp_status copy_stream_connect(int *fd, const char *address, int port, struct fsdp_err *err);

/**
 * Shake hands on the socket `fd`. The end that connected is the client, and has a context of a client. All of
 * it takes `patience_ms` at most, however often the other end sends something. A stream that was opened owns
 * the socket. After an error *out is NULL, and the socket is the caller's.
 *   FSDP_ERR_MISMATCH  the other end does not hold the key
 *   FSDP_ERR_PEER      it is gone, or has not proven itself in time
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status copy_stream_open(struct copy_stream **out, int fd, const struct tls_context *context,
                                  bool server, int patience_ms, struct fsdp_err *err);
void copy_stream_close(struct copy_stream *stream); /* NULL is a no-op */

/** Send all of the bytes. FSDP_ERR_PEER: the other end is gone, or takes nothing. */
enum fsdp_status copy_stream_send(struct copy_stream *stream, const void *bytes, size_t n_bytes,
                                  struct fsdp_err *err);

/** Receive exactly so many bytes. FSDP_ERR_PEER: the other end is gone, or sends nothing. */
enum fsdp_status copy_stream_receive(struct copy_stream *stream, void *bytes, size_t n_bytes,
                                     struct fsdp_err *err);

/** Wait until the other end sends something, however long that takes, or is gone. */
void copy_stream_idle(struct copy_stream *stream);

#endif
