#include "agent/placement/topology.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/small_file.h"

enum { PATH_BYTES = 4096, LIST_BYTES = 16384, INDEXES = 10 };

/* The number in a file of the kernel; 0 if it is none. */
static int number_of(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

/* The lowest CPU of a list; -1: it is empty or no list. */
static int lowest(const char *list)
{
    struct cpu_mask mask;

    return cpu_mask_read(&mask, list) ? cpu_mask_next(&mask, -1) : -1;
}

/*
 * Returns the lowest CPU that shares the largest data cache with `cpu`. Some of the cache's folders lack some
 * files.
 */
static int last_level_cache(const char *root, int cpu)
{
    char text[LIST_BYTES];
    int level_of_found = 0, found = -1;

    for (int i = 0; i < INDEXES; i++) {
        int level, sharing;

        if (!small_file_read(text, sizeof text, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/type", root,
                             cpu, i) ||
            (strncmp(text, "Unified", 7) != 0 && strncmp(text, "Data", 4) != 0) ||
            !small_file_read(text, sizeof text, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/level", root,
                             cpu, i))
            continue;
        level = number_of(text);
        if (level <= level_of_found ||
            !small_file_read(text, sizeof text,
                             "%s/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", root, cpu, i))
            continue;
        sharing = lowest(text);
        if (sharing >= 0) {
            level_of_found = level;
            found = sharing;
        }
    }
    return found;
}

static void read_cpu(struct topology_cpu *out, const char *root, int cpu)
{
    char text[LIST_BYTES];

    *out = (struct topology_cpu){ .online = true, .core = cpu, .cache = last_level_cache(root, cpu) };
    if (small_file_read(text, sizeof text, "%s/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
                        root, cpu))
        out->package = number_of(text);
    if (small_file_read(text, sizeof text, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                        root, cpu) &&
        lowest(text) >= 0)
        out->core = lowest(text);
}

/* Node numbers may have gaps, and a node may have memory but no CPU. */
static void read_nodes(struct topology *topology, const char *root)
{
    char path[PATH_BYTES], text[LIST_BYTES];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof path, "%s/sys/devices/system/node", root);
    dir = opendir(path);
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        struct cpu_mask cpus;

        if (strncmp(entry->d_name, "node", 4) != 0 || !isdigit((unsigned char)entry->d_name[4]) ||
            !small_file_read(text, sizeof text, "%s/%s/cpulist", path, entry->d_name) ||
            !cpu_mask_read(&cpus, text))
            continue;
        for (int cpu = cpu_mask_next(&cpus, -1); cpu >= 0; cpu = cpu_mask_next(&cpus, cpu))
            topology->cpus[cpu].node = number_of(entry->d_name + 4);
    }
    closedir(dir);
}

enum fsdp_status topology_read(struct topology **out, const char *root, struct fsdp_err *err)
{
    char text[LIST_BYTES];
    struct topology *topology;
    struct cpu_mask online;

    *out = NULL;
    if (!small_file_read(text, sizeof text, "%s/sys/devices/system/cpu/online", root) ||
        !cpu_mask_read(&online, text) || cpu_mask_count(&online) == 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "/sys/devices/system/cpu does not tell which CPUs there are");
    topology = calloc(1, sizeof *topology);
    if (topology == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the CPUs of this machine");
    for (int cpu = cpu_mask_next(&online, -1); cpu >= 0; cpu = cpu_mask_next(&online, cpu)) {
        read_cpu(&topology->cpus[cpu], root, cpu);
        topology->n_cpus = cpu + 1;
    }
    read_nodes(topology, root);
    *out = topology;
    return FSDP_OK;
}

int topology_node_of_pci(const char *root, const char *pci)
{
    char text[32];

    if (pci[0] == '\0' ||
        !small_file_read(text, sizeof text, "%s/sys/bus/pci/devices/%s/numa_node", root, pci))
        return -1;
    return number_of(text);
}
