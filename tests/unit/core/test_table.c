#include "shard_runtime/core/table.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

struct item {
    int key;
    struct table_entry link;
    bool seen;
};

enum { MANY = 100000 };

static struct table table;
static struct item items[MANY];

static void fini(void)
{
    table_empty(&table);
}

TestSuite(table, .fini = fini);

/* Numbers that are spread, as a hash function leaves them. */
static uint64_t spread(int key)
{
    return (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 7;
}

/* The item with this key. Adds to *n_looked for each entry that was looked at. */
static struct item *find(int key, uint64_t hash, int *n_looked)
{
    for (struct table_entry *at = table_first(&table, hash); at != NULL; at = table_next(at)) {
        struct item *item = TABLE_OWNER(at, struct item, link);

        ++*n_looked;
        if (item->key == key)
            return item;
    }
    return NULL;
}

Test(table, an_empty_table_finds_nothing_and_may_be_emptied)
{
    cr_assert_null(table_first(&table, 7));
    cr_assert_null(table_empty(&table));
}

Test(table, many_entries_are_found_each_after_one_look_and_removed_ones_are_not)
{
    int n_looked = 0, n_left = 0;

    for (int i = 0; i < MANY; i++) {
        items[i].key = i;
        cr_assert(table_add(&table, &items[i].link, spread(i)));
    }
    for (int i = 0; i < MANY; i++)
        cr_assert(find(i, spread(i), &n_looked) == &items[i], "%d", i);
    cr_expect(le(int, n_looked, MANY + MANY / 100), "each is alone with its hash");
    cr_expect(le(sz, table.n_entries, table.n_slots), "the slots grow with the entries");

    for (int i = 0; i < MANY; i += 3)
        table_remove(&table, &items[i].link);
    for (int i = 0; i < MANY; i++)
        cr_assert(find(i, spread(i), &n_looked) == (i % 3 == 0 ? NULL : &items[i]), "%d", i);
    for (struct table_entry *at = table_empty(&table); at != NULL; at = at->next) {
        struct item *item = TABLE_OWNER(at, struct item, link);

        cr_assert(item->key % 3 != 0 && !item->seen);
        item->seen = true;
        n_left++;
    }
    cr_assert(eq(int, n_left, MANY - (MANY + 2) / 3));
    cr_assert_null(table_first(&table, spread(1)));
}

Test(table, entries_with_one_hash_or_one_key_are_kept_apart)
{
    int n_looked = 0, n = 0;

    for (int i = 0; i < 200; i++) {
        items[i].key = i / 2;
        cr_assert(table_add(&table, &items[i].link, 42));
    }
    cr_assert(table_add(&table, &items[200].link, 42 + 64), "another hash in the same slot");
    for (struct table_entry *at = table_first(&table, 42); at != NULL; at = table_next(at))
        n++;
    cr_assert(eq(int, n, 200));
    table_remove(&table, &items[20].link);
    cr_assert(find(10, 42, &n_looked) == &items[21], "its twin stays");
}
