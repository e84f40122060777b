/*
 * Opening groups: who may be a member, on which nodes the members are, and groups of some members of another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/core/require.h"

static int member(const struct comm_config *config, int index)
{
    return config->ranks == NULL ? index : config->ranks[index];
}

/*
 * Counts the nodes, and the members on each. The cpu back end needs the same number of members on each node.
 */
static enum fsdp_status place(struct comm_places *places, const struct comm_config *config,
                              struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello = link_hello(config->link);
    const int per_node = (int)hello->local_world_size;
    bool even = true;
    int run = 0;

    /* Ranks are numbered node by node, with as many on each. All launchers of this family promise that. */
    if (hello->world_size != hello->n_nodes * hello->local_world_size ||
        hello->rank != hello->node_rank * hello->local_world_size + hello->local_rank)
        return fsdp_fail(
            err, FSDP_ERR_UNSUPPORTED,
            "group %s: %u ranks on %u nodes, rank %u being number %u on node %u: every node must run "
            "equally many, in order",
            config->name, hello->world_size, hello->n_nodes, hello->rank, hello->local_rank,
            hello->node_rank);
    *places = (struct comm_places){ 0 };
    for (int i = 0; i < config->size && even; i++) {
        if (i == 0 || member(config, i) / per_node != member(config, i - 1) / per_node) {
            even = places->n_nodes < 2 || run == places->per_node;
            places->n_nodes++;
            run = 0;
        }
        run++;
        if (places->n_nodes == 1)
            places->per_node = run;
    }
    if (!even || run != places->per_node)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "group %s: not equally many ranks on each node",
                         config->name);
    return FSDP_OK;
}

static enum fsdp_status check_config(const struct comm_config *config, struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello;

    if (config->link == NULL || config->name == NULL || config->name[0] == '\0' ||
        strlen(config->name) >= COMM_NAME_BYTES || strchr(config->name, '/') != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "a group needs a link and a name of 1 to %d bytes without '/'",
                         COMM_NAME_BYTES - 1);
    hello = link_hello(config->link);
    if (config->size < 1 || config->rank < 0 || config->rank >= config->size ||
        (config->ranks == NULL &&
         (config->size != (int)hello->world_size || config->rank != (int)hello->rank)))
        return fsdp_fail(err, FSDP_ERR_ARG, "group %s: rank %d of %d is not this process's place",
                         config->name, config->rank, config->size);
    for (int i = 0; config->ranks != NULL && i < config->size; i++)
        if (config->ranks[i] < 0 || config->ranks[i] >= (int)hello->world_size ||
            (i > 0 && config->ranks[i] <= config->ranks[i - 1]) ||
            (i == config->rank && config->ranks[i] != (int)hello->rank))
            return fsdp_fail(err, FSDP_ERR_ARG, "group %s: member %d cannot be rank %d (members ascend)",
                             config->name, i, config->ranks[i]);
    return FSDP_OK;
}

/* Opens a group as part of the group `whole`, by its `split`; with `whole` NULL, by the cpu back end. */
static enum fsdp_status open_group(struct fsdp_comm **out, const struct comm_config *config,
                                   struct fsdp_comm *whole, const struct comm_places *places,
                                   struct fsdp_err *err)
{
    struct fsdp_comm *comm = calloc(1, sizeof *comm);
    enum fsdp_status status;

    if (comm == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "group %s", config->name);
    comm->link = config->link;
    comm->rank = config->rank;
    comm->size = config->size;
    snprintf(comm->name, sizeof comm->name, "%s", config->name);
    if (whole != NULL) {
        comm->ops = whole->ops;
        status = whole->ops->split(whole, comm, config->ranks, err);
    } else {
        status = comm_cpu_open(comm, config, places, err);
    }
    if (status != FSDP_OK) {
        free(comm);
        return status;
    }
    *out = comm;
    return FSDP_OK;
}

/* Returns the distance between neighbouring members; 0: it is not the same for all. */
static int stride_of(const struct comm_config *config)
{
    const int stride = config->size > 1 ? member(config, 1) - member(config, 0) : 1;

    for (int i = 1; i < config->size; i++)
        if (member(config, i) - member(config, i - 1) != stride)
            return 0;
    return stride;
}

enum fsdp_status comm_create(struct fsdp_comm **out, const struct comm_config *config, struct fsdp_err *err)
{
    struct comm_places places = { 0 };
    enum fsdp_status status;

    *out = NULL;
    OK_OR_RETURN(check_config(config, err));
    OK_OR_RETURN(place(&places, config, err));
    status = open_group(out, config, NULL, &places, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "opening group %s", config->name);
        return status;
    }
    (*out)->number = flight_add_group(
        link_progress(config->link),
        &(struct flight_group){ config->name, config->size, member(config, 0), stride_of(config) });
    return FSDP_OK;
}

enum fsdp_status comm_can_split(const struct fsdp_comm *world, const char *name, const int *ranks, int size,
                                struct fsdp_err *err)
{
    const struct comm_config config = { .name = name, .link = world->link, .ranks = ranks, .size = size };
    struct comm_places places;

    return place(&places, &config, err);
}

enum fsdp_status comm_split(struct fsdp_comm **out, struct fsdp_comm *world, const char *name,
                            const int *ranks, int size, struct fsdp_err *err)
{
    struct comm_config config = { .name = name, .link = world->link, .ranks = ranks, .size = size };

    *out = NULL;
    while (config.rank < size && ranks[config.rank] != world->rank)
        config.rank++;
    OK_OR_RETURN(world->ops->split != NULL ? open_group(out, &config, world, NULL, err)
                                           : comm_create(out, &config, err));
    (*out)->owned = world->owned;
    (*out)->thread = world->thread;
    return FSDP_OK;
}

void fsdp_comm_destroy(struct fsdp_comm *comm)
{
    if (comm == NULL)
        return;
    comm->ops->close(comm);
    free(comm);
}
