#include "agent/os/cpu_mask.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *list, *want;
    bool bad;
} lists[] = {
    { "0", "0", false },
    { "0-3,8\n", "0-3,8", false },
    { "1,2,3", "1-3", false },
    { "3,1-2,1", "1-3", false },
    { "63-64,127-129", "63-64,127-129", false },
    { "8191", "8191", false },
    { "", "", false },
    { "\n", "", false },
    { "8192", "", true },
    { "0-8192", "", true },
    { "99999999999999999999", "", true },
    { "3-1", "", true },
    { "-1", "", true },
    { "1-", "", true },
    { "1,", "", true },
    { ",1", "", true },
    { "1 2", "", true },
    { "a", "", true },
    { "0-3x", "", true },
};

Test(cpu_mask, a_list)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char text[CPU_MASK_TEXT_BYTES];
        struct cpu_mask mask;

        memset(&mask, 0xff, sizeof mask);
        cr_expect_eq(cpu_mask_read(&mask, lists[i].list), !lists[i].bad, "\"%s\"", lists[i].list);
        cr_expect_str_eq(cpu_mask_text(&mask, text), lists[i].want);
    }
}

Test(cpu_mask, what_is_added_is_there_and_found_in_order)
{
    static const int cpus[] = { 0, 1, 63, 64, 100, 4095, 8191 };
    struct cpu_mask mask = { { 0 } };
    int n = 0;

    for (int i = 6; i >= 0; i--)
        cpu_mask_add(&mask, cpus[i]);
    cpu_mask_add(&mask, -1);
    cpu_mask_add(&mask, CPU_MASK_CPUS);
    cr_expect_eq(cpu_mask_count(&mask), 7);
    for (int cpu = cpu_mask_next(&mask, -1); cpu >= 0; cpu = cpu_mask_next(&mask, cpu))
        cr_expect_eq(cpu, cpus[n++]);
    cr_expect_eq(n, 7);
    cr_expect_not(cpu_mask_has(&mask, 2) || cpu_mask_has(&mask, -1) || cpu_mask_has(&mask, CPU_MASK_CPUS));
}

Test(cpu_mask, a_text_too_long_is_cut_and_says_so)
{
    char text[CPU_MASK_TEXT_BYTES];
    struct cpu_mask mask = { { 0 } };

    for (int cpu = 0; cpu < CPU_MASK_CPUS; cpu += 2)
        cpu_mask_add(&mask, cpu);
    cpu_mask_text(&mask, text);
    cr_expect(strlen(text) < sizeof text);
    cr_expect_str_eq(text + strlen(text) - 3, "...");
}
