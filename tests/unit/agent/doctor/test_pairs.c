/*
 * Who measures to whom, and a measurement between two ends on this host.
 */
#include "agent/doctor/pairs.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

TestSuite(doctor_pairs, .timeout = 600);

Test(doctor_pairs, in_each_round_every_node_has_one_partner_and_each_pair_comes_once)
{
    for (int n = 0; n <= 140; n++) {
        unsigned char *met = calloc((size_t)(n + 1) * (size_t)(n + 1), 1);
        int n_pairs = 0;

        for (int round = 0; round < pairs_rounds(n); round++)
            for (int node = 0; node < n; node++) {
                const int partner = pairs_partner(n, round, node);

                if (partner < 0)
                    continue;
                cr_assert(partner < n && partner != node, "%d nodes, round %d: %d with %d", n, round, node,
                          partner);
                cr_assert_eq(pairs_partner(n, round, partner), node, "%d nodes, round %d", n, round);
                cr_assert_eq(met[node * n + partner]++, 0, "%d nodes: %d and %d twice", n, node, partner);
                n_pairs += node < partner;
            }
        cr_assert(n > 64 || n_pairs == n * (n - 1) / 2, "%d nodes: %d pairs", n, n_pairs);
        cr_assert(n <= 64 || n_pairs >= 62 * (n / 2), "%d nodes: %d pairs", n, n_pairs);
        free(met);
    }
}

static const unsigned char secret[PAIRS_SECRET_BYTES] = "a secret of ours",
                           other[PAIRS_SECRET_BYTES] = "another";

Test(doctor_pairs, a_pair_is_measured_in_both_directions)
{
    struct pair pair = { .a = 0, .b = 1 };
    struct pairs_server *server;
    int port;

    cr_assert_eq(pairs_serve(&server, "127.0.0.1", secret, 2, &port, NULL), FSDP_OK);
    pairs_measure(&pair, "127.0.0.1", port, secret, 0);

    cr_expect_str_empty(pair.error);
    cr_expect_gt(pair.forth, 1e6);
    cr_expect_gt(pair.back, 1e6);
    cr_expect(pair.round_trip_ns > 0 && pair.round_trip_ns < 1000000000);
    cr_expect(llabs(pair.clock_us) < 1000000, "one host has one clock: %lld", (long long)pair.clock_us);
    cr_expect(pairs_await(server, 0, 60000), "the server knows that node 0 was here");
    cr_expect_not(pairs_await(server, 1, 1), "and node 1 was not");
}

Test(doctor_pairs, what_does_not_answer_or_does_not_know_the_secret_gets_no_figures)
{
    struct pair pair = { .a = 3, .b = 4 };
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0); /* a port that is taken, and where nobody listens */
    struct pairs_server *server;
    int port;

    cr_assert(bind(fd, (struct sockaddr *)&address, size) == 0 &&
              getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    pairs_measure(&pair, "127.0.0.1", ntohs(address.sin_port), secret, 3);
    cr_expect_str_eq(pair.error, "127.0.0.1: Connection refused");
    cr_expect(pair.a == 3 && pair.b == 4 && pair.forth == 0.0);
    close(fd);

    cr_assert_eq(pairs_serve(&server, "127.0.0.1", secret, 2, &port, NULL), FSDP_OK);
    pairs_measure(&pair, "127.0.0.1", port, other, 0);
    cr_expect_neq(pair.error[0], '\0', "another secret");
    cr_expect_not(pairs_await(server, 0, 1));
    pairs_measure(&pair, "no such host.invalid", port, secret, 0);
    cr_expect_not_null(strstr(pair.error, "no such host.invalid: "));
}

/* A request for more than the server gives, after the right secret: it hangs up. */
Test(doctor_pairs, a_request_without_bounds_is_refused)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    unsigned char bytes[PAIRS_SECRET_BYTES + 4 + 9] = { 0 };
    struct pairs_server *server;
    int port;

    cr_assert_eq(pairs_serve(&server, "127.0.0.1", secret, 2, &port, NULL), FSDP_OK);
    address.sin_port = htons((uint16_t)port);
    memcpy(bytes, secret, sizeof secret);
    bytes[PAIRS_SECRET_BYTES + 4] = 'R';
    memset(bytes + PAIRS_SECRET_BYTES + 5, 0xff, 8);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(send(fd, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);

    cr_expect_leq(recv(fd, bytes, sizeof bytes, 0), 0);
    close(fd);
}

Test(doctor_pairs, nodes_on_loopback_listen_there_only)
{
    struct pair pair = { .a = 0, .b = 1 };
    struct pairs_server *server;
    int port;

    cr_assert_eq(pairs_serve(&server, "127.0.0.1", secret, 2, &port, NULL), FSDP_OK);
    pairs_measure(&pair, "127.0.0.2", port, secret, 0);
    cr_expect_str_eq(pair.error, "127.0.0.2: Connection refused");

    cr_assert_eq(pairs_serve(&server, "10.0.0.1", secret, 2, &port, NULL), FSDP_OK);
    pairs_measure(&pair, "127.0.0.2", port, secret, 0);
    cr_expect_str_empty(pair.error, "else on every address");
}
