/*
 * The store of a generation, on the coordinator's side: it orders a node to open the store
 * (agent/cluster/store_host.h), and takes that node's reports.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/coordinator_impl.h"

const char *coordinator_master_address(const struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;

    if (coordinator->place.is_open)
        return coordinator->place.address;
    if (coordinator->config->master_address != NULL && !coordinator->took_over)
        return coordinator->config->master_address;
    for (int i = 0; i < roster->capacity; i++)
        if (roster->nodes[i].active && roster->nodes[i].node_rank == 0)
            return roster->nodes[i].address;
    return roster->nodes[COORDINATOR_SELF].address;
}

/* Who has come to the store */

void coordinator_forget_arrivals(struct coordinator *coordinator)
{
    attendance_fini(&coordinator->attendance);
}

void coordinator_expect(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;

    coordinator_forget_arrivals(coordinator);
    if (!coordinator->place.is_open || !attendance_begin(&coordinator->attendance, roster->capacity))
        return;
    for (int i = 0; i < roster->capacity; i++)
        if (roster->nodes[i].active)
            attendance_expect(&coordinator->attendance, i, roster->nodes[i].who.n_workers);
}

static void take_arrival(struct coordinator *coordinator, int node, pid_t pid)
{
    struct attendance *attendance = &coordinator->attendance;

    if (node >= attendance->n_nodes)
        return;
    if (pid != 0)
        attendance_came(attendance, node, pid);
    while (pid == 0 && !attendance_node_complete(attendance, node))
        attendance_came(attendance, node, 0);
}

int coordinator_phase_of(const struct coordinator *coordinator, int node, const struct death *death)
{
    if (death->phase != PROGRAM_STARTING || coordinator->config->job_json != NULL)
        return death->phase;
    if (!coordinator->place.is_open)
        return PROGRAM_RUNNING; /* the workers do not use this store, so nothing is known of their meeting */
    if (!attendance_has(&coordinator->attendance, node, death->pid))
        return PROGRAM_STARTING;
    return attendance_complete(&coordinator->attendance) ? PROGRAM_RUNNING : PROGRAM_RENDEZVOUS;
}

int64_t coordinator_store_idle_ns(const struct coordinator *coordinator)
{
    return coordinator->place.is_open ? (int64_t)uv_hrtime() - coordinator->place.changed_ns : INT64_MAX;
}

/* Opening and closing */

/*
 * Returns the numbers of the nodes of the next generation, in the order of their ranks. NULL: there is no
 * memory.
 */
static int *preview(struct coordinator *coordinator, int *n)
{
    int *numbers = calloc((size_t)coordinator->roster.max_nodes, sizeof *numbers);

    *n = numbers == NULL ? -1 : roster_preview(&coordinator->roster, numbers);
    if (*n >= 1)
        return numbers;
    free(numbers);
    return NULL;
}

/* Writes the list of nodes whose workers will come to the store. Returns false if there is no memory. */
static bool invite(const struct coordinator *coordinator, struct proto_open *order, char **out)
{
    const struct store_place *place = &coordinator->place;
    const struct roster_node *nodes = coordinator->roster.nodes;
    size_t size = 0, used = 0;

    for (int i = 0; i < place->n; i++)
        size += strlen(nodes[place->numbers[i]].address) + strlen(nodes[place->numbers[i]].from) + 32;
    *out = malloc(size);
    for (int i = 0; *out != NULL && i < place->n; i++)
        used = proto_add_guest(*out, size, used,
                               &(struct proto_guest){ .node = place->numbers[i],
                                                      .n_workers = nodes[place->numbers[i]].who.n_workers,
                                                      .address = nodes[place->numbers[i]].address,
                                                      .from = nodes[place->numbers[i]].from });
    order->guests = *out;
    order->guests_bytes = used;
    return *out != NULL;
}

static void end_wait(struct coordinator *coordinator, const struct fsdp_err *err)
{
    coordinator->place.is_awaited = false;
    coordinator->place.opened(coordinator, err);
}

static void order_store(struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;
    struct store_place *place = &coordinator->place;
    struct proto_open order = { .question = ++place->question,
                                .alone = roster->max_nodes == 1,
                                .port = coordinator->config->master_port };
    const char *named = coordinator->config->master_address;
    struct fsdp_err err = { 0 };
    struct coordinator_node *node;
    char *guests = NULL;

    free(place->numbers);
    place->numbers = preview(coordinator, &place->n);
    place->n_arrived = roster->n_arrived;
    if (place->numbers == NULL || !invite(coordinator, &order, &guests)) {
        fsdp_fail(&err, FSDP_ERR_NOMEM, "out of memory");
        end_wait(coordinator, &err);
        return;
    }
    place->node = order.self = place->numbers[0];
    order.must = place->node == COORDINATOR_SELF && !coordinator->took_over;
    snprintf(order.named, sizeof order.named, "%s", named != NULL ? named : "");
    snprintf(order.address, sizeof order.address, "%s", roster->nodes[place->node].address);
    place->is_awaited = true;
    node = &coordinator->nodes[place->node];
    node->tell(node->member, PROTO_OPEN, coordinator->generation, &order);
    free(guests);
}

void coordinator_open_store(struct coordinator *coordinator, coordinator_opened *opened)
{
    const struct fsdp_err fine = { 0 };

    coordinator_close_store(coordinator);
    if (!coordinator_has_store(coordinator)) {
        opened(coordinator, &fine);
        return;
    }
    coordinator->place.opened = opened;
    order_store(coordinator);
}

/* Returns whether other nodes would form the generation now than when the store was ordered. */
static bool is_outdated(struct coordinator *coordinator)
{
    const struct store_place *place = &coordinator->place;
    int n, *numbers = preview(coordinator, &n);
    const bool is_same = numbers != NULL && n == place->n &&
                         place->n_arrived == coordinator->roster.n_arrived &&
                         memcmp(numbers, place->numbers, (size_t)n * sizeof *numbers) == 0;

    free(numbers);
    return !is_same;
}

static void take_opened(struct coordinator *coordinator, const struct reporter_store *report)
{
    struct store_place *place = &coordinator->place;
    struct fsdp_err err = { 0 };

    if (coordinator->state != CS_PREPARING || !roster_enough(&coordinator->roster)) {
        end_wait(coordinator, &err);
    } else if (is_outdated(coordinator)) {
        coordinator_close_store(coordinator); /* another node may have the first seat */
        order_store(coordinator);
    } else {
        place->is_open = true;
        place->port = report->port;
        place->changed_ns = (int64_t)uv_hrtime();
        snprintf(place->address, sizeof place->address, "%.255s", report->words);
        end_wait(coordinator, &err);
    }
}

void coordinator_report_store(void *to, int generation, const struct reporter_store *report)
{
    struct coordinator_node *node = to;
    struct coordinator *coordinator = node->coordinator;
    struct store_place *place = &coordinator->place;
    struct fsdp_err err = { 0 };

    (void)generation;
    if (report->question != place->question || node - coordinator->nodes != place->node)
        return;
    if (place->is_awaited && report->kind == REPORTER_STORE_OPEN) {
        take_opened(coordinator, report);
    } else if (place->is_awaited && report->kind == REPORTER_STORE_FAILED) {
        fsdp_fail(&err, FSDP_ERR_IO, "%s", report->words);
        end_wait(coordinator, &err);
    } else if (place->is_open && report->kind == REPORTER_STORE_CAME) {
        take_arrival(coordinator, report->node, report->pid);
    } else if (place->is_open && report->kind == REPORTER_STORE_CHANGED) {
        place->changed_ns = (int64_t)uv_hrtime() - report->ago_ns;
    }
}

void coordinator_store_lost(struct coordinator *coordinator, int node)
{
    struct store_place *place = &coordinator->place;

    if (node != place->node)
        return;
    place->node = -1;
    if (!place->is_awaited)
        return;
    place->is_awaited = false;
    if (coordinator->state == CS_PREPARING)
        coordinator_post(coordinator, CE_FAILED);
}

void coordinator_close_store(struct coordinator *coordinator)
{
    struct store_place *place = &coordinator->place;
    const struct coordinator_node *node = place->node < 0 ? NULL : &coordinator->nodes[place->node];

    place->is_open = place->is_awaited = false;
    place->node = -1;
    if (node != NULL)
        node->tell(node->member, PROTO_CLOSE, coordinator->generation, NULL);
}
