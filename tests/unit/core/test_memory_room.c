#include "shard_runtime/core/memory_room.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/agent/scratch.h"

/* Writes a file below the root, with its folders. */
static void put(const char *path, const char *text)
{
    char command[1024];

    snprintf(command, sizeof command, "mkdir -p $(dirname %s/%s) && printf '%s' > %s/%s", scratch, path, text,
             scratch, path);
    cr_assert_eq(system(command), 0);
}

static void set_up(void)
{
    scratch_make();
    put("proc/meminfo", "MemTotal: 99 kB\\nMemAvailable:   1000 kB\\n");
    put("proc/self/cgroup", "0::/job/step\\n");
}

TestSuite(memory_room, .init = set_up, .fini = scratch_remove);

Test(memory_room, is_what_the_host_has_where_no_group_limits)
{
    put("sys/fs/cgroup/job/step/memory.max", "max\\n");
    put("sys/fs/cgroup/job/step/memory.current", "5\\n");
    cr_expect_eq(memory_room(scratch), 1000 * 1024);
}

Test(memory_room, is_what_a_group_leaves_and_its_cache_counts_as_free)
{
    put("sys/fs/cgroup/job/step/memory.max", "500000\\n");
    put("sys/fs/cgroup/job/step/memory.current", "450000\\n");
    put("sys/fs/cgroup/job/step/memory.stat", "anon 1\\ninactive_file 30000\\n");
    cr_expect_eq(memory_room(scratch), 80000);
}

Test(memory_room, the_narrowest_group_above_counts)
{
    put("sys/fs/cgroup/job/step/memory.max", "500000\\n");
    put("sys/fs/cgroup/job/step/memory.current", "0\\n");
    put("sys/fs/cgroup/job/memory.max", "1000\\n");
    put("sys/fs/cgroup/job/memory.current", "400\\n");
    cr_expect_eq(memory_room(scratch), 600);
    put("sys/fs/cgroup/job/memory.current", "2000\\n");
    cr_expect_eq(memory_room(scratch), 0, "over its limit");
}

Test(memory_room, version_1_of_the_groups_counts_too)
{
    put("proc/self/cgroup", "5:memory:/job\\n4:cpu:/\\n");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\\n");
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "3000\\n");
    cr_expect_eq(memory_room(scratch), 4000);
}

Test(memory_room, is_without_limit_where_nothing_says_one)
{
    cr_expect_eq(memory_room("/nonexistent"), UINT64_MAX);
}
