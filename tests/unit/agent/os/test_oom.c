#include "agent/os/oom.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Test(oom, the_counter_of_either_version)
{
    uint64_t n = 7;

    cr_assert(oom_parse_counter("low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n", &n));
    cr_expect_eq(n, 1);
    cr_assert(oom_parse_counter("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", &n));
    cr_expect_eq(n, 12);
    cr_expect_not(oom_parse_counter("oom_kill_disable 0\nunder_oom 0\n", &n), "a kernel before 4.13");
    cr_expect_not(oom_parse_counter("", &n));
    cr_expect_not(oom_parse_counter("oom_kill \n", &n));
}

Test(oom, the_record_that_names_a_victim)
{
    cr_expect_eq(oom_parse_record(
                     "3,123,456,-;Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB"),
                 4242);
    cr_expect_eq(oom_parse_record("3,1,2,-;Out of memory: Killed process 7 (a b) total-vm:1kB, anon-rss:2kB"),
                 7);
    cr_expect_eq(oom_parse_record("3,1,2,-;Out of memory (oom_kill_allocating_task): Killed process 8 (x)"),
                 8);
    cr_expect_eq(oom_parse_record("6,1,2,-;oom_reaper: reaped process 4242 (python), now anon-rss:0kB"), 0);
    cr_expect_eq(oom_parse_record("6,1,2,-;Killed process 4242 (python)"), 0);
    cr_expect_eq(oom_parse_record(""), 0);
}

Test(oom, the_group_of_either_version)
{
    char path[64];
    bool v1 = true;

    cr_assert(oom_parse_group("0::/user.slice/a b\n", &v1, path, sizeof path));
    cr_expect_str_eq(path, "/user.slice/a b");
    cr_expect_not(v1);
    cr_assert(oom_parse_group("9:cpu,memory:/x\n4:cpu:/y\n0::/\n", &v1, path, sizeof path));
    cr_expect_str_eq(path, "/x");
    cr_expect(v1);
    cr_assert(oom_parse_group("4:cpu:/y\n0::/z", &v1, path, sizeof path));
    cr_expect_str_eq(path, "/z", "no newline at the end");
    cr_expect_not(oom_parse_group("4:cpu:/memory\n1:name=memory2:/\n", &v1, path, sizeof path));
    cr_expect_not(oom_parse_group("garbage\n", &v1, path, sizeof path));
    cr_expect_not(oom_parse_group("", &v1, path, sizeof path));
}

/* A tree of files in place of the kernel's. */
static char root[64], group_file[96], counter[160], limit[160];

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void make_tree(void)
{
    char folder[128];

    snprintf(root, sizeof root, "/tmp/fsdp-oom-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/job", root);
    cr_assert_eq(mkdir(folder, 0700), 0);
    snprintf(group_file, sizeof group_file, "%s/group", root);
    snprintf(counter, sizeof counter, "%s/memory.events", folder);
    snprintf(limit, sizeof limit, "%s/memory.max", folder);
    put(group_file, "0::/job\n");
    put(counter, "oom_kill 3\n");
    put(limit, "67108864\n");
}

static void remove_tree(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

Test(oom, a_kill_is_attributed_once, .init = make_tree, .fini = remove_tree)
{
    struct oom_watch watch;
    char words[256];

    oom_watch_begin(&watch, group_file, root, NULL);
    cr_expect_eq(oom_watch_ask(&watch, 10, true, words, sizeof words), OOM_NO, "what was before is nobody's");
    put(counter, "oom_kill 5\n");
    cr_expect_eq(oom_watch_ask(&watch, 11, true, words, sizeof words), OOM_KILLED);
    cr_expect_str_eq(words,
                     "out of memory: ended by the kernel's OOM killer (its control group may use 64 MiB)");
    cr_expect_eq(oom_watch_ask(&watch, 12, true, words, sizeof words), OOM_KILLED);
    cr_expect_eq(oom_watch_ask(&watch, 13, true, words, sizeof words), OOM_NO, "two were killed, not three");
    oom_watch_end(&watch);
}

Test(oom, one_that_was_not_killed_lost_a_neighbour, .init = make_tree, .fini = remove_tree)
{
    struct oom_watch watch;
    char words[256];

    oom_watch_begin(&watch, group_file, root, NULL);
    put(counter, "oom_kill 4\n");
    put(limit, "max\n");
    cr_expect_eq(oom_watch_ask(&watch, 11, false, words, sizeof words), OOM_NEARBY);
    cr_expect_str_eq(words, "the kernel's OOM killer ended another process of its control group");
    cr_expect_eq(oom_watch_ask(&watch, 12, true, words, sizeof words), OOM_NO, "it is accounted for");
    oom_watch_end(&watch);
}

Test(oom, without_any_witness_nothing_is_said, .init = make_tree, .fini = remove_tree)
{
    struct oom_watch watch;
    char words[256];

    unlink(counter);
    oom_watch_begin(&watch, group_file, root, "/nonexistent/kmsg");
    cr_expect_eq(oom_watch_ask(&watch, 11, true, words, sizeof words), OOM_NO);
    oom_watch_end(&watch);
    oom_watch_begin(&watch, "/nonexistent/group", root, NULL);
    cr_expect_eq(oom_watch_ask(&watch, 11, true, words, sizeof words), OOM_NO);
    oom_watch_end(&watch);
}

Test(oom, a_container_looks_at_the_top_of_what_it_sees, .init = make_tree, .fini = remove_tree)
{
    struct oom_watch watch;
    char words[256], top[128];

    snprintf(top, sizeof top, "%s/memory.events", root);
    put(group_file, "0::/of/the/host\n");
    put(top, "oom_kill 0\n");
    oom_watch_begin(&watch, group_file, root, NULL);
    put(top, "oom_kill 1\n");
    cr_expect_eq(oom_watch_ask(&watch, 11, true, words, sizeof words), OOM_KILLED);
    oom_watch_end(&watch);
}
