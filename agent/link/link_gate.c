#include "agent/link/link_gate.h"

#include <fsdp/link.h>

#include "shard_runtime/core/message.h"

bool link_gate_open(int socket, const char *environment, size_t n_bytes, const int streams[2])
{
    struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC,
                                       .version = FSDP_LINK_VERSION,
                                       .type = FSDP_LINK_GATE,
                                       .size = (uint32_t)n_bytes };
    const struct iovec parts[] = { { &header, sizeof header }, { (void *)environment, n_bytes } };

    return n_bytes <= FSDP_LINK_GATE_BYTES && message_send(socket, parts, 2, streams, 2) >= 0;
}
