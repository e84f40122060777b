#include "agent/tcpstore/tcpstore_addresses.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static struct tcpstore_addresses set;

static void fini(void)
{
    tcpstore_addresses_fini(&set);
}

TestSuite(tcpstore_addresses, .fini = fini);

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage address = { .ss_family = strchr(text, ':') == NULL ? AF_INET : AF_INET6 };

    if (address.ss_family == AF_INET)
        cr_assert_eq(inet_pton(AF_INET, text, &((struct sockaddr_in *)&address)->sin_addr), 1);
    else
        cr_assert_eq(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr), 1);
    return address;
}

static bool have(const char *text)
{
    const struct sockaddr_storage address = address_of(text);

    return tcpstore_addresses_have(&set, (const struct sockaddr *)&address);
}

static void add(const char *text)
{
    const struct sockaddr_storage address = address_of(text);

    cr_assert(tcpstore_addresses_add(&set, (const struct sockaddr *)&address));
}

Test(tcpstore_addresses, ipv4_inside_ipv6_is_ipv4_and_ports_do_not_count)
{
    struct sockaddr_in with_port = { .sin_family = AF_INET, .sin_port = htons(99) };

    cr_assert(!have("10.0.0.1"));
    add("10.0.0.1");
    add("::ffff:10.0.0.2");
    add("fd00::1");
    cr_assert(have("10.0.0.1") && have("::ffff:10.0.0.1") && have("10.0.0.2") && have("fd00::1"));
    cr_assert(!have("10.0.0.3") && !have("fd00::2") && !have("::10.0.0.1") && !have("::"));
    with_port.sin_addr.s_addr = inet_addr("10.0.0.2");
    cr_assert(tcpstore_addresses_have(&set, (const struct sockaddr *)&with_port));
}

Test(tcpstore_addresses, other_families_are_neither_added_nor_found)
{
    const struct sockaddr_un local = { .sun_family = AF_UNIX, .sun_path = "/x" };

    cr_assert(tcpstore_addresses_add(&set, (const struct sockaddr *)&local));
    cr_assert(!tcpstore_addresses_have(&set, (const struct sockaddr *)&local));
    cr_assert_eq(set.table.n_entries, 0);
}

/* A look-up goes through one slot at most. */
Test(tcpstore_addresses, twenty_thousand_nodes_leave_no_slot_with_more_than_a_few)
{
    enum { N = 20000, LONGEST = 12 };
    char text[32];

    for (int twice = 0; twice < 2; twice++)
        for (int i = 0; i < N; i++) {
            snprintf(text, sizeof text, "10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
            add(text);
        }
    cr_assert_eq(set.table.n_entries, N, "each is there once");
    for (size_t i = 0; i < set.table.n_slots; i++) {
        int n = 0;

        for (const struct table_entry *at = set.table.slots[i]; at != NULL; at = at->next)
            n++;
        cr_assert_leq(n, LONGEST, "slot %zu has %d", i, n);
    }
    cr_assert(have("10.0.1.2") && !have("10.9.1.2"));
}
