/*
 * The gate of a worker on standby: what the agent sends, and what the worker makes of it. Each test runs in a
 * process of its own, whose environment and streams it may change.
 */
#include "shard_runtime/comm/link_gate.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fsdp/link.h>

#include "agent/link/link_gate.h"

static int ends[2]; /* the agent's, and the worker's */

static void make_link(void)
{
    char text[16];

    cr_assert(eq(int, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0));
    snprintf(text, sizeof text, "%d", ends[1]);
    setenv(FSDP_LINK_FD_ENV, text, 1);
}

TestSuite(link_gate, .init = make_link, .timeout = 60);

static const char environment[] = "GATE_RANK=7\0GATE_EMPTY=\0GATE_OLD=new";

Test(link_gate, an_opened_gate_gives_environment_and_streams_and_leaves_the_link_for_hello)
{
    const int files[2] = { memfd_create("out", 0), memfd_create("err", 0) };
    const int kept_out = dup(STDOUT_FILENO), kept_err = dup(STDERR_FILENO);
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    char text[8] = "";
    bool opened;

    setenv("GATE_OLD", "old", 1);
    cr_assert(link_gate_open(ends[0], environment, sizeof environment, files));
    cr_assert(eq(sz, (size_t)write(ends[0], "hello", 5), 5));
    status = link_gate_wait(&opened, &err);
    (void)!write(STDOUT_FILENO, "o", 1);
    (void)!write(STDERR_FILENO, "e", 1);
    dup2(kept_out, STDOUT_FILENO);
    dup2(kept_err, STDERR_FILENO);

    cr_assert(status == FSDP_OK && opened, "%s", err.message);
    cr_expect(eq(str, getenv("GATE_RANK"), "7"));
    cr_expect(eq(str, getenv("GATE_EMPTY"), ""));
    cr_expect(eq(str, getenv("GATE_OLD"), "new"));
    cr_expect(pread(files[0], text, 8, 0) == 1 && text[0] == 'o');
    cr_expect(pread(files[1], text, 8, 0) == 1 && text[0] == 'e');
    cr_expect(eq(int, (int)recv(ends[1], text, sizeof text, 0), 5), "the next packet is still there");
}

Test(link_gate, an_agent_that_closes_its_end_needs_the_worker_no_more)
{
    bool opened = true;

    close(ends[0]);
    cr_assert(eq(int, link_gate_wait(&opened, NULL), FSDP_OK));
    cr_assert(not(opened));
}

/* Sends a packet of that type with `n_fds` descriptors, and returns what the worker says to it. */
static enum fsdp_status status_of(int type, const char *text, size_t n_bytes, size_t size, int n_fds)
{
    struct fsdp_link_header header = {
        .magic = FSDP_LINK_MAGIC, .version = FSDP_LINK_VERSION, .type = (uint16_t)type, .size = (uint32_t)size
    };
    const int fds[3] = { ends[0], ends[0], ends[0] };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = { .bytes = { 0 } };
    struct iovec parts[2] = { { &header, sizeof header }, { (void *)text, n_bytes } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    bool opened = true;

    if (n_fds > 0) {
        struct cmsghdr *at;

        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        at = CMSG_FIRSTHDR(&message);
        at->cmsg_level = SOL_SOCKET;
        at->cmsg_type = SCM_RIGHTS;
        at->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(at), fds, (size_t)n_fds * sizeof(int));
    }
    cr_assert(gt(int, (int)sendmsg(ends[0], &message, 0), 0));
    return link_gate_wait(&opened, NULL);
}

Test(link_gate, what_opens_no_gate_is_refused)
{
    cr_expect(eq(int, status_of(FSDP_LINK_HELLO, "A=1", 4, 4, 2), FSDP_ERR_FORMAT), "another packet");
    cr_expect(eq(int, status_of(FSDP_LINK_GATE, "A=1", 4, 4, 1), FSDP_ERR_FORMAT), "one stream");
    cr_expect(eq(int, status_of(FSDP_LINK_GATE, "A=1", 4, 4, 3), FSDP_ERR_FORMAT), "three");
    cr_expect(eq(int, status_of(FSDP_LINK_GATE, "A=1", 4, 5, 2), FSDP_ERR_FORMAT), "another size");
    cr_expect(eq(int, status_of(FSDP_LINK_GATE, "A=1", 3, 3, 2), FSDP_ERR_FORMAT), "no zero");
    cr_expect(eq(int, status_of(FSDP_LINK_GATE, "A\0B=1", 6, 6, 2), FSDP_ERR_FORMAT), "no value");
    cr_expect(eq(int, status_of(FSDP_LINK_GATE, "", 1, 1, 2), FSDP_ERR_FORMAT), "no name");
}

Test(link_gate, an_environment_that_is_too_large_is_not_sent)
{
    static char large[FSDP_LINK_GATE_BYTES + 1];
    char byte;

    cr_assert(not(link_gate_open(ends[0], large, sizeof large, ends)));
    cr_assert(lt(int, (int)recv(ends[1], &byte, 1, MSG_DONTWAIT), 0));
}
