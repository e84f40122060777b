#include "agent/tcpstore/tcpstore_owner.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* One connection over loopback: the listener's end, and the other one. */
static struct pair {
    int client, server;
    struct tcpstore_connection connection;
} pair;

static struct sockaddr_in loopback = { .sin_family = AF_INET };
static const struct sockaddr_in6 loopback6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

static void set_up(void)
{
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

TestSuite(tcpstore_owner, .init = set_up);

static int listen_at(const void *address, socklen_t size, struct sockaddr_storage *at, socklen_t *at_size)
{
    const int listener = socket(((const struct sockaddr *)address)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (listener < 0 || bind(listener, address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)at, at_size) != 0) {
        close(listener);
        return -1;
    }
    return listener;
}

static void accept_from(int listener)
{
    socklen_t peer_size = sizeof pair.connection.peer, own_size = sizeof pair.connection.own;

    pair.server = accept(listener, (struct sockaddr *)&pair.connection.peer, &peer_size);
    getsockname(pair.server, (struct sockaddr *)&pair.connection.own, &own_size);
    close(listener);
}

static bool connect_pair(const void *address, socklen_t size)
{
    struct sockaddr_storage at;
    socklen_t at_size = sizeof at;
    const int listener = listen_at(address, size, &at, &at_size);

    if (listener < 0)
        return false;
    pair.client = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(pair.client, (struct sockaddr *)&at, at_size), 0);
    accept_from(listener);
    return true;
}

/* By the kernel's diagnostics where they work, and by /proc, which has to say the same. */
static void check_both_ways(bool found, uid_t uid)
{
    struct tcpstore_owners owners;

    for (int way = 0; way < 2; way++) {
        tcpstore_owners_open(&owners);
        if (way == 1)
            tcpstore_owners_close(&owners);
        pair.connection.uid = 12345;
        cr_assert_eq(tcpstore_owners_find(&owners, &pair.connection, 1, NULL), FSDP_OK);
        cr_assert_eq(pair.connection.found, found, "way %d", way);
        cr_assert(!found || pair.connection.uid == uid, "way %d: uid %u", way, (unsigned)pair.connection.uid);
        tcpstore_owners_close(&owners);
    }
}

Test(tcpstore_owner, a_socket_of_ours_is_ours_until_it_is_closed)
{
    cr_assert(connect_pair(&loopback, sizeof loopback));
    check_both_ways(true, geteuid());
    close(pair.client);
    check_both_ways(false, 0);
    close(pair.server);
}

Test(tcpstore_owner, over_ipv6_too)
{
    if (!connect_pair(&loopback6, sizeof loopback6))
        cr_skip_test("no IPv6 on loopback here");
    check_both_ways(true, geteuid());
    close(pair.client);
    close(pair.server);
}

Test(tcpstore_owner, another_user_is_seen_as_that)
{
    const uid_t nobody = 65534;
    struct sockaddr_storage at;
    socklen_t at_size = sizeof at;
    int listener, hold[2];
    pid_t child;

    if (geteuid() != 0)
        cr_skip_test("needs root to be another user");
    listener = listen_at(&loopback, sizeof loopback, &at, &at_size);
    cr_assert(listener >= 0 && pipe(hold) == 0);
    child = fork();
    if (child == 0) {
        char byte;
        int fd;

        close(hold[1]);
        if (setresuid(nobody, nobody, nobody) != 0)
            _exit(1);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, at_size) == 0)
            (void)!read(hold[0], &byte, 1); /* until the test is over */
        _exit(0);
    }
    close(hold[0]);
    accept_from(listener);

    check_both_ways(true, nobody);
    close(hold[1]);
    close(pair.server);
    waitpid(child, NULL, 0);
}

Test(tcpstore_owner, addresses_are_compared_without_ports_and_through_mapping)
{
    static const char *const texts[] = { "10.1.2.3", "10.1.2.3", "10.1.2.4", "::ffff:10.1.2.3" };
    struct sockaddr_storage of[4] = { 0 }, *a = &of[0], *b = &of[1], *other = &of[2], *mapped = &of[3];

    for (int i = 0; i < 3; i++) {
        of[i].ss_family = AF_INET;
        inet_pton(AF_INET, texts[i], &((struct sockaddr_in *)&of[i])->sin_addr);
    }
    ((struct sockaddr_in *)b)->sin_port = htons(99);
    mapped->ss_family = AF_INET6;
    inet_pton(AF_INET6, texts[3], &((struct sockaddr_in6 *)mapped)->sin6_addr);

    cr_assert(tcpstore_same_address(a, b) && tcpstore_same_address(a, mapped));
    cr_assert(!tcpstore_same_address(a, other) && !tcpstore_same_address(mapped, other));
}
