/*
 * Packets on their way to one worker: sent at once if its socket takes them, else kept in order until it
 * does. A worker that lets more than 4 MiB of them wait does not read, and is given up. Never blocks.
 */
#ifndef AGENT_LINK_OUTBOX_H
#define AGENT_LINK_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct link_waiting;

struct link_outbox {
    struct link_waiting *first, **end; /* end: where the next one is hung */
    size_t waiting_bytes;
};

void outbox_init(struct link_outbox *outbox);
/** Drop what waits; empty afterwards, as after outbox_init(). */
void outbox_fini(struct link_outbox *outbox);
/** Nothing waits: there is no need to be told when the socket takes more. */
bool outbox_is_empty(const struct link_outbox *outbox);

/**
 * Send one packet, now or later. `payload` and `fd` (-1: none) are copied and stay the caller's.
 *   FSDP_ERR_PEER   the worker is gone
 *   FSDP_ERR_NOMEM  it does not read, or the packet cannot be kept: no memory, no descriptor; err says which
 */
enum fsdp_status outbox_send(struct link_outbox *outbox, int socket, enum fsdp_link_type type, uint32_t tag,
                             const void *payload, size_t size_bytes, int fd, struct fsdp_err *err);

/** Send what waits, as far as the socket takes it. FSDP_ERR_PEER: the worker is gone. */
enum fsdp_status outbox_flush(struct link_outbox *outbox, int socket, struct fsdp_err *err);

/** Is this errno of a call on such a socket about its being full, or empty, for now? */
bool outbox_is_full(int error);

#endif
