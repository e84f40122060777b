#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "launcher/hostlist.h"

static bool is_none(const char *list, int index)
{
    char name[HOSTLIST_NAME_BYTES] = "x";

    return !hostlist_name(list, index, name) && name[0] == '\0';
}

/* The names of a list, with a comma after each; "" if it is refused. */
static const char *expand(const char *list)
{
    static char out[4096];
    char name[HOSTLIST_NAME_BYTES];
    const int n = hostlist_count(list);

    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        cr_expect(hostlist_name(list, i, name), "%s, %d", list, i);
        sprintf(out + strlen(out), "%s,", name);
    }
    cr_expect(is_none(list, n), "%s: one more than it has", list);
    cr_expect(is_none(list, -1), "%s: before the first", list);
    return out;
}

Test(hostlist, names_are_those_of_scontrol)
{
    static const char *const lists[][2] = {
        { "n1", "n1," },
        { "n1,n2", "n1,n2," },
        { "n[1-4]", "n1,n2,n3,n4," },
        { "n[03-05,7],m1", "n03,n04,n05,n7,m1," },
        { "n[8-11]", "n8,n9,n10,n11," },
        { "n[08-11]", "n08,n09,n10,n11," },
        { "n[098-101]", "n098,n099,n100,n101," },
        { "n[1-2,1]", "n1,n2,n1," },
        { "r[1-2]n[5,7]", "r1n5,r1n7,r2n5,r2n7," },
        { "a[1-2]b[0-1]c[3,5]", "a1b0c3,a1b0c5,a1b1c3,a1b1c5,a2b0c3,a2b0c5,a2b1c3,a2b1c5," },
        { "n[9].site,b", "n9.site,b," },
        { "127.0.0.[1-3]", "127.0.0.1,127.0.0.2,127.0.0.3," },
        { "[7-8]", "7,8," },
    };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        cr_expect(eq(str, (char *)(uintptr_t)expand(lists[i][0]), (char *)(uintptr_t)lists[i][1]));
}

Test(hostlist, what_is_no_list_is_refused_as_a_whole)
{
    static const char *const lists[] = {
        "",       ",",     ",n1",    "n1,",    "n1,,n2",        "n[",         "n[1",
        "n[1-",   "n[1-2", "n[]",    "n[1,]",  "n[,1]",         "n[3-1]",     "n[a]",
        "n[1-b]", "n]",    "n1,m[1", "n[[1]]", "n[1-2-3]",      "n 1",        "n[1 - 2]",
        "n\n",    "n[-1]", "n[1]]",  "n[1;2]", "n[1234567890]", "n[0-65536]", "n[1-300]m[1-300]",
    };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        cr_expect(eq(str, (char *)(uintptr_t)expand(lists[i]), ""), "%s", lists[i]);
}

Test(hostlist, the_most_hosts_are_counted)
{
    char name[HOSTLIST_NAME_BYTES];

    cr_expect(eq(int, hostlist_count("n[0-65535]"), HOSTLIST_MOST));
    cr_expect(hostlist_name("n[0-65535]", 65535, name));
    cr_expect(eq(str, name, "n65535"));
    cr_expect(eq(int, hostlist_count("n[0-65535],m"), 0));
}

Test(hostlist, a_name_that_is_too_long_is_none)
{
    char list[400], name[HOSTLIST_NAME_BYTES];

    memset(list, 'a', sizeof list);
    strcpy(list + HOSTLIST_NAME_BYTES - 1, ",b");

    cr_expect(hostlist_name(list, 0, name));
    cr_expect(eq(sz, strlen(name), HOSTLIST_NAME_BYTES - 1));
    strcpy(list + HOSTLIST_NAME_BYTES - 1, "a,b");
    cr_expect(is_none(list, 0));
    cr_expect(hostlist_name(list, 1, name));
    cr_expect(eq(str, name, "b"));
}
