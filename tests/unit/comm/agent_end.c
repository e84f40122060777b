#include "tests/unit/comm/agent_end.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct agent_end agent_end = { -1, -1 };

void agent_end_open(void)
{
    int ends[2];
    char text[16];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    agent_end.fd = ends[0];
    agent_end.workers_fd = ends[1];
    snprintf(text, sizeof text, "%d", agent_end.workers_fd);
    setenv(FSDP_LINK_FD_ENV, text, 1);
}

int agent_end_file(const void *bytes, size_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    return fd;
}

int agent_end_page(void)
{
    static const char zeros[FSDP_PROGRESS_BYTES];

    return agent_end_file(zeros, sizeof zeros);
}

void agent_end_say_raw(const struct fsdp_link_header *header, const void *payload, size_t size,
                       const int *fds, int n_fds)
{
    struct iovec parts[2] = { { (void *)header, sizeof *header }, { (void *)payload, size } };
    char control[CMSG_SPACE(8 * sizeof(int))] __attribute__((aligned(8))) = { 0 };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

    if (n_fds > 0) {
        struct cmsghdr *c = (struct cmsghdr *)control;

        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
    }
    cr_assert(sendmsg(agent_end.fd, &message, MSG_NOSIGNAL) >= 0, "%s", strerror(errno));
}

void agent_end_say(int type, uint32_t tag, const void *payload, size_t size, int fd)
{
    const struct fsdp_link_header header = { FSDP_LINK_MAGIC, FSDP_LINK_VERSION, (uint16_t)type, tag,
                                             (uint32_t)size };

    agent_end_say_raw(&header, payload, size, &fd, fd >= 0);
    if (fd >= 0)
        close(fd);
}

struct fsdp_link_hello agent_end_two_ranks(void)
{
    return (struct fsdp_link_hello){ .rank = 1,
                                     .world_size = 2,
                                     .local_rank = 1,
                                     .local_world_size = 2,
                                     .n_nodes = 1,
                                     .generation = 3,
                                     .threads = 1,
                                     .resume_step = 7,
                                     .run_dir = "/r",
                                     .node_address = "127.0.0.1" };
}

void agent_end_say_hello(void)
{
    const struct fsdp_link_hello hello = agent_end_two_ranks();

    agent_end_say(FSDP_LINK_HELLO, 0, &hello, sizeof hello, agent_end_page());
}

struct link *agent_end_opened(void)
{
    struct link *link = NULL;
    struct fsdp_err err = { 0 };

    agent_end_open();
    agent_end_say_hello();
    cr_assert_eq(link_open(&link, &err), FSDP_OK, "%s", err.message);
    return link;
}

size_t agent_end_heard(struct fsdp_link_header *header, void *payload, size_t room, int *fd)
{
    struct iovec parts[2] = { { header, sizeof *header }, { payload, room } };
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof control
    };
    ssize_t n = recvmsg(agent_end.fd, &message, MSG_DONTWAIT);

    cr_assert(n >= (ssize_t)sizeof *header, "nothing was sent");
    cr_assert_eq(header->magic, FSDP_LINK_MAGIC);
    cr_assert_eq(header->version, FSDP_LINK_VERSION);
    cr_assert_eq(header->size, (size_t)n - sizeof *header);
    if (fd != NULL) {
        *fd = -1;
        if (message.msg_controllen > 0)
            memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof *fd);
    }
    return (size_t)n - sizeof *header;
}

int agent_end_n_open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}
