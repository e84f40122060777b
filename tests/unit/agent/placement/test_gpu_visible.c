#include "agent/placement/gpu_visible.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = { "GPU-aa11", "GPU-aa22", "GPU-bb33", "MIG-cc44" };
enum { N = 4 };

/* The picked devices as digits. */
static void pick(const char *list, int n, char out[32], char *why, size_t why_bytes)
{
    int picked[16], count = gpu_visible_pick("LIST", list, names, n, picked, 16, why, why_bytes);

    for (int i = 0; i < count; i++)
        out[i] = (char)('0' + picked[i]);
    out[count] = '\0';
}

/* The list, the picked devices, and a part of what is said; "": nothing is. */
static const char *const lists[][3] = {
    { "0", "0", "" },
    { "3,1", "31", "" },
    { "0,1,2,3", "0123", "" },
    { "", "", "hides all" },
    { "-1", "", "hides all" },
    { "0,-1,2", "0", "ends at \"-1\"" },
    { "0,4,1", "0", "ends at \"4\", which is none of 4" },
    { "4", "", "ends at \"4\"" },
    { "99999999999999999999", "", "ends at" },
    { "abc", "", "ends at \"abc\"" },
    { "0,abc,1", "0", "ends at \"abc\"" },
    { "0,,1", "0", "ends at \"\"" },
    { " 1, 2", "12", "" },
    { "+1", "1", "" },
    { "1gpu2,2ampere", "12", "" },
    { "0,0", "", "names 0 twice" },
    { "0,1,0", "", "names 0 twice" },
    { "0,9,9", "", "names 9 twice" },
    { "0,00", "", "twice" },
    { "0,x,0", "0", "ends at \"x\"" },
    { "0,GPU-aa11", "0", "ends at \"GPU-aa11\"" },
    { "GPU-aa11", "0", "" },
    { "GPU-bb,GPU-aa2", "21", "" },
    { "GPU-aa", "", "ends at \"GPU-aa\"" },
    { "GPU-bb33,GPU-zz,GPU-aa11", "2", "ends at \"GPU-zz\"" },
    { "GPU-bb33,1", "2", "ends at \"1\"" },
    { "GPU-bb33,GPU-bb33", "", "twice" },
    { "GPU-bb33,GPU-bb", "", "twice" },
    { "GPU-zz,GPU-zz", "", "twice" },
    { "GPU-bb33 ,GPU-aa11", "", "ends at" },
    { "MIG-cc44", "3", "" },
    { "MIG-cc44,GPU-aa11", "3", "ends at \"GPU-aa11\"" },
};

Test(gpu_visible, a_list)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *list = lists[i][0], *said = lists[i][2];
        char got[32], why[200];

        pick(list, N, got, why, sizeof why);

        cr_expect_str_eq(got, lists[i][1], "\"%s\" gives \"%s\", not \"%s\"", list, got, lists[i][1]);
        cr_expect(strstr(why, said) != NULL && (*said != '\0' || *why == '\0'),
                  "\"%s\": \"%s\" does not say \"%s\"", list, why, said);
    }
}

Test(gpu_visible, a_list_that_is_not_set_hides_nothing)
{
    char got[32], why[200];

    pick(NULL, 3, got, why, sizeof why);

    cr_expect_str_eq(got, "012");
    cr_expect_str_empty(why);
    cr_expect_not(gpu_visible_names(NULL));
    cr_expect_not(gpu_visible_migs(NULL));
}

/*
 * All lists of up to four entries out of five words, over 0 to 3 devices, against the rule written out
 * plainly.
 */
Test(gpu_visible, every_short_list_of_indices)
{
    static const char *const words[] = { "0", "1", "2", "-1", "x" };

    for (int n = 0; n <= 3; n++) {
        for (int code = 0; code < 5 * 5 * 5 * 5; code++) {
            char list[32] = "", got[32], want[32] = "", why[200];
            int length = 0, seen[3] = { 0, 0, 0 };
            bool cut = false, ended = false, twice = false;

            for (int i = 0, rest = code; i < 4; i++, rest /= 5) {
                const char *word = words[rest % 5];

                strcat(strcat(list, i > 0 ? "," : ""), word);
                ended = ended || *word == '-' || *word == 'x';
                if (ended)
                    continue;
                twice = twice || seen[*word - '0']++ > 0;
                cut = cut || *word - '0' >= n;
                if (!cut)
                    want[length++] = *word;
            }
            want[twice ? 0 : length] = '\0';

            pick(list, n, got, why, sizeof why);

            cr_assert_str_eq(got, want, "\"%s\" of %d: \"%s\", not \"%s\"", list, n, got, want);
            cr_assert_eq(why[0] == '\0', strlen(got) == 4, "\"%s\" of %d says \"%s\"", list, n, why);
        }
    }
}

Test(gpu_visible, no_more_than_there_is_room_for)
{
    int picked[2];

    cr_expect_eq(gpu_visible_pick("LIST", NULL, NULL, 5, picked, 2, NULL, 0), 2);
    cr_expect_eq(gpu_visible_pick("LIST", "3,4,1", NULL, 5, picked, 2, NULL, 0), 2);
    cr_expect_eq(picked[0], 3);
}
