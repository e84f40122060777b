#include "agent/wire/endpoint.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netdb.h>
#include <string.h>

Test(endpoint, brackets_are_taken_off)
{
    static const char *const hosts[][2] = { { "[fd00::1]", "fd00::1" },
                                            { "fd00::1", "fd00::1" },
                                            { "n0", "n0" } };
    struct endpoint endpoint;

    for (int i = 0; i < 3; i++) {
        cr_assert(eq(int, endpoint_init(&endpoint, hosts[i][0], 29400, NULL), FSDP_OK));
        cr_assert(eq(str, endpoint.host, (char *)hosts[i][1]));
    }
}

Test(endpoint, what_nobody_can_be_met_at_is_refused)
{
    static const char *const hosts[] = { NULL, "", "[]", "0.0.0.0", "::", "[::]", "0:0:0:0:0:0:0:0" };
    struct endpoint endpoint;
    char longest[400];

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        cr_assert(eq(int, endpoint_init(&endpoint, hosts[i], 29400, NULL), FSDP_ERR_CONFIG));
    cr_assert(eq(int, endpoint_init(&endpoint, "n0", 0, NULL), FSDP_ERR_CONFIG));
    cr_assert(eq(int, endpoint_init(&endpoint, "n0", 65536, NULL), FSDP_ERR_CONFIG));
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    cr_assert(eq(int, endpoint_init(&endpoint, longest, 29400, NULL), FSDP_ERR_CONFIG));
}

Test(endpoint, loopback_is_what_can_lead_nowhere_else)
{
    static const char *const loopback[] = { "localhost", "LocalHost", "127.0.0.1",        "127.0.1.1",
                                            "127.9.9.9", "::1",       "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1" };
    static const char *const open[] = {
        "n0",        "localhost.example.org", "127.example.org", "10.0.0.1", "fd00::1",
        "128.0.0.1", "::ffff:10.0.0.127",     "0.0.0.0"
    };

    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        cr_assert(endpoint_is_loopback(loopback[i]), "%s", loopback[i]);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        cr_assert(not(endpoint_is_loopback(open[i])), "%s", open[i]);
}

Test(endpoint, an_address_is_written_so_that_it_can_be_read)
{
    char text[ENDPOINT_TEXT_BYTES];

    cr_assert(eq(str, (char *)endpoint_text(text, "fd00::1", 29400), "[fd00::1]:29400"));
    cr_assert(eq(str, (char *)endpoint_text(text, "10.0.0.1", 1), "10.0.0.1:1"));
}

enum { MOST = 40 };

static struct endpoint_addresses found;

/* Collect a list as the resolver gives it, from texts. */
static void collect(const char *const *texts, int n)
{
    static struct addrinfo list[MOST];
    static struct sockaddr_storage addresses[MOST];

    for (int i = 0; i < n; i++) {
        const bool v6 = strchr(texts[i], ':') != NULL;

        memset(&addresses[i], 0, sizeof addresses[i]);
        if (v6)
            uv_ip6_addr(texts[i], 29400, (struct sockaddr_in6 *)&addresses[i]);
        else
            uv_ip4_addr(texts[i], 29400, (struct sockaddr_in *)&addresses[i]);
        list[i] =
            (struct addrinfo){ .ai_family = v6 ? AF_INET6 : AF_INET,
                               .ai_addr = (struct sockaddr *)&addresses[i],
                               .ai_addrlen = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                               .ai_next = i + 1 < n ? &list[i + 1] : NULL };
    }
    endpoint_collect(&found, list);
}

Test(endpoint, any_order_of_the_resolver_gives_one_list_without_repetitions)
{
    const char *const forward[] = { "::1", "10.0.0.2", "10.0.0.1", "::1", "10.0.0.2", "fd00::1" };
    const char *const want[] = { "10.0.0.1", "10.0.0.2", "::1", "fd00::1" };

    for (int shift = 0; shift < 6; shift++) {
        const char *turned[6];

        for (int i = 0; i < 6; i++)
            turned[i] = forward[(i + shift) % 6];
        collect(turned, 6);

        cr_assert(eq(int, found.n, 4));
        for (int i = 0; i < 4; i++) {
            char name[64];

            uv_ip_name((struct sockaddr *)&found.of[i], name, sizeof name);
            cr_assert(eq(str, name, (char *)want[i]));
        }
    }
}

Test(endpoint, this_host_has_loopback_and_not_what_was_set_aside_for_documentation)
{
    /* RFC 5737 and RFC 3849 */
    const char *const elsewhere[] = { "203.0.113.77", "2001:db8::77" }, *const here[] = { "203.0.113.77",
                                                                                          "127.0.1.1" };

    collect(elsewhere, 2);
    cr_assert(not(endpoint_is_here(&found)));
    collect(here, 2);
    cr_assert(endpoint_is_here(&found));
}

Test(endpoint, no_more_addresses_than_there_is_room_for)
{
    const char *texts[MOST];
    char names[MOST][16];

    for (int i = 0; i < MOST; i++) {
        snprintf(names[i], sizeof names[i], "10.0.1.%d", i);
        texts[i] = names[i];
    }
    collect(texts, MOST);
    cr_assert(eq(int, found.n, ENDPOINT_MAX_ADDRESSES));
    endpoint_collect(&found, NULL);
    cr_assert(eq(int, found.n, 0));
}

static struct sockaddr_storage at(const char *host)
{
    struct sockaddr_storage address = { 0 };

    uv_ip4_addr(host, 29400, (struct sockaddr_in *)&address);
    return address;
}

Test(endpoint, addresses_that_led_to_the_other_end_come_first)
{
    static const char *const hosts[] = { "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4" };
    static const char *const sorted[] = { "10.0.0.2", "10.0.0.4", "10.0.0.1", "10.0.0.3" };
    struct endpoint_addresses addresses = { 0 }, known = { 0 };
    struct sockaddr_storage address;

    for (int i = 0; i < 4; i++) {
        address = at(hosts[i]);
        endpoint_add(&addresses, &address);
        endpoint_add(&addresses, &address);
    }
    cr_assert(eq(int, addresses.n, 4), "each once");
    endpoint_prefer(&addresses, &known);
    cr_assert(eq(int, addresses.n_known, 0));

    for (int i = 3; i >= 0; i -= 2) {
        address = at(hosts[i]);
        endpoint_add(&known, &address);
    }
    address = at("10.9.9.9");
    endpoint_add(&known, &address); /* the name has it no more */
    endpoint_prefer(&addresses, &known);
    cr_assert(eq(int, addresses.n_known, 2));
    for (int i = 0; i < 4; i++) {
        address = at(sorted[i]);
        cr_assert(memcmp(&addresses.of[i], &address, sizeof(struct sockaddr_in)) == 0, "place %d", i);
    }
    for (int i = 0; i < 2 * ENDPOINT_MAX_ADDRESSES; i++) {
        ((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)(1 + i));
        endpoint_add(&known, &address);
    }
    cr_assert(eq(int, known.n, ENDPOINT_MAX_ADDRESSES));
}
