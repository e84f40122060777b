/* The slots of a snapshot segment: which is filled, and which fillings count, whenever the filler dies. */
#include "shard_runtime/shardfile/snapshot.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT_BYTES = 8192, SEGMENT_BYTES = FSDP_SNAPSHOT_HEAD_BYTES + FSDP_SNAPSHOT_SLOTS * SLOT_BYTES };

static const struct snapshot_owner owner = { .rank = 3, .world_size = 4, .layout_hash = 77 };
static const struct snapshot_parts parts = { .size_bytes = 5000,
                                             .elsewhere_bytes = 1000,
                                             .manifest_bytes = 500 };
static struct fsdp_snapshot_head head;

static void lay_out(void)
{
    memset(&head, 0, sizeof head);
    cr_assert_eq(snapshot_segment_bytes(SLOT_BYTES), SEGMENT_BYTES);
    snapshot_lay_out(&head, &owner, SLOT_BYTES);
}

/* Fills the slot that is due. Returns its number. */
static int fill(int64_t step, uint32_t generation, int busy)
{
    const int slot = snapshot_choose(&head, busy);

    snapshot_begin(&head, slot);
    snapshot_complete(&head, slot, step, generation, &parts);
    return slot;
}

static struct snapshot_list held(void)
{
    return snapshot_list_of(&head, owner.rank, owner.world_size);
}

TestSuite(snapshot, .init = lay_out);

Test(snapshot, an_empty_segment_holds_nothing)
{
    const struct fsdp_snapshot_head never = { .magic = 0 };

    cr_expect_eq(held().held[0].step, -1);
    cr_expect_eq(snapshot_list_of(&never, 3, 4).held[0].step, -1);
    cr_expect_eq(snapshot_find(&head, 0), -1);
    cr_expect_eq(snapshot_find(&head, -1), -1);
}

Test(snapshot, the_slots_take_turns_and_hold_the_two_newest_steps)
{
    const int first = fill(10, 0, -1), second = fill(20, 0, -1);

    cr_expect_neq(first, second);
    cr_expect_eq(fill(30, 1, -1), first);
    cr_expect_eq(held().held[0].step, 30);
    cr_expect_eq(held().held[0].generation, 1);
    cr_expect_eq(held().held[1].step, 20);
    cr_expect_eq(snapshot_find(&head, 20), second);
    cr_expect_eq(snapshot_find(&head, 10), -1);
}

Test(snapshot, a_slot_that_was_begun_does_not_count_and_is_the_next_to_be_filled)
{
    const int first = fill(10, 0, -1), second = fill(20, 0, -1);

    snapshot_begin(&head, first); /* here the filler is killed */

    cr_expect_eq(held().held[0].step, 20);
    cr_expect_eq(held().held[1].step, -1);
    cr_expect_eq(snapshot_choose(&head, -1), first, "the older one, and not the only one that counts");
    cr_expect_eq(snapshot_find(&head, 20), second);
}

Test(snapshot, a_slot_on_its_way_to_the_disk_is_not_filled)
{
    const int busy = fill(10, 0, -1);

    for (int64_t step = 11; step < 20; step++)
        cr_expect_neq(fill(step, 0, busy), busy);
    cr_expect_eq(held().held[0].step, 19);
    cr_expect_eq(held().held[1].step, 10);
}

Test(snapshot, a_filling_is_known_by_its_number)
{
    const int slot = fill(10, 0, -1);
    const uint64_t number = head.slots[slot].number;

    cr_expect(snapshot_is(&head, slot, number, SEGMENT_BYTES));
    cr_expect_not(snapshot_is(&head, slot, number + 1, SEGMENT_BYTES));
    cr_expect_not(snapshot_is(&head, slot, number, SEGMENT_BYTES - SLOT_BYTES - 1),
                  "the segment is cut short");
    cr_expect_not(snapshot_is(&head, -1, number, SEGMENT_BYTES));
    cr_expect_not(snapshot_is(&head, FSDP_SNAPSHOT_SLOTS, number, SEGMENT_BYTES));
    snapshot_begin(&head, slot);
    cr_expect_not(snapshot_is(&head, slot, number, SEGMENT_BYTES));
    snapshot_complete(&head, slot, 10, 0, &parts);
    cr_expect_not(snapshot_is(&head, slot, number, SEGMENT_BYTES), "the same step, filled again");
}

/* The head is the worker's, and may hold anything. */
Test(snapshot, sizes_that_leave_the_slot_are_refused)
{
    const int slot = fill(10, 0, -1);
    const uint64_t number = head.slots[slot].number;
    const struct fsdp_snapshot_slot sound = head.slots[slot];

    head.slots[slot].elsewhere_bytes = UINT64_MAX;
    cr_expect_not(snapshot_is(&head, slot, number, SEGMENT_BYTES));
    head.slots[slot].elsewhere_bytes = SLOT_BYTES;
    cr_expect_not(snapshot_is(&head, slot, number, SEGMENT_BYTES));
    head.slots[slot].elsewhere_bytes = sound.elsewhere_bytes;
    head.slots[slot].offset = UINT64_MAX - 100;
    cr_expect_not(snapshot_is(&head, slot, number, SEGMENT_BYTES));
    head.slots[slot].offset = 0;
    cr_expect_not(snapshot_is(&head, slot, number, SEGMENT_BYTES), "it would overwrite the head");
    head.slots[slot].offset = sound.offset;
    cr_expect(snapshot_is(&head, slot, number, SEGMENT_BYTES));
}

Test(snapshot, another_owner_finds_nothing)
{
    const struct snapshot_owner others[] = { { 2, 4, 77 }, { 3, 5, 77 }, { 3, 4, 78 } };

    fill(10, 0, -1);
    cr_expect(snapshot_fits(&head, &owner, SLOT_BYTES, SEGMENT_BYTES));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_expect_not(snapshot_fits(&head, &others[i], SLOT_BYTES, SEGMENT_BYTES), "%zu", i);
    cr_expect_not(snapshot_fits(&head, &owner, SLOT_BYTES + 1, SEGMENT_BYTES));
    cr_expect_not(snapshot_fits(&head, &owner, SLOT_BYTES, SEGMENT_BYTES - 1));
    cr_expect_eq(snapshot_list_of(&head, 2, 4).held[0].step, -1);
    cr_expect_eq(snapshot_list_of(&head, 3, 8).held[0].step, -1);
}

Test(snapshot, going_back_forgets_what_came_after)
{
    fill(10, 0, -1);
    fill(11, 0, -1);
    snapshot_keep_only(&head, (struct snapshot_held){ 10, 0 });
    cr_expect_eq(held().held[0].step, 10);
    cr_expect_eq(held().held[1].step, -1);
    fill(11, 1, -1);
    cr_expect_eq(held().held[0].step, 11);
    cr_expect_eq(held().held[0].generation, 1);
    cr_expect_eq(held().held[1].step, 10, "the only one that counted was not overwritten");
    snapshot_keep_only(&head, (struct snapshot_held){ 11, 0 });
    cr_expect_eq(held().held[0].step, -1, "the step of another generation is another history");
    fill(12, 1, -1);
    snapshot_keep_only(&head, (struct snapshot_held){ .step = -1 });
    cr_expect_eq(held().held[0].step, -1);
}

Test(snapshot, what_is_filled_is_copied_once_in_its_order_and_the_next_filling_waits)
{
    int first, second;

    fill(9, 0, -1);
    cr_expect(snapshot_is_copied(&head), "nothing is copied: no filling waits");
    snapshot_set_copying(&head, true);
    cr_expect_not(snapshot_is_copied(&head), "the other node has none yet");
    first = fill(10, 0, -1);
    second = snapshot_uncopied(&head);
    cr_expect_neq(second, first, "the older one comes first");
    snapshot_mark_copied(&head, second, head.slots[second].number);
    cr_expect_eq(snapshot_uncopied(&head), first);
    snapshot_mark_copied(&head, first, head.slots[first].number - 1);
    cr_expect_not(snapshot_is_copied(&head), "of an earlier filling");
    snapshot_mark_copied(&head, first, head.slots[first].number);
    cr_expect(snapshot_is_copied(&head));
    fill(11, 0, -1);
    cr_expect_not(snapshot_is_copied(&head));
    snapshot_set_copying(&head, false);
    cr_expect(snapshot_is_copied(&head));
}

Test(snapshot, a_filling_of_another_segment_is_the_same_one)
{
    struct fsdp_snapshot_head other = { 0 };
    struct snapshot_filling filling;
    const int slot = fill(10, 3, -1);

    filling = snapshot_filling_of(&head, slot);
    filling.checksum[0] = 5;
    snapshot_lay_out(&other, &owner, SLOT_BYTES);
    snapshot_begin(&other, slot);
    snapshot_settle(&other, slot, &filling);
    cr_expect(snapshot_is(&other, slot, head.slots[slot].number, SEGMENT_BYTES));
    cr_expect_eq(snapshot_filling_of(&other, slot).checksum[0], 5);
    cr_expect(snapshot_list_has(&(struct snapshot_list){ { { 10, 3 }, { -1, 0 } } },
                                snapshot_list_of(&other, owner.rank, owner.world_size).held[0]));
}

Test(snapshot, a_size_that_does_not_fit_64_bits_is_none)
{
    cr_expect_eq(snapshot_segment_bytes(UINT64_MAX), 0);
    cr_expect_eq(snapshot_segment_bytes(UINT64_MAX / 2), 0);
    cr_expect_eq(snapshot_segment_bytes(INT64_MAX / 2), 0);
}

Test(snapshot, both_hold_only_the_same_step_of_the_same_history)
{
    const struct snapshot_list a = { { { 21, 0 }, { 20, 0 } } }, b = { { { 20, 0 }, { -1, 0 } } },
                               c = { { { 21, 1 }, { 20, 1 } } }, none = snapshot_list_empty();

    cr_expect_eq(snapshot_list_both(&a, &b).held[0].step, 20);
    cr_expect_eq(snapshot_list_both(&a, &b).held[1].step, -1);
    cr_expect_eq(snapshot_list_both(&a, &a).held[1].step, 20);
    cr_expect_eq(snapshot_list_both(&a, &c).held[0].step, -1,
                 "what another generation saved is another history");
    cr_expect_eq(snapshot_list_both(&a, &none).held[0].step, -1);
}

/*
 * Two ranks, as a step holds them together: no rank fills a slot again before the other has filled its own.
 * One is killed at any moment. There is always a step that both hold, once both had one.
 */
Test(snapshot, two_ranks_always_have_a_step_in_common)
{
    struct fsdp_snapshot_head heads[2];
    uint64_t random = 1;

    for (int run = 0; run < 2000; run++) {
        int busy = -1;

        for (int r = 0; r < 2; r++) {
            memset(&heads[r], 0, sizeof heads[r]);
            snapshot_lay_out(&heads[r], &(struct snapshot_owner){ (uint32_t)r, 2, 5 }, SLOT_BYTES);
        }
        random = random * 6364136223846793005u + 1442695040888963407u;
        for (int64_t step = 1; step <= (int64_t)(random >> 60) + 2; step++) {
            const bool last = step == (int64_t)(random >> 60) + 2;
            const int done =
                last ? (int)(random >> 50 & 3) : 4; /* of 4 stores of both ranks, those before the kill */

            for (int k = 0; k < 4 && k < done; k++) {
                const int rank = (int)(random >> 40 & 1) ^ (k / 2),
                          slot = snapshot_choose(&heads[rank], busy);

                if (k % 2 == 0)
                    snapshot_begin(&heads[rank], slot);
                else
                    snapshot_complete(&heads[rank], slot, step, 0, &parts);
            }
            if (last) {
                const struct snapshot_list a = snapshot_list_of(&heads[0], 0, 2),
                                           b = snapshot_list_of(&heads[1], 1, 2);

                cr_assert_eq(snapshot_list_both(&a, &b).held[0].step, step - 1,
                             "run %d, step %lld, %d stores", run, (long long)step, done);
            }
        }
    }
}
