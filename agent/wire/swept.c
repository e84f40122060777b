#include "agent/wire/swept.h"

#include <stdlib.h>

#include "agent/wire/peer.h"
#include "agent/wire/session_core.h"
#include "agent/wire/tls.h"

/* The one connection that carries the guard's message. */
struct saying {
    struct swept_will will;
    unsigned char scratch[PEER_SCRATCH_BYTES];
};

static void on_opened(void *arg, struct peer *peer)
{
    const struct saying *saying = arg;

    peer_send(peer, &(struct frame){ .type = SESSION_SWEPT,
                                     .payload = saying->will.agent,
                                     .size = sizeof saying->will.agent });
    peer_close(peer, NULL); /* after it was sent */
}

static void on_closed(void *arg, struct peer *peer, const struct fsdp_err *why)
{
    (void)peer, (void)why;
    free(arg);
}

enum fsdp_status swept_say(uv_loop_t *loop, const struct swept_will *will, const unsigned char *key,
                           uint64_t job, int64_t within_ms, struct fsdp_err *err)
{
    struct tls_context *tls = NULL;
    struct saying *saying = calloc(1, sizeof *saying);
    enum fsdp_status status = FSDP_OK;
    struct peer_config config;
    struct peer *peer;

    if (saying == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a connection");
    saying->will = *will;
    if (key != NULL)
        status = tls_context_create(&tls, false, key, err);
    if (status == FSDP_OK) {
        peer_config_init(&config);
        config.tls = tls;
        config.identity = will->agent;
        config.job = job;
        config.handshake_ms = within_ms; /* the connection is never admitted, so this limits all of it */
        config.scratch = saying->scratch;
        config.handlers = (struct peer_handlers){ .opened = on_opened, .closed = on_closed };
        config.arg = saying;
        status = peer_connect(&peer, loop, (const struct sockaddr *)&will->coordinator, &config, err);
    }
    tls_context_destroy(tls);
    if (status != FSDP_OK)
        free(saying);
    return status;
}
