#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/os/descendants.h"
#include "agent/wire/endpoint.h"

static void say(void *arg, const char *words)
{
    struct coordinator *coordinator = arg;

    if (!coordinator->config->quiet)
        console_say(coordinator->services.console, "fsdprun: %s", words);
}

const char *coordinator_named_address(const struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;

    if (coordinator->config->master_address != NULL)
        return coordinator->config->master_address;
    for (int i = 0; coordinator->config->no_store && i < roster->capacity; i++)
        if (roster->nodes[i].active && roster->nodes[i].node_rank == 0)
            return roster->nodes[i].address;
    return roster->nodes[COORDINATOR_SELF].address;
}

const char *coordinator_master_address(const struct coordinator *coordinator)
{
    const char *named = coordinator_named_address(coordinator);

    return coordinator->roster.max_nodes == 1 && coordinator_has_store(coordinator) &&
                   !endpoint_is_loopback(named)
               ? "127.0.0.1"
               : named;
}

enum { SEARCHES = 256 }; /* for connections that are nobody's of ours: then none is looked for any more */

static void name_of(const struct sockaddr_storage *address, char *name, size_t size)
{
    if (uv_ip_name((const struct sockaddr *)address, name, size) != 0)
        name[0] = '\0';
}

/* The first node of that address that still misses somebody: several may be on one host. */
static int node_of(const struct coordinator *coordinator, const char *address)
{
    const struct roster *roster = &coordinator->roster;

    for (int i = 0; i < roster->capacity; i++)
        if (i != COORDINATOR_SELF && roster->nodes[i].active &&
            !attendance_node_complete(&coordinator->attendance, i) &&
            (strcmp(roster->nodes[i].address, address) == 0 || strcmp(roster->nodes[i].from, address) == 0))
            return i;
    return COORDINATOR_SELF;
}

static void came(void *arg, const struct sockaddr_storage *from, unsigned long inode)
{
    struct coordinator *coordinator = arg;
    char address[PROTO_TEXT_BYTES];
    pid_t pid = 0;

    if (coordinator->attendance.n_nodes == 0 || attendance_complete(&coordinator->attendance))
        return;
    if (inode != 0 && coordinator->n_searches < SEARCHES) {
        pid = descendants_holder(inode);
        coordinator->n_searches += pid == 0;
    }
    name_of(from, address, sizeof address);
    attendance_came(&coordinator->attendance, pid != 0 ? COORDINATOR_SELF : node_of(coordinator, address),
                    pid);
}

void coordinator_expect(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;

    coordinator->n_searches = 0;
    attendance_fini(&coordinator->attendance);
    if (coordinator->store == NULL || !attendance_begin(&coordinator->attendance, roster->capacity))
        return;
    for (int i = 0; i < roster->capacity; i++)
        if (roster->nodes[i].active)
            attendance_expect(&coordinator->attendance, i, roster->nodes[i].who.n_workers);
}

int coordinator_phase_of(const struct coordinator *coordinator, int node, const struct death *death)
{
    if (death->phase != PROGRAM_STARTING || coordinator->config->job_json != NULL)
        return death->phase;
    if (coordinator->store == NULL)
        return PROGRAM_RUNNING; /* they meet elsewhere, or nowhere */
    if (!attendance_has(&coordinator->attendance, node, death->pid))
        return PROGRAM_STARTING;
    return attendance_complete(&coordinator->attendance) ? PROGRAM_RUNNING : PROGRAM_RENDEZVOUS;
}

/* The ranks of one node meet on loopback; the address that the user names must be one of this host all the same. */
static enum fsdp_status choose_addresses(const struct coordinator *coordinator,
                                         struct tcpstore_config *config, struct fsdp_err *err)
{
    const char *named = coordinator_named_address(coordinator);
    struct endpoint_addresses addresses;

    config->at = coordinator->found[0];
    config->also = coordinator->found[1];
    if (strcmp(config->host, named) == 0)
        return FSDP_OK;
    endpoint_collect(&addresses, coordinator->found[0]);
    if (!endpoint_is_here(&addresses))
        return fsdp_fail(err, FSDP_ERR_IO, "the key-value store cannot listen on %s: no address of this host",
                         named);
    config->at = coordinator->found[1];
    config->also = NULL;
    return FSDP_OK;
}

/* A job of ours meets over the link, and a program over this: PyTorch's, or whoever speaks its protocol. */
enum fsdp_status coordinator_open_store(struct coordinator *coordinator, struct fsdp_err *err)
{
    struct tcpstore_config config = { .host = coordinator_master_address(coordinator),
                                      .port = coordinator->config->master_port,
                                      .other_than = coordinator->last_store_port,
                                      .say = say,
                                      .came = came,
                                      .arg = coordinator };
    const struct roster *roster = &coordinator->roster;
    const char **nodes;
    enum fsdp_status status;

    coordinator_close_store(coordinator);
    if (!coordinator_has_store(coordinator))
        return FSDP_OK;
    status = choose_addresses(coordinator, &config, err);
    if (status != FSDP_OK)
        return status;
    nodes = calloc(2 * (size_t)roster->capacity, sizeof *nodes);
    if (nodes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    for (int i = 0; roster->max_nodes > 1 && i < roster->capacity; i++) {
        if (!roster->nodes[i].present)
            continue;
        nodes[config.n_nodes++] = roster->nodes[i].address;
        if (roster->nodes[i].from[0] !=
            '\0') /* where it comes from is not always where it wants to be found */
            nodes[config.n_nodes++] = roster->nodes[i].from;
    }
    config.nodes = nodes;
    status = tcpstore_open(&coordinator->store, coordinator->services.loop, &config, err);
    free(nodes);
    if (status == FSDP_OK)
        coordinator->last_store_port = tcpstore_port(coordinator->store);
    return status;
}

void coordinator_close_store(struct coordinator *coordinator)
{
    tcpstore_close(coordinator->store);
    coordinator->store = NULL;
}
