#include <stdlib.h>

#include "agent/coordinator_impl.h"

static void say(void *arg, const char *words)
{
    struct coordinator *coordinator = arg;

    if (!coordinator->config->quiet)
        console_say(coordinator->services.console, "fsdprun: %s", words);
}

/* Our store is here; where rank 0 opens its own it is wherever rank 0 will be. */
const char *coordinator_master_address(const struct coordinator *coordinator)
{
    const struct roster *roster = &coordinator->roster;

    if (coordinator->config->master_address != NULL)
        return coordinator->config->master_address;
    for (int i = 0; coordinator->config->no_store && i < roster->capacity; i++)
        if (roster->nodes[i].active && roster->nodes[i].node_rank == 0)
            return roster->nodes[i].address;
    return roster->nodes[COORDINATOR_SELF].address;
}

/* A job of ours meets over the link, and a program over this: PyTorch's, or whoever speaks its protocol. */
enum fsdp_status coordinator_open_store(struct coordinator *coordinator, struct fsdp_err *err)
{
    struct tcpstore_config config = { .host = coordinator_master_address(coordinator),
                                      .port = coordinator->config->master_port,
                                      .other_than = coordinator->last_store_port,
                                      .say = say,
                                      .arg = coordinator };
    const struct roster *roster = &coordinator->roster;
    const char **nodes;
    enum fsdp_status status;

    coordinator_close_store(coordinator);
    if (coordinator->config->job_json != NULL || coordinator->config->no_store)
        return FSDP_OK;
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
    if (roster->max_nodes > 1)
        config.also = roster->nodes[COORDINATOR_SELF].address;
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
