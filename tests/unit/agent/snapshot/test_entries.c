/*
 * Snapshots of programs, as the coordinator sees them: when an entry is whole, and which one a generation
 * gets.
 */
#include "agent/snapshot/entries.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

static struct entries *entries;
static const struct entry_seat both[] = { { 0, 0 }, { 1, 2 } };

static void begin(void)
{
    entries = entries_create();
}

static void end(void)
{
    entries_destroy(entries);
}

TestSuite(entries, .init = begin, .fini = end);

static struct snapshot_entry part(const char *name, int number, int first_rank, int world_size)
{
    struct snapshot_entry entry = { .number = number, .first_rank = first_rank, .world_size = world_size };

    snprintf(entry.name, sizeof entry.name, "%s", name);
    return entry;
}

static bool take(int node, const char *name, int number, int first_rank)
{
    const struct snapshot_entry entry = part(name, number, first_rank, 4);

    return entries_take(entries, node, &entry);
}

static void both_have(const char *name)
{
    take(0, name, 1, 0);
    take(1, name, 1, 2);
    entries_mark_complete(entries, name);
}

Test(entries, an_entry_is_whole_once_every_node_has_it)
{
    take(0, "step-1", 1, 0);
    cr_expect_not(entries_is_whole(entries, "step-1", both, 2, 4));
    cr_expect(entries_is_whole(entries, "step-1", both, 1, 4), "for the one node that has it");
    take(1, "step-1", 1, 2);
    cr_expect(entries_is_whole(entries, "step-1", both, 2, 4));
    cr_expect_not(entries_is_whole(entries, "step-2", both, 2, 4));
    cr_expect_not(entries_is_whole(entries, "step-1", both, 0, 4), "without a node there is nothing");
}

Test(entries, the_newest_is_the_last_that_all_were_told_of)
{
    both_have("step-1");
    both_have("step-2");
    take(0, "step-3", 1, 0);
    cr_expect_str_eq(entries_newest(entries, both, 2, 4), "step-2");
    take(1, "step-3", 1, 2);
    cr_expect_str_eq(entries_newest(entries, both, 2, 4), "step-2", "the small files may be missing");
    entries_mark_complete(entries, "step-3");
    cr_expect_str_eq(entries_newest(entries, both, 2, 4), "step-3");
}

Test(entries, another_seat_or_size_of_the_world_has_none)
{
    const struct entry_seat swapped[] = { { 0, 2 }, { 1, 0 } };

    both_have("step-1");
    cr_expect_null(entries_newest(entries, swapped, 2, 4));
    cr_expect_null(entries_newest(entries, both, 2, 6));
    cr_expect_not_null(entries_newest(entries, both, 2, 4));
}

Test(entries, a_name_that_is_used_again_is_whole_when_all_have_used_it_again)
{
    both_have("latest");
    take(0, "latest", 2, 0);
    cr_expect_null(entries_newest(entries, both, 2, 4), "node 0 has the new one, node 1 the old one");
    take(1, "latest", 2, 2);
    cr_expect(entries_is_whole(entries, "latest", both, 2, 4));
}

Test(entries, another_agent_of_that_number_has_nothing)
{
    both_have("step-1");
    entries_forget(entries, 1);
    cr_expect_null(entries_newest(entries, both, 2, 4));
    cr_expect_str_eq(entries_newest(entries, both, 1, 4), "step-1");
}

Test(entries, the_oldest_name_makes_room)
{
    char name[16];

    for (int i = 0; i <= ENTRIES_MAX; i++) {
        snprintf(name, sizeof name, "step-%d", i);
        both_have(name);
    }
    cr_expect_not(entries_is_whole(entries, "step-0", both, 2, 4));
    cr_expect(entries_is_whole(entries, "step-1", both, 2, 4));
    cr_expect_str_eq(entries_newest(entries, both, 2, 4), name);
}

Test(entries, a_name_that_could_leave_the_directory_is_none)
{
    char longest[ENTRY_NAME_BYTES + 1];

    memset(longest, 'x', sizeof longest - 1);
    longest[ENTRY_NAME_BYTES] = '\0';
    cr_expect_not(entry_name_is_valid(longest));
    longest[ENTRY_NAME_BYTES - 1] = '\0';
    cr_expect(entry_name_is_valid(longest));
    cr_expect_not(entry_name_is_valid(""));
    cr_expect_not(entry_name_is_valid(".."));
    cr_expect_not(entry_name_is_valid(".hidden"));
    cr_expect_not(entry_name_is_valid("a/b"));
    cr_expect_not(take(0, "../x", 1, 0));
}
