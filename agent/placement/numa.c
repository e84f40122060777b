#include "agent/placement/numa.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* CPUs are given out to slots. A slot is a worker, or a GPU that has no worker. */
struct site {
    const struct topology *topology;
    const struct cpu_mask *allowed;
    int *nodes; /* (n_slots) */
    int n_slots;
};

static bool usable(const struct site *site, int cpu)
{
    return site->topology->cpus[cpu].online && cpu_mask_has(site->allowed, cpu);
}

/* List the nodes that have a usable CPU, in ascending order. Returns how many. */
static int usable_nodes(const struct site *site, int *out)
{
    int n = 0;

    for (int cpu = 0; cpu < site->topology->n_cpus; cpu++) {
        const int node = site->topology->cpus[cpu].node;
        int at = 0;

        if (!usable(site, cpu))
            continue;
        while (at < n && out[at] < node)
            at++;
        if (at < n && out[at] == node)
            continue;
        memmove(out + at + 1, out + at, (size_t)(n - at) * sizeof *out);
        out[at] = node;
        n++;
    }
    return n;
}

/* Does the machine have a single node, usable or not? */
static bool one_node(const struct topology *topology)
{
    int first = -1;

    for (int cpu = 0; cpu < topology->n_cpus; cpu++) {
        if (!topology->cpus[cpu].online)
            continue;
        if (first >= 0 && topology->cpus[cpu].node != first)
            return false;
        first = topology->cpus[cpu].node;
    }
    return true;
}

static void settle(struct site *site, const int *gpu_nodes, int n_gpus, const int *all, int n_all)
{
    bool told = n_gpus > 0;

    for (int i = 0; i < n_gpus; i++)
        told = told && gpu_nodes[i] >= 0;
    for (int slot = 0; slot < site->n_slots; slot++) {
        if (told && !one_node(site->topology))
            site->nodes[slot] = gpu_nodes[slot % n_gpus];
        else
            site->nodes[slot] = all[(int)((long long)slot * n_all / site->n_slots)];
    }
}

static void take_node(const struct site *site, int node, struct cpu_mask *out)
{
    for (int cpu = 0; cpu < site->topology->n_cpus; cpu++)
        if (usable(site, cpu) && site->topology->cpus[cpu].node == node)
            cpu_mask_add(out, cpu);
}

/* The socket of a node: all nodes that have a CPU in the package of the node's lowest CPU. */
static void take_socket(const struct site *site, const struct cpu_mask *node, struct cpu_mask *out)
{
    const struct topology *topology = site->topology;
    const int package = topology->cpus[cpu_mask_next(node, -1)].package;

    for (int cpu = 0; cpu < topology->n_cpus; cpu++) {
        const int at = topology->cpus[cpu].node;
        struct cpu_mask whole = { { 0 } };

        if (!topology->cpus[cpu].online || topology->cpus[cpu].package != package || cpu_mask_has(out, cpu))
            continue;
        take_node(site, at, &whole);
        for (int other = cpu_mask_next(&whole, -1); other >= 0; other = cpu_mask_next(&whole, other))
            cpu_mask_add(out, other);
    }
}

/* Returns how many slots belong to the NUMA node of this slot; *place is this slot's index among them. */
static int neighbours(const struct site *site, int slot, int *place)
{
    int n = 0;

    for (int i = 0; i < site->n_slots; i++) {
        if (site->nodes[i] != site->nodes[slot])
            continue;
        if (i == slot)
            *place = n;
        n++;
    }
    return n;
}

static bool take_cores(const struct site *site, int slot, const struct cpu_mask *node, struct cpu_mask *out,
                       struct fsdp_err *err)
{
    const struct topology_cpu *cpus = site->topology->cpus;
    struct cpu_mask cores = { { 0 } }; /* cores, each by its lowest CPU, which need not be usable */
    int place = 0, n = neighbours(site, slot, &place), n_cores, each, rest, first, last, index = 0;

    for (int cpu = cpu_mask_next(node, -1); cpu >= 0; cpu = cpu_mask_next(node, cpu))
        cpu_mask_add(&cores, cpus[cpu].core);
    n_cores = cpu_mask_count(&cores);
    assert(n > 0); /* at least the slot itself */
    if (n_cores < n) {
        fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "NUMA node %d has %d cores to use for %d workers or GPUs at it",
                  site->nodes[slot], n_cores, n);
        return false;
    }
    each = n_cores / n;
    rest = n_cores % n;
    first = place * each + (place < rest ? place : rest);
    last = first + each + (place < rest);
    for (int core = cpu_mask_next(&cores, -1); core >= 0; core = cpu_mask_next(&cores, core), index++)
        for (int cpu = cpu_mask_next(node, -1); index >= first && index < last && cpu >= 0;
             cpu = cpu_mask_next(node, cpu))
            if (cpus[cpu].core == core)
                cpu_mask_add(out, cpu);
    return true;
}

struct complex {
    int cache, n_cpus;
};

static int larger_first(const void *a, const void *b)
{
    const struct complex *x = a, *y = b;

    return x->n_cpus != y->n_cpus ? y->n_cpus - x->n_cpus : x->cache - y->cache;
}

static bool take_complex(const struct site *site, int slot, const struct cpu_mask *node, struct cpu_mask *out,
                         struct fsdp_err *err)
{
    struct complex *complexes = calloc((size_t)cpu_mask_count(node), sizeof *complexes);
    int n = 0, place = 0, chosen;

    if (complexes == NULL) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
        return false;
    }
    for (int cpu = cpu_mask_next(node, -1); cpu >= 0; cpu = cpu_mask_next(node, cpu)) {
        const int cache = site->topology->cpus[cpu].cache;
        int i = 0;

        if (cache < 0) {
            fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                      "this machine does not tell which CPUs share a cache with CPU %d", cpu);
            free(complexes);
            return false;
        }
        while (i < n && complexes[i].cache != cache)
            i++;
        if (i == n)
            complexes[n++].cache = cache;
        complexes[i].n_cpus++;
    }
    qsort(complexes, (size_t)n, sizeof *complexes, larger_first);
    neighbours(site, slot, &place);
    assert(n > 0); /* a node without a CPU was refused before */
    chosen = complexes[place % n].cache;
    for (int cpu = cpu_mask_next(node, -1); cpu >= 0; cpu = cpu_mask_next(node, cpu))
        if (site->topology->cpus[cpu].cache == chosen)
            cpu_mask_add(out, cpu);
    free(complexes);
    return true;
}

static bool bind_one(enum agent_numa binding, const struct site *site, int slot, struct cpu_mask *out,
                     struct fsdp_err *err)
{
    struct cpu_mask node = { { 0 } };

    take_node(site, site->nodes[slot], &node);
    if (cpu_mask_count(&node) == 0) {
        char text[CPU_MASK_TEXT_BYTES];

        fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                  "its GPU is at NUMA node %d, of whose CPUs this process may use none (it may use %s)",
                  site->nodes[slot], cpu_mask_text(site->allowed, text));
        return false;
    }
    memset(out, 0, sizeof *out);
    switch (binding) {
    case AGENT_NUMA_NONE:
        *out = *site->allowed;
        return true;
    case AGENT_NUMA_NODE:
        *out = node;
        return true;
    case AGENT_NUMA_SOCKET:
        take_socket(site, &node, out);
        return true;
    case AGENT_NUMA_EXCLUSIVE:
        return take_cores(site, slot, &node, out, err);
    case AGENT_NUMA_CORE_COMPLEX:
        return take_complex(site, slot, &node, out, err);
    }
    return false;
}

enum fsdp_status numa_bind(enum agent_numa binding, const struct topology *topology,
                           const struct cpu_mask *allowed, const int *gpu_nodes, int n_gpus, int n_workers,
                           struct cpu_mask *out, struct fsdp_err *err)
{
    struct site site = { .topology = topology,
                         .allowed = allowed,
                         .n_slots = n_workers > n_gpus ? n_workers : n_gpus };
    int *all = calloc((size_t)topology->n_cpus + 1, sizeof *all), n_all;
    enum fsdp_status status = FSDP_OK;

    site.nodes = calloc((size_t)site.n_slots, sizeof *site.nodes);
    if (all == NULL || site.nodes == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to place %d workers", n_workers);
        goto done;
    }
    n_all = usable_nodes(&site, all);
    if (n_all == 0) {
        status = fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "none of the CPUs that this process may use is online");
        goto done;
    }
    settle(&site, gpu_nodes, n_gpus, all, n_all);
    for (int i = 0; i < n_workers; i++)
        if (!bind_one(binding, &site, i, &out[i], err)) {
            fsdp_wrap(err, "local rank %d", i);
            status = FSDP_ERR_UNSUPPORTED;
            goto done;
        }
done:
    free(all);
    free(site.nodes);
    return status;
}

int numa_threads(const struct cpu_mask *masks, int n_workers)
{
    int least = 0;

    for (int i = 0; i < n_workers; i++) {
        double share = 0;

        for (int cpu = cpu_mask_next(&masks[i], -1); cpu >= 0; cpu = cpu_mask_next(&masks[i], cpu)) {
            int users = 0;

            for (int j = 0; j < n_workers; j++)
                users += cpu_mask_has(&masks[j], cpu);
            share += 1.0 / users;
        }
        share += 1e-9; /* rounding: three thirds of a core may add up to less than 1 */
        if (i == 0 || (int)share < least)
            least = (int)share;
    }
    return least < 1 ? 1 : least;
}
