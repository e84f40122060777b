/*
 * The coordinator's end of the pulses (pulse_datagram.h): sockets on the loop. They are read in the same turn
 * of the loop as the sessions, before any session is judged.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_PULSE_LISTENER_H
#define AGENT_PULSE_LISTENER_H

#include <sys/socket.h>
#include <uv.h>

#include "agent/rendezvous/pulse_datagram.h"

struct pulse_listener;

/** A question has come. Returns false if it gets no answer; else fills in the answer's times. */
typedef bool pulse_question(void *arg, const struct pulse *question, struct pulse *answer);

/**
 * Listen on one address, with its port.
 *   key  (TLS_KEY_BYTES) the job's; NULL: clear text. Not borrowed
 * NULL: that is not possible, and members do without pulses.
 */
struct pulse_listener *pulse_listen(uv_loop_t *loop, const struct sockaddr *address, const unsigned char *key,
                                    pulse_question *question, void *arg);
/** No call follows. The memory is freed when the loop has run. NULL is a no-op. */
void pulse_listener_close(struct pulse_listener *listener);

#endif
