#include "shard_runtime/comm/link_gate.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "shard_runtime/core/message.h"
#include "shard_runtime/core/require.h"

struct gate_packet {
    struct fsdp_link_header header;
    char environment[FSDP_LINK_GATE_BYTES];
};

/* Receives one packet into `packet`. *n is its size; 0: the agent has closed its end. */
static enum fsdp_status receive(int socket, struct gate_packet *packet, ssize_t *n,
                                struct message_fds *streams, struct fsdp_err *err)
{
    struct iovec part = { packet, sizeof *packet };

    *n = message_receive(socket, &part, 1, 0, streams);
    if (*n < 0 && errno != ECONNRESET)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "waiting at the gate: %s", strerror(errno));
    if (*n <= 0) {
        *n = 0;
        return FSDP_OK;
    }
    if (streams->n != 2 || streams->cut != 0 || (size_t)*n < sizeof packet->header ||
        packet->header.magic != FSDP_LINK_MAGIC || packet->header.version != FSDP_LINK_VERSION ||
        packet->header.type != FSDP_LINK_GATE || packet->header.size != (size_t)*n - sizeof packet->header)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "what the agent sent first opens no gate");
    return FSDP_OK;
}

/* Sets the variables of `text`, (n_bytes) "NAME=value" texts, each with its zero. */
static enum fsdp_status set_environment(char *text, size_t n_bytes, struct fsdp_err *err)
{
    for (char *at = text, *end = text + n_bytes; at < end; at += strlen(at) + 1) {
        char *equals = memchr(at, '=', (size_t)(end - at));

        if (memchr(at, '\0', (size_t)(end - at)) == NULL || equals == NULL || equals > at + strlen(at))
            return fsdp_fail(err, FSDP_ERR_FORMAT, "the agent's environment has a text that is no variable");
        *equals = '\0';
        if (setenv(at, equals + 1, 1) < 0)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the environment");
        *equals = '=';
    }
    return FSDP_OK;
}

enum fsdp_status link_gate_wait(bool *opened, struct fsdp_err *err)
{
    const char *text = getenv(FSDP_LINK_FD_ENV);
    struct gate_packet *packet = NULL;
    struct message_fds streams = { .most = 2, .fds = { -1, -1, -1 } };
    enum fsdp_status status;
    ssize_t n = 0;

    *opened = false;
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "there is no agent that could open the gate");
    packet = malloc(sizeof *packet);
    if (packet == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the agent's packet");
    status = receive((int)strtol(text, NULL, 10), packet, &n, &streams, err);
    if (status == FSDP_OK && n > 0)
        status = set_environment(packet->environment, packet->header.size, err);
    if (status == FSDP_OK && n > 0) {
        *opened = dup2(streams.fds[0], STDOUT_FILENO) >= 0 && dup2(streams.fds[1], STDERR_FILENO) >= 0;
        if (!*opened)
            status = fsdp_fail(err, FSDP_ERR_IO, "the streams of the worker: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++)
        if (streams.fds[i] >= 0)
            close(streams.fds[i]);
    free(packet);
    return status;
}
