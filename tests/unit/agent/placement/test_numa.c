#include "agent/placement/numa.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A machine by rule: sockets, nodes in each socket, cores in each node, threads in each core, and caches that
 * so many cores share. The second threads of all cores are numbered after the first ones.
 */
struct shape {
    int sockets, nodes, cores, threads, cores_a_cache; /* 0: caches are not told */
    const int *node_names;                             /* NULL: 0, 1, 2, ... */
    const char *offline;
};

static struct topology *build(const struct shape *shape)
{
    const int n_nodes = shape->sockets * shape->nodes, n_cores = n_nodes * shape->cores;
    struct topology *topology = calloc(1, sizeof *topology);
    struct cpu_mask offline = { { 0 } };

    cr_assert_not_null(topology);
    if (shape->offline != NULL)
        cr_assert(cpu_mask_read(&offline, shape->offline));
    topology->n_cpus = n_cores * shape->threads;
    for (int cpu = 0; cpu < topology->n_cpus; cpu++) {
        const int core = cpu % n_cores, node = core / shape->cores;
        const int cache = shape->cores_a_cache == 0 ? -1 : core / shape->cores_a_cache * shape->cores_a_cache;

        topology->cpus[cpu] =
            (struct topology_cpu){ .online = !cpu_mask_has(&offline, cpu),
                                   .node = shape->node_names == NULL ? node : shape->node_names[node],
                                   .package = node / shape->nodes,
                                   .core = core,
                                   .cache = cache };
    }
    return topology;
}

/* As torchrun answers */

/*
 * These are the answers of torch.numa.binding of PyTorch 2.15, with its files and its devices replaced. The
 * machine has 2 sockets of 2 nodes (0 2, 5 7) of 4 cores of 2 threads, and a cache for every 2 cores. CPUs 3
 * and 18 are offline, and the GPUs are at the nodes of `gpus`.
 */
static const int gap_names[] = { 0, 2, 5, 7 }, gpus[] = { 0, 0, 2, 7, 7, 7, 5, 7 };
enum { N_GPUS = 8 };
#define WHOLE   "0-2,4-17,19-31"
#define THREADS "0-2,4-15"
#define THIRDS  "1-2,4-5,7-8,10-11,13-14,16-17,19-20,22-23,25-26,28-29,31"

static const struct answer {
    const char *allowed;
    enum agent_numa binding;
    const char *cpus[N_GPUS];
} answers[] = {
    { WHOLE,
      AGENT_NUMA_NODE,
      { "0-2,16-17,19", "0-2,16-17,19", "4-7,20-23", "12-15,28-31", "12-15,28-31", "12-15,28-31",
        "8-11,24-27", "12-15,28-31" } },
    { WHOLE,
      AGENT_NUMA_SOCKET,
      { "0-2,4-7,16-17,19-23", "0-2,4-7,16-17,19-23", "0-2,4-7,16-17,19-23", "8-15,24-31", "8-15,24-31",
        "8-15,24-31", "8-15,24-31", "8-15,24-31" } },
    { WHOLE,
      AGENT_NUMA_EXCLUSIVE,
      { "0-1,16-17", "2,19", "4-7,20-23", "12,28", "13,29", "14,30", "8-11,24-27", "15,31" } },
    { WHOLE,
      AGENT_NUMA_CORE_COMPLEX,
      { "0-1,16-17", "2,19", "4-5,20-21", "12-13,28-29", "14-15,30-31", "12-13,28-29", "8-9,24-25",
        "14-15,30-31" } },
    { THREADS, AGENT_NUMA_NODE, { "0-2", "0-2", "4-7", "12-15", "12-15", "12-15", "8-11", "12-15" } },
    { THREADS,
      AGENT_NUMA_SOCKET,
      { "0-2,4-7", "0-2,4-7", "0-2,4-7", "8-15", "8-15", "8-15", "8-15", "8-15" } },
    { THREADS, AGENT_NUMA_EXCLUSIVE, { "0-1", "2", "4-7", "12", "13", "14", "8-11", "15" } },
    { THREADS, AGENT_NUMA_CORE_COMPLEX, { "0-1", "2", "4-5", "12-13", "14-15", "12-13", "8-9", "14-15" } },
    { THIRDS,
      AGENT_NUMA_NODE,
      { "1-2,16-17,19", "1-2,16-17,19", "4-5,7,20,22-23", "13-14,28-29,31", "13-14,28-29,31",
        "13-14,28-29,31", "8,10-11,25-26", "13-14,28-29,31" } },
    { THIRDS,
      AGENT_NUMA_SOCKET,
      { "1-2,4-5,7,16-17,19-20,22-23", "1-2,4-5,7,16-17,19-20,22-23", "1-2,4-5,7,16-17,19-20,22-23",
        "8,10-11,13-14,25-26,28-29,31", "8,10-11,13-14,25-26,28-29,31", "8,10-11,13-14,25-26,28-29,31",
        "8,10-11,13-14,25-26,28-29,31", "8,10-11,13-14,25-26,28-29,31" } },
    { THIRDS,
      AGENT_NUMA_EXCLUSIVE,
      { "1,16-17", "2,19", "4-5,7,20,22-23", "28", "13,29", "14", "8,10-11,25-26", "31" } },
    { THIRDS,
      AGENT_NUMA_CORE_COMPLEX,
      { "1,16-17", "2,19", "4-5,20", "13,28-29", "14,31", "13,28-29", "10-11,26", "14,31" } },
};

Test(numa, as_torchrun_binds)
{
    const struct shape shape = { 2, 2, 4, 2, 2, gap_names, "3,18" };
    struct topology *topology = build(&shape);

    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const struct answer *c = &answers[i];
        struct cpu_mask allowed, out[N_GPUS];
        char text[CPU_MASK_TEXT_BYTES];

        cr_assert(cpu_mask_read(&allowed, c->allowed));
        /*
         * With fewer workers than GPUs each still stands where its GPU does, and the others' shares stay
         * free.
         */
        for (int n_workers = 3; n_workers <= N_GPUS; n_workers += N_GPUS - 3) {
            cr_assert_eq(numa_bind(c->binding, topology, &allowed, gpus, N_GPUS, n_workers, out, NULL),
                         FSDP_OK);
            for (int gpu = 0; gpu < n_workers; gpu++)
                cr_expect_str_eq(cpu_mask_text(&out[gpu], text), c->cpus[gpu],
                                 "binding %d of GPU %d in %s: %s, not %s", (int)c->binding, gpu, c->allowed,
                                 text, c->cpus[gpu]);
        }
    }
    free(topology);
}

/* Laws, over many machines */

enum { MAX_WORKERS = 9, N_SHAPES = 8, N_ALLOWED = 6, N_PLACINGS = 6 };

static const int far_names[] = { 3, 4, 9, 12 };
static const struct shape shapes[N_SHAPES] = {
    { 1, 1, 1, 1, 1, NULL, NULL },        { 1, 1, 2, 1, 2, NULL, NULL },
    { 1, 1, 8, 2, 4, NULL, NULL },        { 1, 4, 4, 2, 2, NULL, "5" },
    { 2, 1, 6, 2, 3, NULL, "0,12" },      { 2, 2, 4, 2, 2, gap_names, "3,18" },
    { 2, 2, 3, 1, 1, far_names, "9-11" }, { 2, 2, 4, 2, 0, NULL, "0-3,16-19" },
};

/* Which of the CPUs may be used. */
static bool is_allowed(int which, int cpu, int n_cpus)
{
    switch (which) {
    case 0:
        return true;
    case 1:
        return cpu < (n_cpus + 1) / 2;
    case 2:
        return cpu % 2 == 0;
    case 3:
        return cpu % 5 != 1;
    case 4:
        return cpu == n_cpus - 1;
    default:
        return cpu >= n_cpus / 4 && cpu < n_cpus / 2 + 1;
    }
}

/* Where the GPUs stand; n of them. */
static int place_gpus(int which, const struct shape *shape, int *out)
{
    const int n_nodes = shape->sockets * shape->nodes;
    int n = (int[]){ 0, 1, 4, 8, 3, 4 }[which];

    for (int i = 0; i < n; i++) {
        int node = which == 2   ? i % n_nodes
                   : which == 3 ? n_nodes - 1 - i * n_nodes / 8
                   : i == 0     ? 0
                                : n_nodes - 1;

        out[i] = shape->node_names == NULL ? node : shape->node_names[node];
        if (which == 5 && i == 2)
            out[i] = -1;
    }
    return n;
}

struct setting {
    const struct topology *topology;
    struct cpu_mask allowed; /* and online */
    const int *nodes;
    int n_gpus, n_workers;
    enum agent_numa binding;
};

/* The CPUs for which `test` holds for the CPU and the node, written out plainly. */
static struct cpu_mask cpus_at(const struct setting *s, int node)
{
    struct cpu_mask out = { { 0 } };

    for (int cpu = 0; cpu < s->topology->n_cpus; cpu++)
        if (cpu_mask_has(&s->allowed, cpu) && s->topology->cpus[cpu].node == node)
            cpu_mask_add(&out, cpu);
    return out;
}

static bool within(const struct cpu_mask *inner, const struct cpu_mask *outer)
{
    for (int cpu = cpu_mask_next(inner, -1); cpu >= 0; cpu = cpu_mask_next(inner, cpu))
        if (!cpu_mask_has(outer, cpu))
            return false;
    return true;
}

static int cores_in(const struct setting *s, const struct cpu_mask *mask)
{
    struct cpu_mask cores = { { 0 } };

    for (int cpu = cpu_mask_next(mask, -1); cpu >= 0; cpu = cpu_mask_next(mask, cpu))
        cpu_mask_add(&cores, s->topology->cpus[cpu].core);
    return cpu_mask_count(&cores);
}

/* The node of a worker: that of its first CPU. */
static int node_of(const struct setting *s, const struct cpu_mask *mask)
{
    return s->topology->cpus[cpu_mask_next(mask, -1)].node;
}

static void check_exclusive(const struct setting *s, const struct cpu_mask *out)
{
    for (int i = 0; i < s->n_workers; i++) {
        for (int j = 0; j < i; j++) {
            for (int cpu = cpu_mask_next(&out[i], -1); cpu >= 0; cpu = cpu_mask_next(&out[i], cpu))
                for (int other = cpu_mask_next(&out[j], -1); other >= 0;
                     other = cpu_mask_next(&out[j], other))
                    cr_assert_neq(s->topology->cpus[cpu].core, s->topology->cpus[other].core,
                                  "workers %d and %d share a core", i, j);
            if (node_of(s, &out[i]) == node_of(s, &out[j])) {
                const int difference = cores_in(s, &out[j]) - cores_in(s, &out[i]);

                cr_assert(difference == 0 || difference == 1, "%d cores more for %d than for %d", difference,
                          j, i);
            }
        }
    }
}

static void check_complex(const struct setting *s, const struct cpu_mask *out, const struct cpu_mask *node)
{
    const int first = cpu_mask_next(out, -1);

    for (int cpu = cpu_mask_next(node, -1); cpu >= 0; cpu = cpu_mask_next(node, cpu))
        cr_assert_eq(cpu_mask_has(out, cpu), s->topology->cpus[cpu].cache == s->topology->cpus[first].cache,
                     "the whole group and nothing but it");
}

static void check_socket(const struct setting *s, const struct cpu_mask *out)
{
    for (int cpu = cpu_mask_next(&s->allowed, -1); cpu >= 0; cpu = cpu_mask_next(&s->allowed, cpu))
        cr_assert_eq(cpu_mask_has(out, cpu),
                     s->topology->cpus[cpu].package == s->topology->cpus[cpu_mask_next(out, -1)].package);
}

/* Is it known where every GPU stands? */
static bool places_told(const struct setting *s)
{
    bool told = s->n_gpus > 0;

    for (int i = 0; i < s->n_gpus; i++)
        told = told && s->nodes[i] >= 0;
    return told;
}

static void check_bound(const struct setting *s, const struct cpu_mask *out)
{
    const bool told = places_told(s);

    for (int i = 0; i < s->n_workers; i++) {
        const int node = node_of(s, &out[i]);
        const struct cpu_mask all = cpus_at(s, node);

        cr_assert_gt(cpu_mask_count(&out[i]), 0);
        cr_assert(within(&out[i], &s->allowed));
        if (s->binding == AGENT_NUMA_SOCKET)
            check_socket(s, &out[i]);
        else
            cr_assert(within(&out[i], &all));
        if (told && s->binding != AGENT_NUMA_SOCKET)
            cr_assert_eq(node, s->nodes[i % s->n_gpus], "worker %d is at its GPU", i);
        if (s->binding == AGENT_NUMA_NODE)
            cr_assert(within(&all, &out[i]));
        if (s->binding == AGENT_NUMA_CORE_COMPLEX)
            check_complex(s, &out[i], &all);
    }
    if (s->binding == AGENT_NUMA_EXCLUSIVE)
        check_exclusive(s, out);
    cr_assert_geq(numa_threads(out, s->n_workers), 1);
}

/* Is there a reason that a user can see? */
static bool impossible(const struct setting *s)
{
    const int n_slots = s->n_gpus > s->n_workers ? s->n_gpus : s->n_workers;
    const bool told = places_told(s);

    if (cpu_mask_count(&s->allowed) == 0)
        return true;
    if (s->binding == AGENT_NUMA_CORE_COMPLEX && s->topology->cpus[0].cache < 0)
        return true;
    for (int i = 0; told && i < s->n_workers; i++) {
        const struct cpu_mask all = cpus_at(s, s->nodes[i % s->n_gpus]);
        int n = 0;

        if (cpu_mask_count(&all) == 0)
            return true;
        for (int j = 0; j < n_slots; j++)
            n += s->nodes[j % s->n_gpus] == s->nodes[i % s->n_gpus];
        if (s->binding == AGENT_NUMA_EXCLUSIVE && cores_in(s, &all) < n)
            return true;
    }
    /* Without places told, evenly spread blocks: no node has more than its share, rounded up. */
    if (!told && s->binding == AGENT_NUMA_EXCLUSIVE) {
        int n_nodes = 0, fewest = CPU_MASK_CPUS;

        for (int node = 0; node < 16; node++) {
            const struct cpu_mask all = cpus_at(s, node);

            n_nodes += cpu_mask_count(&all) > 0;
            if (cpu_mask_count(&all) > 0 && cores_in(s, &all) < fewest)
                fewest = cores_in(s, &all);
        }
        return (n_slots + n_nodes - 1) / n_nodes > fewest;
    }
    return false;
}

Test(numa, laws_over_every_machine_placing_and_binding, .timeout = 1200)
{
    int n_bound = 0, n_refused = 0;

    for (int shape = 0; shape < N_SHAPES; shape++) {
        struct topology *topology = build(&shapes[shape]);

        for (int code = 0; code < N_ALLOWED * N_PLACINGS * MAX_WORKERS * 4; code++) {
            struct setting s = { .topology = topology };
            struct cpu_mask out[MAX_WORKERS], allowed = { { 0 } };
            struct fsdp_err err = { 0 };
            int nodes[8];

            for (int cpu = 0; cpu < topology->n_cpus; cpu++) {
                if (!is_allowed(code % N_ALLOWED, cpu, topology->n_cpus))
                    continue;
                cpu_mask_add(&allowed, cpu);
                if (topology->cpus[cpu].online)
                    cpu_mask_add(&s.allowed, cpu);
            }
            s.n_gpus = place_gpus(code / N_ALLOWED % N_PLACINGS, &shapes[shape], nodes);
            s.nodes = nodes;
            s.n_workers = 1 + code / (N_ALLOWED * N_PLACINGS) % MAX_WORKERS;
            s.binding = AGENT_NUMA_NODE + code / (N_ALLOWED * N_PLACINGS * MAX_WORKERS);

            if (numa_bind(s.binding, topology, &allowed, nodes, s.n_gpus, s.n_workers, out, &err) ==
                FSDP_OK) {
                check_bound(&s, out);
                n_bound++;
            } else {
                cr_assert_eq(err.status, FSDP_ERR_UNSUPPORTED);
                cr_assert_neq(err.message[0], '\0');
                cr_assert(impossible(&s), "machine %d, code %d: refused for no reason: %s", shape, code,
                          err.message);
                n_refused++;
            }
        }
        free(topology);
    }
    cr_assert(n_bound > 1000 && n_refused > 100, "%d bound, %d refused", n_bound, n_refused);
}

Test(numa, without_gpus_workers_are_spread_over_the_nodes_in_blocks)
{
    const struct shape shape = { 2, 2, 4, 1, 4, NULL, NULL };
    struct topology *topology = build(&shape);
    struct cpu_mask allowed, out[MAX_WORKERS];
    static const char *const want[] = {
        "", "0", "02", "012", "0123", "00123", "001223", "0011223", "00112233"
    };

    cr_assert(cpu_mask_read(&allowed, "0-15"));
    for (int n = 1; n <= 8; n++) {
        cr_assert_eq(numa_bind(AGENT_NUMA_NODE, topology, &allowed, NULL, 0, n, out, NULL), FSDP_OK);
        for (int i = 0; i < n; i++)
            cr_expect_eq(topology->cpus[cpu_mask_next(&out[i], -1)].node, want[n][i] - '0', "worker %d of %d",
                         i, n);
    }
    free(topology);
}

Test(numa, threads_are_the_least_any_worker_has)
{
    struct cpu_mask masks[3];

    cpu_mask_read(&masks[0], "0-7");
    cpu_mask_read(&masks[1], "0-7");
    cpu_mask_read(&masks[2], "8-10");
    cr_expect_eq(numa_threads(masks, 3), 3);
    cr_expect_eq(numa_threads(masks, 2), 4);
    cr_expect_eq(numa_threads(masks, 1), 8);
    cpu_mask_read(&masks[2], "0-7");
    cr_expect_eq(numa_threads(masks, 3), 2);
    for (int i = 0; i < 3; i++)
        cpu_mask_read(&masks[i], "0-2");
    cr_expect_eq(numa_threads(masks, 3), 1);
    cpu_mask_read(&masks[0], "0"), masks[1] = masks[2] = masks[0];
    cr_expect_eq(numa_threads(masks, 3), 1);
}
