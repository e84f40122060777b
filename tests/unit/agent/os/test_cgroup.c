#include "agent/os/cgroup.h"

#include <criterion/criterion.h>
#include <string.h>

Test(cgroup, lines_one_by_one_and_what_is_none_is_passed_over)
{
    const char *text = "12:cpu,cpuacct:/a b\n\nnot one\n1:\n0::/x:y\n3:name=systemd:\n7:memory:/z";
    static const struct {
        const char *controllers, *group;
        bool v2;
    } want[] = { { "cpu,cpuacct", "/a b", false },
                 { "", "/x:y", true },
                 { "name=systemd", "", false },
                 { "memory", "/z", false } };
    struct cgroup_line line;

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        cr_assert(cgroup_next(&text, &line), "line %zu", i);
        cr_expect(line.controllers_bytes == strlen(want[i].controllers) &&
                      memcmp(line.controllers, want[i].controllers, line.controllers_bytes) == 0,
                  "line %zu: %.*s", i, (int)line.controllers_bytes, line.controllers);
        cr_expect(line.group_bytes == strlen(want[i].group) &&
                      memcmp(line.group, want[i].group, line.group_bytes) == 0,
                  "line %zu: %.*s", i, (int)line.group_bytes, line.group);
        cr_expect(cgroup_is_v2(&line) == want[i].v2);
    }
    cr_expect_not(cgroup_next(&text, &line));
    cr_expect_str_eq(text, "");
}

Test(cgroup, a_controller_is_a_whole_word_of_the_list)
{
    const char *text = "4:cpu,cpuset,io:/memory\n";
    struct cgroup_line line;

    cr_assert(cgroup_next(&text, &line));
    cr_expect(cgroup_has(&line, "cpu") && cgroup_has(&line, "cpuset") && cgroup_has(&line, "io"));
    cr_expect_not(cgroup_has(&line, "cpus") || cgroup_has(&line, "set") || cgroup_has(&line, "memory") ||
                  cgroup_has(&line, "cpu,cpuset") || cgroup_has(&line, "i") || cgroup_has(&line, ""));
}
