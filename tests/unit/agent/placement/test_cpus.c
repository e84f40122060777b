#include "agent/placement/cpus.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <sched.h>

#include "tests/unit/agent/placement/fake_root.h"

Test(cpus, quota)
{
    static const struct {
        const char *text;
        int want;
    } cases[] = {
        { "max 100000", 0 },
        { "200000 100000", 2 },
        { "250000 100000", 2 },
        { "50000 100000", 1 },
        { "-1 100000", 0 },
        { "-1\n 100000\n", 0 },
        { "400000\n 100000\n", 4 },
        { "", 0 },
        { "100000", 0 },
        { "0 100000", 0 },
        { "100000 0", 0 },
        { "100000 max", 0 },
        { "99999999999999999999 1", 0 },
        { "9223372036854775807 1", INT_MAX },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(cpus_of_quota(cases[i].text), cases[i].want, "\"%s\"", cases[i].text);
}

Test(cpus, the_affinity_mask_limits)
{
    cpu_set_t all, one;

    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    cr_expect(cpus_available() >= 1 && cpus_available() <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_expect_eq(cpus_available(), 1);
}

static const struct group_case {
    const char *cgroup, *files[2][2]; /* path below /sys/fs/cgroup, text */
    int want;
} group_cases[] = {
    { "0::/\n", { { NULL } }, 0 },
    { "0::/\n", { { "/cpu.max", "250000 100000\n" } }, 2 },
    { "0::/a/b\n", { { "/a/b/cpu.max", "max 100000\n" }, { "/a/cpu.max", "300000 100000\n" } }, 3 },
    { "0::/a/b\n", { { "/a/b/cpu.max", "500000 100000\n" }, { "/a/cpu.max", "300000 100000\n" } }, 3 },
    { "0::/a/b\n", { { "/a/b/cpu.max", "200000 100000\n" }, { "/a/cpu.max", "300000 100000\n" } }, 2 },
    /* A container that shows its own group as the mount point, whatever the name. */
    { "0::/../other\n", { { "/cpu.max", "100000 100000\n" } }, 1 },
    { "1:name=systemd:/\n0::/x\n", { { "/unified/x/cpu.max", "400000 100000\n" } }, 4 },
    { "4:cpu,cpuacct:/j\n",
      { { "/cpu,cpuacct/j/cpu.cfs_quota_us", "600000\n" },
        { "/cpu,cpuacct/j/cpu.cfs_period_us", "100000\n" } },
      6 },
    { "4:cpuacct,cpu:/j\n",
      { { "/cpu/j/cpu.cfs_quota_us", "50000\n" }, { "/cpu/j/cpu.cfs_period_us", "100000\n" } },
      1 },
    { "4:cpu:/j\n",
      { { "/cpu/j/cpu.cfs_quota_us", "-1\n" }, { "/cpu/j/cpu.cfs_period_us", "100000\n" } },
      0 },
    { "4:cpuset,cpuacct:/j\n",
      { { "/cpu/j/cpu.cfs_quota_us", "100000\n" }, { "/cpu/j/cpu.cfs_period_us", "100000\n" } },
      0 },
    { "nonsense\n4:cpu\n", { { "/cpu.max", "100000 100000\n" } }, 0 },
};

Test(cpus, control_groups)
{
    for (size_t i = 0; i < sizeof group_cases / sizeof *group_cases; i++) {
        const struct group_case *c = &group_cases[i];
        char root[FAKE_ROOT_BYTES];

        fake_root_make(root);
        fake_root_add(root, c->cgroup, "/proc/self/cgroup");
        for (int k = 0; k < 2 && c->files[k][0] != NULL; k++)
            fake_root_add(root, c->files[k][1], "/sys/fs/cgroup%s", c->files[k][0]);
        cr_expect_eq(cpus_quota(root), c->want, "%s", c->cgroup);
        fake_root_remove(root);
    }
}
