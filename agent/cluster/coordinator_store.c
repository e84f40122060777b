#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"
#include "agent/os/descendants.h"
#include "agent/wire/endpoint.h"
#include "shard_runtime/core/require.h"

static void say(void *arg, const char *words)
{
    struct coordinator *coordinator = arg;

    if (!coordinator->config->quiet)
        console_say(coordinator->services.console, "fsdprun: %s", words);
}

const char *coordinator_named_address(const struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;

    if (coordinator->config->master_address != NULL && !coordinator->took_over)
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

/* Who has come to the store */

/* limit of searches in vain for the process of a connection; beyond it, none is searched for */
enum { SEARCHES = 256 };

/* A socket of one of our workers. Its inode is the hash, and is unique. */
struct worker_socket {
    struct table_entry link;
    pid_t worker;
};

static void keep_socket(void *arg, unsigned long inode, pid_t worker)
{
    struct coordinator *coordinator = arg;
    struct worker_socket *socket;

    if (table_first(&coordinator->sockets, inode) != NULL || (socket = malloc(sizeof *socket)) == NULL)
        return; /* several processes share it: the first is the worker itself */
    socket->worker = worker;
    if (!table_add(&coordinator->sockets, &socket->link, inode))
        free(socket);
}

static void forget_sockets(struct coordinator *coordinator)
{
    for (struct table_entry *at = table_empty(&coordinator->sockets), *next; at != NULL; at = next) {
        next = at->next;
        free(TABLE_OWNER(at, struct worker_socket, link));
    }
}

static pid_t worker_of(const struct coordinator *coordinator, unsigned long inode)
{
    const struct table_entry *at = table_first(&coordinator->sockets, inode);

    return at == NULL ? 0 : TABLE_OWNER(at, struct worker_socket, link)->worker;
}

/*
 * Returns the worker of this node that has the socket, or 0. One search finds the sockets of all workers, so
 * workers that connect together cost one.
 */
static pid_t find_worker(struct coordinator *coordinator, unsigned long inode)
{
    pid_t worker = worker_of(coordinator, inode);

    if (worker != 0 || coordinator->n_vain_searches == SEARCHES)
        return worker;
    forget_sockets(coordinator);
    descendants_sockets(keep_socket, coordinator);
    coordinator->n_searches++;
    worker = worker_of(coordinator, inode);
    coordinator->n_vain_searches += worker == 0;
    return worker;
}

static void came(void *arg, const struct sockaddr_storage *from, unsigned long inode)
{
    struct coordinator *coordinator = arg;
    struct attendance *attendance = &coordinator->attendance;
    char address[PROTO_TEXT_BYTES];
    pid_t pid = 0;
    int other;

    if (attendance->n_nodes == 0 || attendance_complete(attendance))
        return;
    if (uv_ip_name((const struct sockaddr *)from, address, sizeof address) != 0)
        address[0] = '\0';
    other = attendance_node_at(attendance, address);
    /*
     * Another node may be on this host too. Once only workers of other hosts are missing, none is searched
     * for.
     */
    if (inode != 0 && (other >= 0 || !attendance_node_complete(attendance, COORDINATOR_SELF)))
        pid = find_worker(coordinator, inode);
    attendance_came(attendance, pid != 0 || other < 0 ? COORDINATOR_SELF : other, pid);
    if (attendance_complete(attendance))
        forget_sockets(coordinator);
}

void coordinator_forget_arrivals(struct coordinator *coordinator)
{
    coordinator->n_searches = coordinator->n_vain_searches = 0;
    forget_sockets(coordinator);
    attendance_fini(&coordinator->attendance);
}

static void expect(struct coordinator *coordinator, int number)
{
    const struct roster_node *node = &coordinator->roster.nodes[number];
    struct attendance *attendance = &coordinator->attendance;

    /* Without memory for an address, the connections from it count as those of this node. */
    if (!attendance_expect(attendance, number, node->who.n_workers) || number == COORDINATOR_SELF ||
        !attendance_add_address(attendance, number, node->address))
        return;
    if (strcmp(node->from, node->address) != 0)
        attendance_add_address(attendance, number, node->from);
}

void coordinator_expect(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;

    coordinator_forget_arrivals(coordinator);
    if (coordinator->store == NULL || !attendance_begin(&coordinator->attendance, roster->capacity))
        return;
    for (int i = 0; i < roster->capacity; i++)
        if (roster->nodes[i].active)
            expect(coordinator, i);
}

int coordinator_phase_of(const struct coordinator *coordinator, int node, const struct death *death)
{
    if (death->phase != PROGRAM_STARTING || coordinator->config->job_json != NULL)
        return death->phase;
    if (coordinator->store == NULL)
        return PROGRAM_RUNNING; /* the workers do not meet at this store, if they meet at all */
    if (!attendance_has(&coordinator->attendance, node, death->pid))
        return PROGRAM_STARTING;
    return attendance_complete(&coordinator->attendance) ? PROGRAM_RUNNING : PROGRAM_RENDEZVOUS;
}

/*
 * Chooses the addresses at which the store listens. The ranks of a single node use loopback. Even then, the
 * address that the user gave must belong to this host.
 */
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

/*
 * Opens the key-value store. Workers of the trainer find each other over the link instead. Other programs use
 * this store: PyTorch, or any client of its protocol.
 */
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
    OK_OR_RETURN(choose_addresses(coordinator, &config, err));
    nodes = calloc(2 * (size_t)roster->capacity, sizeof *nodes);
    if (nodes == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    for (int i = 0; roster->max_nodes > 1 && i < roster->capacity; i++) {
        if (!roster->nodes[i].present)
            continue;
        nodes[config.n_nodes++] = roster->nodes[i].address;
        /* a node may connect from another address than the one it wants to be reached at */
        if (roster->nodes[i].from[0] != '\0')
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
