#include "agent/placement/placement.h"

#include <stdlib.h>
#include <string.h>

#include "agent/os/environment.h"
#include "agent/placement/cpus.h"
#include "agent/placement/gpu.h"
#include "agent/placement/numa.h"

static const char *const binding_names[] = {
    [AGENT_NUMA_NONE] = "none",
    [AGENT_NUMA_NODE] = "node",
    [AGENT_NUMA_SOCKET] = "socket",
    [AGENT_NUMA_EXCLUSIVE] = "exclusive",
    [AGENT_NUMA_CORE_COMPLEX] = "core-complex",
};

const char *placement_binding(enum agent_numa numa)
{
    return binding_names[numa];
}

static enum fsdp_status bind(struct placement *placement, const struct agent_config *config,
                             struct fsdp_err *err)
{
    struct topology *topology = NULL;
    struct gpu_list *gpus = malloc(sizeof *gpus);
    struct cpu_mask allowed;
    struct gpu_host host;
    int nodes[GPU_MAX];
    enum fsdp_status status = FSDP_ERR_NOMEM;

    placement->cpus = calloc((size_t)config->n_workers, sizeof *placement->cpus);
    if (gpus == NULL || placement->cpus == NULL) {
        fsdp_fail(err, status, "out of memory");
        goto done;
    }
    gpu_host_init(&host, environment_get, NULL);
    host.one_each = config->virtual_local_rank;
    gpu_find(gpus, GPU_WANT_ANY, &host);
    if (gpus->unknown) { /* spreading the workers as if there were no GPU would only be a guess */
        status = fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s", gpus->why);
        goto done;
    }
    for (int i = 0; i < gpus->n; i++)
        nodes[i] = topology_node_of_pci(host.root, gpus->gpus[i].pci);
    cpus_allowed(&allowed);
    status = topology_read(&topology, host.root, err);
    if (status == FSDP_OK)
        status = numa_bind(config->numa, topology, &allowed, nodes, gpus->n, config->n_workers,
                           placement->cpus, err);
done:
    free(topology);
    free(gpus);
    return status;
}

int placement_threads(int own, int quota, int n_workers)
{
    const int share = quota / n_workers;

    if (quota <= 0 || share >= own)
        return own;
    return share < 1 ? 1 : share;
}

enum fsdp_status placement_init(struct placement *placement, const struct agent_config *config,
                                struct fsdp_err *err)
{
    *placement = (struct placement){ .threads = config->threads };
    if (config->numa != AGENT_NUMA_NONE) {
        enum fsdp_status status = bind(placement, config, err);

        if (status != FSDP_OK) {
            fsdp_wrap(err, "--numa-binding %s", placement_binding(config->numa));
            return status;
        }
    }
    if (placement->threads <= 0 && placement->cpus != NULL)
        placement->threads = placement_threads(numa_threads(placement->cpus, config->n_workers),
                                               cpus_quota(""), config->n_workers);
    else if (placement->threads <= 0)
        placement->threads = cpus_available() / config->n_workers;
    if (placement->threads < 1)
        placement->threads = 1;
    return FSDP_OK;
}

void placement_fini(struct placement *placement)
{
    free(placement->cpus);
    placement->cpus = NULL;
}
