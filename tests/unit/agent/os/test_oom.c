#include "agent/os/oom.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/agent/scratch.h"

Test(oom, the_counter_of_either_version)
{
    static const struct {
        const char *text;
        uint64_t n; /* 0: none is told */
    } cases[] = {
        { "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n", 1 },
        { "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", 12 },
        { "oom_kill_disable 0\nunder_oom 0\n", 0 }, /* a kernel before 4.13 */
        { "", 0 },
        { "oom_kill \n", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n = 0;

        cr_expect(oom_parse_counter(cases[i].text, &n) == (cases[i].n > 0), "%s", cases[i].text);
        cr_expect(cases[i].n == 0 || n == cases[i].n, "%s", cases[i].text);
    }
}

Test(oom, the_record_that_names_a_victim)
{
    static const struct {
        const char *text;
        int pid;
    } cases[] = {
        { "3,123,456,-;Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB", 4242 },
        { "3,1,2,-;Out of memory: Killed process 7 (a b) total-vm:1kB, anon-rss:2kB", 7 },
        { "3,1,2,-;Out of memory (oom_kill_allocating_task): Killed process 8 (x)", 8 },
        { "6,1,2,-;oom_reaper: reaped process 4242 (python), now anon-rss:0kB", 0 },
        { "6,1,2,-;Killed process 4242 (python)", 0 },
        { "", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(oom_parse_record(cases[i].text), cases[i].pid, "%s", cases[i].text);
}

Test(oom, the_group_of_either_version)
{
    static const struct {
        const char *text, *path; /* NULL: none is found */
        bool v1;
    } cases[] = {
        { "0::/user.slice/a b\n", "/user.slice/a b", false },
        { "9:cpu,memory:/x\n4:cpu:/y\n0::/\n", "/x", true },
        { "4:cpu:/y\n0::/z", "/z", false },
        { "4:cpu:/memory\n1:name=memory2:/\n", NULL, false },
        { "garbage\n", NULL, false },
        { "", NULL, false },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[64] = "";
        bool v1 = !cases[i].v1;

        cr_assert(oom_parse_group(cases[i].text, &v1, path, sizeof path) == (cases[i].path != NULL), "%s",
                  cases[i].text);
        if (cases[i].path != NULL)
            cr_expect(strcmp(path, cases[i].path) == 0 && v1 == cases[i].v1, "%s: %s", cases[i].text, path);
    }
}

/* A tree of files in place of the kernel's. */
static char group_file[96], counter[160], limit[160];
static struct oom_watch watch;
static char words[256];

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void make_tree(void)
{
    scratch_make();
    cr_assert_eq(mkdir(scratch_path("job"), 0700), 0);
    snprintf(group_file, sizeof group_file, "%s/group", scratch);
    snprintf(counter, sizeof counter, "%s/job/memory.events", scratch);
    snprintf(limit, sizeof limit, "%s/job/memory.max", scratch);
    put(group_file, "0::/job\n");
    put(counter, "oom_kill 3\n");
    put(limit, "67108864\n");
}

static void remove_tree(void)
{
    oom_watch_end(&watch);
    scratch_remove();
}

TestSuite(oom_watch, .init = make_tree, .fini = remove_tree);

static void begin(const char *kmsg)
{
    oom_watch_begin(&watch, group_file, scratch, kmsg);
}

static enum oom_answer ask(int pid, bool killed)
{
    return oom_watch_ask(&watch, pid, killed, words, sizeof words);
}

Test(oom_watch, a_kill_is_attributed_once)
{
    begin(NULL);
    cr_expect_eq(ask(10, true), OOM_NO, "what was before is nobody's");
    put(counter, "oom_kill 5\n");
    cr_expect_eq(ask(11, true), OOM_KILLED);
    cr_expect_str_eq(words,
                     "out of memory: ended by the kernel's OOM killer (its control group may use 64 MiB)");
    cr_expect_eq(ask(12, true), OOM_KILLED);
    cr_expect_eq(ask(13, true), OOM_NO, "two were killed, not three");
}

Test(oom_watch, one_that_was_not_killed_lost_a_neighbour)
{
    begin(NULL);
    put(counter, "oom_kill 4\n");
    put(limit, "max\n");
    cr_expect_eq(ask(11, false), OOM_NEARBY);
    cr_expect_str_eq(words, "the kernel's OOM killer ended another process of its control group");
    cr_expect_eq(ask(12, true), OOM_NO, "it is accounted for");
}

Test(oom_watch, without_any_witness_nothing_is_said)
{
    unlink(counter);
    begin("/nonexistent/kmsg");
    cr_expect_eq(ask(11, true), OOM_NO);
    oom_watch_end(&watch);
    oom_watch_begin(&watch, "/nonexistent/group", scratch, NULL);
    cr_expect_eq(ask(11, true), OOM_NO);
}

Test(oom_watch, a_container_looks_at_the_top_of_what_it_sees)
{
    char top[128];

    snprintf(top, sizeof top, "%s/memory.events", scratch);
    put(group_file, "0::/of/the/host\n");
    put(top, "oom_kill 0\n");
    begin(NULL);
    put(top, "oom_kill 1\n");
    cr_expect_eq(ask(11, true), OOM_KILLED);
}
