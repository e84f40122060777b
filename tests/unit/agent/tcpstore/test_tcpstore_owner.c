#include "agent/tcpstore/tcpstore_owner.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* One connection over loopback: the listener's end, and the other one. */
struct pair {
    int client, server;
    struct tcpstore_connection connection;
};

static bool connect_pair(struct pair *pair, const struct sockaddr *address, socklen_t size)
{
    struct sockaddr_storage at = { 0 };
    socklen_t at_size = sizeof at, peer_size = sizeof pair->connection.peer,
              own_size = sizeof pair->connection.own;
    int listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool made = false;

    memset(pair, 0, sizeof *pair);
    pair->client = pair->server = -1;
    if (listener >= 0 && bind(listener, address, size) == 0 && listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&at, &at_size) == 0) {
        pair->client = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        made = connect(pair->client, (struct sockaddr *)&at, at_size) == 0;
        pair->server = accept(listener, (struct sockaddr *)&pair->connection.peer, &peer_size);
        getsockname(pair->server, (struct sockaddr *)&pair->connection.own, &own_size);
    }
    close(listener);
    return made;
}

static bool connect_ip4(struct pair *pair)
{
    const struct sockaddr_in loopback = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    return connect_pair(pair, (const struct sockaddr *)&loopback, sizeof loopback);
}

static bool connect_ip6(struct pair *pair)
{
    const struct sockaddr_in6 loopback = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

    return connect_pair(pair, (const struct sockaddr *)&loopback, sizeof loopback);
}

static void close_pair(struct pair *pair)
{
    close(pair->client);
    close(pair->server);
}

/* By the kernel's diagnostics where they work, and by /proc, which has to say the same. */
static void check_both_ways(struct pair *pair, bool found, uid_t uid)
{
    struct tcpstore_owners owners;

    for (int way = 0; way < 2; way++) {
        tcpstore_owners_open(&owners);
        if (way == 1)
            tcpstore_owners_close(&owners);
        pair->connection.uid = 12345;
        cr_assert_eq(tcpstore_owners_find(&owners, &pair->connection, 1, NULL), FSDP_OK);
        cr_assert_eq(pair->connection.found, found, "way %d", way);
        cr_assert(!found || pair->connection.uid == uid, "way %d: uid %u", way,
                  (unsigned)pair->connection.uid);
        tcpstore_owners_close(&owners);
    }
}

Test(tcpstore_owner, a_socket_of_ours_is_ours)
{
    struct pair pair;

    cr_assert(connect_ip4(&pair));
    check_both_ways(&pair, true, geteuid());
    close_pair(&pair);
}

Test(tcpstore_owner, over_ipv6_too)
{
    struct pair pair;

    if (!connect_ip6(&pair))
        cr_skip_test("no IPv6 on loopback here");
    check_both_ways(&pair, true, geteuid());
    close_pair(&pair);
}

Test(tcpstore_owner, one_that_has_been_closed_is_nobodys)
{
    struct pair pair;

    cr_assert(connect_ip4(&pair));
    close(pair.client);
    check_both_ways(&pair, false, 0);
    close(pair.server);
}

Test(tcpstore_owner, another_user_is_seen_as_that)
{
    const struct sockaddr_in loopback = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const uid_t nobody = 65534;
    struct sockaddr_in at = { 0 };
    socklen_t at_size = sizeof at, peer_size, own_size;
    struct pair pair = { 0 };
    int listener = socket(AF_INET, SOCK_STREAM, 0), hold[2];
    pid_t child;

    if (geteuid() != 0)
        cr_skip_test("needs root to be somebody else");
    cr_assert(bind(listener, (const struct sockaddr *)&loopback, sizeof loopback) == 0 &&
              listen(listener, 1) == 0);
    getsockname(listener, (struct sockaddr *)&at, &at_size);
    cr_assert_eq(pipe(hold), 0);
    child = fork();
    if (child == 0) {
        char byte;
        int fd;

        close(hold[1]);
        if (setresuid(nobody, nobody, nobody) != 0)
            _exit(1);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
            (void)!read(hold[0], &byte, 1); /* until the test is over */
        _exit(0);
    }
    close(hold[0]);
    peer_size = sizeof pair.connection.peer;
    own_size = sizeof pair.connection.own;
    pair.server = accept(listener, (struct sockaddr *)&pair.connection.peer, &peer_size);
    getsockname(pair.server, (struct sockaddr *)&pair.connection.own, &own_size);

    check_both_ways(&pair, true, nobody);
    close(hold[1]);
    close(pair.server);
    close(listener);
    waitpid(child, NULL, 0);
}

Test(tcpstore_owner, addresses_are_compared_without_ports_and_through_mapping)
{
    struct sockaddr_storage a = { 0 }, b = { 0 }, mapped = { 0 }, other = { 0 };

    ((struct sockaddr_in *)&a)->sin_family = ((struct sockaddr_in *)&b)->sin_family = AF_INET;
    ((struct sockaddr_in *)&other)->sin_family = AF_INET;
    inet_pton(AF_INET, "10.1.2.3", &((struct sockaddr_in *)&a)->sin_addr);
    inet_pton(AF_INET, "10.1.2.3", &((struct sockaddr_in *)&b)->sin_addr);
    inet_pton(AF_INET, "10.1.2.4", &((struct sockaddr_in *)&other)->sin_addr);
    ((struct sockaddr_in *)&b)->sin_port = htons(99);
    ((struct sockaddr_in6 *)&mapped)->sin6_family = AF_INET6;
    inet_pton(AF_INET6, "::ffff:10.1.2.3", &((struct sockaddr_in6 *)&mapped)->sin6_addr);

    cr_assert(tcpstore_same_address(&a, &b) && tcpstore_same_address(&a, &mapped));
    cr_assert(!tcpstore_same_address(&a, &other) && !tcpstore_same_address(&mapped, &other));
}
