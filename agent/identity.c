#include "agent/identity.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/core/version.h"

/* Paths are each node's own affair: they may lie on local disks. */
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

void identity_fill(struct proto_join *self, const struct agent_config *config)
{
    *self = (struct proto_join){ .node_rank = config->node_rank,
                                 .n_nodes = config->n_nodes,
                                 .n_workers = config->n_workers };
    snprintf(self->version, sizeof self->version, "%s (%s)", version_number(), version_commit());
    if (gethostname(self->host, sizeof self->host - 1) != 0)
        snprintf(self->host, sizeof self->host, "unknown");
    /* A program's arguments may differ from node to node, as under torchrun. */
    self->what = config->job_json != NULL ? hash_job(config->job_json) : 0;
}

uint64_t identity_job(const struct agent_config *config)
{
    return XXH3_64bits(config->run_id, strlen(config->run_id));
}
