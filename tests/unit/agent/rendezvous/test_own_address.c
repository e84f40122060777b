#include "agent/rendezvous/own_address.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netdb.h>

static void server_is(const char *list, unsigned n, const char *want)
{
    char host[ENDPOINT_HOST_BYTES];

    own_address_server(host, list, n);
    cr_expect(eq(str, host, (char *)want), "%s, %u", list, n);
}

Test(own_address, the_servers_of_a_list_come_in_turn)
{
    server_is("etcd://a", 0, "a");
    server_is("etcd://a", 7, "a");
    server_is("etcd://a:2379,b,[fe80::1]:5,[::1]", 0, "a");
    server_is("etcd://a:2379,b,[fe80::1]:5,[::1]", 1, "b");
    server_is("etcds://a:2379,b,[fe80::1]:5,[::1]", 2, "fe80::1");
    server_is("etcds://a:2379,b,[fe80::1]:5,[::1]", 3, "::1");
    server_is("etcds://a:2379,b,[fe80::1]:5,[::1]", 4, "a");
}

static struct endpoint_addresses addresses_of(const char *digits)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct endpoint_addresses all;
    struct addrinfo *found;

    cr_assert(eq(int, getaddrinfo(digits, "9", &hints, &found), 0));
    endpoint_collect(&all, found);
    freeaddrinfo(found);
    return all;
}

Test(own_address, it_is_the_one_from_which_this_host_sends_to_the_server)
{
    const struct endpoint_addresses here = addresses_of("127.0.1.1"), none = { 0 };
    char address[ENDPOINT_HOST_BYTES];

    cr_assert(own_address_towards(address, &here, "127.0.1.1"));
    cr_expect(eq(str, address, "127.0.0.1"));
    cr_expect(not(own_address_towards(address, &none, "127.0.1.1")));
}

/* Debian's /etc/hosts gives a host 127.0.1.1 for its own name, by which the others reach it. */
Test(own_address, the_host_of_the_server_is_known_to_others_by_its_name)
{
    const struct endpoint_addresses here = addresses_of("127.0.1.1");
    char address[ENDPOINT_HOST_BYTES];

    cr_assert(own_address_towards(address, &here, "n0.cluster"));
    cr_expect(eq(str, address, "n0.cluster"));
    cr_assert(own_address_towards(address, &here, "LocalHost"));
    cr_expect(eq(str, address, "127.0.0.1"));
}
