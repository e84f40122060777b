/*
 * The proof that an agent and its ranks are gone. If an agent is killed, its guard kills every process below
 * it, and then connects to the coordinator and says so. The coordinator need not wait for the lease of that
 * node then.
 *   - The agent leaves to its guard who it is, and where it reaches the coordinator (agent/os/lease.h).
 *   - With a key, the handshake proves that identity, as it does for a session (agent/wire/tls.h). So only a
 *     process that has the job's key can speak for an agent.
 *   - The first frame is SESSION_SWEPT, whose payload is the identity. No answer comes.
 *   - No guard sends it while its agent lives. So the identity is refused from then on.
 */
#ifndef AGENT_SWEPT_H
#define AGENT_SWEPT_H

#include <sys/socket.h>
#include <uv.h>

#include "agent/wire/session_hello.h"

/* What an agent leaves to its guard. No secret is in it. */
struct swept_will {
    unsigned char agent[SESSION_IDENTITY_BYTES]; /* who it is */
    struct sockaddr_storage coordinator;         /* where it has reached the coordinator last */
};

/**
 * Begin to tell the coordinator that no process of the agent is left. Run the loop to its end: it ends when
 * the message is sent, or cannot be sent. Nothing is left on the loop then.
 *   will       copied
 *   key        (TLS_KEY_BYTES) of the job; NULL: clear text. Used during the call only
 *   job        the number in every frame
 *   within_ms  the try is given up after so long
 * After a failure the loop has nothing to run.
 */
enum fsdp_status swept_say(uv_loop_t *loop, const struct swept_will *will, const unsigned char *key,
                           uint64_t job, int64_t within_ms, struct fsdp_err *err);

#endif
