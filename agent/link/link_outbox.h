/*
 * Packets for one worker, or for a process of the agent. They are sent at once if the socket takes them, and
 * are otherwise kept in order until it does. A reader for which more than 4 MiB wait does not read, and is
 * given up. Never blocks.
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
    struct link_waiting *first, **end; /* end: where the next packet is appended */
    size_t waiting_bytes;
};

/** Initialise an empty outbox. */
void outbox_init(struct link_outbox *outbox);
/** Drop all packets that wait. The outbox is then as after outbox_init(). */
void outbox_fini(struct link_outbox *outbox);
/** True if no packet waits; then the socket need not be watched for writing. */
bool outbox_is_empty(const struct link_outbox *outbox);

/**
 * Send one packet, now or later. `payload` and `fd` (-1: none) are copied and stay the caller's.
 *   FSDP_ERR_PEER   the reader is gone
 *   FSDP_ERR_NOMEM  it does not read, or the packet cannot be kept: no memory, no descriptor; err says which
 */
enum fsdp_status outbox_send(struct link_outbox *outbox, int socket, enum fsdp_link_type type, uint32_t tag,
                             const void *payload, size_t size_bytes, int fd, struct fsdp_err *err);

/** Send one packet of `size_bytes` bytes without a header, now or later. All else is as in outbox_send(). */
enum fsdp_status outbox_send_bytes(struct link_outbox *outbox, int socket, const void *bytes,
                                   size_t size_bytes, int fd, struct fsdp_err *err);

/** Send packets that wait, as far as the socket takes them. FSDP_ERR_PEER: the reader is gone. */
enum fsdp_status outbox_flush(struct link_outbox *outbox, int socket, struct fsdp_err *err);

/** Does this errno of a socket call mean that the socket is full, or empty, for now? */
bool outbox_is_full(int error);

#endif
