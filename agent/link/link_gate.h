/*
 * Opens the gate at which a worker on standby waits (--standby; <fsdp/link.h>, FSDP_LINK_GATE). Such a worker
 * was started before a generation needs it.
 */
#ifndef AGENT_LINK_GATE_H
#define AGENT_LINK_GATE_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Sends a worker on standby what a worker of the generation gets when it is started. Its HELLO must follow on
 * the same socket.
 *
 *   socket       our end of the worker's link; nothing was sent on it before
 *   environment  (n_bytes) "NAME=value" texts, each with its zero
 *   streams      descriptors that become its stdout and stderr; they stay the caller's
 *
 * Returns false if the worker is gone, or if the socket does not take so much. Then nothing was sent.
 */
bool link_gate_open(int socket, const char *environment, size_t n_bytes, const int streams[2]);

#endif
