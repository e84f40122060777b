/* The store of a program's generation on one node: agent/cluster/store_host.h. It takes its time to open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

struct store_host {
    const struct reporter *reporter;
    int generation, port, self, n_guests; /* port 0: it has no store */
    uint64_t question;
    char address[PROTO_TEXT_BYTES];
};

/* An order that is under way. */
struct opening {
    struct store_host *host;
    uint64_t question;
};

static void on_opened(void *arg)
{
    static int port = 30000;
    const struct opening *opening = arg;
    struct store_host *host = opening->host;
    struct reporter_store report = { .question = opening->question, .kind = REPORTER_STORE_OPEN };

    if (host->question != opening->question || host->reporter->to == NULL)
        return; /* closed, or ordered again */
    host->port = report.port = 30000 + ++port % 30000;
    snprintf(report.words, sizeof report.words, "%s", host->address);
    sim_trace("opens the store of generation %d for %d nodes, port %d", host->generation, host->n_guests,
              host->port);
    host->reporter->store(host->reporter->to, host->generation, &report);
}

struct store_host *store_host_create(uv_loop_t *loop, const struct reporter *reporter,
                                     void (*say)(void *arg, const char *words), void *arg)
{
    struct store_host *host = calloc(1, sizeof *host);

    (void)loop, (void)say, (void)arg;
    host->reporter = reporter;
    return host;
}

void store_host_destroy(struct store_host *host)
{
    store_host_close(host);
}

void store_host_open(struct store_host *host, int generation, const struct proto_open *order)
{
    struct opening *opening = malloc(sizeof *opening);
    const char *at = order->guests;
    struct proto_guest guest;

    store_host_close(host);
    host->generation = generation;
    host->question = order->question;
    host->self = order->self;
    memcpy(host->address, order->address, sizeof host->address);
    for (host->n_guests = 0; proto_next_guest(order, &at, &guest); host->n_guests++)
        continue;
    *opening = (struct opening){ host, order->question };
    sim_later(sim_current, sim_one_in(SIM_STORES, 8) ? sim_between(SIM_STORES, 0, 2 * SECOND) : MS, on_opened,
              opening);
}

void store_host_close(struct store_host *host)
{
    if (host == NULL)
        return;
    host->port = 0;
    host->question = 0;
}

void store_host_look(const struct store_host *host)
{
    (void)host;
}

int store_host_generation(const struct store_host *host)
{
    return host == NULL || host->port == 0 ? -1 : host->generation;
}

/*
 * The store is on the node of the first seat, whichever node leads, and it serves as many nodes as take part.
 * A leader of another host knows that node by its address.
 */
void sim_check_store(const struct process *process, const struct world_plan *plan)
{
    const struct store_host *host = process->run->store;

    if (sim_plan.job || plan->node_rank != 0)
        return;
    if (host == NULL || host->port != plan->master_port || host->generation != plan->generation)
        sim_violated("the first seat has the store",
                     "n%d has it of generation %d, and the store of generation %d at port %d is elsewhere",
                     process->host->number, plan->generation, store_host_generation(host), plan->master_port);
    if (strcmp(host->address, plan->master_address) != 0 || strcmp(host->address, plan->node_address) != 0)
        sim_violated("the first seat has the store", "n%d has it at %s: its store is at %s, and known at %s",
                     process->host->number, plan->node_address, host->address, plan->master_address);
    if (host->n_guests != plan->n_nodes)
        sim_violated("the first seat has the store", "n%d serves %d nodes of %d", process->host->number,
                     host->n_guests, plan->n_nodes);
}
