#include "agent/run/run_store.h"

#include "agent/arbiter/directory_store.h"
#include "agent/arbiter/etcd_store.h"
#include "shard_runtime/core/require.h"

enum fsdp_status run_store_open(struct arbiter_store **out, const struct agent_config *config,
                                struct fsdp_err *err)
{
    struct etcd_endpoints endpoints;

    if (config->arbiter == AGENT_ARBITER_DIRECTORY)
        return directory_store_create(out, NULL, config->run_dir, err);
    OK_OR_RETURN(etcd_endpoints_parse(&endpoints, config->etcd, err));
    return etcd_store_create(out, &endpoints, config->run_id, config->lease_ms, err);
}
