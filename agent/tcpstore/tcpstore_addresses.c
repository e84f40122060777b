#include "agent/tcpstore/tcpstore_addresses.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct entry {
    struct table_entry link;
    struct in6_addr address; /* IPv4 as ::ffff:a.b.c.d */
};

/* False: the address is of another family. */
static bool read_address(const struct sockaddr *address, struct in6_addr *out)
{
    if (address->sa_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return true;
    }
    if (address->sa_family != AF_INET)
        return false;
    *out = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
    memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    return true;
}

static struct entry *find(const struct tcpstore_addresses *set, const struct in6_addr *address, uint64_t hash)
{
    for (struct table_entry *at = table_first(&set->table, hash); at != NULL; at = table_next(at)) {
        struct entry *entry = TABLE_OWNER(at, struct entry, link);

        if (memcmp(&entry->address, address, sizeof *address) == 0)
            return entry;
    }
    return NULL;
}

bool tcpstore_addresses_add(struct tcpstore_addresses *set, const struct sockaddr *address)
{
    struct in6_addr in6;
    struct entry *entry;
    uint64_t hash;

    if (!read_address(address, &in6))
        return true;
    hash = XXH3_64bits(&in6, sizeof in6);
    if (find(set, &in6, hash) != NULL)
        return true;
    entry = malloc(sizeof *entry);
    if (entry == NULL)
        return false;
    entry->address = in6;
    if (table_add(&set->table, &entry->link, hash))
        return true;
    free(entry);
    return false;
}

bool tcpstore_addresses_have(const struct tcpstore_addresses *set, const struct sockaddr *address)
{
    struct in6_addr in6;

    return read_address(address, &in6) && find(set, &in6, XXH3_64bits(&in6, sizeof in6)) != NULL;
}

void tcpstore_addresses_fini(struct tcpstore_addresses *set)
{
    for (struct table_entry *at = table_empty(&set->table), *next; at != NULL; at = next) {
        next = at->next;
        free(TABLE_OWNER(at, struct entry, link));
    }
}
