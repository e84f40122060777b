#include "agent/meeting.h"

#include <string.h>

#include "agent/identity.h"
#include "agent/tls.h"

enum { JOIN_TIMEOUT_MS = 600000 /* torchrun's join_timeout */ };

enum fsdp_status meeting_begin(struct rendezvous **out, uv_loop_t *loop, const struct agent_config *config,
                               const struct rendezvous_handlers *handlers, void *arg, struct fsdp_err *err)
{
    struct rendezvous_config meeting = { .host = config->rendezvous_host,
                                         .port = config->rendezvous_port,
                                         .job = identity_job(config),
                                         .join_timeout_ms = JOIN_TIMEOUT_MS,
                                         .handlers = *handlers,
                                         .arg = arg };
    unsigned char key[TLS_KEY_BYTES];
    enum fsdp_status status = FSDP_OK;

    *out = NULL;
    identity_fill(&meeting.self, config);
    if (config->secret != NULL) {
        status = tls_derive_key(key, config->secret, config->secret_bytes, config->run_id, err);
        meeting.key = key;
    }
    if (status == FSDP_OK)
        status = rendezvous_create(out, loop, &meeting, err);
    explicit_bzero(key, sizeof key);
    return status;
}
