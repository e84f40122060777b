#include <string.h>

#include "agent/cluster/coordinator_impl.h"

/*
 * Returns one of up to two names for the addresses at which the store listens, or NULL. Name 0 is the one
 * that the user gave. With several nodes, name 1 is the address by which the other nodes know this host. With
 * one node, name 1 is loopback, unless name 0 is that already.
 */
static const char *name_at(const struct coordinator *coordinator, int i)
{
    const struct roster *roster = &coordinator->roster;
    const char *named = coordinator_named_address(coordinator),
               *master = coordinator_master_address(coordinator);

    if (i == 0)
        return named;
    if (roster->max_nodes > 1)
        return roster->nodes[COORDINATOR_SELF].address;
    return strcmp(master, named) != 0 ? master : NULL;
}

/* Reads a numeric address, which needs no name lookup. */
static bool read_digits(const char *name, struct addrinfo **found)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };

    return getaddrinfo(name, NULL, &hints, found) == 0;
}

static void go_on(struct coordinator *coordinator);

static void finish(struct coordinator *coordinator, const struct fsdp_err *err)
{
    coordinator->named(coordinator, err);
}

static void on_found(void *arg, struct addrinfo *found, const char *why)
{
    struct coordinator *coordinator = arg;
    struct fsdp_err err = { 0 };
    const int i = coordinator->found[0] == NULL ? 0 : 1;

    coordinator->lookup = NULL;
    if (why == NULL) {
        coordinator->found[i] = found;
        go_on(coordinator);
        return;
    }
    fsdp_fail(&err, FSDP_ERR_IO, "the key-value store cannot listen on %s: %s", name_at(coordinator, i), why);
    finish(coordinator, &err);
}

static void go_on(struct coordinator *coordinator)
{
    struct fsdp_err err = { 0 };

    for (int i = 0; i < 2; i++) {
        const char *name = name_at(coordinator, i);

        if (name == NULL || coordinator->found[i] != NULL || read_digits(name, &coordinator->found[i]))
            continue;
        if (lookup_begin(&coordinator->lookup, coordinator->services.loop, name, NULL, LOOKUP_WITHIN_MS,
                         on_found, coordinator, &err) != FSDP_OK)
            break;
        return;
    }
    finish(coordinator, &err);
}

void coordinator_forget_names(struct coordinator *coordinator)
{
    lookup_cancel(coordinator->lookup);
    coordinator->lookup = NULL;
    for (int i = 0; i < 2; i++) {
        if (coordinator->found[i] != NULL)
            freeaddrinfo(coordinator->found[i]);
        coordinator->found[i] = NULL;
    }
}

void coordinator_find_names(struct coordinator *coordinator, coordinator_named *named)
{
    const struct fsdp_err fine = { 0 };

    coordinator_forget_names(coordinator); /* a name may have another address by now */
    coordinator->named = named;
    if (coordinator_has_store(coordinator))
        go_on(coordinator);
    else
        finish(coordinator, &fine);
}
