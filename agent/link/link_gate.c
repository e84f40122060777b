#include "agent/link/link_gate.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <fsdp/link.h>

bool link_gate_open(int socket, const char *environment, size_t n_bytes, const int streams[2])
{
    struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC,
                                       .version = FSDP_LINK_VERSION,
                                       .type = FSDP_LINK_GATE,
                                       .size = (uint32_t)n_bytes };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec parts[2] = { { &header, sizeof header }, { (void *)environment, n_bytes } };
    struct msghdr message = { .msg_iov = parts,
                              .msg_iovlen = 2,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    struct cmsghdr *descriptors;
    ssize_t n;

    if (n_bytes > FSDP_LINK_GATE_BYTES)
        return false;
    memset(&control, 0, sizeof control);
    descriptors = CMSG_FIRSTHDR(&message);
    descriptors->cmsg_level = SOL_SOCKET;
    descriptors->cmsg_type = SCM_RIGHTS;
    descriptors->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(descriptors), streams, 2 * sizeof(int));
    do
        n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n >= 0;
}
