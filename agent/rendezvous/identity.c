#include "agent/rendezvous/identity.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/core/version.h"

/*
 * Removes a key from the job before it is compared: paths may differ from node to node, for example on local
 * disks.
 */
static void drop(cJSON *job, const char *section, const char *key)
{
    cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(job, section), key);
}

static uint64_t hash_job(const char *text)
{
    cJSON *job = cJSON_Parse(text);
    char *kept;
    uint64_t hash;

    drop(job, "data", "path");
    drop(job, "run", "dir");
    kept = cJSON_PrintUnformatted(job);
    hash = kept == NULL ? 0 : XXH3_64bits(kept, strlen(kept));
    free(kept);
    cJSON_Delete(job);
    return hash;
}

/*
 * Returns the number that the cluster's scheduler gave to this task, or -1. Known are SLURM, Open MPI, PMIx,
 * MPICH, and indexed jobs of Kubernetes. With one agent per node, the number of the task is the number of the
 * node.
 */
static int find_order(void)
{
    static const char *const names[] = { "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                         "JOB_COMPLETION_INDEX" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        char *end;
        long number;

        if (text == NULL || *text == '\0')
            continue;
        number = strtol(text, &end, 10);
        if (*end == '\0' && number >= 0 && number < INT_MAX)
            return (int)number;
    }
    return -1;
}

void identity_fill(struct proto_join *self, const struct agent_config *config)
{
    *self = (struct proto_join){ .node_rank = config->node_rank,
                                 .order = find_order(),
                                 .min_nodes = config->min_nodes,
                                 .n_nodes = config->n_nodes,
                                 .n_workers = config->n_workers,
                                 .last_generation = -1,
                                 .last_node_rank = -1 };
    snprintf(self->version, sizeof self->version, "%s (%s)", version_number(), version_commit());
    snprintf(self->role, sizeof self->role, "%s", config->role);
    if (config->local_address != NULL)
        snprintf(self->address, sizeof self->address, "%s", config->local_address);
    if (gethostname(self->host, sizeof self->host - 1) != 0)
        snprintf(self->host, sizeof self->host, "unknown");
    (void)!getrandom(self->identity, sizeof self->identity, 0);
    /* The arguments of a program may differ from node to node, as with torchrun, so they are not compared. */
    self->what = config->job_json != NULL ? hash_job(config->job_json) : 0;
}

uint64_t identity_job(const struct agent_config *config)
{
    return XXH3_64bits(config->run_id, strlen(config->run_id));
}
