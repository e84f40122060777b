#include "agent/cluster/store_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/members/attendance.h"
#include "agent/os/descendants.h"
#include "agent/tcpstore/tcpstore.h"
#include "agent/wire/endpoint.h"
#include "agent/wire/lookup.h"
#include "shard_runtime/core/require.h"

/* how many searches for a connection's process may find nothing; after that there is no search any more */
enum { SEARCHES = 256 };

struct store_host {
    uv_loop_t *loop;
    const struct reporter *reporter;
    void (*say)(void *arg, const char *words);
    void *say_arg;

    int generation;
    struct proto_open order; /* the last one; its `guests` are `guests` */
    char *guests;
    /* the lookup of a name for an address of the store, while it runs; else NULL */
    struct lookup *lookup;
    int looks_up;              /* the number of that name */
    struct addrinfo *found[2]; /* the addresses of name_at(); NULL: not known */
    struct tcpstore *store;    /* NULL: there is none */
    int last_port;             /* of the store before */

    struct attendance attendance; /* the workers that have connected */
    struct table sockets;         /* sockets of this node's workers, as of the last search */
    int n_searches, n_vain_searches;
};

static void report(const struct store_host *host, const struct reporter_store *what)
{
    struct reporter_store numbered = *what;

    numbered.question = host->order.question;
    if (host->reporter->to != NULL)
        host->reporter->store(host->reporter->to, host->generation, &numbered);
}

static void report_failed(const struct store_host *host, const char *words)
{
    struct reporter_store failed = { .kind = REPORTER_STORE_FAILED };

    snprintf(failed.words, sizeof failed.words, "%s", words);
    report(host, &failed);
}

static void say(void *arg, const char *words)
{
    const struct store_host *host = arg;

    host->say(host->say_arg, words);
}

/* Who has come */

/* A socket of one of our workers. Its inode is the hash, and is unique. */
struct worker_socket {
    struct table_entry link;
    pid_t worker;
};

static void keep_socket(void *arg, unsigned long inode, pid_t worker)
{
    struct store_host *host = arg;
    struct worker_socket *socket;

    if (table_first(&host->sockets, inode) != NULL || (socket = malloc(sizeof *socket)) == NULL)
        return; /* several processes have this socket: the first that is visited is the worker itself */
    socket->worker = worker;
    if (!table_add(&host->sockets, &socket->link, inode))
        free(socket);
}

static void forget_sockets(struct store_host *host)
{
    for (struct table_entry *at = table_empty(&host->sockets), *next; at != NULL; at = next) {
        next = at->next;
        free(TABLE_OWNER(at, struct worker_socket, link));
    }
}

static pid_t worker_of(const struct store_host *host, unsigned long inode)
{
    const struct table_entry *at = table_first(&host->sockets, inode);

    return at == NULL ? 0 : TABLE_OWNER(at, struct worker_socket, link)->worker;
}

/*
 * Finds the worker of this node that has the socket with this inode; 0: none. One search finds the sockets of
 * all workers, so many workers that connect together cost one search.
 */
static pid_t find_worker(struct store_host *host, unsigned long inode)
{
    pid_t worker = worker_of(host, inode);

    if (worker != 0 || host->n_vain_searches == SEARCHES)
        return worker;
    forget_sockets(host);
    descendants_sockets(keep_socket, host);
    host->n_searches++;
    worker = worker_of(host, inode);
    host->n_vain_searches += worker == 0;
    return worker;
}

/*
 * Counts a connection, and reports what it shows: which worker of this node has come, or that all workers of
 * another node have.
 */
static void count(struct store_host *host, int node, pid_t pid)
{
    struct attendance *attendance = &host->attendance;
    const bool was_complete = attendance_node_complete(attendance, node);
    const int n_known = attendance->nodes[node].n_known;

    attendance_came(attendance, node, pid);
    if (attendance->nodes[node].n_known > n_known)
        report(host, &(struct reporter_store){ .kind = REPORTER_STORE_CAME, .node = node, .pid = pid });
    if (!was_complete && attendance_node_complete(attendance, node))
        report(host, &(struct reporter_store){ .kind = REPORTER_STORE_CAME, .node = node });
}

static void came(void *arg, const struct sockaddr_storage *from, unsigned long inode)
{
    struct store_host *host = arg;
    struct attendance *attendance = &host->attendance;
    const int self = host->order.self;
    char address[PROTO_TEXT_BYTES];
    pid_t pid = 0;
    int other;

    if (attendance->n_nodes == 0 || attendance_complete(attendance))
        return;
    if (uv_ip_name((const struct sockaddr *)from, address, sizeof address) != 0)
        address[0] = '\0';
    other = attendance_node_at(attendance, address);
    /*
     * Another node of the job may run on this host, too. If only workers of other hosts are missing, nothing
     * is searched for.
     */
    if (inode != 0 && (other >= 0 || !attendance_node_complete(attendance, self)))
        pid = find_worker(host, inode);
    count(host, pid != 0 || other < 0 ? self : other, pid);
    if (attendance_complete(attendance))
        forget_sockets(host);
}

static void forget_arrivals(struct store_host *host)
{
    host->n_searches = host->n_vain_searches = 0;
    forget_sockets(host);
    attendance_fini(&host->attendance);
}

/* Expects workers at an address. If there is no memory for it, connections from it count for this node. */
static void expect(struct store_host *host, const struct proto_guest *guest)
{
    struct attendance *attendance = &host->attendance;

    if (!attendance_expect(attendance, guest->node, guest->n_workers) || guest->node == host->order.self ||
        !attendance_add_address(attendance, guest->node, guest->address))
        return;
    if (strcmp(guest->from, guest->address) != 0)
        attendance_add_address(attendance, guest->node, guest->from);
}

/* Opening */

/*
 * Returns one of up to two names for the addresses at which the store listens, or NULL. Name 0 is the one
 * that the user gave, if there is one. The last is the address by which the other nodes know this one.
 */
static const char *name_at(const struct store_host *host, int i)
{
    const struct proto_open *order = &host->order;
    const bool named = order->named[0] != '\0', enough = order->alone && endpoint_is_loopback(order->named);

    if (i == 0)
        return named ? order->named : order->address;
    return named && !enough ? order->address : NULL;
}

/*
 * Chooses the addresses at which the store listens, and its name for programs. A node that is alone uses
 * loopback. Even then, the address that the user gave must belong to this host.
 */
static enum fsdp_status choose(const struct store_host *host, struct tcpstore_config *config,
                               struct fsdp_err *err)
{
    const struct proto_open *order = &host->order;
    struct endpoint_addresses addresses;
    bool is_here = false;

    *config = (struct tcpstore_config){ .host = name_at(host, 0),
                                        .at = host->found[0],
                                        .also = host->found[1],
                                        .port = order->port,
                                        .other_than = host->last_port };
    if (name_at(host, 1) == NULL)
        return FSDP_OK;
    if (host->found[0] != NULL) {
        endpoint_collect(&addresses, host->found[0]);
        is_here = endpoint_is_here(&addresses);
    }
    if (!is_here && order->must)
        return fsdp_fail(err, FSDP_ERR_IO, "the key-value store cannot listen on %s: no address of this host",
                         order->named);
    if (!is_here || order->alone) {
        config->host = order->address;
        config->at = host->found[1];
        config->also = NULL;
    }
    return FSDP_OK;
}

/*
 * Lists the addresses from which connections to the store are allowed, and which workers are expected from
 * each.
 */
static enum fsdp_status admit(struct store_host *host, struct tcpstore_config *config, const char **addresses,
                              struct fsdp_err *err)
{
    const struct proto_open *order = &host->order;
    const char *at = order->guests;
    struct proto_guest guest;
    int n_nodes = 0;

    while (proto_next_guest(order, &at, &guest))
        n_nodes = guest.node >= n_nodes ? guest.node + 1 : n_nodes;
    if (order->self >= n_nodes)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "a store on node %d, which takes no part", order->self);
    if (!attendance_begin(&host->attendance, n_nodes))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    at = order->guests;
    while (proto_next_guest(order, &at, &guest)) {
        expect(host, &guest);
        if (order->alone)
            continue;
        addresses[config->n_nodes++] = guest.address;
        /* a node may connect from another address than the one at which it is reached */
        if (guest.from[0] != '\0')
            addresses[config->n_nodes++] = guest.from;
    }
    config->nodes = addresses;
    return FSDP_OK;
}

static enum fsdp_status open_store(struct store_host *host, struct reporter_store *opened,
                                   struct fsdp_err *err)
{
    struct tcpstore_config config;
    const char **addresses;
    enum fsdp_status status;

    OK_OR_RETURN(choose(host, &config, err));
    /* at most one address for each byte: a guest has two texts with a zero each */
    addresses = calloc(host->order.guests_bytes + 1, sizeof *addresses);
    if (addresses == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    config.say = say;
    config.came = came;
    config.arg = host;
    status = admit(host, &config, addresses, err);
    if (status == FSDP_OK)
        status = tcpstore_open(&host->store, host->loop, &config, err);
    free(addresses);
    if (status != FSDP_OK)
        return status;
    opened->port = host->last_port = tcpstore_port(host->store);
    snprintf(opened->words, sizeof opened->words, "%s", config.host);
    return FSDP_OK;
}

static void finish(struct store_host *host)
{
    struct reporter_store opened = { .kind = REPORTER_STORE_OPEN };
    struct fsdp_err err = { 0 };

    if (open_store(host, &opened, &err) != FSDP_OK)
        report_failed(host, err.message);
    else
        report(host, &opened);
}

/* Reads a numeric address, which needs no name lookup. */
static bool read_digits(const char *name, struct addrinfo **found)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };

    return getaddrinfo(name, NULL, &hints, found) == 0;
}

/* Continues with the names from number `i` on: looks them up, and opens the store after the last. */
static void go_on(struct store_host *host, int i);

static void on_found(void *arg, struct addrinfo *found, const char *why)
{
    struct store_host *host = arg;
    const int i = host->looks_up;
    char words[FSDP_ERR_MESSAGE_BYTES];

    host->lookup = NULL;
    host->found[i] = found;
    if (why != NULL && (i == 1 || name_at(host, 1) == NULL || host->order.must)) {
        snprintf(words, sizeof words, "the key-value store cannot listen on %.256s: %.200s", name_at(host, i),
                 why);
        report_failed(host, words);
        return;
    }
    go_on(host, i + 1);
}

static void go_on(struct store_host *host, int i)
{
    struct fsdp_err err = { 0 };

    for (; i < 2; i++) {
        const char *name = name_at(host, i);

        if (name == NULL || read_digits(name, &host->found[i]))
            continue;
        host->looks_up = i;
        if (lookup_begin(&host->lookup, host->loop, name, NULL, LOOKUP_WITHIN_MS, on_found, host, &err) !=
            FSDP_OK)
            report_failed(host, err.message);
        return;
    }
    finish(host);
}

void store_host_open(struct store_host *host, int generation, const struct proto_open *order)
{
    char *guests = malloc(order->guests_bytes + 1);

    store_host_close(host);
    host->generation = generation;
    host->order = *order;
    host->order.guests = host->guests = guests;
    if (guests == NULL) {
        host->order.guests_bytes = 0;
        report_failed(host, "out of memory");
        return;
    }
    memcpy(guests, order->guests, order->guests_bytes);
    go_on(host, 0);
}

void store_host_close(struct store_host *host)
{
    if (host == NULL)
        return;
    lookup_cancel(host->lookup);
    host->lookup = NULL;
    for (int i = 0; i < 2; i++) {
        if (host->found[i] != NULL)
            freeaddrinfo(host->found[i]);
        host->found[i] = NULL;
    }
    tcpstore_close(host->store);
    host->store = NULL;
    forget_arrivals(host);
    free(host->guests);
    host->guests = NULL;
}

void store_host_look(const struct store_host *host)
{
    if (host != NULL && host->store != NULL)
        report(host, &(struct reporter_store){ .kind = REPORTER_STORE_CHANGED,
                                               .ago_ns = tcpstore_idle_ms(host->store) * INT64_C(1000000) });
}

int store_host_generation(const struct store_host *host)
{
    return host == NULL || host->store == NULL ? -1 : host->generation;
}

struct store_host *store_host_create(uv_loop_t *loop, const struct reporter *reporter,
                                     void (*say_line)(void *arg, const char *words), void *arg)
{
    struct store_host *host = calloc(1, sizeof *host);

    if (host != NULL) {
        host->loop = loop;
        host->reporter = reporter;
        host->say = say_line;
        host->say_arg = arg;
    }
    return host;
}

void store_host_destroy(struct store_host *host)
{
    store_host_close(host);
    free(host);
}
