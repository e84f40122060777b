#include "agent/placement/topology.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/agent/placement/fake_root.h"

#define CPU "/sys/devices/system/cpu/cpu%d/"

static char root[FAKE_ROOT_BYTES];
static struct topology *t;

static void make_root(void)
{
    fake_root_make(root);
}

static void end(void)
{
    free(t);
    fake_root_remove(root);
}

TestSuite(topology, .init = make_root, .fini = end);

static void add_cache(int cpu, int index, const char *type, int level, const char *shared)
{
    char text[16];

    snprintf(text, sizeof text, "%d\n", level);
    fake_root_add(root, type, CPU "cache/index%d/type", cpu, index);
    fake_root_add(root, text, CPU "cache/index%d/level", cpu, index);
    fake_root_add(root, shared, CPU "cache/index%d/shared_cpu_list", cpu, index);
}

Test(topology, a_machine_with_gaps_reads_as_it_is)
{
    struct fsdp_err err = { 0 };

    fake_root_add(root, "0-1,4-5,7\n", "/sys/devices/system/cpu/online");
    fake_root_add(root, "0-1\n", "/sys/devices/system/node/node0/cpulist");
    fake_root_add(root, "4-5,7\n", "/sys/devices/system/node/node3/cpulist");
    fake_root_add(root, "\n", "/sys/devices/system/node/node8/cpulist"); /* memory alone */
    fake_root_add(root, "0,3,8\n", "/sys/devices/system/node/online");
    for (int i = 0; i < 8; i++) {
        char text[16];

        snprintf(text, sizeof text, "%d\n", i / 4);
        fake_root_add(root, text, CPU "topology/physical_package_id", i);
        fake_root_add(root,
                      i < 2   ? "0-1\n"
                      : i < 6 ? "4-5\n"
                              : "7\n",
                      CPU "topology/thread_siblings_list", i);
        add_cache(i, 0, "Data\n", 1, "0\n");
        add_cache(i, 1, "Instruction\n", 9, "0\n");
        add_cache(i, 2, "Unified\n", 2, i < 2 ? "0-1\n" : "4-7\n");
        add_cache(i, 3, "Unified\n", 3, i < 2 ? "0-1\n" : i < 6 ? "4-5\n" : "7\n");
    }

    cr_assert_eq(topology_read(&t, root, &err), FSDP_OK, "%s", err.message);
    cr_expect_eq(t->n_cpus, 8);
    for (int i = 0; i < 8; i++) {
        const bool online = i < 2 || i == 4 || i == 5 || i == 7;

        cr_expect_eq(t->cpus[i].online, online, "CPU %d", i);
        if (!online)
            continue;
        cr_expect_eq(t->cpus[i].node, i < 2 ? 0 : 3);
        cr_expect_eq(t->cpus[i].package, i / 4);
        cr_expect_eq(t->cpus[i].core, i < 2 ? 0 : i < 6 ? 4 : 7);
        cr_expect_eq(t->cpus[i].cache, i < 2 ? 0 : i < 6 ? 4 : 7);
    }
}

Test(topology, what_is_not_told_is_one_node_one_package_and_a_core_each)
{
    cr_expect_eq(topology_read(&t, root, NULL), FSDP_ERR_UNSUPPORTED);
    cr_expect_null(t);
    fake_root_add(root, "nonsense\n", "/sys/devices/system/cpu/online");
    cr_expect_eq(topology_read(&t, root, NULL), FSDP_ERR_UNSUPPORTED);
    fake_root_add(root, "0-2\n", "/sys/devices/system/cpu/online");
    cr_assert_eq(topology_read(&t, root, NULL), FSDP_OK);
    for (int i = 0; i < 3; i++)
        cr_expect(t->cpus[i].node == 0 && t->cpus[i].package == 0 && t->cpus[i].core == i &&
                  t->cpus[i].cache == -1);
}

Test(topology, the_node_of_a_pci_device)
{
    fake_root_add(root, "3\n", "/sys/bus/pci/devices/0000:3b:00.0/numa_node");
    fake_root_add(root, "-1\n", "/sys/bus/pci/devices/0000:5e:00.0/numa_node");
    cr_expect_eq(topology_node_of_pci(root, "0000:3b:00.0"), 3);
    cr_expect_eq(topology_node_of_pci(root, "0000:5e:00.0"), -1);
    cr_expect_eq(topology_node_of_pci(root, "0000:9a:00.0"), -1);
    cr_expect_eq(topology_node_of_pci(root, ""), -1);
}
