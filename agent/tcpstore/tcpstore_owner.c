#include "agent/tcpstore/tcpstore_owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    ANSWER_BYTES = 4096,
    ANSWER_WAIT_MS = 200,
    PROC_LINE_BYTES = 512,
    PROC_PASSES = 2,
    IPV4_WORD = 3,
    LISTEN_STATE = 10 /* TCP_LISTEN */
};

/* An address and a port, as the kernel's tables give them. */
struct endpoint {
    int family;
    uint32_t words[4]; /* the address in network order; an IPv4 address is in the first word */
    uint16_t port;     /* network order */
};

static struct endpoint endpoint_of(const struct sockaddr_storage *address)
{
    struct endpoint end = { .family = address->ss_family };

    if (end.family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;

        end.words[0] = in->sin_addr.s_addr;
        end.port = in->sin_port;
    } else if (end.family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;

        memcpy(end.words, &in->sin6_addr, sizeof end.words);
        end.port = in->sin6_port;
    }
    return end;
}

/* Turn an IPv4 address inside IPv6 into plain IPv4. */
static struct endpoint unmapped(struct endpoint end)
{
    if (end.family == AF_INET6 && end.words[0] == 0 && end.words[1] == 0 && end.words[2] == htonl(0xffff)) {
        end.family = AF_INET;
        end.words[0] = end.words[IPV4_WORD];
        end.words[1] = end.words[2] = end.words[IPV4_WORD] = 0;
    }
    return end;
}

static bool same(const struct endpoint *a, const struct endpoint *b, bool ports)
{
    return a->family == b->family && memcmp(a->words, b->words, sizeof a->words) == 0 &&
           (!ports || a->port == b->port);
}

bool tcpstore_same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct endpoint left = unmapped(endpoint_of(a)), right = unmapped(endpoint_of(b));

    return same(&left, &right, false);
}

/* The kernel's diagnostics */

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 request;
};

/*
 * Ask the kernel for the socket at the other end: its own address is what our end calls the peer's address.
 */
static bool ask(int netlink, const struct tcpstore_connection *connection)
{
    const struct endpoint source = endpoint_of(&connection->peer), target = endpoint_of(&connection->own);
    struct question question = {
        .head = { .nlmsg_len = sizeof question,
                  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                  .nlmsg_flags = NLM_F_REQUEST },
        .request = { .sdiag_family = (unsigned char)source.family,
                     .sdiag_protocol = IPPROTO_TCP,
                     .idiag_states = ~0U,
                     .id = { .idiag_sport = source.port,
                             .idiag_dport = target.port,
                             .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } },
    };

    memcpy(question.request.id.idiag_src, source.words, sizeof source.words);
    memcpy(question.request.id.idiag_dst, target.words, sizeof target.words);
    return send(netlink, &question, sizeof question, 0) == (ssize_t)sizeof question;
}

/*
 * Does the answer describe the connected socket that was asked for? The kernel may answer with one that
 * listens on the same port.
 */
static bool is_answer(const struct inet_diag_msg *socket, const struct tcpstore_connection *connection)
{
    return socket->idiag_state != LISTEN_STATE &&
           socket->id.idiag_sport == endpoint_of(&connection->peer).port &&
           socket->id.idiag_dport == endpoint_of(&connection->own).port;
}

/* Read the kernel's answer. Returns false if the kernel does not answer such questions. */
static bool hear(int netlink, struct tcpstore_connection *connection)
{
    union {
        struct nlmsghdr head;
        unsigned char bytes[ANSWER_BYTES];
    } answer;
    const ssize_t n = recv(netlink, &answer, sizeof answer, 0);

    if (n < (ssize_t)sizeof answer.head)
        return false;
    if (answer.head.nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *failure = NLMSG_DATA(&answer.head);

        return n >= (ssize_t)NLMSG_LENGTH(sizeof *failure) && failure->error == -ENOENT; /* no such socket */
    }
    if (answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
        n >= (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
        const struct inet_diag_msg *socket = NLMSG_DATA(&answer.head);

        connection->found = socket->idiag_inode != 0 && is_answer(socket, connection);
        connection->uid = socket->idiag_uid;
        connection->inode = socket->idiag_inode;
        return true;
    }
    return false;
}

static bool look_by_diag(int netlink, struct tcpstore_connection *connections, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!ask(netlink, &connections[i]) || !hear(netlink, &connections[i]))
            return false;
    return true;
}

void tcpstore_owners_open(struct tcpstore_owners *owners)
{
    const struct timeval patience = { .tv_usec = ANSWER_WAIT_MS * 1000 };

    owners->netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    /* The kernel answers before send() returns. The time-out is for kernels that never answer. */
    if (owners->netlink >= 0)
        setsockopt(owners->netlink, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

void tcpstore_owners_close(struct tcpstore_owners *owners)
{
    if (owners->netlink >= 0)
        close(owners->netlink);
    owners->netlink = -1;
}

/* /proc/net */

static bool read_endpoint(const char *text, int family, struct endpoint *end)
{
    unsigned port, words[4] = { 0 };
    /*
     * NOLINTBEGIN(cert-err34-c): the widths limit the input, and the returned count shows whether all of it
     * was there
     */
    const int n =
        family == AF_INET
            ? sscanf(text, "%8X:%4X", &words[0], &port) - 1
            : sscanf(text, "%8X%8X%8X%8X:%4X", &words[0], &words[1], &words[2], &words[3], &port) - 4;
    /* NOLINTEND(cert-err34-c) */

    if (n != 1)
        return false;
    *end = (struct endpoint){ .family = family, .port = htons((uint16_t)port) };
    for (int i = 0; i < 4; i++)
        /* the kernel prints the address as host integers, so reading them back gives network order */
        end->words[i] = words[i];
    return true;
}

/*
 * Compare one line of the table with each connection. Its fields: number, local address, remote address,
 * state, queues, timer, retransmits, uid, timeout, inode.
 */
static void match_line(const char *line, int family, struct tcpstore_connection *connections, size_t n)
{
    char local[64], remote[64];
    struct endpoint source, target;
    unsigned uid;
    unsigned long inode;

    /* NOLINTNEXTLINE(cert-err34-c): the kernel printed these numbers of just these types */
    if (sscanf(line, " %*d: %63s %63s %*x %*s %*s %*s %u %*d %lu", local, remote, &uid, &inode) != 4 ||
        inode == 0 || !read_endpoint(local, family, &source) || !read_endpoint(remote, family, &target))
        return;
    source = unmapped(source);
    target = unmapped(target);
    for (size_t i = 0; i < n; i++) {
        const struct endpoint peer = unmapped(endpoint_of(&connections[i].peer)),
                              own = unmapped(endpoint_of(&connections[i].own));

        if (same(&source, &peer, true) && same(&target, &own, true)) {
            connections[i].found = true;
            connections[i].uid = uid;
            connections[i].inode = inode;
            return;
        }
    }
}

static bool look_in(const char *path, int family, struct tcpstore_connection *connections, size_t n)
{
    char line[PROC_LINE_BYTES];
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL)
        match_line(line, family, connections, n);
    fclose(file);
    return true;
}

/*
 * A line may be missed, because the table may change while it is read. So it is read a second time if some
 * sockets were not found.
 */
static bool look_by_proc(struct tcpstore_connection *connections, size_t n)
{
    bool works = false, all = false;

    for (int pass = 0; pass < PROC_PASSES && !all; pass++) {
        works = look_in("/proc/net/tcp", AF_INET, connections, n);
        works = look_in("/proc/net/tcp6", AF_INET6, connections, n) || works;
        all = true;
        for (size_t i = 0; i < n; i++)
            all = all && connections[i].found;
    }
    return works;
}

static void find_none(struct tcpstore_connection *connections, size_t n)
{
    for (size_t i = 0; i < n; i++)
        connections[i].found = false;
}

enum fsdp_status tcpstore_owners_find(struct tcpstore_owners *owners, struct tcpstore_connection *connections,
                                      size_t n, struct fsdp_err *err)
{
    find_none(connections, n);
    if (owners->netlink >= 0) {
        if (look_by_diag(owners->netlink, connections, n))
            return FSDP_OK;
        /* otherwise a late answer would be read as the answer to the next question */
        tcpstore_owners_close(owners);
        find_none(connections, n);
    }
    if (look_by_proc(connections, n))
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_IO,
                     "neither the kernel's socket diagnostics nor /proc/net/tcp can be read");
}
